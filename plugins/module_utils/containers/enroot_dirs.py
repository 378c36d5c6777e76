# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories of users below one that belongs to root, made and emptied by root. Private, also run around jobs.

Scratch may be writable for everybody, and what is in a user's directory is the user's to arrange. So root follows no
link here, hands nothing over that it did not just make, and lets users make what is inside themselves. What has to go
is renamed into a directory of root's first, where nobody can reach it, and deleted later.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
import time
import typing as t
from pathlib import Path

TRASH = ".trash"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def opened(path: str, parent: int | None = None) -> t.Iterator[int]:
    """Open a directory that is no link."""
    handle = os.open(path, _DIRECTORY, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)


def base(path: str, owner: int = 0) -> None:
    """Have the directory of all users, root's own. What somebody else put in its place is moved out of the way.

    Its parent has to be there: where scratch is away, nothing is made on the system disk instead.
    """
    above, name = os.path.split(path.rstrip("/"))
    with opened(above) as parent:
        _own(parent, name, owner, 0o755, lambda: _aside(parent, name))
        with opened(name, parent) as place:
            _own(place, TRASH, owner, 0o700, lambda: _aside(place, TRASH))


def _aside(place: int, name: str) -> None:
    os.rename(name, f".{name}.stray-{time.time_ns()}", src_dir_fd=place, dst_dir_fd=place)


def _own(parent: int, name: str, owner: int, mode: int, away: t.Callable[[], None]) -> None:
    """Have a directory of this owner and mode."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    if found and (not stat.S_ISDIR(found.st_mode) or found.st_uid != owner):
        away()
        found = None
    if not found:
        # Whoever makes it first in between makes this fail, and the job goes on without.
        os.mkdir(name, 0o700, dir_fd=parent)
    with opened(name, parent) as place:
        now = os.fstat(place)
        if now.st_uid != owner:
            os.fchown(place, owner, -1)
        if stat.S_IMODE(now.st_mode) != mode:
            os.fchmod(place, mode)


def have(path: str, uid: int, gid: int, names: t.Iterable[str]) -> None:
    """Have a user's directory, for that user alone, and directories in it, which the user makes."""
    with opened(path) as place:
        _own(place, str(uid), uid, 0o700, lambda: away(place, str(uid), place))
    child = os.fork()
    if child == 0:
        _as_user(Path(path, str(uid)), uid, gid, names)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError(f"user {uid} cannot make {', '.join(names)} in {path}/{uid}")


def _as_user(path: Path, uid: int, gid: int, names: t.Iterable[str]) -> t.NoReturn:
    """Go on as the user, and end."""
    status = 1
    try:
        if os.geteuid() == 0:
            os.setgroups([gid])
            os.setgid(gid)
            os.setuid(uid)
        for name in names:
            (path / name).mkdir(mode=0o700, exist_ok=True)
        status = 0
    finally:
        os._exit(status)


def away(place: int, name: str, root: int) -> None:
    """Put something into the trash of the directory ``root`` in one step."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(name, f"{TRASH}/{name}-{time.time_ns()}", src_dir_fd=place, dst_dir_fd=root)


def empty(path: str, uid: int, names: t.Iterable[str]) -> None:
    """Put directories of a user into the trash."""
    with contextlib.suppress(FileNotFoundError), opened(path) as root, opened(str(uid), root) as place:
        for name in names:
            away(place, name, root)


def users(path: str) -> list[int]:
    """Return the users who have a directory."""
    with contextlib.suppress(OSError):
        return sorted(int(name) for name in os.listdir(path) if name.isdecimal())  # noqa: PTH208 - names, not paths
    return []


def trash(path: str) -> list[str]:
    """Return what is to be deleted."""
    with contextlib.suppress(OSError):
        return [f"{path}/{TRASH}/{name}" for name in os.listdir(f"{path}/{TRASH}")]  # noqa: PTH208
    return []


def used(path: str) -> float:
    """Return how full the file system is, in percent, as df counts: without what is kept for root."""
    dummy, taken, free = shutil.disk_usage(path)
    return 100.0 * taken / (taken + free) if taken + free else 0.0


def group_of(uid: int) -> int:
    """Return the main group of a user; a group of nobody's for one whom this node does not know."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid
