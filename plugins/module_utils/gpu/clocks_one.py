# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way of one GPU to the clocks that are asked for: what it was, what it is told, what came of that. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import clocks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import (
    Clocks,
    Entry,
    Gpu,
    Request,
    Setting,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_smi import Smi

_LOCK = {"memory": "-lmc", "graphics": "-lgc"}
_UNLOCK = {"memory": "-rmc", "graphics": "-rgc"}


class One:
    """The way of one GPU: what it was, what was asked of it, what came of that."""

    def __init__(self, gpu: Gpu, entry: Entry | None, request: Request) -> None:
        self.first = self.gpu = gpu
        self.entry = clocks.believed(gpu, entry)
        self.request = request
        self.kinds: set[str] = set()
        self.refused: set[str] = set()
        self.fresh: set[str] = set()
        self.target = clocks.wanted(gpu, request)
        told = clocks.impossible(gpu, self.target)
        self.problems = [told] if told else []
        self.pending = [] if told else clocks.pending(gpu, self.target, self.entry)
        self.resets = clocks.resets(gpu, self.entry) if request.state == "reset" else []
        self.persistence = clocks.switch(gpu, request, self.entry)
        self.before = self.snapshot()

    @property
    def needed(self) -> bool:
        return bool(self.pending or self.resets or self.persistence is not None)

    def method(self, domain: str) -> str:
        """Return how a clock is set: locked, application, nothing (it cannot be) or empty (it is not)."""
        setting = self.entry.of(domain)
        return setting.by if setting else ""

    def snapshot(self) -> dict[str, t.Any]:
        found = clocks.snapshot(self.gpu, self.entry)
        if self.request.state == "reset" and "-rgc" in clocks.resets(self.gpu, self.entry):
            found["locked_graphics"] = found["locked_graphics"] or self.gpu.current.graphics
        return found

    def predicted(self) -> dict[str, t.Any]:
        """Return what check mode may promise: that the GPU takes what it is told."""
        if self.persistence is None and not self.pending and not self.resets:
            return self.before
        persistence = self.gpu.persistence if self.persistence is None else self.persistence
        after = {**self.before, "persistence": persistence}
        after.update({f"locked_{domain}": self.target.of(domain) for domain in self.pending})
        if self.resets:
            default = {f"application_{name}": value for name, value in self.gpu.default._asdict().items()}
            after.update(default if "-rac" in self.resets else {}, locked_graphics=None, locked_memory=None)
        return after

    def plan(self) -> list[list[str]]:
        """Return the options that would be sent to the GPU."""
        switch = [] if self.persistence is None else [["-pm", str(int(self.persistence))]]
        return [*switch, *([option] for option in self.resets), *(self._lock(domain) for domain in self.pending)]

    def _lock(self, domain: str) -> list[str]:
        value = self.target.of(domain)
        return [_LOCK[domain], f"{value},{value}"]

    def send(self, smi: Smi) -> None:
        """Set what is missing."""
        if self.persistence is not None and self._tell(smi, "-pm", str(int(self.persistence))) == "done":
            self.entry = self.entry._replace(persistence=self.persistence)
        for option in self.resets:
            if self._tell(smi, option) == "done":
                self.entry = self._forgotten(option)
        for domain in self.pending:
            kind = self._tell(smi, *self._lock(domain))
            if kind == "done":
                self.fresh.add(domain)
                self.entry = self.entry.having(domain, Setting("locked", self.target.of(domain) or 0))
            elif kind == "unsupported":
                self.refused.add(domain)

    def _forgotten(self, option: str) -> Entry:
        by = "application" if option == "-rac" else "locked"
        kept = self.entry
        for domain in clocks.DOMAINS:
            setting = kept.of(domain)
            if setting and setting.by == by and option in ("-rac", _UNLOCK[domain]):
                kept = kept.having(domain, None)
        return kept

    def _tell(self, smi: Smi, *options: str) -> str:
        answer = smi.change(self.gpu, *options)
        self.kinds.add(answer.kind)
        if answer.kind in ("denied", "failed"):
            self.problems.append(f"{' '.join(options)}: {answer.text}")
        return answer.kind

    def settled(self) -> bool:
        """Return whether there is nothing to wait for."""
        if self.resets:
            return not (self.gpu.idle and clocks.near(self.gpu.current.graphics, self.gpu.maximum.graphics))
        return self.gpu.limited or not self.unseen()

    def unseen(self) -> set[str]:
        """Return the clocks that were locked just now and do not show it."""
        return {d for d in self.fresh if not clocks.near(self.gpu.current.of(d), self.target.of(d))}

    def parked(self, domain: str) -> bool:
        """Return whether an idle GPU stayed where it was: then its clock says nothing about the lock."""
        return self.gpu.idle and clocks.near(self.gpu.current.of(domain), self.first.current.of(domain))

    def fall_back(self, smi: Smi) -> bool:
        """Use application clocks for what cannot be locked, or idles on as before; true if the GPU was told to."""
        missing = {d for d in self.refused if not clocks.near(self.gpu.current.of(d), self.target.of(d))}
        if None not in self.gpu.application:
            missing |= {domain for domain in self.unseen() if self.parked(domain)}
        for domain in self.refused - missing:
            self.entry = self.entry.having(domain, Setting("nothing", self.target.of(domain) or 0))
        if not missing:
            return False
        asked = Clocks(*(self.target.of(d) or self.gpu.application.of(d) for d in Clocks._fields))
        if None in self.gpu.application or None in asked:
            kind = "unsupported"
        elif asked == self.gpu.application:
            kind = "done"
        else:
            kind = self._tell(smi, "-ac", f"{asked.memory},{asked.graphics}")
        for domain in missing:
            self._replaced(smi, domain, kind)
        return True

    def _replaced(self, smi: Smi, domain: str, kind: str) -> None:
        value = self.target.of(domain) or 0
        if kind == "done":
            if domain in self.fresh:
                self._tell(smi, _UNLOCK[domain])
                self.fresh.discard(domain)
            self.entry = self.entry.having(domain, Setting("application", value))
        elif kind == "unsupported" and domain in self.refused:
            self.entry = self.entry.having(domain, Setting("nothing", value))
            self.problems.append(f"this GPU lets its {domain} clock be set in no way (status 3: not supported)")

    def finish(self) -> None:
        """Remember what the clocks read now, so that the next run knows whether somebody undid it."""
        for domain in clocks.DOMAINS:
            setting = self.entry.of(domain)
            if setting and setting.by == "application":
                seen = self.gpu.application.of(domain)
                self.entry = self.entry.having(domain, setting._replace(seen=seen))
            elif setting and domain in self.fresh:
                seen = self.gpu.current.of(domain)
                self.entry = self.entry.having(domain, setting._replace(seen=seen, parked=self.parked(domain)))
