# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which disks the scratch is made of: by what they are, never by the order of their names. Pure, private."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.content import untouched
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ids import ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Disk, Machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Finding, Request

# Disks that a cloud serves over its network as NVMe: somebody's data volumes, never scratch by accident.
REMOTE = ("MSFT NVMe Accelerator v1.0", "Amazon Elastic Block Store", "nvme_card-pd")


@dataclass(frozen=True)
class Selection:
    """The disks that are meant, in the order of their ids, and how many there should be."""

    disks: tuple[Disk, ...]
    expected: int | None
    wipe: frozenset[str]  # ids (Disk.id) of selected disks whose content may go
    findings: tuple[Finding, ...]

    @property
    def short(self) -> bool:
        """Tell whether there are fewer than there should be."""
        return self.expected is not None and len(self.disks) < self.expected


def select(machine: Machine, request: Request, boot: bool) -> Selection:
    found: list[Finding] = []
    named = _named(machine, request.ids, "ids", found)
    # A program that starts with the machine never wipes: nobody looks at what it says before it does it.
    wipe = _named(machine, () if boot else request.wipe, "wipe", found)
    chosen = []
    for disk in sorted(machine.disks, key=lambda disk: (disk.id, disk.path)):
        why = _left_alone(disk, request, disk in named, disk in wipe)
        if not why:
            chosen.append(disk)
        elif disk in named or disk in wipe:
            text = f"{say(disk)} is named, but left alone: {why}."
            found.append(_finding("fail" if disk in named else "warn", "config", "not_local", text, disk))
        else:
            found.append(_finding("note", "config", "left_alone", f"{say(disk)} is left alone: {why}.", disk))
    found += _same_name(chosen)
    expected = len(set(request.ids)) if request.ids and request.count is None else request.count
    found += _counted(chosen, expected, request)
    return Selection(tuple(chosen), expected, frozenset(disk.id for disk in wipe), tuple(found))


def say(disk: Disk) -> str:
    return f"{disk.path} ({disk.id or 'no id'}, {disk.model or 'no model'})"


def _finding(level: str, blame: str, code: str, text: str, disk: Disk | None = None, advice: str = "") -> Finding:
    place = {"device": disk.path, "id": disk.id} if disk else {}
    return Finding(level, blame, code, text, advice, **place)


def _named(machine: Machine, ids: t.Iterable[str], option: str, found: list[Finding]) -> list[Disk]:
    """Return the disks that carry these ids; an id that fits several names none of them."""
    named = []
    for text in ids:
        hits = [disk for disk in machine.disks if text in disk.ids]
        if len(hits) > 1:
            better = " or ".join(sorted(set(hits[0].ids) - set(hits[1].ids))) or "nothing: they cannot be told apart"
            text = f"{option}: {text} names {len(hits)} disks: {', '.join(say(disk) for disk in hits)}."
            found.append(_finding("fail", "config", "ambiguous", text, None, f"The first alone is named by {better}."))
        elif not hits and option == "wipe":
            found.append(_finding("note", "config", "no_such_disk", f"wipe: there is no disk {text}."))
        named += hits if len(hits) == 1 else []
    return named


def _left_alone(disk: Disk, request: Request, named: bool, wiped: bool) -> str:
    """Return why a disk is not for scratch; empty if it is."""
    if disk.transport != "pcie":
        return f"it is reached over {disk.transport or 'an unknown transport'}, not local"
    if request.ids:
        return "" if named else "it is not among the ids asked for"
    if any(disk.model.startswith(model) for model in REMOTE):
        return f"a {disk.model} is a remote volume, taken only when named in ids"
    if disk.model in request.models:
        return ""
    if not request.unused:
        return f"its model is not among those asked for ({', '.join(request.models) or 'none'})"
    mine = disk.member is not None and ours(disk.member.uuid) and disk.member.name == request.name
    if mine or wiped or set(disk.mounts) & set(request.adopt) or untouched(disk):
        return ""
    return "it is in use or not blank"


def _same_name(disks: t.Sequence[Disk]) -> list[Finding]:
    """An array's UUID is made of the ids: without them, or with one twice, it would stand for anything."""
    ids = [disk.id for disk in disks]
    return [
        _finding(
            "fail",
            "config",
            "ambiguous",
            f"{say(disk)} has no id of its own, so it cannot be told from other disks.",
            disk,
        )
        for disk in disks
        if not disk.id or ids.count(disk.id) > 1
    ]


def _counted(disks: t.Sequence[Disk], expected: int | None, request: Request) -> list[Finding]:
    if expected is None or len(disks) == expected:
        return []
    present = ", ".join(f"{disk.path} ({disk.id})" for disk in disks) or "none"
    text = f"{len(disks)} NVMe disks found, {expected} expected; found: {present}."
    if len(disks) > expected:
        return [_finding("warn", "config", "more", text, None, "Correct the count, or name the disks in ids.")]
    gone = [text for text in request.ids if not any(text in disk.ids for disk in disks)]
    text += f" Not found: {', '.join(gone)}." if gone else ""
    advice = "Look for controllers that failed to start (dmesg | grep -i nvme); redeploy the node or have it repaired"
    if request.fewer == "allow":
        return [_finding("warn", "hardware", "missing", text, None, f"{advice}.")]
    return [_finding("fail", "hardware", "missing", text, None, f'{advice}, or accept it: fewer: "allow".')]
