# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands on a disk, and what has to happen before it may be used: what we did not make stays. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ids import ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Array, Disk, Machine, Signature
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Finding

_WORDS = {
    "gpt": "a partition table (gpt)",
    "dos": "a partition table (dos)",
    "PMBR": "a protective partition table (PMBR)",
    "LVM2_member": "an LVM physical volume",
    "linux_raid_member": "a member of an md array",
    "crypto_LUKS": "an encrypted volume (LUKS)",
    "swap": "swap space",
    "zfs_member": "a member of a ZFS pool",
}


def untouched(disk: Disk) -> bool:
    """Tell whether a disk is blank and nobody uses it."""
    return disk.blank and not (disk.signatures or disk.partitions or disk.error or used(disk))


def used(disk: Disk) -> bool:
    return bool(disk.mounts or disk.swaps or disk.holders or disk.busy)


def is_ours(disk: Disk) -> bool:
    """Tell whether a whole disk is a member of an array that we made, and carries nothing else."""
    types = [signature.type for signature in disk.signatures]
    mine = disk.member is not None and ours(disk.member.uuid)
    return mine and types == ["linux_raid_member"] and not disk.partitions and not disk.error


def content(disk: Disk) -> str:
    """Say what is on a disk, without the names that change from boot to boot."""
    if disk.error:
        return "unreadable"
    if is_ours(disk) and disk.member:
        return f"member of {disk.member.uuid}"
    found = sorted({_what(disk, signature) for signature in disk.signatures})
    found += ["partitions"] if disk.partitions and not found else []
    found += ["a use by the kernel"] if used(disk) and not found else []
    return ", ".join(found) or ("blank" if disk.blank else "unknown data")


def _what(disk: Disk, signature: Signature) -> str:
    word = _WORDS.get(signature.type, f"a signature of {signature.type}")
    if signature.type in ("xfs", "ext2", "ext3", "ext4", "btrfs", "vfat", "ntfs"):
        word = f"a filesystem ({signature.type})"
    name = signature.label or signature.uuid
    if signature.type == "linux_raid_member" and disk.member and signature.device == disk.path:
        name = f"{disk.member.name or 'without name'}, {disk.member.uuid}"
    part = " on a partition" if signature.device != disk.path else ""
    return f"{word}{f' [{name}]' if name else ''}{part}"


def problem(disk: Disk, machine: Machine) -> Finding | None:
    """Return what forbids to write to a selected disk that is not ours; nothing for a blank one."""
    who = f"{disk.path} ({disk.id}, {disk.model})"
    place: dict[str, t.Any] = {"device": disk.path, "id": disk.id}
    if disk.error:
        advice = "Look for it in dmesg; redeploy the node or have it repaired."
        return Finding("fail", "hardware", "unreadable", f"{who} cannot be read: {disk.error}.", advice, **place)
    if disk.read_only:
        text = f"{who} does not let itself be written to."
        return Finding("fail", "hardware", "read_only", text, "Have it repaired, or leave it out with ids.", **place)
    if is_ours(disk) and all(ours(array.uuid) for array in holding(disk, machine)) and not _foreign_use(disk, machine):
        return None
    if used(disk):
        how, free = _use(disk, machine)
        advice = f"Free it ({free}) if nobody needs it, or leave it out with ids."
        return Finding("fail", "config", "in_use", f"{who} is in use: {how}.", advice, found=how, **place)
    if untouched(disk):
        return None
    what = content(disk)
    advice = (
        f"If nobody needs that, allow exactly this disk to be erased: wipe: [{disk.id}]; else leave it out with ids."
    )
    return Finding("fail", "config", "foreign", f"{who} holds {what}, which is not ours.", advice, found=what, **place)


def holding(disk: Disk, machine: Machine) -> list[Array]:
    return [array for array in machine.arrays if array.device in disk.holders]


def _foreign_use(disk: Disk, machine: Machine) -> bool:
    """A disk of ours is held by an array of ours, and that explains why it is busy and mounted."""
    known = {array.device for array in holding(disk, machine)}
    return bool(set(disk.holders) - known or (not known and (disk.mounts or disk.swaps or disk.busy)))


def _use(disk: Disk, machine: Machine) -> tuple[str, str]:
    """Return how a disk is in use, and the commands that end that, outermost first."""
    how, free = [], []
    for target in disk.mounts:
        how.append(f"mounted at {target}")
        free.append(f"umount {target}")
    for device in disk.swaps:
        how.append(f"swap on {device}")
        free.append(f"swapoff {device}")
    arrays = {array.device: array for array in machine.arrays}
    for holder in disk.holders:
        array = arrays.get(holder)
        how.append(f"held by {holder}" + (f" (md array {array.name or 'without name'}, {array.uuid})" if array else ""))
        free.append(f"mdadm --stop {holder}" if array else _release(holder))
    if not how:
        return "another program has it open exclusively", f"fuser -v {disk.path} names the program"
    return ", ".join(how), "; ".join(free)


def _release(holder: str) -> str:
    if holder.startswith("/dev/dm-"):
        return f"lsblk {holder} shows what it is; vgchange -an <volume group> or cryptsetup close <name>"
    return f"lsblk {holder} shows what it is"
