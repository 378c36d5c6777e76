# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which disks scratch may use: their selection, their content, and the arrays of ours on them. Pure."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    FILESYSTEMS,
    ArrayMember,
    ScratchArray,
    ScratchDisk,
    ScratchFinding,
    ScratchMachine,
    ScratchMount,
    ScratchRequest,
    Signature,
    array_uuid,
    ours,
)

# What is on a disk, and why it must not be written to: content that we did not make stays. Pure.


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


def untouched(disk: ScratchDisk) -> bool:
    """Return whether a disk is blank and nobody uses it."""
    return disk.blank and not (disk.signatures or disk.partitions or disk.error or used(disk))


def used(disk: ScratchDisk) -> bool:
    return bool(disk.mounts or disk.swaps or disk.holders or disk.busy)


def is_ours(disk: ScratchDisk) -> bool:
    """Return whether a whole disk is a member of an array that we made, and has nothing else on it."""
    types = [signature.type for signature in disk.signatures]
    in_our_array = disk.member is not None and ours(disk.member.uuid)
    return in_our_array and types == ["linux_raid_member"] and not disk.partitions and not disk.error


def content(disk: ScratchDisk) -> str:
    """Describe what is on a disk, without names that change from boot to boot."""
    if disk.error:
        return "unreadable"
    if is_ours(disk) and disk.member:
        return f"member of {disk.member.uuid}"
    contents = sorted({_described(disk, signature) for signature in disk.signatures})
    contents += ["partitions"] if disk.partitions and not contents else []
    contents += ["a use by the kernel"] if used(disk) and not contents else []
    return ", ".join(contents) or ("blank" if disk.blank else "unknown data")


def _described(disk: ScratchDisk, signature: Signature) -> str:
    text = _WORDS.get(signature.type, f"a signature of {signature.type}")
    if signature.type in ("xfs", "ext2", "ext3", "ext4", "btrfs", "vfat", "ntfs"):
        text = f"a filesystem ({signature.type})"
    name = signature.label or signature.uuid
    if signature.type == "linux_raid_member" and disk.member and signature.device == disk.path:
        name = f"{disk.member.name or 'without name'}, {disk.member.uuid}"
    suffix = " on a partition" if signature.device != disk.path else ""
    return f"{text}{f' [{name}]' if name else ''}{suffix}"


def problem(disk: ScratchDisk, machine: ScratchMachine) -> ScratchFinding | None:
    """Return why a selected disk must not be written to; None for a blank disk and for one of ours."""
    label = f"{disk.path} ({disk.id}, {disk.model})"
    about: dict[str, t.Any] = {"device": disk.path, "id": disk.id}
    if disk.error:
        advice = "Look for it in dmesg; redeploy the node or have it repaired."
        return ScratchFinding(
            "fail", "hardware", "unreadable", f"{label} cannot be read: {disk.error}.", advice, **about
        )
    if disk.read_only:
        text = f"{label} does not let itself be written to."
        return ScratchFinding(
            "fail", "hardware", "read_only", text, "Have it repaired, or leave it out with ids.", **about
        )
    if is_ours(disk) and all(ours(array.uuid) for array in holding(disk, machine)) and not _foreign_use(disk, machine):
        return None
    if used(disk):
        uses, free = _use(disk, machine)
        there = [mount for mount in disk.mounts if mount != "/"]
        shared = f"have scratch be a directory there (adopt: [{', '.join(there)}]), " if there else ""
        advice = f"Free it ({free}) if nobody needs it, {shared}or leave it out with ids."
        return ScratchFinding("fail", "config", "in_use", f"{label} is in use: {uses}.", advice, found=uses, **about)
    if untouched(disk):
        return None
    held = content(disk)
    advice = (
        f"If nobody needs that, allow exactly this disk to be erased: wipe: [{disk.id}]; else leave it out with ids."
    )
    return ScratchFinding(
        "fail", "config", "foreign", f"{label} holds {held}, which is not ours.", advice, found=held, **about
    )


def holding(disk: ScratchDisk, machine: ScratchMachine) -> list[ScratchArray]:
    return [array for array in machine.arrays if array.device in disk.holders]


def _foreign_use(disk: ScratchDisk, machine: ScratchMachine) -> bool:
    """Return whether a disk of ours is used by anything but an array of ours."""
    our_devices = {array.device for array in holding(disk, machine)}
    return bool(set(disk.holders) - our_devices or (not our_devices and (disk.mounts or disk.swaps or disk.busy)))


