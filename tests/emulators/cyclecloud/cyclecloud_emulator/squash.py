#!/usr/bin/python3
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory as an NFS client of a server with root_squash sees it: root is nobody there, whatever it may elsewhere.

``squash.py DIRECTORY`` mounts it over itself by the kernel's FUSE (its protocol 7.31, without a library) and serves
until it is killed. Every request is done with the file system's user and group of who asks, as nfsd does it, and root's
are nobody's; attributes are believed for a second. Not as NFS: locks hold on this machine alone, supplementary groups
count for nothing, and there are no extended attributes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
import sys
import typing as t

NOBODY = 65534
VALID = 1  # seconds for which the kernel believes names and attributes
LARGEST = 1 << 17  # bytes of a read or write
BIG_WRITES, AUTO_INVAL_DATA = 1 << 5, 1 << 12
KEEP_CACHE = 1 << 1
HEADER = struct.Struct("<IIQQIIII")
# fmt: off
NAMES = {
    1: "lookup", 3: "getattr", 4: "setattr", 5: "readlink", 6: "symlink", 8: "mknod", 9: "mkdir", 10: "unlink",
    11: "rmdir", 12: "rename", 13: "link", 14: "open", 15: "read", 16: "write", 17: "statfs", 18: "release",
    20: "fsync", 25: "flush", 26: "init", 27: "opendir", 28: "readdir", 29: "release", 34: "access", 35: "create",
}
# fmt: on
SILENT = (2, 36, 42)  # forget, interrupt, batch_forget: nobody waits for an answer
LIBC = ctypes.CDLL(None, use_errno=True)


class Caller(t.NamedTuple):
    """Who asks, in whose place."""

    uid: int
    gid: int

    @contextlib.contextmanager
    def acting(self) -> t.Iterator[None]:
        """Whoever is not root loses root's power over files with its number."""
        LIBC.setfsgid(self.gid or NOBODY)
        LIBC.setfsuid(self.uid or NOBODY)
        try:
            yield
        finally:
            LIBC.setfsuid(0)
            LIBC.setfsgid(0)


def names(data: bytes) -> list[str]:
    return [os.fsdecode(name) for name in data.split(b"\0")[:-1]]


