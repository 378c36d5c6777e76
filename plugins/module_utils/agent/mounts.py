# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mounted file systems. Pure but for the reading, private, stdlib only."""

from __future__ import annotations

import posixpath
import re
import typing as t

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "ceph", "gpfs", "glusterfs", "9p", "virtiofs", "autofs")
_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount(t.NamedTuple):
    """A line of /proc/mounts."""

    source: str
    path: str
    kind: str
    options: t.Sequence[str]

    @property
    def network(self) -> bool:
        return self.kind in _NETWORK or self.kind.partition(".")[0] == "fuse"

    @property
    def read_only(self) -> bool:
        return "ro" in self.options


def parse(text: str) -> list[Mount]:
    """Return the mounts in their order; a later one hides an earlier one at the same place."""
    rows = (line.split(" ") for line in text.splitlines())
    return [Mount(_plain(row[0]), _plain(row[1]), row[2], row[3].split(",")) for row in rows if len(row) >= 4]


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), text)


def holding(mounts: t.Sequence[Mount], path: str) -> Mount | None:
    """Return the file system that a path is on."""
    inside = [one for one in mounts if path == one.path or path.startswith(f"{one.path.rstrip('/')}/")]
    longest = max((len(one.path) for one in inside), default=0)
    return next((one for one in reversed(inside) if len(one.path) == longest), None)


def at(mounts: t.Sequence[Mount], path: str) -> Mount | None:
    """Return what is mounted at a path itself, however that is written."""
    place = posixpath.normpath(path)
    return next((one for one in reversed(mounts) if one.path == place), None)
