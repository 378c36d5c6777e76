# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is on one block device: signatures, md superblock, mounts. Only ever opened for reading."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import random
import re
import shutil
import struct
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import ArrayMember, Signature

# The files and tools of a machine; tests put a tree in place of ``/``.


# Ansible's become and cron leave the folders of administration out.
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TIMEOUT = 60.0


class MachineRoot:
    """A machine's files below ``root``, and its tools."""

    def __init__(self, root: Path = Path("/"), search: str = SEARCH) -> None:
        self.root = root.resolve()
        self.search = search

    def at(self, path: str) -> Path:
        """Return where an absolute path of the machine lies."""
        return self.root / path.lstrip("/")

    def canonical(self, path: str) -> str:
        """Return an absolute path of the machine without symbolic links; the path itself where it leads nowhere."""
        real = os.path.realpath(self.at(path))
        inside = os.path.relpath(real, self.root)
        return path if inside.startswith("..") else f"/{inside}"

    def text(self, path: str, default: str = "") -> str:
        """Return a file of one value without blanks at its ends; the default where it cannot be read."""
        try:
            return self.at(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return default

    def number(self, path: str) -> int:
        """Return a file of one number; 0 where it holds none."""
        digits = self.text(path)
        return int(digits) if digits.isdecimal() else 0

    def names(self, path: str) -> list[str]:
        """Return what a folder holds, in the order in which people count (nvme2n1 before nvme10n1)."""
        try:
            return sorted((entry.name for entry in self.at(path).iterdir()), key=natural)
        except OSError:
            return []

    def tool(self, name: str) -> str | None:
        """Return the path of a program, None where it is not installed."""
        return shutil.which(name, path=self.search)

    def run(self, argv: t.Sequence[str], timeout: float = TIMEOUT) -> Outcome:
        """Run a program of the machine."""
        return run(argv, timeout, environment={"PATH": self.search})


def natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts the numbers in names by their value."""
    pieces: list[tuple[int, str]] = []
    digits = ""
    for letter in f"{text}\0":
        if letter.isdecimal():
            digits += letter
            continue
        pieces += [(int(digits), "")] if digits else []
        pieces.append((-1, letter))
        digits = ""
    return pieces


# Parsers of wipefs, mountinfo, swaps and fstab. No I/O.


_ESCAPE = re.compile(r"\\([0-7]{3})")


class ScratchReadError(ValueError):
    """The machine cannot be read; the text is fit for the user."""


class WipefsSignature(t.NamedTuple):
    """One magic string that wipefs found; ``device`` without its folder."""

    device: str
    offset: int
    type: str
    uuid: str
    label: str


class MountLine(t.NamedTuple):
    """One line of mountinfo; ``device`` is major:minor, ``root`` what of the filesystem is mounted there."""

    device: str
    root: str
    path: str
    options: tuple[str, ...]
    fstype: str
    source: str


class ParsedFstabLine(t.NamedTuple):
    """One entry of fstab with the number of its line, from 1, and that line as it stands."""

    number: int
    source: str
    path: str
    fstype: str
    text: str


def parse_wipefs(text: str) -> list[WipefsSignature]:
    """Read ``wipefs --no-act --json``; a disk without content makes some versions print nothing at all."""
    if not text.strip():
        return []
    try:
        entries = json.loads(text)["signatures"]
        return [_signature(entry) for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ScratchReadError(f"wipefs did not print signatures as JSON: {exc!r}") from exc


def _signature(entry: t.Mapping[str, t.Any]) -> WipefsSignature:
    label, uuid = entry.get("label") or "", entry.get("uuid") or ""
    return WipefsSignature(
        str(entry["device"]), int(str(entry["offset"]), 0), str(entry["type"]), str(uuid), str(label)
    )


def parse_mountinfo(text: str) -> list[MountLine]:
    """Read ``/proc/self/mountinfo``, lowest mount first."""
    mounts = []
    for line in text.splitlines():
        fields = line.split(" ")
        if "-" not in fields[6:]:
            raise ScratchReadError(f"mountinfo holds a line that is none: {line!r}")
        dash = fields.index("-", 6)
        fstype, source = fields[dash + 1 : dash + 3]
        options = tuple(fields[5].split(","))
        mounts.append(MountLine(fields[2], _plain(fields[3]), _plain(fields[4]), options, fstype, _plain(source)))
    return mounts


def parse_swaps(text: str) -> list[str]:
    """Return the devices and files in ``/proc/swaps``."""
    return [_plain(line.split()[0]) for line in text.splitlines()[1:] if line.strip()]


def parse_fstab(text: str) -> list[ParsedFstabLine]:
    """Return the entries of ``/etc/fstab``; comments and what mount(8) ignores are left out."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if len(fields) >= 3 and not fields[0].startswith("#"):
            lines.append(ParsedFstabLine(number, _plain(fields[0]), _plain(fields[1]), fields[2], line))
    return lines


def _plain(text: str) -> str:
    r"""Undo the escapes of blanks and backslashes (``\040``)."""
    return _ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), text)


