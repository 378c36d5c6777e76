# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a machine for the planner of the NVMe scratch. Changes nothing, needs neither mdadm nor mkfs. Private."""

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
from pathlib import Path as FilePath

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.directories import wanted_paths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import FstabLine, Machine, Path
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_array import read_arrays
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_disk import read_disks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_place import Place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_stack import Stack
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_text import ReadError, parse_fstab

MARKER = "/var/lib/hpcai/nvme_scratch.json"
FSTAB = "/etc/fstab"
_HOST = "pid:[4026531836]"
_BY = {"UUID": "uuid", "LABEL": "label", "PARTUUID": "partuuid", "PARTLABEL": "partlabel", "ID": "id"}


def read_machine(place: Place, request: Request) -> Machine:
    """Return everything that a plan for this request looks at."""
    stack = Stack(place)
    tools = ("mdadm", "wipefs", f"mkfs.{request.filesystem}", "mount", "umount", "udevadm")
    return Machine(
        disks=read_disks(place, stack),
        arrays=read_arrays(place, stack),
        mounts=stack.mounts,
        fstab=tuple(line for line in read_fstab(place) if posixpath.normpath(line.target) == request.mount),
        paths=tuple(read_path(place, path) for path in wanted_paths(request)),
        building=read_marker(place),
        missing_tools=tuple(tool for tool in tools if not place.tool(tool)),
        unknown_names=tuple(dict.fromkeys(_unknown(request))),
    )


def in_container(place: Place) -> bool:
    """Return whether this is a container: a privileged one sees all disks of its host, which are not its own."""
    if any(place.at(path).exists() for path in ("/run/systemd/container", "/run/.containerenv", "/.dockerenv")):
        return True
    # Those of Kubernetes leave no file; the first PID namespace has this number on every kernel.
    with contextlib.suppress(OSError):
        if os.readlink(place.at("/proc/self/ns/pid")) != _HOST:
            return True
    return any(word.startswith("container=") for word in place.text("/proc/1/environ").split("\0"))


def read_fstab(place: Place) -> list[FstabLine]:
    """Return the active lines of fstab with the devices that they stand for now."""
    lines = parse_fstab(_whole(place, FSTAB))
    return [
        FstabLine(one.number, one.text, one.source, one.path, one.fstype, _device(place, one.source)) for one in lines
    ]


def read_marker(place: Place) -> str:
    """Return the md UUID of the array that was being made when a run was cut off."""
    text = place.text(MARKER)
    if not text:
        return ""
    try:
        found = json.loads(text)["building"]
    except (ValueError, KeyError, TypeError) as exc:
        raise ReadError(f"{MARKER} does not say what was being built ({exc!r}); read and remove it") from exc
    return str(found or "")


def read_path(place: Place, path: str) -> Path:
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


def _device(place: Place, source: str) -> str:
    """Return the device of an fstab line's source; empty where there is none now."""
    tag, equals, value = source.partition("=")
    path = source
    if equals and tag in _BY:
        path = f"/dev/disk/by-{_BY[tag]}/{_encoded(value.strip(chr(34)))}"
    if not path.startswith("/dev/") or not place.at(path).exists():
        return ""
    return place.canonical(path)


def _whole(place: Place, path: str) -> str:
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


def _unknown(request: Request) -> t.Iterator[str]:
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
