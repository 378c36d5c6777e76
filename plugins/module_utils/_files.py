# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write files so that a reader sees the old one or the new, and one writer at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
import typing as t
from pathlib import Path

# Put a whole file in place of another in one step: whoever is killed leaves the old one or the new.


def replace(
    path: Path,
    content: str | bytes,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
    lasting: bool = True,
) -> None:
    """Write beside a file and rename; at no moment more people can read it than in the end.

    Without ``mode`` the umask decides. What is ``lasting`` survives a crash of this machine. The name beside is this
    host's and this call's own: several hosts may write to a shared directory at once.
    """
    data = content.encode() if isinstance(content, str) else content
    aside = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.{time.monotonic_ns()}.tmp")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _own(file, mode, owner)
            file.write(data)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def _own(file: t.IO[bytes], mode: int | None, owner: tuple[int, int] | None) -> None:
    if owner is not None:
        os.fchown(file.fileno(), *owner)
    if mode is not None:
        os.fchmod(file.fileno(), mode)


# Files that somebody else may have made: never a link to another file, a pipe that nobody writes to, or a device.


@contextlib.contextmanager
def open_regular(path: str | Path) -> t.Iterator[t.BinaryIO]:
    """Open a regular file for reading, and nothing else; raises OSError. Whose it is, is for the caller to ask."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    with os.fdopen(handle, "rb") as file:
        yield file


def last_lines(path: str | Path, size: int = 16384) -> list[str]:
    """Return the lines in the last bytes of a regular file, the first perhaps cut; none when it cannot be read."""
    try:
        with open_regular(path) as handle:
            handle.seek(0, os.SEEK_END)
            handle.seek(max(0, handle.tell() - size))
            return handle.read().decode(errors="replace").splitlines()
    except OSError:
        return []


# One at a time: a lock that ends with its process, however that ends.


@contextlib.contextmanager
def lock(path: str | Path) -> t.Iterator[None]:
    """Hold a file's lock, waiting for whoever has it; the empty file stays.

    It is a lock by range, which Linux's NFS clients ask the server for, so it also holds between hosts.
    """
    with Path(path).open("a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield
