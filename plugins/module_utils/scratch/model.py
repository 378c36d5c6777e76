# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of the NVMe scratch: a request, what was read of a machine, a plan, and the UUID of arrays of ours."""

from __future__ import annotations

import hashlib
import re
import typing as t
import uuid
from dataclasses import dataclass, field

# The request and the plan.


@dataclass(frozen=True)
class Directory:
    """A requested directory below the mount; ``path`` is relative to it."""

    path: str
    owner: str
    group: str
    mode: str


@dataclass(frozen=True)
class ScratchRequest:
    """The request. ``ids`` alone select disks when given, else ``models`` and, with ``unused``, unused namespaces.

    Defaults are those of the module's options.
    """

    name: str
    mount: str
    models: tuple[str, ...]
    ids: tuple[str, ...]
    unused: bool
    wipe: tuple[str, ...]
    count: int | None  # disks that this machine type has; None: unknown
    fewer: str  # "refuse", or "allow": a smaller array is better than none
    filesystem: str  # "xfs" or "ext4"
    chunk: int | None  # KiB; None: from the disks
    options: tuple[str, ...]
    mode: str
    directories: tuple[Directory, ...]
    adopt: tuple[str, ...]
    fallback: str  # directory that stands in where there is no disk; empty: then there is no scratch
    rebuild: bool


@dataclass(frozen=True)
class ScratchAction:
    """One step. ``argv`` is its command, if it has one; ``kind`` determines what else is done:

    fstab       comment ``lines`` (numbers) of ``/etc/fstab`` out, with ``text`` in front of each, and have systemd read
                it again: a mount unit of the old line would take our mount away
    mark        write ``uuid`` into the marker file and sync it and its directory
    unmark      remove the marker file
    umount      argv
    stop        argv: stop the array ``device``
    wipe        argv (wipefs of partitions and disk), then zero the first and last MiB of ``device``, opened
                exclusively, sync, have the kernel read the partition table again, settle
    create      argv: make the array ``uuid`` as ``device``; settle, wait for ``device``
    assemble    argv: start the array ``uuid`` as ``device``; settle, wait for ``device``
    mkfs        argv: on ``device``, which is the array ``uuid``; sync
    directory   have the directory ``path`` with ``owner``, ``group``, ``mode`` (no symbolic link followed below root)
    mount       argv: ``device`` at ``path``
    remount     argv: ``path`` with other options
    bind        argv: the directory ``device`` at ``path``
    """

    kind: str
    argv: tuple[str, ...] = ()
    device: str = ""
    disks: tuple[str, ...] = ()  # ids of the disks that it writes to
    uuid: str = ""
    path: str = ""
    owner: str = ""
    group: str = ""
    mode: str = ""
    lines: tuple[int, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class ScratchFinding:
    """One thing that a person should know. ``text`` is a whole sentence; ``advice`` is the exact next step."""

    level: str  # note (changes no verdict), warn, fail, error
    blame: str  # class of the check record: hardware, config, software, infra
    code: str  # foreign, in_use, missing, damaged, … : for tests and programs
    text: str
    advice: str = ""
    device: str = ""
    id: str = ""
    found: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.advice}".strip()


@dataclass(frozen=True)
class ScratchPlan:
    """Actions and their effect. ``verdict`` and ``after`` describe the machine once every action has succeeded;
    without actions they describe the machine as it is."""

    verdict: str  # pass, warn, fail, skipped, error
    blame: str  # class of the record for warn, fail, error; else empty
    reason: str
    findings: tuple[ScratchFinding, ...] = ()
    actions: tuple[ScratchAction, ...] = ()
    before: dict[str, t.Any] = field(default_factory=dict)
    after: dict[str, t.Any] = field(default_factory=dict)
    path: str = ""  # where scratch is in the end; empty: nowhere
    source: str = ""  # array, adopted, fallback or empty
    disks: tuple[str, ...] = ()  # ids of the selected disks
    array: str = ""  # md UUID in the end; empty: none
    size: int = 0  # bytes of the array, or of the disks that it will be made of
    members: int = 0  # of the array in the end


# What was read of one machine.


@dataclass(frozen=True)
class Signature:
    """Something that ``wipefs --no-act`` finds; ``device`` is the disk, one of its partitions or an array."""

    device: str
    type: str  # gpt, dos, LVM2_member, linux_raid_member, xfs, ext4, …
    uuid: str = ""
    label: str = ""


@dataclass(frozen=True)
class ArrayMember:
    """What ``mdadm --examine --export`` prints about a whole disk."""

    uuid: str  # of the array: 68706361:692e6e76:xxxxxxxx:xxxxxxxx
    name: str  # without the home host
    level: str  # raid0
    devices: int  # that the array has when whole
    role: int | None  # slot in the array; None: spare or unknown
    chunk: int | None = None  # KiB


