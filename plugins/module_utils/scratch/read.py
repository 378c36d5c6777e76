# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a machine for the planner: disks, md arrays, mounts. Changes nothing and needs neither mdadm nor mkfs."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import posixpath
import pwd
import re
import stat
import typing as t
from collections import Counter
from dataclasses import replace
from pathlib import Path as FilePath

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import block_device
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.block_device import (
    MachineRoot,
    MountLine,
    ScratchReadError,
    parse_fstab,
    parse_mountinfo,
    parse_swaps,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.layout import wanted_paths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    ArrayMember,
    FstabLine,
    Path,
    ScratchArray,
    ScratchDisk,
    ScratchMachine,
    ScratchMount,
    ScratchRequest,
)

# What uses block devices: partitions, holders, mounts, swap. From sysfs and proc.


class Stack:
    """The block devices of a machine as they were at one time, by their kernel names (``nvme0n1``, ``md127``)."""

    def __init__(self, root: MachineRoot) -> None:
        self.root = root
        self._whole: dict[str, list[str]] = {}
        self.mounts = tuple(self._mount(line) for line in parse_mountinfo(root.text("/proc/self/mountinfo")))
        self._swaps = [root.canonical(path) for path in parse_swaps(root.text("/proc/swaps"))]

    def partitions(self, name: str) -> list[str]:
        """Return the partitions that the kernel knows of a disk or an array."""
        base = f"/sys/block/{name}"
        below = [partition for partition in self.root.names(base) if partition.startswith(name)]
        return [partition for partition in below if self.root.at(f"{base}/{partition}/partition").exists()]

    def holders(self, name: str) -> list[str]:
        """Return what is directly upon a device or its partitions."""
        folders = [f"/sys/class/block/{device}/holders" for device in (name, *self.partitions(name))]
        return list(dict.fromkeys(holder for folder in folders for holder in self.root.names(folder)))

    def whole(self, name: str) -> list[str]:
        """Return a device and everything that stacks upon it."""
        if name in self._whole:
            return self._whole[name]
        every: list[str] = []
        pending = [name]
        while pending:
            device = pending.pop(0)
            if device not in every:
                every.append(device)
                pending += [*self.partitions(device), *self.holders(device)]
        self._whole[name] = every
        return every

    def mounted(self, name: str) -> tuple[str, ...]:
        """Return the mount points of a device and of everything upon it.

        Some filesystems (btrfs) are mounted under a number of their own, but with the device as their source.
        """
        every = self.whole(name)
        numbers = {self.root.text(f"/sys/class/block/{device}/dev") for device in every} - {""}
        paths = {f"/dev/{device}" for device in every}
        return tuple(mount.target for mount in self.mounts if mount.number in numbers or mount.device in paths)

    def swaps(self, name: str) -> tuple[str, ...]:
        """Return the swap devices among a device and everything upon it."""
        paths = [f"/dev/{device}" for device in self.whole(name)]
        return tuple(path for path in self._swaps if path in paths)

    def _mount(self, line: MountLine) -> ScratchMount:
        link = self.root.at(f"/sys/dev/block/{line.device}")
        device = line.source
        if link.exists():
            device = f"/dev/{os.path.basename(os.path.realpath(link))}"  # noqa: PTH119 - a link of sysfs, not a file
        elif device.startswith("/dev/"):
            device = self.root.canonical(device)
        return ScratchMount(line.path, device, line.device, line.fstype, line.root, line.options)


# The NVMe namespaces of a machine, from sysfs and their content.


_NAMESPACE = re.compile(r"nvme\d+n\d+")
_CONTROLLER = re.compile(r"nvme\d+")


def read_disks(root: MachineRoot, stack: Stack, through: t.Container[str] | None) -> tuple[ScratchDisk, ...]:
    """Return every namespace; a failure to read one is in its ``error``."""
    names = [name for name in root.names("/sys/block") if _NAMESPACE.fullmatch(name)]
    serials = Counter(_about(root, name, "serial") for name in names)
    links = _links(root)
    devices = [f"/dev/{device}" for name in names for device in (name, *stack.partitions(name))]
    signatures = block_device.Signatures(root, devices)
    ids = {name: _ids(root, name, serials, links.get(f"/dev/{name}", [])) for name in names}
    return tuple(_disk(root, stack, signatures, name, ids[name], through) for name in names)


def _ids(root: MachineRoot, name: str, serials: t.Mapping[str, int], links: t.Sequence[str]) -> tuple[str, ...]:
    """Return the names that stay the same at every boot; a serial that several namespaces share is left out."""
    serial = _about(root, name, "serial")
    ids = [serial if serials[serial] == 1 else "", root.text(f"/sys/block/{name}/wwid"), *links]
    return tuple(text for text in dict.fromkeys(ids) if text)


