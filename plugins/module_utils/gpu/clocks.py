# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU clocks: what each GPU has, what is requested, what is left to do, and the nvidia-smi calls that do it."""

from __future__ import annotations

import re
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import CsvRow, parse_csv

# Observed clocks, the request, and which clocks still have to be set. Pure.


# One step of the graphics clock; a locked memory clock reads some MHz less than was asked for (3199 for 3201).
TOLERANCE = 15
IDLE = 0x1
# Power cap, hardware slowdown, the thermal ones, power brake: a clock below its lock has a reason then.
LIMITS = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
DOMAINS = ("memory", "graphics")  # in the order in which they are set


class ClockPair(t.NamedTuple):
    """Clocks in MHz. None is unknown, or in a request: leave it."""

    graphics: int | None = None
    memory: int | None = None

    def of(self, domain: str) -> int | None:
        return self.memory if domain == "memory" else self.graphics


@dataclass(frozen=True)
class ClockedGpu:
    """One GPU as nvidia-smi shows it now."""

    index: int
    uuid: str
    bus_id: str
    name: str
    driver: str
    persistence: bool | None
    maximum: ClockPair
    current: ClockPair
    application: ClockPair
    default: ClockPair
    reasons: int | None = None

    @property
    def idle(self) -> bool:
        return bool((self.reasons or 0) & IDLE)

    @property
    def limited(self) -> bool:
        return bool((self.reasons or 0) & LIMITS)


class Setting(t.NamedTuple):
    """How a clock was set: ``by`` is locked, application or nothing; ``seen`` is what it read afterwards."""

    by: str
    value: int
    seen: int | None = None
    parked: bool = False


class ClockEntry(t.NamedTuple):
    """The record of one GPU; ``persistence`` says that the mode was off before it was switched on here."""

    graphics: Setting | None = None
    memory: Setting | None = None
    persistence: bool = False

    def of(self, domain: str) -> Setting | None:
        return self.memory if domain == "memory" else self.graphics

    def having(self, domain: str, setting: Setting | None) -> ClockEntry:
        return self._replace(memory=setting) if domain == "memory" else self._replace(graphics=setting)


class ClocksRequest(t.NamedTuple):
    """The request. ``persistence`` None means on where clocks are set, and back to the mode before after a reset."""

    state: str = "maximum"
    graphics: int | None = None
    memory: int | None = None
    persistence: bool | None = None


def near(value: int | None, target: int | None) -> bool:
    return value is not None and target is not None and abs(value - target) <= TOLERANCE


def target_clocks(gpu: ClockedGpu, request: ClocksRequest) -> ClockPair:
    """Return the clocks that a GPU shall have; with reset there are none."""
    if request.state == "maximum":
        return gpu.maximum
    return ClockPair(request.graphics, request.memory) if request.state == "locked" else ClockPair()


def impossible(gpu: ClockedGpu, target: ClockPair) -> str:
    """Return which clock is above the GPU's maximum, where the driver would accept the request and clip it."""
    for domain in DOMAINS:
        value, top = target.of(domain), gpu.maximum.of(domain)
        if value is None or top is None or value <= top:
            continue
        other_clock = gpu.maximum.graphics if domain == "memory" else gpu.maximum.memory
        hint = (
            f"; {value} MHz is its {'graphics' if domain == 'memory' else 'memory'} clock"
            if value == other_clock
            else ""
        )
        return f"{domain} clock {value} MHz is above the maximum of {top} MHz{hint}"
    return ""


def holds(gpu: ClockedGpu, domain: str, setting: Setting | None) -> bool:
    """Return whether the GPU still agrees with the recorded setting."""
    if setting is None:
        return False
    if setting.by == "application":
        return gpu.application.of(domain) in {setting.value, setting.seen} - {None}
    current = gpu.current.of(domain)
    return (
        setting.by == "nothing"
        or gpu.limited
        or current is None
        or near(current, setting.value)
        or near(current, setting.seen)
    )


def pending(gpu: ClockedGpu, target: ClockPair, entry: ClockEntry | None) -> list[str]:
    """Return the clocks that have to be set."""
    domains = []
    for domain in DOMAINS:
        value, setting = target.of(domain), (entry or ClockEntry()).of(domain)
        if value is not None and not (setting and setting.value == value and holds(gpu, domain, setting)):
            domains.append(domain)
    return domains


