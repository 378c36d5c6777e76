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

# The file that remembers which clocks were set since the last boot, because the driver does not tell.


PATH = "/run/hpcai/gpu_clocks.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
_PATIENCE = 2.0


class Record:
    """What is remembered of all GPUs, by UUID. Jobs' hooks may write at the same time."""

    def __init__(self, path: str = PATH, boot_id: str = BOOT_ID) -> None:
        self.path = Path(path)
        try:
            self.boot = Path(boot_id).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            self.boot = ""

    def load(self, driver: str) -> dict[str, ClockEntry]:
        """Return what this boot and driver left; nothing when the file is absent, older or no record at all."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            if (found["boot"], found["driver"]) != (self.boot, driver):
                return {}
            return {uuid: _entry(item) for uuid, item in found["gpus"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def save(self, driver: str, changes: t.Mapping[str, ClockEntry]) -> None:
        """Put entries in place of the old ones; an empty entry is forgotten."""
        if not changes:
            return
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with self._alone():
            before = self.load(driver)
            kept = {uuid: entry for uuid, entry in {**before, **changes}.items() if entry != ClockEntry()}
            if kept != before or not self.path.exists():
                self._write({"boot": self.boot, "driver": driver, "gpus": {u: _plain(e) for u, e in kept.items()}})

    def _write(self, content: dict[str, t.Any]) -> None:
        replace(self.path, json.dumps(content, indent=1, sort_keys=True), lasting=False)

    @contextlib.contextmanager
    def _alone(self) -> t.Iterator[None]:
        """Wait for another writer, but no longer than it could take one: a hook must never hang."""
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


def _entry(item: t.Mapping[str, t.Any]) -> ClockEntry:
    settings = {name: Setting(**item[name]) if item.get(name) else None for name in ("graphics", "memory")}
    return ClockEntry(settings["graphics"], settings["memory"], bool(item.get("persistence")))


# Bring the clocks of all GPUs to what is asked for, and see by query what that led to.


_POLL = 0.25


def apply(
    smi: Smi,
    record: Record,
    request: ClocksRequest,
    only: t.Collection[int] | None = None,
    settle: float = 3.0,
    dry: bool = False,
) -> list[ClockChange]:
    """Return what came of the request for each GPU; ``only`` are indexes. Raises SmiError when none can be seen."""
    gpus = [gpu for gpu in smi.query() if only is None or gpu.index in only]
    driver = gpus[0].driver if gpus else ""
    remembered = record.load(driver)
    every = [ClockChange(gpu, remembered.get(gpu.uuid), request) for gpu in gpus]
    todo = [one for one in every if one.needed]
    if dry or not todo:
        return every
    for one in todo:
        one.send(smi)
    _see(smi, todo, settle)
    fallen = [one for one in todo if one.fall_back(smi)]
    if fallen:
        _see(smi, todo, settle)
    for one in todo:
        one.finish()
    changes = {one.gpu.uuid: one.entry for one in todo if one.entry != remembered.get(one.gpu.uuid, ClockEntry())}
    try:
        record.save(driver, changes)
    except OSError as exc:
        smi.problem = f"what was set cannot be kept in {record.path}: {exc.strerror}"
    return every


def _see(smi: Smi, todo: t.Sequence[ClockChange], settle: float) -> None:
    """Look until every clock shows what was set, but no longer than told: a clock needs a moment to move."""
    until = time.monotonic() + settle
    while True:
        now = {gpu.uuid: gpu for gpu in smi.query()}
        for one in todo:
            one.gpu = now.get(one.gpu.uuid, one.gpu)
        if all(one.settled() for one in todo) or time.monotonic() >= until:
            return
        time.sleep(_POLL)
