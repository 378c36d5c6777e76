# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Software RAID: ``mdadm --detail`` (needs root) and ``/proc/mdstat`` (does not).

Ask `Array.problems`, not one word of the state: it is a list, an array can be clean with a failed device, and
``mdadm --detail --test`` ends with 0 on an array that was never started.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines, number

_WELL = {"clean", "active", "active-idle", "write-pending", "read-auto", "checking"}
_PATH = re.compile(r"(/\S+):")
_MEMBER = re.compile(r"(\d+|-)\s+(\d+)\s+(\d+)\s+(\d+|-)(?:\s+(.*))?", re.ASCII)
_PROGRESS = re.compile(r"(Rebuild|Resync|Reshape|Check) Status : (\d+)% complete")
_COUNTS = {
    "Raid Devices": "raid_devices",
    "Total Devices": "total_devices",
    "Active Devices": "active_devices",
    "Working Devices": "working_devices",
    "Failed Devices": "failed_devices",
    "Spare Devices": "spare_devices",
}
_WORDS = {"Raid Level": "level", "Version": "version", "UUID": "uuid", "Layout": "layout", "Chunk Size": "chunk"}
_MD = re.compile(
    r"(md\S*) : (active|inactive|broken)((?: \([a-z-]+\))*)(?: ((?:raid|linear|multipath|faulty)\S*))?(.*)"
)
_MD_DEVICE = re.compile(r"(\S+)\[(\d+)\]((?:\([A-Z]\))*)")
_MD_BLOCKS = re.compile(r"(\d+) blocks\b(.*)")
_MD_COUNT = re.compile(r"\[(\d+)/(\d+)\]")
_MD_CONTAINER = re.compile(r"\bsuper external:[^/]")
_MD_ACTION = re.compile(r"\b(recovery|resync|reshape|check)\s*=\s*(\d+(?:\.\d+)?%|PENDING|DELAYED|REMOTE)")
_MD_FLAGS = {"F": "faulty", "S": "spare", "J": "journal", "W": "writemostly", "R": "replacement"}
_FAILURES = ((r"mdadm: .*(?:cannot open|does not appear to be an? md|No such file|not appear to be active)", "config"),)


@dataclass(frozen=True)
class MdadmMember:
    """One device of an array; ``slot`` is None of a spare, ``path`` of one that is gone."""

    slot: int | None
    flags: list[str]
    path: str | None


@dataclass(frozen=True)
class MdadmArray:
    """One array; what was not said is None. A container (of ddf, imsm) has neither state nor slots."""

    path: str
    level: str | None = None
    states: list[str] = field(default_factory=list)
    size: int | None = None
    raid_devices: int | None = None
    total_devices: int | None = None
    active_devices: int | None = None
    working_devices: int | None = None
    failed_devices: int | None = None
    spare_devices: int | None = None
    version: str | None = None
    uuid: str | None = None
    layout: str | None = None
    chunk: str | None = None
    action: str | None = None
    percent: float | None = None
    members: list[MdadmMember] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return bool(self.states or self.level == "container")

    @property
    def problems(self) -> list[str]:
        """Return what is wrong with it, nothing for a healthy array."""
        problems = [state for state in self.states if state.split(" (")[0] not in _WELL]
        if not self.complete:
            problems.append("state unknown")
        if self.failed_devices:
            problems.append(f"{self.failed_devices} failed")
        active, wanted = self.active_devices, self.raid_devices
        if active is not None and wanted is not None and active < wanted:
            problems.append(f"{active} of {wanted} devices active")
        named = [m.path or f"slot {m.slot}" for m in self.members if {"faulty", "removed", "missing"} & set(m.flags)]
        return problems + [f"{name} is faulty or gone" for name in named]


@dataclass(frozen=True)
class MdadmLog:
    """The arrays that a text tells of; ``ok`` says that the text is whole, `Array.problems` how they are."""

    arrays: list[MdadmArray]
    ok: bool
    cause: Cause | None


