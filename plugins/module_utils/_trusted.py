# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths that nobody but trusted users can point elsewhere, so that root may write, read and give away what is there.

Whoever makes the first directory of a path on a shared file system owns all that is below it, and whoever may write to
a directory may put a symbolic link where root expects a directory. So a path is walked component by component, as
sshd's StrictModes does it for authorized_keys, but through handles: what was looked at is what is used. Each component

- belongs to a trusted user: root, and those whom the caller names;
- is writable by nobody else, unless it is sticky (as ``/tmp`` is): there only the owner of an entry can exchange it,
  and the next component's owner is looked at as well. Write permission of root's group counts as root's, and that of
  the group that has its owner's name and no other member counts as the owner's. An ACL that lets others write shows up
  in the group's bits (acl(5)); NFSv4 ACLs do not, and are the file server's to keep.

A symbolic link is followed when it belongs to a trusted user and stands in such a directory: nobody else could have
made it. Root follows root's own alone: a user who is trusted with a directory, as its owner, is not trusted to say
which of root's directories it is. Any other link ends the walk.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import json
import os
import pwd
import stat
import typing as t

_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LINKS = 40  # as many as Linux follows in one path (path_resolution(7))


class TrustError(ValueError):
    """Somebody who is not trusted could exchange what a path leads to; the text is fit for the user."""


class NotAllowedError(TrustError):
    """The path can be trusted, and this user may not change it; another one may."""


class Directory(t.NamedTuple):
    """A directory as it shall be; ``uid`` and ``gid`` own it, ``mode`` is exact."""

    path: str
    uid: int = 0
    gid: int = 0
    mode: int = 0o755


class File(t.NamedTuple):
    """A file as it shall be; ``uid`` and ``gid`` own it, ``mode`` is exact."""

    path: str
    content: bytes
    uid: int = 0
    gid: int = 0
    mode: int = 0o644


def trusted_users(*more: int) -> frozenset[int]:
    """Root, who this process is, and the users named."""
    return frozenset({0, os.geteuid(), *more})


@contextlib.contextmanager
def opened(path: str, trusted: t.AbstractSet[int], for_entries: bool = False) -> t.Iterator[int]:
    """Walk to a directory and yield a handle for ``dir_fd``; raise TrustError, or OSError where it is not there.

    ``for_entries`` looks at the directory itself as at those above it, as its entries are going to be used.
    """
    with contextlib.ExitStack() as handles:
        handle = _walk(handles, path, trusted)
        if for_entries:
            _check(path, os.fstat(handle), trusted)
        yield handle


def check(path: str, trusted: t.AbstractSet[int]) -> None:
    """Raise TrustError for a directory into which others could put something, or an OSError; a missing one is nobody's.

    What was in it before may still be somebody else's.
    """
    with contextlib.suppress(FileNotFoundError), opened(path, trusted) as handle:
        _refuse_unlike(path, os.fstat(handle), trusted)


def make(path: str, trusted: t.AbstractSet[int]) -> None:
    """Make a directory with mode 0755, and those above it that are missing; one that is there stays as it is.

    Raises TrustError for one into which others could put something, or an OSError.
    """
    with contextlib.ExitStack() as handles:
        made: list[str] = []
        walked = _walk(handles, path, trusted, made)
        if made:
            handle = os.open(".", _LIST, dir_fd=walked)
            handles.callback(os.close, handle)
            os.fchmod(handle, 0o755)  # whatever the umask says
        _refuse_unlike(path, os.fstat(walked), trusted)


