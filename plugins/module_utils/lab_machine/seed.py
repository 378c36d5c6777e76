# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine is told before it boots: files in an archive behind its initial RAM disk. Private."""

from __future__ import annotations

import typing as t


class File(t.NamedTuple):
    """One file below /seed, which the initial RAM disk copies to /etc/lab."""

    name: str
    content: bytes
    mode: int = 0o644


def archive(files: t.Iterable[File]) -> bytes:
    """A cpio archive (newc), as the kernel unpacks it after the one before it."""
    entries = [("seed", b"", 0o040755), *((f"seed/{file.name}", file.content, 0o100000 | file.mode) for file in files)]
    body = b"".join(_entry(number, *entry) for number, entry in enumerate([*entries, ("TRAILER!!!", b"", 0)], 1))
    return body + bytes(-len(body) % 512)


def append(base: bytes, files: t.Iterable[File]) -> bytes:
    """The initial RAM disk of one machine."""
    return base + bytes(-len(base) % 512) + archive(files)


def _entry(number: int, name: str, content: bytes, mode: int) -> bytes:
    path = name.encode() + b"\0"
    # inode, mode, uid, gid, links, mtime, size, device (2), special device (2), length of the name, checksum
    fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    return head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)
