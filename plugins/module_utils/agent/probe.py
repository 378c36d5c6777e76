# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a file, read it back from where it is stored, and compare. Private, stdlib only."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
import typing as t
from pathlib import Path

_NAME = ".hpcai-probe-"
# What a killed probe left is removed by the next one; one that is younger may still be at work.
_OLD = 600.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DISK = (errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, getattr(errno, "EUCLEAN", errno.EIO))


class Result(t.NamedTuple):
    """``kind`` says whose fault a problem is, ``full`` that there is no room.

    ``served`` is the file server's time, ``skew`` how far ours is ahead.
    """

    seconds: float
    problem: str = ""
    kind: str = "hardware"
    served: float | None = None
    skew: float | None = None
    full: bool = False


def probe(folder: str | Path, size: int, data: bytes | None = None) -> Result:
    """Write and read ``size`` bytes of chance in a directory; nothing of it stays."""
    begin, wanted = time.monotonic(), os.urandom(size) if data is None else data
    # A name that nobody can take before us: all may write where jobs write.
    path = Path(folder, f"{_NAME}{os.urandom(8).hex()}")
    try:
        clean(folder)
        try:
            found = _through(path, wanted)
            served, skew = _times(path.with_suffix(".d"))
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
    except OSError as exc:
        kind = "hardware" if exc.errno in _DISK else "config"
        return Result(time.monotonic() - begin, f"{folder}: {exc.strerror or exc}", kind, full=exc.errno in _FULL)
    seconds = time.monotonic() - begin
    if hashlib.sha256(found).digest() == hashlib.sha256(wanted).digest():
        return Result(seconds, served=served, skew=skew)
    wrong = next((at for at, (one, other) in enumerate(zip(found, wanted)) if one != other), min(len(found), size))
    return Result(seconds, f"{folder}: {len(found)} of {size} bytes came back, the first wrong one is number {wrong}")


def _through(path: Path, data: bytes) -> bytes:
    """Return what the storage has; the page cache would only prove that memory works.

    By its name it is not opened again: where all may write, something else could be there by then.
    """
    with path.open("x+b") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.seek(0)
        return file.read(len(data) + 1)


def _times(folder: Path) -> tuple[float, float]:
    """A new directory gets its time from whoever serves the file system; of files a client may tell its own time."""
    folder.mkdir(mode=0o700)
    now = time.time()
    try:
        served = folder.stat().st_mtime
        return served, now - served
    finally:
        folder.rmdir()


def clean(folder: str | Path, now: float | None = None) -> None:
    """Remove what earlier probes left."""
    moment = time.time() if now is None else now
    for path in Path(folder).glob(f"{_NAME}*"):
        with contextlib.suppress(OSError):
            if moment - path.lstat().st_mtime > _OLD:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
