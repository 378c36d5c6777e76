# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan how scratch is taken away: unmounted and stopped, and erased only when told. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.content import content, is_ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ids import ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Array, Disk, Machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Finding, Plan, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ours import visible
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.place import bound


def remove(machine: Machine, request: Request, destroy: bool = False) -> Plan:
    """Return the steps after which no array of ours with this name is mounted or runs."""
    shown = visible(machine, request.mount)
    # What is used as scratch under another name (it was renamed) is meant as well.
    there = [array for array in machine.arrays if ours(array.uuid)]
    arrays = [one for one in there if one.name == request.name or (shown and shown.device == one.device)]
    uuids = {array.uuid for array in arrays}
    mine = [disk for disk in machine.disks if disk.member and ours(disk.member.uuid)]
    disks = [one for one in mine if one.member and (one.member.name == request.name or one.member.uuid in uuids)]
    # The last mount at a place is the one on top.
    devices = {array.device for array in arrays}
    mounts = [mount.target for mount in reversed(machine.mounts) if mount.device in devices]
    actions = [steps.umount(target) for target in mounts or _binds(machine, request)]
    actions += [steps.stop(array.device) for array in arrays]
    actions += [steps.wipe(disk) for disk in disks] if destroy else []
    now = _seen(arrays, mounts or _binds(machine, request), disks)
    foreign = [*_covered(machine, devices), *(_strange(disks) if destroy else [])]
    if foreign:
        told, seen = " ".join(map(str, foreign)), tuple(disk.id for disk in disks)
        return Plan("fail", "config", told, tuple(foreign), before=now, after=now, disks=seen)
    after = _seen([], [], [] if destroy else disks)
    reason = f"{len(disks)} disks keep what is on them" if disks and not destroy else "there is no scratch"
    return Plan("skipped", "", reason, (), tuple(actions), now, after, disks=tuple(disk.id for disk in disks))


def _covered(machine: Machine, devices: t.Collection[str]) -> t.Iterator[Finding]:
    """A filesystem of somebody else on top of ours would be the one that is unmounted."""
    for target in sorted({mount.target for mount in machine.mounts if mount.device in devices}):
        hits = [mount for mount in machine.mounts if mount.target == target]
        ours_first = min(number for number, mount in enumerate(hits) if mount.device in devices)
        for other in (mount for mount in hits[ours_first:] if mount.device not in devices):
            text = f"On top of scratch at {target} is the mount of {other.device} ({other.fstype})."
            yield Finding("fail", "config", "mount_taken", text, f"umount {target}, then run again.", other.device)


def _strange(disks: t.Sequence[Disk]) -> t.Iterator[Finding]:
    """A superblock of ours is left over where somebody used the disk for something else later."""
    for disk in (one for one in disks if not is_ours(one)):
        text = f"{disk.path} ({disk.id}) was in an array of scratch, and holds {content(disk)}, which is not ours."
        advice = "Nothing is erased on any disk. Move that away, or erase that disk by hand."
        yield Finding("fail", "config", "foreign", text, advice, disk.path, disk.id)


def _binds(machine: Machine, request: Request) -> list[str]:
    """Return the mount of a directory that stands in for an array; a filesystem that others mounted there stays."""
    bases = [base for base in (request.fallback, *request.adopt) if base and base != request.mount]
    shown = visible(machine, request.mount)
    return [request.mount] if shown and any(bound(machine, request, base) for base in bases) else []


def _seen(arrays: t.Sequence[Array], mounts: t.Sequence[str], disks: t.Sequence[Disk]) -> dict[str, t.Any]:
    return {
        "arrays": [array.device for array in arrays],
        "mounts": list(mounts),
        "members": [disk.id for disk in disks],
    }