def _disk(
    root: MachineRoot,
    stack: Stack,
    signatures: block_device.Signatures,
    name: str,
    ids: tuple[str, ...],
    through: t.Container[str] | None,
) -> ScratchDisk:
    base, path = f"/sys/block/{name}", f"/dev/{name}"
    disk = ScratchDisk(
        path=path,
        id=ids[0] if ids else "",
        ids=ids,
        model=_about(root, name, "model"),
        transport=_about(root, name, "transport"),
        size=root.number(f"{base}/size") * 512,
        max_io=root.number(f"{base}/queue/max_hw_sectors_kb"),
        partitions=tuple(f"/dev/{partition}" for partition in stack.partitions(name)),
        holders=tuple(f"/dev/{holder}" for holder in stack.holders(name)),
        mounts=stack.mounted(name),
        swaps=stack.swaps(name),
        read_only=root.text(f"{base}/ro") == "1",
        blank=False,
    )
    try:
        return replace(disk, **_disk_content(root, signatures, disk, through is None or disk.id in through))
    except (OSError, ScratchReadError) as exc:
        return replace(disk, error=str(exc))


def _disk_content(
    root: MachineRoot, signatures: block_device.Signatures, disk: ScratchDisk, through: bool
) -> dict[str, t.Any]:
    if not disk.size:
        raise ScratchReadError(f"{disk.path} has no size: its controller lost it")
    signs = signatures.of(disk.path, *disk.partitions)
    bare = not signs and not disk.partitions
    return {
        "signatures": signs,
        "member": block_device.member(root, disk.path),
        "blank": bare and through and block_device.is_blank(root, disk.path, block_device.spots(disk.size)),
        "busy": block_device.is_busy(root, disk.path),
    }


def _about(root: MachineRoot, name: str, attribute: str) -> str:
    """Return an attribute of a namespace's controller; with native multipath a subsystem lies in between."""
    device = f"/sys/block/{name}/device"
    below = [f"{device}/{entry}" for entry in root.names(device) if _CONTROLLER.fullmatch(entry)]
    return next((text for text in (root.text(f"{path}/{attribute}") for path in (device, *below)) if text), "")


def _links(root: MachineRoot) -> dict[str, list[str]]:
    """Return the names that udev gave in ``/dev/disk/by-id``, by device."""
    links: dict[str, list[str]] = {}
    for name in root.names("/dev/disk/by-id"):
        links.setdefault(root.canonical(f"/dev/disk/by-id/{name}"), []).append(name)
    return links


# The md arrays that the kernel knows, from sysfs, their members' superblocks and their content.


# Without I/O: nothing can be read of these.
_STOPPED = ("clear", "inactive", "broken", "")


def read_arrays(root: MachineRoot, stack: Stack) -> tuple[ScratchArray, ...]:
    """Return every md device, running or not."""
    names = [name for name in root.names("/sys/block") if root.at(f"/sys/block/{name}/md").is_dir()]
    return tuple(_array(root, stack, name) for name in names)


def _array(root: MachineRoot, stack: Stack, name: str) -> ScratchArray:
    base, path = f"/sys/block/{name}", f"/dev/{name}"
    members = [f"/dev/{entry[4:]}" for entry in root.names(f"{base}/md") if entry.startswith("dev-")]
    superblock = _superblock(root, members)
    array = ScratchArray(
        device=path,
        uuid=superblock.uuid if superblock else "",
        name=superblock.name if superblock else "",
        level=root.text(f"{base}/md/level") or (superblock.level if superblock else ""),
        state=root.text(f"{base}/md/array_state"),
        # An array that was never started does not know how many it should have; its members do.
        devices=root.number(f"{base}/md/raid_disks") or (superblock.devices if superblock else 0),
        members=tuple(members),
        size=root.number(f"{base}/size") * 512,
        holders=tuple(f"/dev/{device}" for device in [*stack.partitions(name), *stack.holders(name)]),
    )
    if array.state in _STOPPED or not array.size:
        return array
    try:
        return replace(array, **_array_content(root, array, stack.partitions(name)))
    except (OSError, ScratchReadError) as exc:
        return replace(array, state=f"unreadable: {exc}")


def _superblock(root: MachineRoot, members: t.Sequence[str]) -> ArrayMember | None:
    """Return the superblock of the first member that can be read."""
    for path in members:
        with contextlib.suppress(OSError, ScratchReadError):
            superblock = block_device.member(root, path)
            if superblock:
                return superblock
    return None


def _array_content(root: MachineRoot, array: ScratchArray, partitions: t.Sequence[str]) -> dict[str, t.Any]:
    paths = [array.device, *(f"/dev/{partition}" for partition in partitions)]
    signatures = block_device.Signatures(root, paths).of(*paths)
    edge = min(block_device.MIB, array.size)
    return {"content": signatures, "blank": not signatures and block_device.is_blank(root, array.device, [(0, edge)])}


