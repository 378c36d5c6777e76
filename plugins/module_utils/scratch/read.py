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

# What stands upon block devices: partitions, holders, mounts, swap. From sysfs and proc; private.


class Stack:
    """The block devices of a machine as they were at one time, by their kernel names (``nvme0n1``, ``md127``)."""

    def __init__(self, place: MachineRoot) -> None:
        self.place = place
        self._whole: dict[str, list[str]] = {}
        self.mounts = tuple(self._mount(line) for line in parse_mountinfo(place.text("/proc/self/mountinfo")))
        self._swaps = [place.canonical(path) for path in parse_swaps(place.text("/proc/swaps"))]

    def partitions(self, name: str) -> list[str]:
        """Return the partitions that the kernel knows of a disk or an array."""
        base = f"/sys/block/{name}"
        below = [part for part in self.place.names(base) if part.startswith(name)]
        return [part for part in below if self.place.at(f"{base}/{part}/partition").exists()]

    def holders(self, name: str) -> list[str]:
        """Return what is directly upon a device or its partitions."""
        folders = [f"/sys/class/block/{one}/holders" for one in (name, *self.partitions(name))]
        return list(dict.fromkeys(holder for folder in folders for holder in self.place.names(folder)))

    def whole(self, name: str) -> list[str]:
        """Return a device and everything that stacks upon it."""
        if name in self._whole:
            return self._whole[name]
        seen: list[str] = []
        todo = [name]
        while todo:
            one = todo.pop(0)
            if one not in seen:
                seen.append(one)
                todo += [*self.partitions(one), *self.holders(one)]
        self._whole[name] = seen
        return seen

    def mounted(self, name: str) -> tuple[str, ...]:
        """Return the mount points of a device and of everything upon it.

        Some filesystems (btrfs) are mounted under a number of their own, but with the device as their source.
        """
        every = self.whole(name)
        numbers = {self.place.text(f"/sys/class/block/{one}/dev") for one in every} - {""}
        paths = {f"/dev/{one}" for one in every}
        return tuple(mount.target for mount in self.mounts if mount.number in numbers or mount.device in paths)

    def swaps(self, name: str) -> tuple[str, ...]:
        """Return the swap devices among a device and everything upon it."""
        paths = [f"/dev/{one}" for one in self.whole(name)]
        return tuple(path for path in self._swaps if path in paths)

    def _mount(self, line: MountLine) -> ScratchMount:
        known = self.place.at(f"/sys/dev/block/{line.device}")
        device = line.source
        if known.exists():
            device = f"/dev/{os.path.basename(os.path.realpath(known))}"  # noqa: PTH119 - a link of sysfs, not a file
        elif device.startswith("/dev/"):
            device = self.place.canonical(device)
        return ScratchMount(line.path, device, line.device, line.fstype, line.root, line.options)


# The NVMe namespaces of a machine, from sysfs and their content.


_NAMESPACE = re.compile(r"nvme\d+n\d+")
_CONTROLLER = re.compile(r"nvme\d+")


def read_disks(place: MachineRoot, stack: Stack) -> tuple[ScratchDisk, ...]:
    """Return every namespace; what fails with one is in its ``error``."""
    names = [name for name in place.names("/sys/block") if _NAMESPACE.fullmatch(name)]
    serials = Counter(_about(place, name, "serial") for name in names)
    links = _links(place)
    parts = [f"/dev/{part}" for name in names for part in (name, *stack.partitions(name))]
    found = block_device.Signatures(place, parts)
    ids = {name: _ids(place, name, serials, links.get(f"/dev/{name}", [])) for name in names}
    return tuple(_disk(place, stack, found, name, ids[name]) for name in names)


def _ids(place: MachineRoot, name: str, serials: t.Mapping[str, int], links: t.Sequence[str]) -> tuple[str, ...]:
    """Return the names that last. Namespaces of one controller share its serial, which then names none of them."""
    serial = _about(place, name, "serial")
    words = [serial if serials[serial] == 1 else "", place.text(f"/sys/block/{name}/wwid"), *links]
    return tuple(word for word in dict.fromkeys(words) if word)