def _use(disk: ScratchDisk, machine: ScratchMachine) -> tuple[str, str]:
    """Return how a disk is in use, and the commands that end that, outermost first."""
    uses, free = [], []
    for target in disk.mounts:
        uses.append(f"mounted at {target}")
        free.append(f"umount {target}")
    for device in disk.swaps:
        uses.append(f"swap on {device}")
        free.append(f"swapoff {device}")
    arrays = {array.device: array for array in machine.arrays}
    for holder in disk.holders:
        array = arrays.get(holder)
        uses.append(
            f"held by {holder}" + (f" (md array {array.name or 'without name'}, {array.uuid})" if array else "")
        )
        free.append(f"mdadm --stop {holder}" if array else _release(holder))
    if not uses:
        return "another program has it open exclusively", f"fuser -v {disk.path} names the program"
    return ", ".join(uses), "; ".join(free)


def _release(holder: str) -> str:
    if holder.startswith("/dev/dm-"):
        return f"lsblk {holder} shows what it is; vgchange -an <volume group> or cryptsetup close <name>"
    return f"lsblk {holder} shows what it is"


# Which disks scratch is made of: by id or model, never by the order of their names. Pure.


# Disks that a cloud serves over its network as NVMe: somebody's data volumes, never scratch by accident.
REMOTE = ("MSFT NVMe Accelerator v1.0", "Amazon Elastic Block Store", "nvme_card-pd")


@dataclass(frozen=True)
class Selection:
    """The selected disks in the order of their ids, and how many there should be."""

    disks: tuple[ScratchDisk, ...]
    expected: int | None
    wipe: frozenset[str]  # ids (Disk.id) of selected disks whose content may go
    findings: tuple[ScratchFinding, ...]

    @property
    def short(self) -> bool:
        """Return whether there are fewer disks than expected."""
        return self.expected is not None and len(self.disks) < self.expected


def select(machine: ScratchMachine, request: ScratchRequest, boot: bool) -> Selection:
    """Return the disks that the request chooses, and findings about those that are named or missing."""
    findings: list[ScratchFinding] = []
    named = _named(machine, request.ids, "ids", findings)
    # The boot program never wipes: nobody reads its plan before it is carried out.
    wipe = _named(machine, () if boot else request.wipe, "wipe", findings)
    chosen = []
    for disk in sorted(machine.disks, key=lambda disk: (disk.id, disk.path)):
        reason = _left_alone(disk, request, disk in named, disk in wipe)
        if not reason:
            chosen.append(disk)
        elif disk in named or disk in wipe:
            text = f"{say(disk)} is named, but left alone: {reason}."
            findings.append(_finding("fail" if disk in named else "warn", "config", "not_local", text, disk))
        else:
            findings.append(_finding("note", "config", "left_alone", f"{say(disk)} is left alone: {reason}.", disk))
    findings += _same_name(chosen)
    expected = len(set(request.ids)) if request.ids and request.count is None else request.count
    findings += _counted(chosen, expected, request)
    return Selection(tuple(chosen), expected, frozenset(disk.id for disk in wipe), tuple(findings))


def say(disk: ScratchDisk) -> str:
    return f"{disk.path} ({disk.id or 'no id'}, {disk.model or 'no model'})"


def _finding(
    level: str, blame: str, code: str, text: str, disk: ScratchDisk | None = None, advice: str = ""
) -> ScratchFinding:
    about = {"device": disk.path, "id": disk.id} if disk else {}
    return ScratchFinding(level, blame, code, text, advice, **about)


def _named(
    machine: ScratchMachine, ids: t.Iterable[str], option: str, findings: list[ScratchFinding]
) -> list[ScratchDisk]:
    """Return the disks with these ids; an id that fits several disks selects none of them."""
    named = []
    for text in ids:
        hits = [disk for disk in machine.disks if text in disk.ids]
        if len(hits) > 1:
            better = " or ".join(sorted(set(hits[0].ids) - set(hits[1].ids))) or "nothing: they cannot be told apart"
            text = f"{option}: {text} names {len(hits)} disks: {', '.join(say(disk) for disk in hits)}."
            findings.append(
                _finding("fail", "config", "ambiguous", text, None, f"The first alone is named by {better}.")
            )
        elif not hits and option == "wipe":
            findings.append(_finding("note", "config", "no_such_disk", f"wipe: there is no disk {text}."))
        named += hits if len(hits) == 1 else []
    return named


def _left_alone(disk: ScratchDisk, request: ScratchRequest, named: bool, wiped: bool) -> str:
    """Return why a disk is not used for scratch; empty if it is."""
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
    in_our_array = disk.member is not None and ours(disk.member.uuid) and disk.member.name == request.name
    if in_our_array or wiped or set(disk.mounts) & set(request.adopt) or untouched(disk):
        return ""
    return "it is in use or not blank"


