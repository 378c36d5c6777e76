# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The array of ours that a machine has: which it is, whether all of it is there, whether it runs. Pure, private."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.content import is_ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ids import FILESYSTEMS, ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import (
    Array,
    Disk,
    Machine,
    Mount,
    Signature,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Request

_RUNNING = ("clean", "active", "active-idle", "write-pending", "read-auto")


@dataclass(frozen=True)
class Ours:
    """One array of ours: its disks, and the md device that the kernel made of it, if it did."""

    uuid: str
    disks: tuple[Disk, ...]  # of the whole machine that say they are members
    array: Array | None
    mounts: tuple[Mount, ...]  # of the md device

    @property
    def devices(self) -> int:
        counts = {disk.member.devices for disk in self.disks if disk.member}
        return max(counts) if counts else self.array.devices if self.array else 0

    @property
    def whole(self) -> bool:
        """Tell whether every slot has its disk, and none twice."""
        roles = [disk.member.role for disk in self.disks if disk.member]
        alike = {disk.member.devices for disk in self.disks if disk.member}
        return alike == {len(roles)} and sorted(-1 if role is None else role for role in roles) == list(
            range(len(roles))
        )

    @property
    def runs(self) -> bool:
        """Tell whether the kernel runs it with every member."""
        array = self.array
        if array is None or array.state not in _RUNNING or array.level != "raid0":
            return False
        return set(array.members) == {disk.path for disk in self.disks}

    @property
    def content(self) -> tuple[Signature, ...]:
        return self.array.content if self.array else ()

    @property
    def filesystem(self) -> Signature | None:
        """Return the filesystem on it, if that is all there is and of a kind that we make."""
        kinds = [signature for signature in self.content if signature.type in FILESYSTEMS]
        return kinds[0] if len(self.content) == len(kinds) == 1 else None

    @property
    def slots_missing(self) -> list[int]:
        return sorted(set(range(self.devices)) - {disk.member.role for disk in self.disks if disk.member})


def find(machine: Machine, request: Request, selected: t.Sequence[Disk]) -> list[Ours]:
    """Return the arrays of ours that the selected disks, or the mount itself, tell of; the mounted one first, then
    whole ones."""
    uuids = {disk.member.uuid for disk in selected if is_ours(disk) and disk.member}
    arrays = {array.uuid: array for array in machine.arrays if ours(array.uuid)}
    shown = visible(machine, request.mount)
    uuids |= {array.uuid for array in arrays.values() if shown and shown.device == array.device}
    uuids |= {array.uuid for array in arrays.values() if {disk.path for disk in selected} & set(array.members)}
    found = [_one(machine, uuid, arrays.get(uuid)) for uuid in sorted(uuids)]
    return sorted(found, key=lambda one: (not (shown and shown in one.mounts), not one.whole))


def _one(machine: Machine, uuid: str, array: Array | None) -> Ours:
    disks = [disk for disk in machine.disks if is_ours(disk) and disk.member and disk.member.uuid == uuid]
    mounts = [mount for mount in machine.mounts if array and mount.device == array.device]
    return Ours(uuid, tuple(sorted(disks, key=lambda disk: disk.id)), array, tuple(mounts))


def visible(machine: Machine, target: str) -> Mount | None:
    """Return what is mounted at a place, on top of whatever else is."""
    hits = [mount for mount in machine.mounts if mount.target == target]
    return hits[-1] if hits else None