def trusted_entry(gpu: ClockedGpu, entry: ClockEntry | None) -> ClockEntry:
    """Return the record without settings that the GPU contradicts."""
    trusted = entry or ClockEntry()
    for domain in DOMAINS:
        if not holds(gpu, domain, trusted.of(domain)):
            trusted = trusted.having(domain, None)
    return trusted


def resets(gpu: ClockedGpu, entry: ClockEntry | None) -> list[str]:
    """Return the options that bring a GPU back to where its driver starts.

    A GPU that idles at its highest graphics clock was locked by somebody else; the memory clock may idle at any value.
    """
    remembered = entry or ClockEntry()
    locked = [domain for domain in DOMAINS if _by(remembered, domain) == "locked"]
    if not locked and gpu.idle and near(gpu.current.graphics, gpu.maximum.graphics):
        locked = list(DOMAINS)
    options = [{"memory": "-rmc", "graphics": "-rgc"}[domain] for domain in locked]
    readable = None not in (*gpu.application, *gpu.default)
    return [*options, "-rac"] if readable and gpu.application != gpu.default else options


def _by(entry: ClockEntry, domain: str) -> str:
    setting = entry.of(domain)
    return setting.by if setting else ""


def switch(gpu: ClockedGpu, request: ClocksRequest, entry: ClockEntry | None) -> bool | None:
    """Return the new persistence mode, None to leave it; a GPU without such a mode is left."""
    if gpu.persistence is None:
        return None
    if request.persistence is False or (request.state == "reset" and request.persistence is None):
        return False if request.state == "reset" and gpu.persistence and (entry or ClockEntry()).persistence else None
    return None if gpu.persistence else True


def reached(gpu: ClockedGpu, domain: str, setting: Setting | None) -> int | None:
    """Return the clock that a setting led to; None when an idle GPU does not show it."""
    if setting is None or setting.by == "application":
        return gpu.application.of(domain) if setting else gpu.current.of(domain)
    value = gpu.current.of(domain)
    if near(value, setting.value):
        return value
    unknown = setting.by == "nothing" or (setting.parked and gpu.idle)
    return None if unknown else value


def snapshot(gpu: ClockedGpu, entry: ClockEntry) -> dict[str, t.Any]:
    """Return what is set on a GPU, for before, after and diff; ``entry`` agrees with the GPU (see trusted_entry)."""
    locked = {d: s.value for d in DOMAINS for s in [entry.of(d)] if s and s.by == "locked"}
    return {
        "persistence": gpu.persistence,
        "locked_graphics": locked.get("graphics"),
        "locked_memory": locked.get("memory"),
        "application_graphics": gpu.application.graphics,
        "application_memory": gpu.application.memory,
    }


# Calls of nvidia-smi that read and change clocks, each with a time limit.


FIELDS = (
    "index uuid pci.bus_id name driver_version persistence_mode"
    " clocks.max.graphics clocks.max.memory clocks.current.graphics clocks.current.memory"
    " clocks.applications.graphics clocks.applications.memory"
    " clocks.default_applications.graphics clocks.default_applications.memory clocks_event_reasons.active"
).split()
# The name before R535. Other names that a driver does not know are left out: their values are unknown.
_FORMER = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
_NEEDED = ("index", "uuid", "pci.bus_id")
# What every GPU tells that answers; application clocks and reasons are errors on some that do.
_VITAL = tuple(f"clocks.{kind}.{domain}" for kind in ("max", "current") for domain in ClockPair._fields)
_INVALID = re.compile(r'Field "([^"]+)" is not a valid field to query')
# nvidia-smi calls what a GPU cannot do a warning and ends with 0; before R415 there is no locking at all.
_UNSUPPORTED = re.compile(
    r"not supported for GPU|is not supported|Invalid combination of input arguments", re.IGNORECASE
)
_DENIED = re.compile(r"permission", re.IGNORECASE)
NO_DEVICES = "No devices were found"


class SmiError(RuntimeError):
    """nvidia-smi did not show the GPUs; the text is fit for the user."""

    def __init__(self, text: str, no_gpu: bool = False) -> None:
        super().__init__(text)
        self.no_gpu = no_gpu


class SmiAnswer(t.NamedTuple):
    """The result of a change: ``kind`` is done, unsupported, denied or failed."""

    kind: str
    text: str = ""