# The md superblock 1.2 of a disk, from its bytes. No I/O.


OFFSET = 4096
LENGTH = 4096
_MAGIC = 0xA92B4EFC
_HEAD = 256
_LEVELS = {0: "raid0", 1: "raid1", 4: "raid4", 5: "raid5", 6: "raid6", 10: "raid10", 0xFFFFFFFF: "linear"}


class Superblock(t.NamedTuple):
    """What a member records about its array; ``slot`` is None for a spare or a device that failed."""

    uuid: str
    name: str
    level: str
    members: int
    chunk: int
    slot: int | None
    events: int


def parse(block: bytes) -> Superblock | None:
    """Read the block `OFFSET` bytes from the start of a disk; None where it is no valid superblock 1.2."""
    if len(block) < _HEAD:
        return None
    magic, major = struct.unpack_from("<II", block, 0)
    (most,) = struct.unpack_from("<I", block, 220)
    length = _HEAD + 2 * most
    if (
        magic != _MAGIC
        or major != 1
        or length > len(block)
        or _sum(block[:length]) != struct.unpack_from("<I", block, 216)[0]
    ):
        return None
    level, dummy, dummy, chunk, members = struct.unpack_from("<IIQII", block, 72)
    (number,) = struct.unpack_from("<I", block, 160)
    (events,) = struct.unpack_from("<Q", block, 200)
    role = struct.unpack_from("<H", block, _HEAD + 2 * number)[0] if number < most else 0xFFFF
    name = block[32:64].split(b"\0")[0].decode(errors="replace")
    slot = role if role < members else None
    return Superblock(uuid_text(block[16:32]), name, _LEVELS.get(level, str(level)), members, chunk * 512, slot, events)


def uuid_text(raw: bytes) -> str:
    """Return a UUID as mdadm prints those of metadata 1.x."""
    digits = raw.hex()
    return ":".join(digits[start : start + 8] for start in range(0, 32, 8))


def _sum(block: bytes) -> int:
    """Return the checksum as the kernel does it (calc_sb_1_csum), with the field of the sum itself as zero."""
    plain = block[:216] + bytes(4) + block[220:]
    words = struct.unpack_from(f"<{len(plain) // 4}I", plain)
    total = sum(words)
    if len(plain) % 4 == 2:
        total += struct.unpack_from("<H", plain, len(plain) - 2)[0]
    return ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF


# The content of a block device: signatures, an md superblock, anything at all. Opens it for reading only.


MIB = 1 << 20
GIB = 1 << 30
# The beginning holds all first superblocks and labels; VMFS begins at 2 MiB, and LUKS2 looks for its second header up
# to 4 MiB (LUKS2_HDR2_OFFSETS).
_BEGINNING = 5 * MIB
# The end holds the copy of GPT, md's superblocks 0.90 and 1.0, two labels of ZFS, and what RAID firmware writes; the
# farthest that libblkid looks is 3087 sectors before the end (Promise).
_END = 2 * MIB
# Where mdadm lets data begin on members of all sizes (128 MiB or less of headroom, and one). After ``mdadm
# --zero-superblock`` the beginning and the end may be zero while a whole filesystem still lies there.
_DATA = tuple(((1 << power) + 1) * MIB for power in range(8))
_COPIES = (
    # btrfs keeps copies of its superblock at 64 MiB and 256 GiB.
    *(64 * MIB, 256 * GIB),
    # Ceph's BlueStore keeps copies of its label at these (bdev_label_positions).
    *(GIB, 10 * GIB, 100 * GIB, 1000 * GIB),
    # ext4 keeps copies of its superblock in groups of 128 MiB whose numbers are powers of 3, 5 and 7 (sparse_super).
    *(group * 128 * MIB for group in (1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343, 625, 729, 2187, 2401, 3125)),
)
# XFS keeps one in each allocation group: four of them, on disks below 4 TiB without a stripe.
_QUARTERS = 4
_SAMPLE = 64 << 10
# Of as many equal stretches of a disk one block is read, at a place that follows from the size alone, since what `zero`
# has cleared must be found blank again. Data of more than two stretches in a row (0.2 % of the disk) cannot be missed;
# of data that is scattered over a share of 1 % of the disk 34 in a million cases are, over 0.5 % six in a thousand.
# With the places above that is 13 MiB and about 1060 reads for a disk of 1.9 TB, and only before it is first used. No
# stretch is shorter than 1 MiB: a disk of less than 1 GiB is a rehearsal's.
_STRETCHES = 1024
_SECTION = 4096


