# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images that tests make up; no tests in here."""

from __future__ import annotations

import hashlib
import struct
import typing as t
from pathlib import Path

Json = t.Dict[str, t.Any]


def squashfs(content: bytes = b"content", used: int = 0) -> bytes:
    """What looks like a squashfs to whoever reads its superblock."""
    head = bytearray(96)
    head[:4] = b"hsqs"
    struct.pack_into("<Q", head, 40, used or 96 + len(content))
    return bytes(head) + content


def image(directory: Path, name: str = "app", content: bytes = b"content") -> Json:
    """A version of an image on the shared directory, with its manifest and its link."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import image_node

    data = squashfs(content)
    digest = hashlib.sha256(data).hexdigest()
    found = {"name": name, "file": f"{name}-{digest[:12]}.sqsh", "sha256": digest, "size": len(data)}
    directory.mkdir(exist_ok=True)
    (directory / found["file"]).write_bytes(data)
    image_node.write_json(directory / f"{name}-{digest[:12]}.json", found)
    image_node.point(directory / f"{name}.sqsh", found["file"])
    return found


def task(source: Path, directory: Path, images: list[Json], **more: t.Any) -> Json:
    defaults = {"absent": [], "keep": 1, "verify": False, "min_free": 0}
    return {**defaults, "source": str(source), "directory": str(directory), "images": images, **more}
