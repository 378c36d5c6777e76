# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands upon block devices: partitions, holders, mounts, swap. From sysfs and proc; private."""

from __future__ import annotations

import os

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Mount
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_place import Place
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_text import (
    MountLine,
    parse_mountinfo,
    parse_swaps,
)


class Stack:
    """The block devices of a machine as they were at one time, by their kernel names (``nvme0n1``, ``md127``)."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._whole: dict[str, list[str]] = {}
        self.mounts = tuple(self._mount(line) for line in parse_mountinfo(place.text("/proc/self/mountinfo")))
        self._swaps = [place.canonical(path) for path in parse_swaps(place.text("/proc/swaps"))]

    def partitions(self, name: str) -> list[str]:
        """Return the partitions that the kernel knows of a disk or an array."""
        base = f"/sys/block/{name}"
        below = [part for part in self.place.names(base) if part.startswith(name)]
        return [part for part in below if self.place.at(f"{base}/{part}/partition").exists()]

    def holders(self, name: str) -> list[str]:
        """Return what is directly upon a device or its partitions."""
        folders = [f"/sys/class/block/{one}/holders" for one in (name, *self.partitions(name))]
        return list(dict.fromkeys(holder for folder in folders for holder in self.place.names(folder)))

    def whole(self, name: str) -> list[str]:
        """Return a device and everything that stacks upon it."""
        if name in self._whole:
            return self._whole[name]
        seen: list[str] = []
        todo = [name]
        while todo:
            one = todo.pop(0)
            if one not in seen:
                seen.append(one)
                todo += [*self.partitions(one), *self.holders(one)]
        self._whole[name] = seen
        return seen

    def mounted(self, name: str) -> tuple[str, ...]:
        """Return the mount points of a device and of everything upon it.

        Some filesystems (btrfs) are mounted under a number of their own, but with the device as their source.
        """
        every = self.whole(name)
        numbers = {self.place.text(f"/sys/class/block/{one}/dev") for one in every} - {""}
        paths = {f"/dev/{one}" for one in every}
        return tuple(mount.target for mount in self.mounts if mount.number in numbers or mount.device in paths)

    def swaps(self, name: str) -> tuple[str, ...]:
        """Return the swap devices among a device and everything upon it."""
        paths = [f"/dev/{one}" for one in self.whole(name)]
        return tuple(path for path in self._swaps if path in paths)

    def _mount(self, line: MountLine) -> Mount:
        known = self.place.at(f"/sys/dev/block/{line.device}")
        device = line.source
        if known.exists():
            device = f"/dev/{os.path.basename(os.path.realpath(known))}"  # noqa: PTH119 - a link of sysfs, not a file
        elif device.startswith("/dev/"):
            device = self.place.canonical(device)
        return Mount(line.path, device, line.device, line.fstype, line.root, line.options)