def distrust(path: str, trusted: t.AbstractSet[int]) -> str:
    """Say why a file or directory cannot be trusted, or that it is not there; nothing when it can be.

    A symbolic link counts as what it leads to, when a trusted user made it.
    """
    try:
        where, links = path, 0
        while True:
            above, name = os.path.split(_absolute(where))
            with opened(above, trusted, for_entries=True) as folder:
                status = os.stat(name or ".", dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISLNK(status.st_mode):
                    unlike = _unlike(status, trusted)
                    return unlike and f"{where} {unlike}"
                links += 1
                where = os.path.join(above, _target(name, folder, where, trusted, links))  # noqa: PTH118 - as text
    except TrustError as exc:
        return str(exc)
    except OSError as exc:
        return f"{path}: {exc.strerror}"


def read(path: str, trusted: t.AbstractSet[int], at_most: int = 1 << 20) -> bytes:
    """Return what is in a regular file that nobody else can have written; raise TrustError or OSError."""
    return read_with_status(path, trusted, at_most)[0]


def read_with_status(path: str, trusted: t.AbstractSet[int], at_most: int = 1 << 20) -> tuple[bytes, os.stat_result]:
    """Do as ``read``, and return whose the file is and its mode as well."""
    above, name = os.path.split(_absolute(path))
    with opened(above, trusted, for_entries=True) as folder:
        return _read(folder, name, path, trusted, at_most)


def content(path: str, trusted: t.AbstractSet[int], at_most: int = 1 << 26) -> bytes | None:
    """Return what is in a regular file, whoever wrote it, in a directory whose entries nobody else can exchange.

    None where there is no such file. It is for comparing with what shall be there, not for believing.
    """
    above, name = os.path.split(_absolute(path))
    try:
        with opened(above, trusted, for_entries=True) as folder:
            return _read(folder, name, path, None, at_most)[0]
    except FileNotFoundError:
        return None


def _read(
    folder: int, name: str, path: str, trusted: t.AbstractSet[int] | None, at_most: int
) -> tuple[bytes, os.stat_result]:
    try:
        handle = os.open(name, _READ, dir_fd=folder)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise TrustError(f"{path} is a symbolic link") from exc
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise TrustError(f"{path} is no regular file")
    with os.fdopen(handle, "rb") as file:
        if trusted is not None and (unlike := _unlike(status, trusted)):
            raise TrustError(f"{path} {unlike}")
        if status.st_size > at_most:
            raise TrustError(f"{path} has {status.st_size} bytes; more than {at_most} are not read")
        return file.read(at_most + 1), status


def look_file(wanted: File, trusted: t.AbstractSet[int]) -> list[str]:
    """Say what would be changed to have this file; raise TrustError where what is there cannot be trusted."""
    above, name = os.path.split(_absolute(wanted.path))
    try:
        with opened(above, trusted, for_entries=True) as folder:
            return _file_differences(wanted, folder, name, trusted)
    except FileNotFoundError:
        return ["created"]


def have_file(wanted: File, trusted: t.AbstractSet[int]) -> list[str]:
    """Write this file, or correct owner and mode of the one there, and say what was changed.

    It is written aside and renamed, in the directory that was looked at, so that no link is ever followed.
    """
    above, name = os.path.split(_absolute(wanted.path))
    with opened(above, trusted, for_entries=True) as folder:
        changes = _file_differences(wanted, folder, name, trusted)
        if changes:
            try:
                _replace(wanted, folder, name)
            except PermissionError as exc:
                raise NotAllowedError(f"{wanted.path} cannot be written by uid {os.geteuid()}: {exc.strerror}") from exc
        return changes


def put_file(wanted: File, trusted: t.AbstractSet[int]) -> None:
    """Write this file, whatever was there and whose, and make the directories above it that are missing."""
    above, name = os.path.split(_absolute(wanted.path))
    try:
        with opened(above, trusted, for_entries=True) as folder:
            _replace(wanted, folder, name)
    except FileNotFoundError:
        make(above, trusted)
        with opened(above, trusted, for_entries=True) as folder:
            _replace(wanted, folder, name)


def _file_differences(wanted: File, folder: int, name: str, trusted: t.AbstractSet[int]) -> list[str]:
    try:
        content, status = _read(folder, name, wanted.path, trusted, max(len(wanted.content), 1 << 26))
    except FileNotFoundError:
        return ["created"]
    return (["content"] if content != wanted.content else []) + _differences(wanted, status)


def _replace(wanted: File, folder: int, name: str) -> None:
    aside = f".{name}.{os.getpid()}.partial"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(aside, dir_fd=folder)
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(wanted.content)
            file.flush()
            status = os.fstat(file.fileno())
            if (status.st_uid, status.st_gid) != (wanted.uid, wanted.gid):
                os.fchown(file.fileno(), wanted.uid, wanted.gid)
            os.fchmod(file.fileno(), wanted.mode)
            os.fsync(file.fileno())
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(aside, dir_fd=folder)
        raise


def by_root_or_owner(act: t.Callable[[], list[str]], uid: int) -> list[str]:
    """Do something as root; where root may not, since the file server turns it into nobody, as the user ``uid``."""
    try:
        return act()
    except (PermissionError, NotAllowedError) as exc:
        if os.geteuid() != 0 or uid == 0:
            raise
        refused = exc
    try:
        return as_user(act, uid)
    except TrustError as exc:
        raise TrustError(f"{exc} (and as root: {refused})") from refused


def as_user(act: t.Callable[[], list[str]], uid: int) -> list[str]:
    """Call a function in a process of a user with nobody else's rights, and return what it returned."""
    user = pwd.getpwuid(uid)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer: dict[str, t.Any] = {"error": "it ended before it said anything"}
        try:
            os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
            os.setgid(user.pw_gid)
            os.setuid(uid)
            answer = {"changes": act()}
        except (OSError, TrustError) as exc:
            answer = {"error": str(exc)}
        finally:
            os.write(writer, json.dumps(answer).encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read()
    os.waitpid(child, 0)
    answer = json.loads(text or b'{"error": "its process was killed"}')
    if "error" in answer:
        raise TrustError(f"{_user(uid)}: {answer['error']}")
    return t.cast(t.List[str], answer["changes"])


def look(wanted: Directory, trusted: t.AbstractSet[int]) -> list[str]:
    """Say what would be changed to have this directory; raise TrustError where it cannot be trusted."""
    try:
        with opened(wanted.path, trusted) as handle:
            status = os.fstat(handle)
            _refuse_open(wanted, status, handle)
    except FileNotFoundError:
        return ["created"]
    return _differences(wanted, status)


def have(wanted: Directory, trusted: t.AbstractSet[int]) -> list[str]:
    """Make this directory, or correct owner and mode of the one there, and say what was changed.

    Missing directories above it belong to who makes them, with mode 0755. Nothing inside is touched: a directory that
    others could write to so far is only taken when it is empty.
    """
    with contextlib.ExitStack() as handles:
        made: list[str] = []
        walked = _walk(handles, wanted.path, trusted, made)
        try:
            handle = os.open(".", _LIST, dir_fd=walked)
        except PermissionError as exc:
            raise NotAllowedError(f"{wanted.path} cannot be opened by uid {os.geteuid()}: {exc.strerror}") from exc
        handles.callback(os.close, handle)
        status = os.fstat(handle)
        _refuse_open(wanted, status, handle)
        changes = _differences(wanted, status)
        if (status.st_uid, status.st_gid) != (wanted.uid, wanted.gid):
            try:
                os.fchown(handle, wanted.uid, wanted.gid)
            except PermissionError as exc:
                raise NotAllowedError(
                    f"{wanted.path} cannot be given to {_user(wanted.uid)} by uid {os.geteuid()}: {exc.strerror}. "
                    "Where the file server turns root into nobody (root_squash), its administrator makes this directory"
                ) from exc
        if changes:
            os.fchmod(handle, wanted.mode)  # after the owner: a change of owner clears set-group-ID
        return ["created"] if made else changes


def _differences(wanted: Directory | File, status: os.stat_result) -> list[str]:
    """Name each attribute that differs, as it is and as it shall be."""
    mode = stat.S_IMODE(status.st_mode)
    pairs = [
        ("owner", status.st_uid, wanted.uid),
        ("group", status.st_gid, wanted.gid),
        ("mode", f"{mode:04o}", f"{wanted.mode:04o}"),
    ]
    return [f"{name} {now} -> {then}" for name, now, then in pairs if now != then]


def _refuse_open(wanted: Directory, status: os.stat_result, handle: int) -> None:
    """Refuse a directory with entries that others could write to and shall not: what is in it may be theirs."""
    if not _others(status) or wanted.mode & stat.S_ISVTX or _shall_write(wanted, status):
        return
    with contextlib.ExitStack() as handles:
        listing = os.open(".", _LIST, dir_fd=handle)
        handles.callback(os.close, listing)
        if os.listdir(listing):  # noqa: PTH208 - of a handle
            raise TrustError(
                f"{wanted.path} can be written by {_others(status)}, so what is in it may be anybody's. Look at it, "
                f"take away what you do not know, and give it the mode {wanted.mode:04o}"
            )


def _shall_write(wanted: Directory, status: os.stat_result) -> bool:
    """Say whether all who could write to a directory so far are meant to."""
    if wanted.mode & stat.S_IWOTH:
        return True
    group = wanted.gid == status.st_gid and wanted.mode & stat.S_IWGRP
    return bool(group) and not status.st_mode & stat.S_IWOTH


def _walk(handles: contextlib.ExitStack, path: str, trusted: t.AbstractSet[int], made: list[str] | None = None) -> int:
    """Open component after component; with ``made``, missing ones are made and noted there."""
    waiting = [name for name in _absolute(path).split("/") if name]
    handle = _enter(handles, "/", None)
    walked, links = "", 0
    _check(walked or "/", os.fstat(handle), trusted)
    while waiting:
        name = waiting.pop(0)
        where = f"{walked}/{name}"
        try:
            entered = _enter(handles, name, handle)
        except FileNotFoundError:
            if made is None:
                raise
            entered = _make(handles, name, handle, where, last=not waiting)
            made.append(where)
        except OSError as exc:
            if exc.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            links += 1
            target = _target(name, handle, where, trusted, links)
            waiting = [part for part in target.split("/") if part] + waiting
            if target.startswith("/"):
                handle, walked = _enter(handles, "/", None), ""
            continue
        if name == "..":
            walked = walked.rpartition("/")[0]
        elif name != ".":
            walked = where
        handle = entered
        _check(walked or "/", os.fstat(handle), trusted, last=not waiting)
    return handle


def _enter(handles: contextlib.ExitStack, name: str, above: int | None) -> int:
    handle = os.open(name, _WALK, dir_fd=above)
    handles.callback(os.close, handle)
    return handle


def _make(handles: contextlib.ExitStack, name: str, above: int, where: str, last: bool) -> int:
    """Make a directory; the last one is nobody else's until it has its owner and mode."""
    made = False
    try:
        os.mkdir(name, 0o700, dir_fd=above)
        made = True
        if not last:
            os.chmod(name, 0o755, dir_fd=above)  # noqa: S103 - whatever the umask says
    except PermissionError as exc:
        raise NotAllowedError(f"{where} cannot be made by uid {os.geteuid()}: {exc.strerror}") from exc
    except FileExistsError:
        pass  # somebody made it a moment ago: the walk looks at whose it is
    handle = _enter(handles, name, above)
    if os.fstat(handle).st_uid != os.geteuid():
        status = os.fstat(handle)
        if made:
            with contextlib.suppress(OSError):  # what nobody owns would be in the way of who may make it
                os.rmdir(name, dir_fd=above)
        raise NotAllowedError(
            f"{where} was made and belongs to {_user(status.st_uid)}: somebody else made it at the same time, or the "
            "file server turns root into nobody (root_squash). Its administrator makes this directory"
        )
    return handle


def _target(name: str, above: int, where: str, trusted: t.AbstractSet[int], links: int) -> str:
    """Return where a link leads that may be followed; raise TrustError for any other."""
    status = os.stat(name, dir_fd=above, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        raise TrustError(f"{where} is no directory")
    if status.st_uid not in (trusted if os.geteuid() != 0 else {0}):
        raise TrustError(
            f"{where} is a symbolic link of {_user(status.st_uid)}, which is not followed. Take it away, or let root "
            "make it"
        )
    if links > _LINKS:
        raise TrustError(f"{where} is one of more than {_LINKS} symbolic links")
    return os.readlink(name, dir_fd=above)


def _check(where: str, status: os.stat_result, trusted: t.AbstractSet[int], last: bool = False) -> None:
    """Raise TrustError for a directory in which somebody else could exchange the next component."""
    # Whether the last one may be writable is for the caller to say, who knows what it is for.
    if status.st_uid not in trusted or not (last or status.st_mode & stat.S_ISVTX):
        _refuse_unlike(where, status, trusted)


def _refuse_unlike(where: str, status: os.stat_result, trusted: t.AbstractSet[int]) -> None:
    if unlike := _unlike(status, trusted):
        raise TrustError(
            f"{where} {unlike}, who could put anything in the place of what is below it. Give it to root and take the "
            "permission to write from others (chown root, chmod go-w), or use another directory"
        )


def foreign(status: os.stat_result, trusted: t.AbstractSet[int]) -> str:
    """Say why what has this status may be somebody else's, its owner or who else may write; nothing when it may not."""
    return _unlike(status, trusted)


def _unlike(status: os.stat_result, trusted: t.AbstractSet[int]) -> str:
    if status.st_uid not in trusted:
        return f"belongs to {_user(status.st_uid)}"
    others = _others(status)
    return f"can be written by {others}" if others else ""


def _others(status: os.stat_result) -> str:
    """Name who may write besides the owner."""
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    if status.st_mode & stat.S_IWGRP and status.st_gid != 0 and not _is_private(status):
        return f"group {status.st_gid}"
    return ""


def _is_private(status: os.stat_result) -> bool:
    """Say whether the group has no member but the owner, as those that useradd makes with a user of the same name."""
    try:
        user, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and group.gr_gid == user.pw_gid and set(group.gr_mem) <= {user.pw_name}


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _absolute(path: str) -> str:
    if not path.startswith("/") or "\0" in path:
        raise TrustError(f"{path!r} is no absolute path")
    return path.rstrip("/") or "/"