def _disk(
    place: MachineRoot, stack: Stack, found: block_device.Signatures, name: str, ids: tuple[str, ...]
) -> ScratchDisk:
    base, path = f"/sys/block/{name}", f"/dev/{name}"
    disk = ScratchDisk(
        path=path,
        id=ids[0] if ids else "",
        ids=ids,
        model=_about(place, name, "model"),
        transport=_about(place, name, "transport"),
        size=place.number(f"{base}/size") * 512,
        max_io=place.number(f"{base}/queue/max_hw_sectors_kb"),
        partitions=tuple(f"/dev/{part}" for part in stack.partitions(name)),
        holders=tuple(f"/dev/{holder}" for holder in stack.holders(name)),
        mounts=stack.mounted(name),
        swaps=stack.swaps(name),
        read_only=place.text(f"{base}/ro") == "1",
        blank=False,
    )
    try:
        return replace(disk, **_disk_content(place, found, disk))
    except (OSError, ScratchReadError) as exc:
        return replace(disk, error=str(exc))


def _disk_content(place: MachineRoot, found: block_device.Signatures, disk: ScratchDisk) -> dict[str, t.Any]:
    if not disk.size:
        raise ScratchReadError(f"{disk.path} has no size: its controller lost it")
    signs = found.of(disk.path, *disk.partitions)
    bare = not signs and not disk.partitions
    return {
        "signatures": signs,
        "member": block_device.member(place, disk.path),
        "blank": bare and block_device.is_blank(place, disk.path, block_device.spots(disk.size)),
        "busy": block_device.is_busy(place, disk.path),
    }


def _about(place: MachineRoot, name: str, attribute: str) -> str:
    """Return what a namespace's controller says; with native multipath there is a subsystem in between."""
    device = f"/sys/block/{name}/device"
    below = [f"{device}/{entry}" for entry in place.names(device) if _CONTROLLER.fullmatch(entry)]
    return next((text for text in (place.text(f"{path}/{attribute}") for path in (device, *below)) if text), "")


def _links(place: MachineRoot) -> dict[str, list[str]]:
    """Return the names that udev gave in ``/dev/disk/by-id``, by device."""
    found: dict[str, list[str]] = {}
    for name in place.names("/dev/disk/by-id"):
        found.setdefault(place.canonical(f"/dev/disk/by-id/{name}"), []).append(name)
    return found


# The md arrays that the kernel knows, from sysfs, their members' superblocks and their content.


# Without I/O: nothing can be read of these.
_STOPPED = ("clear", "inactive", "broken", "")


def read_arrays(place: MachineRoot, stack: Stack) -> tuple[ScratchArray, ...]:
    """Return every md device, running or not."""
    names = [name for name in place.names("/sys/block") if place.at(f"/sys/block/{name}/md").is_dir()]
    return tuple(_array(place, stack, name) for name in names)


def _array(place: MachineRoot, stack: Stack, name: str) -> ScratchArray:
    base, path = f"/sys/block/{name}", f"/dev/{name}"
    members = [f"/dev/{entry[4:]}" for entry in place.names(f"{base}/md") if entry.startswith("dev-")]
    said = _superblock(place, members)
    chunk = place.number(f"{base}/md/chunk_size") // 1024
    array = ScratchArray(
        device=path,
        uuid=said.uuid if said else "",
        name=said.name if said else "",
        level=place.text(f"{base}/md/level") or (said.level if said else ""),
        state=place.text(f"{base}/md/array_state"),
        # An array that was never started does not know how many it should have; its members do.
        devices=place.number(f"{base}/md/raid_disks") or (said.devices if said else 0),
        members=tuple(members),
        size=place.number(f"{base}/size") * 512,
        chunk=chunk or (said.chunk if said else None),
        holders=tuple(f"/dev/{one}" for one in [*stack.partitions(name), *stack.holders(name)]),
    )
    if array.state in _STOPPED or not array.size:
        return array
    try:
        return replace(array, **_array_content(place, array, stack.partitions(name)))
    except (OSError, ScratchReadError) as exc:
        return replace(array, state=f"unreadable: {exc}")


def _superblock(place: MachineRoot, members: t.Sequence[str]) -> ArrayMember | None:
    """Return what the first member says that can still be read."""
    for path in members:
        with contextlib.suppress(OSError, ScratchReadError):
            found = block_device.member(place, path)
            if found:
                return found
    return None