# Read a machine for the planner of the NVMe scratch. Changes nothing, needs neither mdadm nor mkfs.


MARKER = "/var/lib/hpcai/nvme_scratch.json"
FSTAB = "/etc/fstab"
_HOST = "pid:[4026531836]"
_BY = {"UUID": "uuid", "LABEL": "label", "PARTUUID": "partuuid", "PARTLABEL": "partlabel", "ID": "id"}


def read_machine(root: MachineRoot, request: ScratchRequest, through: t.Container[str] | None = None) -> ScratchMachine:
    """Return everything that a plan for this request depends on.

    ``through`` are the ids of the disks that are looked through for data without a signature, a thousand reads each; by
    default all. The others are not ``blank``.
    """
    stack = Stack(root)
    tools = ("mdadm", "wipefs", f"mkfs.{request.filesystem}", "mount", "umount", "udevadm")
    return ScratchMachine(
        disks=read_disks(root, stack, through),
        arrays=read_arrays(root, stack),
        mounts=stack.mounts,
        fstab=tuple(line for line in read_fstab(root) if posixpath.normpath(line.target) == request.mount),
        paths=tuple(read_path(root, path) for path in wanted_paths(request)),
        building=read_marker(root),
        missing_tools=tuple(tool for tool in tools if not root.tool(tool)),
        unknown_names=tuple(dict.fromkeys(_unknown(request))),
    )


def in_container(root: MachineRoot) -> bool:
    """Return whether this is a container: a privileged one sees all disks of its host, which are not its own."""
    if any(root.at(path).exists() for path in ("/run/systemd/container", "/run/.containerenv", "/.dockerenv")):
        return True
    # Those of Kubernetes leave no file; the first PID namespace has this number on every kernel.
    with contextlib.suppress(OSError):
        if os.readlink(root.at("/proc/self/ns/pid")) != _HOST:
            return True
    return any(variable.startswith("container=") for variable in root.text("/proc/1/environ").split("\0"))


def read_fstab(root: MachineRoot) -> list[FstabLine]:
    """Return the active lines of fstab with the devices that their sources name now."""
    lines = parse_fstab(_whole(root, FSTAB))
    return [
        FstabLine(line.number, line.text, line.source, line.path, line.fstype, _device(root, line.source))
        for line in lines
    ]


def read_marker(root: MachineRoot) -> str:
    """Return the md UUID of the array that was being made when a run was cut off."""
    text = root.text(MARKER)
    if not text:
        return ""
    try:
        building = json.loads(text)["building"]
    except (ValueError, KeyError, TypeError) as exc:
        raise ScratchReadError(f"{MARKER} does not say what was being built ({exc!r}); read and remove it") from exc
    return str(building or "")


def read_path(root: MachineRoot, path: str) -> Path:
    """Return the kind, owner and mode of a path; a symbolic link is not followed."""
    file = root.at(path)
    try:
        status = file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return Path(path, "absent")
    except OSError:  # EIO of a file system whose disks are gone: the planner knows them and says more than that
        return Path(path, "other")
    if not stat.S_ISDIR(status.st_mode):
        return Path(path, "other")
    mode = f"{stat.S_IMODE(status.st_mode):04o}"
    return Path(path, "directory", _owner(status.st_uid), _group(status.st_gid), mode, _empty(file))


def _device(root: MachineRoot, source: str) -> str:
    """Return the device that an fstab source names now; empty where there is none."""
    tag, equals, value = source.partition("=")
    path = source
    if equals and tag in _BY:
        path = f"/dev/disk/by-{_BY[tag]}/{_encoded(value.strip(chr(34)))}"
    if not path.startswith("/dev/") or not root.at(path).exists():
        return ""
    return root.canonical(path)


def _whole(root: MachineRoot, path: str) -> str:
    """Return a file's text with the blank lines at its ends, since its lines are counted."""
    try:
        return root.at(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _encoded(value: str) -> str:
    """Return a label as udev names its link, or a device with a blank in its label would seem to be gone."""
    return re.sub(
        r"[^A-Za-z0-9#+.:=@_\-\u0080-\U0010ffff]",
        lambda hit: "".join(f"\\x{byte:02x}" for byte in hit[0].encode()),
        value,
    )


def _unknown(request: ScratchRequest) -> t.Iterator[str]:
    for directory in request.directories:
        if not _known(pwd.getpwnam, directory.owner):
            yield directory.owner
        if not _known(grp.getgrnam, directory.group):
            yield directory.group


def _known(lookup: t.Callable[[str], t.Any], name: str) -> bool:
    try:
        return bool(lookup(name))
    except KeyError:
        return False


def _owner(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _empty(folder: FilePath) -> bool:
    try:
        return next(folder.iterdir(), None) is None
    except OSError:
        return False