class Smi:
    """nvidia-smi with a time limit for each call and, with ``budget``, one for all of them together."""

    def __init__(self, program: str, timeout: float, budget: float | None = None) -> None:
        self.program = program
        self.timeout = timeout
        self.until = None if budget is None else time.monotonic() + budget
        self.commands: list[list[str]] = []
        self.problem = ""
        self.fields = list(FIELDS)

    def query(self) -> list[ClockedGpu]:
        """Return all GPUs that answer; one that does not is missing and named in ``problem``."""
        while True:
            outcome = self._run([f"--query-gpu={','.join(self.fields)}", "--format=csv,noheader,nounits"])
            refused = _INVALID.search(f"{outcome.out}\n{outcome.err}")
            if not refused or not self._without(refused.group(1)):
                break
        log = parse_csv(outcome.out, self.fields)
        rows = [(row, row.fault(_NEEDED, _VITAL)) for run in log.runs for row in run.rows]
        gpus = [_gpu(row) for row, fault in rows if not fault]
        silent = [
            f"GPU {_label(row, position)} does not answer: {fault}"
            for position, (row, fault) in enumerate(rows)
            if fault
        ]
        cause = log.cause or nvidia_smi_values.message(outcome.err) or nvidia_smi_values.status(outcome.rc)
        self.problem = "; ".join(silent) or (cause.text if cause else outcome.problem)
        if not gpus or any(run.rejected for run in log.runs):
            answer = self.problem or f"it printed {outcome.out.strip()[-200:]!r}"
            raise SmiError(f"{self.program} does not show the GPUs: {answer}", NO_DEVICES in answer)
        return gpus

    def _without(self, name: str) -> bool:
        """Drop a field that this driver does not know, or use its former name; false when the field is needed."""
        if name not in self.fields or name in _NEEDED:
            return False
        position = self.fields.index(name)
        self.fields[position : position + 1] = [_FORMER[name]] if name in _FORMER else []
        return True

    def change(self, gpu: ClockedGpu, *options: str) -> SmiAnswer:
        """Change one GPU, named by its place on the bus: indexes move when a GPU is lost."""
        arguments = ["-i", gpu.bus_id, *options]
        self.commands.append([self.program, *arguments])
        outcome = self._run(arguments)
        text = f"{outcome.out}\n{outcome.err}"
        if outcome.rc is None:
            return SmiAnswer("failed", outcome.problem)
        if outcome.rc == 3 or _UNSUPPORTED.search(text):
            return SmiAnswer("unsupported", _message(text, _UNSUPPORTED) or nvidia_smi_values.STATUS[3][1])
        if outcome.rc == 4 or _DENIED.search(text):
            return SmiAnswer("denied", f"{_message(text, _DENIED) or 'no permission'}: this needs root")
        status = nvidia_smi_values.status(outcome.rc)
        return SmiAnswer("done") if outcome.rc == 0 else SmiAnswer("failed", status.text if status else outcome.problem)

    def _run(self, arguments: t.Sequence[str]) -> _process.Outcome:
        limit = self.timeout
        if self.until is not None:
            limit = min(limit, self.until - time.monotonic())
            if limit <= 0:
                return _process.Outcome(None, "", f"{self.program}: the time for all of it is over", 0.0)
        return _process.run([self.program, *arguments], limit)


def _message(text: str, pattern: t.Pattern[str]) -> str:
    return next((line.strip() for line in text.splitlines() if pattern.search(line)), "")


def _label(row: CsvRow, position: int) -> str:
    """Return what a GPU is called: its index and its place on the bus, as far as they are shown."""
    shown = [row.values.get(name) for name in ("index", "pci.bus_id")]
    return " at ".join(filter(None, shown)) or f"in row {position + 1}"


def _gpu(row: CsvRow) -> ClockedGpu:
    def clocks(kind: str) -> ClockPair:
        return ClockPair(*(_integer(row.number(f"clocks.{kind}.{domain}")) for domain in ClockPair._fields))

    def text(name: str) -> str:
        return row.values.get(name) or ""

    reasons = next((row.values[name] for name in (*_FORMER, *_FORMER.values()) if row.values.get(name)), None)
    return ClockedGpu(
        _integer(row.number("index")) or 0,
        text("uuid"),
        text("pci.bus_id"),
        text("name"),
        text("driver_version"),
        nvidia_smi_values.flag(row.values.get("persistence_mode")),
        clocks("max"),
        clocks("current"),
        clocks("applications"),
        clocks("default_applications"),
        nvidia_smi_values.mask(reasons),
    )


def _integer(value: float | None) -> int | None:
    return None if value is None else int(value)


# The change of one GPU: plan, apply, read again.