@dataclass(frozen=True)
class ScratchDisk:
    """One NVMe namespace. What stacks upon it (partitions, holders and theirs) counts as the disk's own."""

    path: str  # /dev/nvme3n1
    id: str  # what we call it: the serial, or the wwid where the serial is empty or not unique on this machine
    ids: tuple[str, ...]  # every name that the user may use: id, serial, wwid, /dev/disk/by-id names without the folder
    model: str  # of the controller, without blanks at the ends
    transport: str  # pcie, tcp, rdma, fc, …
    size: int  # bytes
    max_io: int  # KiB: queue/max_hw_sectors_kb
    member: ArrayMember | None = None
    signatures: tuple[Signature, ...] = ()  # of the disk and its partitions, the md superblock among them
    blank: bool = True  # block_device.spots are zero; False where nobody looked, as where there is a signature
    partitions: tuple[str, ...] = ()  # that the kernel knows: /dev/nvme3n1p1
    holders: tuple[str, ...] = ()  # /dev/md127, /dev/dm-0: directly upon the disk or its partitions
    mounts: tuple[str, ...] = ()  # mount points of the disk and of everything that stacks upon it
    swaps: tuple[str, ...] = ()  # devices in use as swap: the disk or anything upon it
    busy: bool = False  # an exclusive open is refused
    read_only: bool = False
    error: str = ""  # what kept us from reading it; then the rest is not to be trusted


@dataclass(frozen=True)
class ScratchArray:
    """One md device that the kernel knows, running or not."""

    device: str  # /dev/md127
    uuid: str  # as in Member; empty where it could not be read
    name: str  # without the home host
    level: str
    state: str  # /sys/block/md127/md/array_state: clean, active, read-auto, inactive, broken, …
    devices: int  # that it has when whole
    members: tuple[str, ...]  # paths of the devices that are in it now
    size: int = 0  # bytes
    content: tuple[Signature, ...] = ()
    blank: bool = False  # first MiB is zero; not looked at (False) where there is a signature
    holders: tuple[str, ...] = ()  # what stacks upon it, partitions included


@dataclass(frozen=True)
class ScratchMount:
    """One line of ``/proc/self/mountinfo``."""

    target: str
    device: str  # canonical: /dev/md127; where there is none, the source as it is written
    number: str  # major:minor
    fstype: str
    root: str = "/"  # the part of the filesystem that is mounted
    options: tuple[str, ...] = ()  # of the mount (field 6), not of the filesystem


@dataclass(frozen=True)
class FstabLine:
    """An active line of ``/etc/fstab``; of interest are those with our mount point."""

    number: int  # from 1
    text: str  # the whole line without its end
    source: str  # UUID=…, LABEL=…, /dev/…, server:/path
    target: str
    fstype: str
    device: str = ""  # what the source stands for now, canonical; empty: no such device


@dataclass(frozen=True)
class Path:
    """A path that the request names, as it is now. Read for: mount, fallback, each adopt path, fallback/<name>,
    <adopt path>/<name>, and every directory below mount."""

    path: str
    kind: str  # absent, directory, other (a symbolic link is other)
    owner: str = ""
    group: str = ""
    mode: str = ""  # "1777": four digits
    empty: bool = True


@dataclass(frozen=True)
class ScratchMachine:
    """Everything that was read of one machine at one time."""

    disks: tuple[ScratchDisk, ...] = ()  # every NVMe namespace, not only the selected ones
    arrays: tuple[ScratchArray, ...] = ()  # every md device
    mounts: tuple[
        ScratchMount, ...
    ] = ()  # all, in the order of the kernel: the last one at a target is the visible one
    fstab: tuple[FstabLine, ...] = ()  # with target == request.mount
    paths: tuple[Path, ...] = ()
    building: str = ""  # md UUID in the marker file
    missing_tools: tuple[str, ...] = ()  # of mdadm, wipefs, mkfs.<filesystem>, mount, udevadm
    unknown_names: tuple[str, ...] = ()  # owners and groups of directories that nobody knows here
    unmountable: str = ""  # the error of a mount that was tried just before (the run then plans again)


# An array is ours if its UUID begins with MAGIC; no list of arrays is kept.


MAGIC = "68706361:692e6e76"  # "hpcai.nv"
FILESYSTEMS = ("xfs", "ext4")

_KERNEL_NAME = re.compile(r"(/dev/)?(nvme\d+(c\d+)?(n\d+(p\d+)?)?|md\d+|dm-\d+|sd[a-z]+\d*)")


def ours(md_uuid: str) -> bool:
    return md_uuid.startswith(f"{MAGIC}:")


def array_uuid(name: str, ids: t.Iterable[str]) -> str:
    """Return the md UUID of an array that we make of these disks, written as mdadm writes it."""
    digest = hashlib.sha256("\0".join([name, *sorted(ids)]).encode()).hexdigest()
    return f"{MAGIC}:{digest[:8]}:{digest[8:16]}"


def filesystem_uuid(md_uuid: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"hpcai.gpu_cluster {md_uuid}"))


def kernel_name(text: str) -> bool:
    """Return whether a text is a kernel name, which may belong to another disk after the next boot."""
    return bool(_KERNEL_NAME.fullmatch(text))


def plain_id(text: str) -> str:
    return text[len("/dev/disk/by-id/") :] if text.startswith("/dev/disk/by-id/") else text