def _array_content(place: MachineRoot, array: ScratchArray, partitions: t.Sequence[str]) -> dict[str, t.Any]:
    paths = [array.device, *(f"/dev/{part}" for part in partitions)]
    found = block_device.Signatures(place, paths).of(*paths)
    edge = min(block_device.MIB, array.size)
    return {"content": found, "blank": not found and block_device.is_blank(place, array.device, [(0, edge)])}


# Read a machine for the planner of the NVMe scratch. Changes nothing, needs neither mdadm nor mkfs.


MARKER = "/var/lib/hpcai/nvme_scratch.json"
FSTAB = "/etc/fstab"
_HOST = "pid:[4026531836]"
_BY = {"UUID": "uuid", "LABEL": "label", "PARTUUID": "partuuid", "PARTLABEL": "partlabel", "ID": "id"}


def read_machine(place: MachineRoot, request: ScratchRequest) -> ScratchMachine:
    """Return everything that a plan for this request looks at."""
    stack = Stack(place)
    tools = ("mdadm", "wipefs", f"mkfs.{request.filesystem}", "mount", "umount", "udevadm")
    return ScratchMachine(
        disks=read_disks(place, stack),
        arrays=read_arrays(place, stack),
        mounts=stack.mounts,
        fstab=tuple(line for line in read_fstab(place) if posixpath.normpath(line.target) == request.mount),
        paths=tuple(read_path(place, path) for path in wanted_paths(request)),
        building=read_marker(place),
        missing_tools=tuple(tool for tool in tools if not place.tool(tool)),
        unknown_names=tuple(dict.fromkeys(_unknown(request))),
    )


def in_container(place: MachineRoot) -> bool:
    """Return whether this is a container: a privileged one sees all disks of its host, which are not its own."""
    if any(place.at(path).exists() for path in ("/run/systemd/container", "/run/.containerenv", "/.dockerenv")):
        return True
    # Those of Kubernetes leave no file; the first PID namespace has this number on every kernel.
    with contextlib.suppress(OSError):
        if os.readlink(place.at("/proc/self/ns/pid")) != _HOST:
            return True
    return any(word.startswith("container=") for word in place.text("/proc/1/environ").split("\0"))


def read_fstab(place: MachineRoot) -> list[FstabLine]:
    """Return the active lines of fstab with the devices that they stand for now."""
    lines = parse_fstab(_whole(place, FSTAB))
    return [
        FstabLine(one.number, one.text, one.source, one.path, one.fstype, _device(place, one.source)) for one in lines
    ]


def read_marker(place: MachineRoot) -> str:
    """Return the md UUID of the array that was being made when a run was cut off."""
    text = place.text(MARKER)
    if not text:
        return ""
    try:
        found = json.loads(text)["building"]
    except (ValueError, KeyError, TypeError) as exc:
        raise ScratchReadError(f"{MARKER} does not say what was being built ({exc!r}); read and remove it") from exc
    return str(found or "")


def read_path(place: MachineRoot, path: str) -> Path:
    """Return a place as it is; a symbolic link is not followed."""
    file = place.at(path)
    try:
        found = file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return Path(path, "absent")
    except OSError:  # EIO of a file system whose disks are gone: the planner knows them and says more than that
        return Path(path, "other")
    if not stat.S_ISDIR(found.st_mode):
        return Path(path, "other")
    mode = f"{stat.S_IMODE(found.st_mode):04o}"
    return Path(path, "directory", _owner(found.st_uid), _group(found.st_gid), mode, _empty(file))


def _device(place: MachineRoot, source: str) -> str:
    """Return the device of an fstab line's source; empty where there is none now."""
    tag, equals, value = source.partition("=")
    path = source
    if equals and tag in _BY:
        path = f"/dev/disk/by-{_BY[tag]}/{_encoded(value.strip(chr(34)))}"
    if not path.startswith("/dev/") or not place.at(path).exists():
        return ""
    return place.canonical(path)


def _whole(place: MachineRoot, path: str) -> str:
    """Return a text as it stands, with the blank lines at its ends: its lines are counted."""
    try:
        return place.at(path).read_bytes().decode(errors="replace")
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