def parse(source: Source) -> MdadmLog:
    """Read what ``mdadm --detail`` printed, about one array or several; never raises."""
    arrays: list[MdadmArray] = []
    first = FirstCause(_FAILURES)
    for line in lines(source):
        head = _PATH.fullmatch(line)
        if head:
            arrays.append(MdadmArray(head.group(1)))
        elif arrays:
            arrays[-1] = _detail(arrays[-1], line)
        first.see(line)
    return MdadmLog(
        arrays, bool(arrays) and first.cause is None and all(_whole(array) for array in arrays), first.cause
    )


def _whole(array: MdadmArray) -> bool:
    """The table at the end has a row for every slot and for every device."""
    total = array.total_devices
    return array.complete and total is not None and len(array.members) >= max(total, array.raid_devices or 0)


def _detail(array: MdadmArray, line: str) -> MdadmArray:
    progress, member = _PROGRESS.fullmatch(line), _MEMBER.fullmatch(line)
    if progress:
        return replace(array, action=progress.group(1).lower(), percent=_float(progress.group(2)))
    if member:
        disk = _member(member.group(4), (member.group(5) or "").split())
        # A row of a device that is neither named nor gone was cut off.
        if disk.path or {"removed", "missing"} & set(disk.flags):
            array.members.append(disk)
        return array
    name, colon, value = (part.strip() for part in line.partition(" : "))
    if not colon or not value:
        return array
    if name == "State":
        return replace(array, states=[word.strip() for word in value.split(",") if word.strip()])
    if name == "Array Size":
        kib = number(value.split()[0])
        return replace(array, size=kib * 1024 if isinstance(kib, int) else None)
    if name in _COUNTS:
        count = number(value)
        return replace(array, **t.cast(t.Any, {_COUNTS[name]: count if isinstance(count, int) else None}))
    return replace(array, **t.cast(t.Any, {_WORDS[name]: value})) if name in _WORDS else array


def _member(slot: str, words: list[str]) -> MdadmMember:
    path = words.pop() if words and words[-1].startswith("/") else None
    return MdadmMember(int(slot) if slot.isdigit() and len(slot) < 9 else None, words, path)


def parse_mdstat(source: Source) -> list[MdadmArray]:
    """Return the arrays in ``/proc/mdstat``; their slots are not in it, the numbers in brackets are none."""
    arrays: list[MdadmArray] = []
    for line in lines(source):
        head = _MD.fullmatch(line)
        if head:
            arrays.append(_mdstat_head(head))
        elif arrays:
            arrays[-1] = _mdstat_more(arrays[-1], line)
    return arrays


def _mdstat_head(head: t.Match[str]) -> MdadmArray:
    members = []
    for name, _number, letters in _MD_DEVICE.findall(head.group(5)):
        flags = [_MD_FLAGS.get(letter, letter) for letter in re.findall(r"[A-Z]", letters)]
        members.append(MdadmMember(None, flags, f"/dev/{name}"))
    failed = sum("faulty" in member.flags for member in members)
    states = [head.group(2), *re.findall(r"\(([a-z-]+)\)", head.group(3))]
    # auto-read-only is what an array is until the first write, read-only what somebody made it.
    states = [{"auto-read-only": "read-auto", "read-only": "readonly"}.get(state, state) for state in states]
    return MdadmArray(f"/dev/{head.group(1)}", head.group(4), states, failed_devices=failed, members=members)


def _mdstat_more(array: MdadmArray, line: str) -> MdadmArray:
    blocks, action = _MD_BLOCKS.fullmatch(line), _MD_ACTION.search(line)
    if blocks:
        kib, counts = number(blocks.group(1)), _MD_COUNT.search(blocks.group(2))
        array = replace(array, size=kib * 1024 if isinstance(kib, int) else None)
        if _MD_CONTAINER.search(line):
            return replace(array, level="container", states=[])
        return _counted(array, counts) if counts else array
    if action:
        return replace(array, action=action.group(1), percent=_float(action.group(2).rstrip("%")))
    return array


def _counted(array: MdadmArray, counts: t.Match[str]) -> MdadmArray:
    wanted, active = (number(text) for text in counts.groups())
    if not isinstance(wanted, int) or not isinstance(active, int):
        return array
    states = [*array.states, *(["degraded"] if active < wanted else [])]
    return replace(array, raid_devices=wanted, active_devices=active, states=states)


def _float(text: str) -> float | None:
    value = number(text)
    return None if value is None else float(value)
