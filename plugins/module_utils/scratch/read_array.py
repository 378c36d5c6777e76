# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The md arrays that the kernel knows, from sysfs, their members' superblocks and their content. Private."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import read_content as content
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Array, Member
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_place import Place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_stack import Stack
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_text import ReadError

# Without I/O: nothing can be read of these.
_STOPPED = ("clear", "inactive", "broken", "")


def read_arrays(place: Place, stack: Stack) -> tuple[Array, ...]:
    """Return every md device, running or not."""
    names = [name for name in place.names("/sys/block") if place.at(f"/sys/block/{name}/md").is_dir()]
    return tuple(_array(place, stack, name) for name in names)


def _array(place: Place, stack: Stack, name: str) -> Array:
    base, path = f"/sys/block/{name}", f"/dev/{name}"
    members = [f"/dev/{entry[4:]}" for entry in place.names(f"{base}/md") if entry.startswith("dev-")]
    said = _superblock(place, members)
    chunk = place.number(f"{base}/md/chunk_size") // 1024
    array = Array(
        device=path,
        uuid=said.uuid if said else "",
        name=said.name if said else "",
        level=place.text(f"{base}/md/level") or (said.level if said else ""),
        state=place.text(f"{base}/md/array_state"),
        # An array that was never started does not know how many it should have; its members do.
        devices=place.number(f"{base}/md/raid_disks") or (said.devices if said else 0),
        members=tuple(members),
        size=place.number(f"{base}/size") * 512,
        chunk=chunk or (said.chunk if said else None),
        holders=tuple(f"/dev/{one}" for one in [*stack.partitions(name), *stack.holders(name)]),
    )
    if array.state in _STOPPED or not array.size:
        return array
    try:
        return replace(array, **_content(place, array, stack.partitions(name)))
    except (OSError, ReadError) as exc:
        return replace(array, state=f"unreadable: {exc}")


def _superblock(place: Place, members: t.Sequence[str]) -> Member | None:
    """Return what the first member says that can still be read."""
    for path in members:
        with contextlib.suppress(OSError, ReadError):
            found = content.member(place, path)
            if found:
                return found
    return None


def _content(place: Place, array: Array, partitions: t.Sequence[str]) -> dict[str, t.Any]:
    paths = [array.device, *(f"/dev/{part}" for part in partitions)]
    found = content.Signatures(place, paths).of(*paths)
    edge = min(content.MIB, array.size)
    return {"content": found, "blank": not found and content.is_blank(place, array.device, [(0, edge)])}
