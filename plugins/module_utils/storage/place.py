# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""storage_bandwidth: where files may be written, and the folder that is removed whatever happens. Private."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import stat
import tempfile
import types
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import mdadm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage.request import StorageError

PREFIX = ".hpcai-storage-"
# A file system that is nearly full is slow, and what else writes to it must not fail because of a measurement.
KEEP = 0.10


class Space(t.NamedTuple):
    """Bytes of a file system: in all, and those that this user can have."""

    total: int
    available: int


def check_kind(path: str) -> None:
    """Refuse everything but a directory: writing to a device would destroy what is on it."""
    with contextlib.suppress(OSError):
        mode = Path(path).stat().st_mode
        if not stat.S_ISDIR(mode):
            kind = "a block device" if stat.S_ISBLK(mode) else "no directory"
            raise StorageError(f"{path} is {kind}; give a directory, the files are made in a new one below it")


def space(path: str) -> Space:
    """Return the space of the file system that holds a path."""
    found = os.statvfs(path)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def refusal(path: str, needed: int, found: Space) -> str:
    """Say why nothing of that size may be written, empty when it may."""
    left = found.available - needed
    if found.total > 0 and left >= KEEP * found.total:
        return ""
    return (
        f"{path}: {gib(needed)} of {gib(found.available)} available would leave less than {KEEP:.0%} of"
        f" {gib(found.total)} free; reduce size or jobs"
    )


def gib(number: int) -> str:
    """Write bytes as the user gave them."""
    return f"{number / (1 << 30):.1f} GiB"


@contextlib.contextmanager
def folder(path: str) -> t.Iterator[str]:
    """Make a directory of our own, and remove it also when the module is told to end."""

    def leave(number: int, dummy: types.FrameType | None) -> None:
        raise SystemExit(128 + number)

    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.signal(number, leave) for number in signals}
    own = tempfile.mkdtemp(prefix=PREFIX, dir=path)
    try:
        yield own
    finally:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        shutil.rmtree(own, ignore_errors=True)
        for number, handler in before.items():
            signal.signal(number, handler)


def mount(path: str, mounts: str) -> Json:
    """Return type and device of the file system of a path from the text of /proc/self/mounts."""
    best: Json = {"type": None, "device": None}
    length = 0
    for line in mounts.splitlines():
        device, place, kind = ([*line.split(" "), "", "", ""])[:3]
        place = re.sub(r"\\(\d{3})", lambda match: chr(int(match.group(1), 8)), place)
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= length:
            best, length = {"type": kind, "device": device}, len(place)
    return best


def about(path: str) -> Json:
    """Return what is known of the file system of a path, with the trouble of its RAID array."""
    found: Json = {**mount(os.path.realpath(path), _text("/proc/self/mounts"))}
    device = os.path.realpath(found["device"] or "")
    for array in mdadm.parse_mdstat(_text("/proc/mdstat")):
        if array.path == device:
            found.update(array=array.level, members=len(array.members), problems=array.problems)
    return found


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
