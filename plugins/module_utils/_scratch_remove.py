# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan how scratch is taken away: unmounted and stopped, and erased only when told. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _scratch_steps as steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._scratch_ids import ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._scratch_machine import Array, Disk, Machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._scratch_model import Plan, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._scratch_ours import visible
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._scratch_place import bound


def remove(machine: Machine, request: Request, destroy: bool = False) -> Plan:
    """Return the steps after which no array of ours with this name is mounted or runs."""
    arrays = [array for array in machine.arrays if ours(array.uuid) and array.name == request.name]
    disks = [
        disk for disk in machine.disks if disk.member and ours(disk.member.uuid) and disk.member.name == request.name
    ]
    # The last mount at a place is the one on top.
    mounts = [mount.target for mount in reversed(machine.mounts) if mount.device in {array.device for array in arrays}]
    actions = [steps.umount(target) for target in mounts or _binds(machine, request)]
    actions += [steps.stop(array.device) for array in arrays]
    actions += [steps.wipe(disk) for disk in disks] if destroy else []
    now = _seen(arrays, mounts or _binds(machine, request), disks)
    after = _seen([], [], [] if destroy else disks)
    reason = f"{len(disks)} disks keep what is on them" if disks and not destroy else "there is no scratch"
    return Plan("skipped", "", reason, (), tuple(actions), now, after, disks=tuple(disk.id for disk in disks))


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