_LOCK = {"memory": "-lmc", "graphics": "-lgc"}
_UNLOCK = {"memory": "-rmc", "graphics": "-rgc"}


class ClockChange:
    """The change of one GPU's clocks: its state before, what is pending, the problems, and its record afterwards."""

    def __init__(self, gpu: ClockedGpu, entry: ClockEntry | None, request: ClocksRequest) -> None:
        self.first = self.gpu = gpu
        self.entry = trusted_entry(gpu, entry)
        self.request = request
        self.kinds: set[str] = set()
        self.refused: set[str] = set()
        self.fresh: set[str] = set()
        self.target = target_clocks(gpu, request)
        problem = impossible(gpu, self.target)
        self.problems = [problem] if problem else []
        self.pending = [] if problem else pending(gpu, self.target, self.entry)
        self.resets = resets(gpu, self.entry) if request.state == "reset" else []
        self.persistence = switch(gpu, request, self.entry)
        self.before = self.snapshot()

    @property
    def needed(self) -> bool:
        return bool(self.pending or self.resets or self.persistence is not None)

    def method(self, domain: str) -> str:
        """Return how a clock is set: locked, application, nothing (it cannot be) or empty (it is not)."""
        setting = self.entry.of(domain)
        return setting.by if setting else ""

    def snapshot(self) -> dict[str, t.Any]:
        clocks = snapshot(self.gpu, self.entry)
        if self.request.state == "reset" and "-rgc" in resets(self.gpu, self.entry):
            clocks["locked_graphics"] = clocks["locked_graphics"] or self.gpu.current.graphics
        return clocks

    def predicted(self) -> dict[str, t.Any]:
        """Return the state that check mode promises, in which the GPU accepts every change."""
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
        """Send the pending changes to the GPU."""
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

    def _forgotten(self, option: str) -> ClockEntry:
        by = "application" if option == "-rac" else "locked"
        entry = self.entry
        for domain in DOMAINS:
            setting = entry.of(domain)
            if setting and setting.by == by and option in ("-rac", _UNLOCK[domain]):
                entry = entry.having(domain, None)
        return entry

    def _tell(self, smi: Smi, *options: str) -> str:
        answer = smi.change(self.gpu, *options)
        self.kinds.add(answer.kind)
        if answer.kind in ("denied", "failed"):
            self.problems.append(f"{' '.join(options)}: {answer.text}")
        return answer.kind

    def settled(self) -> bool:
        """Return whether there is nothing to wait for."""
        if self.resets:
            return not (self.gpu.idle and near(self.gpu.current.graphics, self.gpu.maximum.graphics))
        return self.gpu.limited or not self.unseen()

    def unseen(self) -> set[str]:
        """Return the clocks that were locked just now and do not show it."""
        return {d for d in self.fresh if not near(self.gpu.current.of(d), self.target.of(d))}

    def parked(self, domain: str) -> bool:
        """Return whether an idle GPU stayed where it was: then its clock says nothing about the lock."""
        return self.gpu.idle and near(self.gpu.current.of(domain), self.first.current.of(domain))

    def fall_back(self, smi: Smi) -> bool:
        """Use application clocks for what cannot be locked, or idles on as before; true if there was such a clock."""
        domains = {d for d in self.refused if not near(self.gpu.current.of(d), self.target.of(d))}
        if None not in self.gpu.application:
            domains |= {domain for domain in self.unseen() if self.parked(domain)}
        for domain in self.refused - domains:
            self.entry = self.entry.having(domain, Setting("nothing", self.target.of(domain) or 0))
        if not domains:
            return False
        request = ClockPair(*(self.target.of(d) or self.gpu.application.of(d) for d in ClockPair._fields))
        if None in self.gpu.application or None in request:
            kind = "unsupported"
        elif request == self.gpu.application:
            kind = "done"
        else:
            kind = self._tell(smi, "-ac", f"{request.memory},{request.graphics}")
        for domain in domains:
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
        """Record what the clocks read now, so that the next run sees whether somebody changed them."""
        for domain in DOMAINS:
            setting = self.entry.of(domain)
            if setting and setting.by == "application":
                reading = self.gpu.application.of(domain)
                self.entry = self.entry.having(domain, setting._replace(seen=reading))
            elif setting and domain in self.fresh:
                reading = self.gpu.current.of(domain)
                self.entry = self.entry.having(domain, setting._replace(seen=reading, parked=self.parked(domain)))
