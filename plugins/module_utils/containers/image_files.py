# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image files in a directory that nobody else may write to: private, stdlib only.

Used where images are kept and, as text in front of ``image_stage``, on every node. A file is written aside, hashed on
the way, and gets its name only when all of it is on the disk.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHUNK = 8 << 20
Record = t.Dict[str, t.Any]


class ImageError(ValueError):
    """An image cannot be had as asked; the text is fit for the user."""


def distrust(directory: Path) -> str:
    """Say how others could put a file of theirs in the place of ours; empty when they cannot."""
    real = Path(os.path.realpath(directory))
    for place in (real, *real.parents):
        found = place.stat()
        if found.st_uid not in (0, os.geteuid()):
            return f"{place} belongs to uid {found.st_uid}, who could replace images; give it to uid {os.geteuid()}"
        writable, sticky = found.st_mode & 0o022, found.st_mode & stat.S_ISVTX
        if writable and (place == real or not sticky):
            mode = f"{stat.S_IMODE(found.st_mode):04o}"
            return f"{place} has mode {mode}, so that others could replace images; take their right to write away"
    return ""


def have(directory: Path) -> None:
    """Make the directory, or refuse it; what is above it must be there (scratch that is not mounted is not)."""
    try:
        if not directory.is_dir():
            directory.mkdir()
            directory.chmod(0o755)
    except OSError as exc:
        raise ImageError(f"{directory} cannot be made: {exc.strerror}") from exc
    problem = distrust(directory)
    if problem:
        raise ImageError(problem)


def proof(path: Path) -> Record:
    """What changes when anybody writes to a file; ctime cannot be set back."""
    found = path.lstat()
    return {
        "size": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "ctime_ns": found.st_ctime_ns,
        "inode": found.st_ino,
    }


def transfer(source: t.BinaryIO, target: t.BinaryIO | None) -> tuple[str, int]:
    """Copy, or only read, and return sha256 and size; one piece is hashed while the next is read and written."""
    digest, size = hashlib.sha256(), 0
    with ThreadPoolExecutor(1) as pool:
        hashed = None
        for piece in iter(lambda: source.read(CHUNK), b""):
            if hashed:
                hashed.result()
            hashed = pool.submit(digest.update, piece)
            size += len(piece)
            if target:
                target.write(piece)
    return digest.hexdigest(), size


def sha256(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return transfer(t.cast(t.BinaryIO, file), None)[0]


def squashfs_problem(path: Path) -> str:
    """Say why a file is no whole squashfs, by its superblock: a copy that broke off is shorter than that says."""
    with path.open("rb") as file:
        head = file.read(96)
        size = os.fstat(file.fileno()).st_size
    if len(head) < 96 or head[:4] != b"hsqs":
        return f"it is no squashfs ({size} bytes, it begins with {head[:4]!r})"
    used = struct.unpack_from("<Q", head, 40)[0]
    return f"it is cut off: the squashfs has {used} bytes, the file {size}" if size < used else ""


def damage(path: Path, image: t.Mapping[str, t.Any], known: Record | None, verify: bool) -> str:
    """Say what is wrong with an image's file, empty when nothing; it is not read while it is as when it was hashed."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return "is not there"
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()):
        return f"is no file of uid {os.geteuid()}"
    if found.st_size != image["size"]:
        return f"has {found.st_size} bytes instead of {image['size']}"
    if known == proof(path) and not verify:
        return ""
    digest = sha256(path)
    return "" if digest == image["sha256"] else f"has sha256 {digest} instead of {image['sha256']}"


def copy(source: Path, aside: Path, image: t.Mapping[str, t.Any]) -> None:
    """Bring a file to a name of its own; anything but the image itself is refused and removed."""
    try:
        with source.open("rb", buffering=0) as reader, create(aside) as writer:
            digest, size = transfer(t.cast(t.BinaryIO, reader), writer)
        if (size, digest) != (image["size"], image["sha256"]):
            raise ImageError(
                f"{source} gave {size} bytes with sha256 {digest} instead of {image['size']} with {image['sha256']}"
            )
    except OSError as exc:
        aside.unlink(missing_ok=True)
        raise ImageError(f"copying {source} to {aside.parent}: {exc.strerror}") from exc
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def create(path: Path) -> t.BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    return t.cast(t.BinaryIO, os.fdopen(os.open(path, flags, 0o600), "wb"))


def adopt(aside: Path, path: Path) -> Record:
    """Give a checked file its name, once it is on the disk, and return what shows that nobody wrote to it since."""
    with aside.open("rb+") as file:
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    aside.replace(path)
    return proof(path)
