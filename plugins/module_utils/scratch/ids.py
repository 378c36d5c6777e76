# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How an array is known to be ours, without a list of what we made: its UUID says so. Pure, private.

The first half of the md UUID is fixed, the second half is made from the name and the disks: so what a creation will
lead to is known before it, and no kernel name, host name or state file takes part.
"""

from __future__ import annotations

import hashlib
import re
import typing as t
import uuid

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Disk

MAGIC = "68706361:692e6e76"  # "hpcai.nv"
FILESYSTEMS = ("xfs", "ext4")

_SMALLEST_CHUNK, _LARGEST_CHUNK = 128, 512
_KERNEL_NAME = re.compile(r"(/dev/)?(nvme\d+(c\d+)?(n\d+(p\d+)?)?|md\d+|dm-\d+|sd[a-z]+\d*)")


def ours(md_uuid: str) -> bool:
    return md_uuid.startswith(f"{MAGIC}:")


def array_uuid(name: str, ids: t.Iterable[str]) -> str:
    """Return the md UUID of an array that we make of these disks, in the way in which mdadm writes it."""
    digest = hashlib.sha256("\0".join([name, *sorted(ids)]).encode()).hexdigest()
    return f"{MAGIC}:{digest[:8]}:{digest[8:16]}"


def filesystem_uuid(md_uuid: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"hpcai.gpu_cluster {md_uuid}"))


def kernel_name(text: str) -> bool:
    """Tell a name that belongs to another disk after the next boot from an id."""
    return bool(_KERNEL_NAME.fullmatch(text))


def plain_id(text: str) -> str:
    return text[len("/dev/disk/by-id/") :] if text.startswith("/dev/disk/by-id/") else text


def chunk_for(disks: t.Sequence[Disk], wanted: int | None) -> int:
    """Return the chunk in KiB: what the slowest disk takes in one request, within reason."""
    if wanted:
        return wanted
    largest = min(disk.max_io for disk in disks)
    chunk = _SMALLEST_CHUNK
    while chunk * 2 <= min(largest, _LARGEST_CHUNK):
        chunk *= 2
    return chunk
