# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVMe namespaces of a machine, from sysfs and their content. Private."""

from __future__ import annotations

import re
import typing as t
from collections import Counter
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import read_content as content
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Disk
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_place import Place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_stack import Stack
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_text import ReadError

_NAMESPACE = re.compile(r"nvme\d+n\d+")
_CONTROLLER = re.compile(r"nvme\d+")


def read_disks(place: Place, stack: Stack) -> tuple[Disk, ...]:
    """Return every namespace; what fails with one is in its ``error``."""
    names = [name for name in place.names("/sys/block") if _NAMESPACE.fullmatch(name)]
    serials = Counter(_about(place, name, "serial") for name in names)
    links = _links(place)
    parts = [f"/dev/{part}" for name in names for part in (name, *stack.partitions(name))]
    found = content.Signatures(place, parts)
    ids = {name: _ids(place, name, serials, links.get(f"/dev/{name}", [])) for name in names}
    return tuple(_disk(place, stack, found, name, ids[name]) for name in names)


def _ids(place: Place, name: str, serials: t.Mapping[str, int], links: t.Sequence[str]) -> tuple[str, ...]:
    """Return the names that last. Namespaces of one controller share its serial, which then names none of them."""
    serial = _about(place, name, "serial")
    words = [serial if serials[serial] == 1 else "", place.text(f"/sys/block/{name}/wwid"), *links]
    return tuple(word for word in dict.fromkeys(words) if word)


def _disk(place: Place, stack: Stack, found: content.Signatures, name: str, ids: tuple[str, ...]) -> Disk:
    base, path = f"/sys/block/{name}", f"/dev/{name}"
    disk = Disk(
        path=path,
        id=ids[0] if ids else "",
        ids=ids,
        model=_about(place, name, "model"),
        transport=_about(place, name, "transport"),
        size=place.number(f"{base}/size") * 512,
        max_io=place.number(f"{base}/queue/max_hw_sectors_kb"),
        partitions=tuple(f"/dev/{part}" for part in stack.partitions(name)),
        holders=tuple(f"/dev/{holder}" for holder in stack.holders(name)),
        mounts=stack.mounted(name),
        swaps=stack.swaps(name),
        read_only=place.text(f"{base}/ro") == "1",
        blank=False,
    )
    try:
        return replace(disk, **_content(place, found, disk))
    except (OSError, ReadError) as exc:
        return replace(disk, error=str(exc))


def _content(place: Place, found: content.Signatures, disk: Disk) -> dict[str, t.Any]:
    if not disk.size:
        raise ReadError(f"{disk.path} has no size: its controller lost it")
    signs = found.of(disk.path, *disk.partitions)
    bare = not signs and not disk.partitions
    return {
        "signatures": signs,
        "member": content.member(place, disk.path),
        "blank": bare and content.is_blank(place, disk.path, content.spots(disk.size)),
        "busy": content.is_busy(place, disk.path),
    }


def _about(place: Place, name: str, attribute: str) -> str:
    """Return what a namespace's controller says; with native multipath there is a subsystem in between."""
    device = f"/sys/block/{name}/device"
    below = [f"{device}/{entry}" for entry in place.names(device) if _CONTROLLER.fullmatch(entry)]
    return next((text for text in (place.text(f"{path}/{attribute}") for path in (device, *below)) if text), "")


def _links(place: Place) -> dict[str, list[str]]:
    """Return the names that udev gave in ``/dev/disk/by-id``, by device."""
    found: dict[str, list[str]] = {}
    for name in place.names("/dev/disk/by-id"):
        found.setdefault(place.canonical(f"/dev/disk/by-id/{name}"), []).append(name)
    return found
