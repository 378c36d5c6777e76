# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server's settings file, and who reads it: the password of the keystore may stand in it. Private."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.notes import write

USER = "cycle_server"
MODE = 0o640


class Access(t.NamedTuple):
    """Owner, group and mode."""

    uid: int
    gid: int
    mode: int


def needed(now: Access, server: tuple[int, int] | None) -> Access:
    """Return what the server needs and no more; what an administrator made tighter stays so.

    Where the server reads the file only as everybody does, it becomes its own.
    """
    known = server is None or now.uid == server[0] or now.gid == server[1]
    uid, gid = (now.uid, now.gid) if known or server is None or not now.mode & stat.S_IROTH else server
    return Access(uid, gid, now.mode & MODE)


def server_ids() -> tuple[int, int] | None:
    """Return user and group of the server, or nothing before its package is installed."""
    try:
        return pwd.getpwnam(USER).pw_uid, grp.getgrnam(USER).gr_gid
    except KeyError:
        return None


class SettingsFile:
    """One file. A link in its place is left as it is: rights are never given through one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> str:
        return self.path.read_text(encoding="utf-8") if self.path.is_file() else ""

    def access(self) -> Access | None:
        try:
            said = self.path.lstat()
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(said.st_mode):
            return None
        return Access(said.st_uid, said.st_gid, stat.S_IMODE(said.st_mode))

    def loose(self) -> bool:
        """Whether more people read it than need to."""
        now = self.access()
        return now is not None and needed(now, server_ids()) != now

    def write(self, text: str) -> None:
        """Put it in place at once; who reads it stays, but for those who need not."""
        now = self.access()
        wanted = needed(now, server_ids()) if now else None
        write(self.path, text, USER, wanted.mode if wanted else MODE)
        self._give(wanted)

    def tighten(self) -> None:
        now = self.access()
        self._give(needed(now, server_ids()) if now else None)

    def _give(self, wanted: Access | None) -> None:
        if wanted is None or wanted == self.access():
            return
        handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            os.fchmod(handle, wanted.mode)
            os.fchown(handle, wanted.uid, wanted.gid)
        finally:
            os.close(handle)