def _same_name(disks: t.Sequence[ScratchDisk]) -> list[ScratchFinding]:
    """Refuse disks without an id of their own: the UUID of an array is made of the ids."""
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


def _counted(disks: t.Sequence[ScratchDisk], expected: int | None, request: ScratchRequest) -> list[ScratchFinding]:
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


# The arrays of ours that a machine has: their members, and whether they run. Pure.


_SMALLEST_CHUNK, _LARGEST_CHUNK = 128, 512  # KiB
_RUNNING = ("clean", "active", "active-idle", "write-pending", "read-auto")


@dataclass(frozen=True)
class OwnArray:
    """One array of ours: its disks, and its md device where the kernel has one."""

    uuid: str
    disks: tuple[ScratchDisk, ...]  # of the whole machine that say they are members
    array: ScratchArray | None
    mounts: tuple[ScratchMount, ...]  # of the md device

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(disk.id for disk in self.disks)

    @property
    def devices(self) -> int:
        counts = {disk.member.devices for disk in self.disks if disk.member}
        return max(counts) if counts else self.array.devices if self.array else 0

    @property
    def whole(self) -> bool:
        """Return whether every slot has exactly one disk."""
        roles = [disk.member.role for disk in self.disks if disk.member]
        alike = {disk.member.devices for disk in self.disks if disk.member}
        return alike == {len(roles)} and sorted(-1 if role is None else role for role in roles) == list(
            range(len(roles))
        )

    @property
    def runs(self) -> bool:
        """Return whether the kernel runs it with every member."""
        array = self.array
        if array is None or array.state not in _RUNNING or array.level != "raid0":
            return False
        return set(array.members) == {disk.path for disk in self.disks}

    @property
    def chunk(self) -> int | None:
        """Return the KiB of a stripe on one disk, as the superblocks of its disks have it."""
        return next((disk.member.chunk for disk in self.disks if disk.member and disk.member.chunk), None)

    @property
    def content(self) -> tuple[Signature, ...]:
        return self.array.content if self.array else ()

    @property
    def filesystem(self) -> Signature | None:
        """Return the filesystem on it, if it is the only content and of a type that we make."""
        kinds = [signature for signature in self.content if signature.type in FILESYSTEMS]
        return kinds[0] if len(self.content) == len(kinds) == 1 else None


def planned_array(request: ScratchRequest, disks: t.Sequence[ScratchDisk]) -> OwnArray:
    """Return the array that these disks make: with the requested chunk, else the smallest max_io of the disks."""
    uuid, chunk = array_uuid(request.name, (disk.id for disk in disks)), request.chunk
    if not chunk:
        largest = min([_LARGEST_CHUNK, *(disk.max_io for disk in disks)])
        chunk = max(_SMALLEST_CHUNK, 1 << max(0, largest.bit_length() - 1))  # a power of two
    members = [ArrayMember(uuid, request.name, "raid0", len(disks), slot, chunk) for slot in range(len(disks))]
    return OwnArray(uuid, tuple(replace(disk, member=member) for disk, member in zip(disks, members)), None, ())


def find(machine: ScratchMachine, request: ScratchRequest, selected: t.Sequence[ScratchDisk]) -> list[OwnArray]:
    """Return the arrays of ours that have a selected disk or are mounted as scratch; the mounted one first, then
    complete ones."""
    uuids = {disk.member.uuid for disk in selected if is_ours(disk) and disk.member}
    arrays = {array.uuid: array for array in machine.arrays if ours(array.uuid)}
    shown = visible(machine, request.mount)
    uuids |= {array.uuid for array in arrays.values() if shown and shown.device == array.device}
    uuids |= {array.uuid for array in arrays.values() if {disk.path for disk in selected} & set(array.members)}
    own_arrays = [_own_array(machine, uuid, arrays.get(uuid)) for uuid in sorted(uuids)]
    return sorted(own_arrays, key=lambda own_array: (not (shown and shown in own_array.mounts), not own_array.whole))


def _own_array(machine: ScratchMachine, uuid: str, array: ScratchArray | None) -> OwnArray:
    disks = [disk for disk in machine.disks if is_ours(disk) and disk.member and disk.member.uuid == uuid]
    mounts = [mount for mount in machine.mounts if array and mount.device == array.device]
    return OwnArray(uuid, tuple(sorted(disks, key=lambda disk: disk.id)), array, tuple(mounts))


def visible(machine: ScratchMachine, target: str) -> ScratchMount | None:
    """Return the visible mount at a path, which is the last one there."""
    hits = [mount for mount in machine.mounts if mount.target == target]
    return hits[-1] if hits else None
