# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is on a block device: signatures, an md superblock, anything at all. Only ever opens it for reading. Private."""

from __future__ import annotations

import contextlib
import errno
import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import read_superblock as superblock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Member, Signature
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_place import Place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_text import ReadError, parse_wipefs

MIB = 1 << 20
# Where mdadm lets data begin on members of all sizes (128 MiB or less of headroom, and one). After ``mdadm
# --zero-superblock`` the first and the last MiB may be zero while a whole filesystem still lies there.
_DATA = tuple((1 << power) + 1 for power in range(8))
_SAMPLE = 64 << 10


def spots(size: int) -> list[tuple[int, int]]:
    """Return offset and length of all that has to be zero on a blank disk."""
    edge = min(MIB, size)
    middle = [(mib * MIB, _SAMPLE) for mib in (1, *_DATA) if mib * MIB + _SAMPLE <= size - edge]
    return [(0, edge), *middle, (size - edge, edge)]


def is_blank(place: Place, path: str, parts: t.Iterable[tuple[int, int]]) -> bool:
    """Return whether these parts of a device are all zero."""
    with _opened(place, path) as handle:
        return all(_read(handle, path, offset, length) == bytes(length) for offset, length in parts)


def member(place: Place, path: str) -> Member | None:
    """Return what the superblock of a disk says of its array; None where there is none of metadata 1.2."""
    with _opened(place, path) as handle:
        found = superblock.parse(os.pread(handle, superblock.LENGTH, superblock.OFFSET))
    if found is None:
        return None
    name = found.name.rpartition(":")[2]
    return Member(found.uuid, name, found.level, found.members, found.slot, found.chunk // 1024 or None)


class Signatures:
    """All that wipefs finds on some devices: by one process, unless one of the devices cannot be read."""

    def __init__(self, place: Place, paths: t.Sequence[str]) -> None:
        self.place = place
        self._found: dict[str, tuple[Signature, ...]] = {}
        with contextlib.suppress(ReadError):
            self._found = self._ask(paths) if paths else {}

    def of(self, *paths: str) -> tuple[Signature, ...]:
        """Return what is on these devices. Raises `ReadError` for one that cannot be read."""
        return tuple(
            sign for path in paths for sign in (self._found if path in self._found else self._ask([path]))[path]
        )

    def _ask(self, paths: t.Sequence[str]) -> dict[str, tuple[Signature, ...]]:
        done = self.place.run(["wipefs", "--no-act", "--json", *(str(self.place.at(path)) for path in paths)])
        if done.problem:
            raise ReadError(f"wipefs --no-act {' '.join(paths)} said: {done.problem}")
        names = {path.rpartition("/")[2]: path for path in paths}
        # A filesystem can have several magic strings.
        every: dict[str, dict[Signature, None]] = {path: {} for path in paths}
        for sign in parse_wipefs(done.out):
            path = names.get(sign.device.rpartition("/")[2], "")
            if not path:
                raise ReadError(f"wipefs told of {sign.device}, which it was not asked for")
            every[path][Signature(path, sign.type, sign.uuid, sign.label)] = None
        return {path: tuple(signs) for path, signs in every.items()}


def is_busy(place: Place, path: str) -> bool:
    """Return whether the kernel refuses an exclusive open: somebody holds the device or a partition of it."""
    try:
        os.close(os.open(place.at(path), os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as exc:
        if exc.errno != errno.EBUSY:
            raise
        return True
    return False


@contextlib.contextmanager
def _opened(place: Place, path: str) -> t.Iterator[int]:
    handle = os.open(place.at(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        # What another program wrote may still be in its cache only, but what a hypervisor changed is not in ours.
        with contextlib.suppress(OSError, AttributeError):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        yield handle
    finally:
        os.close(handle)


def _read(handle: int, path: str, offset: int, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = os.pread(handle, length - len(data), offset + len(data))
        if not part:
            raise ReadError(f"{path} ends at byte {offset + len(data)}, before its size")
        data += part
    return data
