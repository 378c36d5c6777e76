# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring the clocks of all GPUs to the request, and keep a record, because the driver does not tell who set them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import (
    ClockChange,
    ClockEntry,
    ClocksRequest,
    Setting,
    Smi,
)

# The record of clocks that were set since the last boot.


PATH = "/run/hpcai/gpu_clocks.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PATIENCE = 2.0


class Record:
    """The record of all GPUs, by UUID. Hooks of jobs may write it at the same time."""

    def __init__(self, path: str = PATH, boot_id: str = BOOT_ID) -> None:
        self.path = Path(path)
        try:
            self.boot = Path(boot_id).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            self.boot = ""

    def load(self, driver: str) -> dict[str, ClockEntry]:
        """Return the entries of this boot and driver; none when the file is absent, older or no record."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if (content["boot"], content["driver"]) != (self.boot, driver):
                return {}
            return {uuid: _entry(entry) for uuid, entry in content["gpus"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def save(self, driver: str, changes: t.Mapping[str, ClockEntry]) -> None:
        """Put entries in place of the old ones; an empty entry is forgotten."""
        if not changes:
            return
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with self._alone():
            before = self.load(driver)
            entries = {uuid: entry for uuid, entry in {**before, **changes}.items() if entry != ClockEntry()}
            if entries != before or not self.path.exists():
                self._write({"boot": self.boot, "driver": driver, "gpus": {u: _plain(e) for u, e in entries.items()}})

    def _write(self, content: dict[str, t.Any]) -> None:
        replace(self.path, json.dumps(content, indent=1, sort_keys=True), lasting=False)

    @contextlib.contextmanager
    def _alone(self) -> t.Iterator[None]:
        """Hold the lock; after two seconds go on without it, for a hook must not hang."""
        until = time.monotonic() + _PATIENCE
        with self.path.with_name(f".{self.path.name}.lock").open("w", encoding="ascii") as handle:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > until:
                        break
                    time.sleep(0.02)
            yield


def _plain(entry: ClockEntry) -> dict[str, t.Any]:
    return {name: value._asdict() if isinstance(value, Setting) else value for name, value in entry._asdict().items()}


def _entry(content: t.Mapping[str, t.Any]) -> ClockEntry:
    settings = {name: Setting(**content[name]) if content.get(name) else None for name in ("graphics", "memory")}
    return ClockEntry(settings["graphics"], settings["memory"], bool(content.get("persistence")))


# Set the clocks of all GPUs, and read them again.


_POLL = 0.25


def apply(
    smi: Smi,
    record: Record,
    request: ClocksRequest,
    only: t.Collection[int] | None = None,
    settle: float = 3.0,
    dry: bool = False,
) -> list[ClockChange]:
    """Set the clocks and return each GPU's change; ``only`` are indexes. Raises SmiError without a readable GPU."""
    gpus = [gpu for gpu in smi.query() if only is None or gpu.index in only]
    driver = gpus[0].driver if gpus else ""
    remembered = record.load(driver)
    every = [ClockChange(gpu, remembered.get(gpu.uuid), request) for gpu in gpus]
    needed = [change for change in every if change.needed]
    if dry or not needed:
        return every
    for change in needed:
        change.send(smi)
    _see(smi, needed, settle)
    fallen = [change for change in needed if change.fall_back(smi)]
    if fallen:
        _see(smi, needed, settle)
    for change in needed:
        change.finish()
    saved = {
        change.gpu.uuid: change.entry
        for change in needed
        if change.entry != remembered.get(change.gpu.uuid, ClockEntry())
    }
    try:
        record.save(driver, saved)
    except OSError as exc:
        smi.problem = f"what was set cannot be kept in {record.path}: {exc.strerror}"
    return every


def _see(smi: Smi, changes: t.Sequence[ClockChange], settle: float) -> None:
    """Read the clocks until they show what was set, for at most ``settle`` seconds: a clock needs a moment to move."""
    until = time.monotonic() + settle
    while True:
        gpus = {gpu.uuid: gpu for gpu in smi.query()}
        for change in changes:
            change.gpu = gpus.get(change.gpu.uuid, change.gpu)
        if all(change.settled() for change in changes) or time.monotonic() >= until:
            return
        time.sleep(_POLL)