@functools.lru_cache(maxsize=4)  # a node's disks are of one size as a rule, and each is asked for several times
def spots(size: int) -> tuple[tuple[int, int], ...]:
    """Return offset and length of each region that is zero on a blank disk: where superblocks lie, and all over it."""
    head, tail = min(_BEGINNING, size), min(_END, size)
    quarters = [size * part // _QUARTERS // _SECTION * _SECTION - _SAMPLE // 2 for part in range(1, _QUARTERS)]
    known = [(offset, _SAMPLE) for offset in (*_DATA, *_COPIES, *quarters)]
    inside = {(offset, length) for offset, length in known + _scattered(size) if head <= offset <= size - tail - length}
    return ((0, head), (size - tail, tail), *sorted(inside))


def _scattered(size: int) -> list[tuple[int, int]]:
    places = random.Random(size)  # noqa: S311 - no secret: the same places for the same size
    number = min(_STRETCHES, size // MIB)
    stretch = size // number // _SECTION * _SECTION if number else 0
    return [(place * stretch + places.randrange(0, stretch, _SECTION), _SECTION) for place in range(number)]


def is_blank(root: MachineRoot, path: str, regions: t.Iterable[tuple[int, int]]) -> bool:
    """Return whether these regions of a device are all zero."""
    with _opened(root, path) as handle:
        with contextlib.suppress(OSError, AttributeError):
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
        return all(_read(handle, path, offset, length) == bytes(length) for offset, length in regions)


def member(root: MachineRoot, path: str) -> ArrayMember | None:
    """Return the disk's md membership; None where there is no superblock of metadata 1.2."""
    with _opened(root, path) as handle:
        superblock = parse(os.pread(handle, LENGTH, OFFSET))
    if superblock is None:
        return None
    name = superblock.name.rpartition(":")[2]
    return ArrayMember(
        superblock.uuid, name, superblock.level, superblock.members, superblock.slot, superblock.chunk // 1024 or None
    )


class Signatures:
    """All that wipefs finds on some devices: by one process, unless one of the devices cannot be read."""

    def __init__(self, root: MachineRoot, paths: t.Sequence[str]) -> None:
        self.root = root
        self._found: dict[str, tuple[Signature, ...]] = {}
        with contextlib.suppress(ScratchReadError):
            self._found = self._ask(paths) if paths else {}

    def of(self, *paths: str) -> tuple[Signature, ...]:
        """Return the signatures on these devices. Raises `ScratchReadError` for one that cannot be read."""
        return tuple(
            sign for path in paths for sign in (self._found if path in self._found else self._ask([path]))[path]
        )

    def _ask(self, paths: t.Sequence[str]) -> dict[str, tuple[Signature, ...]]:
        outcome = self.root.run(["wipefs", "--no-act", "--json", *(str(self.root.at(path)) for path in paths)])
        if outcome.problem:
            raise ScratchReadError(f"wipefs --no-act {' '.join(paths)} said: {outcome.problem}")
        names = {path.rpartition("/")[2]: path for path in paths}
        # A filesystem can have several magic strings.
        every: dict[str, dict[Signature, None]] = {path: {} for path in paths}
        for sign in parse_wipefs(outcome.out):
            path = names.get(sign.device.rpartition("/")[2], "")
            if not path:
                raise ScratchReadError(f"wipefs told of {sign.device}, which it was not asked for")
            every[path][Signature(path, sign.type, sign.uuid, sign.label)] = None
        return {path: tuple(signs) for path, signs in every.items()}


def is_busy(root: MachineRoot, path: str) -> bool:
    """Return whether the kernel refuses an exclusive open: somebody holds the device or a partition of it."""
    try:
        os.close(os.open(root.at(path), os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as exc:
        if exc.errno != errno.EBUSY:
            raise
        return True
    return False


@contextlib.contextmanager
def _opened(root: MachineRoot, path: str) -> t.Iterator[int]:
    handle = os.open(root.at(path), os.O_RDONLY | os.O_CLOEXEC)
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
        chunk = os.pread(handle, length - len(data), offset + len(data))
        if not chunk:
            raise ScratchReadError(f"{path} ends at byte {offset + len(data)}, before its size")
        data += chunk
    return data