def attributes(found: os.stat_result) -> bytes:
    times = [found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns]
    whole, rest = [moment // 10**9 for moment in times], [moment % 10**9 for moment in times]
    about = (found.st_mode, found.st_nlink, found.st_uid, found.st_gid, found.st_rdev, found.st_blksize, 0)
    return struct.pack("<6Q10I", found.st_ino, found.st_size, found.st_blocks, *whole, *rest, *about)


class Squash:
    """The requests of the kernel, by their names; each returns the body of the answer."""

    def __init__(self, directory: str) -> None:
        self.root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        self.paths: dict[int, str | None] = {1: "."}  # None is one that was removed
        self.known: dict[str, tuple[int, tuple[int, int]]] = {}  # path -> its number, and which file it then was
        self.handles: dict[int, list[tuple[str, int, int]]] = {}  # open directories, with what was in them
        self.next = 1

    def path(self, node: int, name: str = "") -> str:
        place = self.paths.get(node)
        if place is None:
            raise OSError(errno.ESTALE, "stale")
        return f"{place}/{name}" if name else place

    def stat(self, path: str) -> os.stat_result:
        return os.stat(path, dir_fd=self.root, follow_symlinks=False)

    def entry(self, path: str) -> bytes:
        found = self.stat(path)
        which = (found.st_ino, stat.S_IFMT(found.st_mode))
        number, before = self.known.get(path, (0, None))
        if before != which:
            self.next += 1
            number = self.next
            self.known[path], self.paths[number] = (number, which), path
        return struct.pack("<4Q2I", number, 0, VALID, VALID, 0, 0) + attributes(found)

    def gone(self, path: str) -> None:
        number = self.known.pop(path, (0,))[0]
        if number:
            self.paths[number] = None

    def init(self, dummy: int, body: bytes) -> bytes:
        major, minor, ahead, flags = struct.unpack_from("<4I", body)
        flags &= BIG_WRITES | AUTO_INVAL_DATA
        return struct.pack("<4I2H2I2H8I", major, min(minor, 31), ahead, flags, 12, 9, LARGEST, 1, 0, 0, *[0] * 8)

    def lookup(self, node: int, body: bytes) -> bytes:
        return self.entry(self.path(node, names(body)[0]))

    def getattr(self, node: int, body: bytes) -> bytes:
        flags, dummy, handle = struct.unpack_from("<2IQ", body)
        found = os.fstat(handle) if flags & 1 else self.stat(self.path(node))
        return struct.pack("<Q2I", VALID, 0, 0) + attributes(found)

    def setattr(self, node: int, body: bytes) -> bytes:
        valid, dummy, handle, size, dummy, accessed, modified = struct.unpack_from("<2I5Q", body)
        accessed_ns, modified_ns, dummy, mode, dummy, uid, gid = struct.unpack_from("<7I", body, 56)
        open_file = bool(valid & 64)
        path = "" if open_file else self.path(node)
        if valid & 1:
            os.fchmod(handle, mode & 0o7777) if open_file else os.chmod(path, mode & 0o7777, dir_fd=self.root)
        if valid & 6:
            owner, group = uid if valid & 2 else -1, gid if valid & 4 else -1
            if open_file:
                os.fchown(handle, owner, group)
            else:
                os.chown(path, owner, group, dir_fd=self.root, follow_symlinks=False)
        if valid & 8:
            with self.writable(path, handle, open_file) as file:
                os.ftruncate(file, size)
        if valid & (16 | 32):
            self.touch(path, handle, open_file, valid, (accessed * 10**9 + accessed_ns, modified * 10**9 + modified_ns))
        found = os.fstat(handle) if open_file else self.stat(path)
        return struct.pack("<Q2I", VALID, 0, 0) + attributes(found)

    @contextlib.contextmanager
    def writable(self, path: str, handle: int, open_file: bool) -> t.Iterator[int]:
        file = handle if open_file else os.open(path, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=self.root)
        try:
            yield file
        finally:
            if not open_file:
                os.close(file)

    def touch(self, path: str, handle: int, open_file: bool, valid: int, given: tuple[int, int]) -> None:
        if valid & (128 | 256):  # now: who may write may say so
            times: tuple[int, int] | None = None
        else:
            found = os.fstat(handle) if open_file else self.stat(path)
            times = (given[0] if valid & 16 else found.st_atime_ns, given[1] if valid & 32 else found.st_mtime_ns)
        if open_file:
            os.utime(handle, ns=times) if times else os.utime(handle)
        else:
            more: t.Any = {"ns": times} if times else {}
            os.utime(path, dir_fd=self.root, follow_symlinks=False, **more)

    def readlink(self, node: int, dummy: bytes) -> bytes:
        return os.fsencode(os.readlink(self.path(node), dir_fd=self.root))

    def symlink(self, node: int, body: bytes) -> bytes:
        name, target = names(body)
        os.symlink(target, self.path(node, name), dir_fd=self.root)
        return self.entry(self.path(node, name))

    def mknod(self, node: int, body: bytes) -> bytes:
        mode, device = struct.unpack_from("<2I", body)
        path = self.path(node, names(body[16:])[0])
        os.mknod(path, mode, device, dir_fd=self.root)
        return self.entry(path)

    def mkdir(self, node: int, body: bytes) -> bytes:
        path = self.path(node, names(body[8:])[0])
        os.mkdir(path, struct.unpack_from("<I", body)[0], dir_fd=self.root)
        return self.entry(path)

    def unlink(self, node: int, body: bytes) -> bytes:
        path = self.path(node, names(body)[0])
        os.unlink(path, dir_fd=self.root)
        self.gone(path)
        return b""

    def rmdir(self, node: int, body: bytes) -> bytes:
        path = self.path(node, names(body)[0])
        os.rmdir(path, dir_fd=self.root)
        self.gone(path)
        return b""

    def rename(self, node: int, body: bytes) -> bytes:
        old, new = names(body[8:])
        source, target = self.path(node, old), self.path(struct.unpack_from("<Q", body)[0], new)
        os.rename(source, target, src_dir_fd=self.root, dst_dir_fd=self.root)
        self.gone(target)
        for path in [one for one in self.known if one == source or one.startswith(f"{source}/")]:
            moved = target + path[len(source) :]
            self.known[moved] = self.known.pop(path)
            self.paths[self.known[moved][0]] = moved
        return b""

    def link(self, node: int, body: bytes) -> bytes:
        path = self.path(node, names(body[8:])[0])
        source = self.path(struct.unpack_from("<Q", body)[0])
        os.link(source, path, src_dir_fd=self.root, dst_dir_fd=self.root, follow_symlinks=False)
        return self.entry(path)

    def open(self, node: int, body: bytes) -> bytes:
        flags = struct.unpack_from("<I", body)[0] & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        return struct.pack("<Q2I", os.open(self.path(node), flags | os.O_CLOEXEC, dir_fd=self.root), KEEP_CACHE, 0)

    def create(self, node: int, body: bytes) -> bytes:
        flags, mode = struct.unpack_from("<2I", body)
        path = self.path(node, names(body[16:])[0])
        handle = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, mode, dir_fd=self.root)
        return self.entry(path) + struct.pack("<Q2I", handle, KEEP_CACHE, 0)

    def read(self, dummy: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<2QI", body)
        return os.pread(handle, size, offset)

    def write(self, dummy: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<2QI", body)
        return struct.pack("<2I", os.pwrite(handle, body[40 : 40 + size], offset), 0)

    def flush(self, dummy: int, dummy_body: bytes) -> bytes:
        return b""

    def fsync(self, dummy: int, body: bytes) -> bytes:
        os.fsync(struct.unpack_from("<Q", body)[0])
        return b""

    def release(self, dummy: int, body: bytes) -> bytes:
        handle = struct.unpack_from("<Q", body)[0]
        self.handles.pop(handle, None)
        os.close(handle)
        return b""

    def statfs(self, dummy: int, dummy_body: bytes) -> bytes:
        found = os.fstatvfs(self.root)
        counts = (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
        return struct.pack("<5Q10I", *counts, found.f_bsize, found.f_namemax, found.f_frsize, *[0] * 7)

    def access(self, node: int, body: bytes) -> bytes:
        if not os.access(self.path(node), struct.unpack_from("<I", body)[0], dir_fd=self.root, effective_ids=True):
            raise PermissionError(errno.EACCES, "refused")
        return b""

    def opendir(self, node: int, dummy: bytes) -> bytes:
        handle = os.open(self.path(node), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.root)
        with os.scandir(handle) as found:
            self.handles[handle] = [(one.name, one.inode(), _kind(one)) for one in found]
        return struct.pack("<Q2I", handle, 0, 0)

    def readdir(self, dummy: int, body: bytes) -> bytes:
        handle, offset, size = struct.unpack_from("<2QI", body)
        made = b""
        for number, (text, inode, kind) in enumerate(self.handles[handle][offset:], offset + 1):
            name = os.fsencode(text)
            entry = struct.pack("<2Q2I", inode, number, len(name), kind) + name
            entry += b"\0" * (-len(entry) % 8)
            if len(made) + len(entry) > size:
                break
            made += entry
        return made

    def answer(self, opcode: int, node: int, caller: Caller, body: bytes) -> tuple[int, bytes]:
        name = NAMES.get(opcode)
        if name is None:
            return errno.ENOSYS, b""
        try:
            with caller.acting():
                return 0, getattr(self, name)(node, body)
        except OSError as exc:
            return exc.errno or errno.EIO, b""

    def serve(self, device: int) -> None:
        while True:
            try:
                request = os.read(device, LARGEST + 4096)
            except OSError as exc:
                if exc.errno in (errno.ENOENT, errno.EINTR):  # the request was taken back
                    continue
                return  # unmounted
            dummy, opcode, unique, node, uid, gid, *dummy = HEADER.unpack_from(request)
            if opcode in SILENT:
                continue
            error, body = self.answer(opcode, node, Caller(uid, gid), request[HEADER.size :])
            with contextlib.suppress(OSError):
                os.write(device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)


def _kind(entry: os.DirEntry[str]) -> int:
    """Return the type of an entry as readdir tells it, or that it is not known."""
    if entry.is_symlink():
        return stat.S_IFLNK >> 12
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR >> 12
    return stat.S_IFREG >> 12 if entry.is_file(follow_symlinks=False) else 0


def main(directory: str) -> None:
    os.umask(0)
    os.setgroups([])
    squash = Squash(directory)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if LIBC.mount(b"squashed", os.fsencode(directory), b"fuse", 0, options.encode()):
        raise SystemExit(f"{directory} cannot be mounted: {os.strerror(ctypes.get_errno())}")
    squash.serve(device)


if __name__ == "__main__":
    main(sys.argv[1])
