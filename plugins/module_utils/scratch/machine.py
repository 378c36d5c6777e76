# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was read of one machine for its NVMe scratch: data only, private.

Device paths (``/dev/nvme3n1``) hold for one reading of one machine; whatever has to last is an id.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Signature:
    """Something that ``wipefs --no-act`` finds; ``device`` is the disk, one of its partitions or an array."""

    device: str
    type: str  # gpt, dos, LVM2_member, linux_raid_member, xfs, ext4, …
    uuid: str = ""
    label: str = ""


@dataclass(frozen=True)
class Member:
    """What ``mdadm --examine --export`` says of a whole disk."""

    uuid: str  # of the array: 68706361:692e6e76:xxxxxxxx:xxxxxxxx
    name: str  # without the home host
    level: str  # raid0
    devices: int  # that the array has when whole
    role: int | None  # slot in the array; None: spare or unknown
    chunk: int | None = None  # KiB


@dataclass(frozen=True)
class Disk:
    """One NVMe namespace. What stacks upon it (partitions, holders and theirs) counts as the disk's own."""

    path: str  # /dev/nvme3n1
    id: str  # what we call it: the serial, or the wwid where the serial is empty or not unique on this machine
    ids: tuple[str, ...]  # every name that the user may use: id, serial, wwid, /dev/disk/by-id names without the folder
    model: str  # of the controller, without blanks at the ends
    transport: str  # pcie, tcp, rdma, fc, …
    size: int  # bytes
    max_io: int  # KiB: queue/max_hw_sectors_kb
    member: Member | None = None
    signatures: tuple[Signature, ...] = ()  # of the disk and its partitions, the md superblock among them
    blank: bool = True  # first and last MiB are zero; not looked at (False) where there is a signature
    partitions: tuple[str, ...] = ()  # that the kernel knows: /dev/nvme3n1p1
    holders: tuple[str, ...] = ()  # /dev/md127, /dev/dm-0: directly upon the disk or its partitions
    mounts: tuple[str, ...] = ()  # mount points of the disk and of everything that stacks upon it
    swaps: tuple[str, ...] = ()  # devices in use as swap: the disk or anything upon it
    busy: bool = False  # an exclusive open is refused
    read_only: bool = False
    error: str = ""  # what kept us from reading it; then the rest is not to be trusted


@dataclass(frozen=True)
class Array:
    """One md device that the kernel knows, running or not."""

    device: str  # /dev/md127
    uuid: str  # as in Member; empty where it could not be read
    name: str  # without the home host
    level: str
    state: str  # /sys/block/md127/md/array_state: clean, active, read-auto, inactive, broken, …
    devices: int  # that it has when whole
    members: tuple[str, ...]  # paths of the devices that are in it now
    size: int = 0  # bytes
    chunk: int | None = None  # KiB
    content: tuple[Signature, ...] = ()
    blank: bool = False  # first MiB is zero; not looked at (False) where there is a signature
    holders: tuple[str, ...] = ()  # what stacks upon it, partitions included


@dataclass(frozen=True)
class Mount:
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
    """A place that the request names, as it is now. Wanted of: mount, fallback, each adopt path, fallback/<name>,
    <adopt path>/<name>, and every directory below mount."""

    path: str
    kind: str  # absent, directory, other (a symbolic link is other)
    owner: str = ""
    group: str = ""
    mode: str = ""  # "1777": four digits
    empty: bool = True


@dataclass(frozen=True)
class Machine:
    """Everything that was read of one machine, at one time."""

    disks: tuple[Disk, ...] = ()  # every NVMe namespace, not only those that are meant
    arrays: tuple[Array, ...] = ()  # every md device
    mounts: tuple[Mount, ...] = ()  # all, in the order of the kernel: the last one at a target is the visible one
    fstab: tuple[FstabLine, ...] = ()  # with target == request.mount
    paths: tuple[Path, ...] = ()
    building: str = ""  # md UUID in the marker file
    missing_tools: tuple[str, ...] = ()  # of mdadm, wipefs, mkfs.<filesystem>, mount, udevadm
    unknown_names: tuple[str, ...] = ()  # owners and groups of directories that nobody knows here
    unmountable: str = ""  # what mount said when it was tried just before (the executor plans again after that)
