# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last look before something is destroyed: is every disk still what the plan saw? Private.

Between reading and writing a disk may be replaced, or an administrator may have begun to use it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply_files import ApplyError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Disk, Machine, Mount
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Action, Plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ours import visible

Read = t.Callable[[], Machine]
Canonical = t.Callable[[str], str]


def check(action: Action, plan: Plan, saw: Machine, read: Read, canonical: Canonical) -> None:
    """Raise `ApplyError` where an action would meet something else than the plan did."""
    if action.kind in ("wipe", "create"):
        now = read()
        for disk_id in action.disks:
            _check_disk(action.kind, _only(saw.disks, disk_id), _only(now.disks, disk_id))
    elif action.kind == "mkfs":
        _check_array(action, plan, saw, read(), canonical(action.device))
    elif action.kind == "mount":
        _check_mounted(action, plan, read(), canonical(action.device))
    elif action.kind == "stop":
        _check_stopped(action.device, saw, read())
    elif action.kind == "umount":
        _check_unmounted(action.path, saw, read())


def _only(disks: t.Sequence[Disk], disk_id: str) -> Disk:
    found = [disk for disk in disks if disk.id == disk_id]
    if len(found) != 1:
        raise ApplyError(f"disk {disk_id} is there {len(found)} times now; nothing was written to it", "infra")
    return found[0]


def _check_disk(kind: str, saw: Disk, now: Disk) -> None:
    same = (saw.path, saw.size, saw.model) == (now.path, now.size, now.model)
    used = [*now.holders, *now.mounts, *now.swaps, *(["an exclusive open"] if now.busy else [])]
    about = f"disk {now.path} ({now.id})"
    if now.error or not same:
        raise ApplyError(f"{about} changed while it was being planned for: {now.error or saw.path}; run again", "infra")
    if used:
        raise ApplyError(f"{about} came into use ({', '.join(used)}); nothing was written to it, run again", "infra")
    # What is to be wiped must be what was consented to; what gets an array must be blank by now.
    if kind == "wipe" and (now.signatures, now.partitions) != (saw.signatures, saw.partitions):
        raise ApplyError(
            f"{about} holds something else than a moment ago; nothing was written to it, run again", "infra"
        )
    if kind == "create" and not (now.blank and not now.signatures and not now.partitions):
        found = ", ".join(sign.type for sign in now.signatures) or "data without a signature"
        raise ApplyError(f"{about} is not blank: {found}; nothing was written to it, run again", "infra")


def _check_array(action: Action, plan: Plan, saw: Machine, now: Machine, device: str) -> None:
    found = [array for array in now.arrays if array.uuid == plan.array]
    if len(found) != 1:
        raise ApplyError(f"array {plan.array} is there {len(found)} times; no filesystem was made", "infra")
    array = found[0]
    # The name below /dev/md is a link, which another array may have had before ours.
    if device != array.device:
        text = f"{action.device} is {device}, and the array of scratch is {array.device}"
        raise ApplyError(f"{text}; no filesystem was made. Find out what has that name: ls -l /dev/md", "infra")
    known = {(sign.type, sign.uuid) for one in saw.arrays if one.uuid == array.uuid for sign in one.content}
    strange = [sign.type for sign in array.content if (sign.type, sign.uuid) not in known]
    # What is on an array that was cut off in the making is ours; the plan could not see it before the array ran.
    if strange and saw.building != array.uuid:
        raise ApplyError(f"{array.device} already holds {', '.join(strange)}; no filesystem was made", "infra")
    if array.holders or any(mount.device == array.device for mount in now.mounts):
        raise ApplyError(f"{array.device} came into use; no filesystem was made", "infra")


def _check_mounted(action: Action, plan: Plan, now: Machine, device: str) -> None:
    """Mounting replays a journal, which writes."""
    others = [array for array in now.arrays if array.device == device and array.uuid != plan.array]
    if others:
        text = f"{action.device} is {device}, an array of somebody else ({others[0].uuid or 'without UUID'})"
        raise ApplyError(f"{text}; it was not mounted. Find out what has that name: ls -l /dev/md", "infra")


def _check_stopped(device: str, saw: Machine, now: Machine) -> None:
    then, found = ([array.uuid for array in machine.arrays if array.device == device] for machine in (saw, now))
    if found != then:
        raise ApplyError(f"{device} is another array than a moment ago; it was not stopped, run again", "infra")


def _check_unmounted(path: str, saw: Machine, now: Machine) -> None:
    shown = visible(now, path)
    if shown is None or _place(shown) not in [_place(mount) for mount in saw.mounts]:
        raise ApplyError(f"{path} shows something else than a moment ago; it was not unmounted, run again", "infra")


def _place(mount: Mount) -> tuple[str, str, str]:
    return mount.target, mount.number, mount.root
