# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which disks of a machine are plugged in, and what their serial numbers are by now. Private."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.spec import Disk, MachineError

_SERIAL_LENGTH = 20


class Plugs:
    """The state of a machine's disks, beside its description: that one never changes."""

    def __init__(self, path: Path, disks: t.Sequence[Disk]) -> None:
        self._path = path
        self._disks = disks
        found = json.loads(path.read_text()) if path.exists() else {}
        self._out: list[str] = found.get("out", [])
        self._replaced: dict[str, int] = found.get("replaced", {})

    def all(self) -> list[Disk]:
        """Every disk, as it would be plugged in now."""
        return [disk._replace(serial=self._serial(disk)) for disk in self._disks]

    def present(self) -> list[Disk]:
        """The disks that are plugged in."""
        return [disk for disk in self.all() if disk.name not in self._out]

    def chosen(self, names: t.Sequence[str]) -> list[Disk]:
        """The disks with these names; without names all."""
        known = {disk.name: disk for disk in self.all()}
        unknown = [name for name in names if name not in known]
        if unknown:
            raise MachineError(f"no disk {', '.join(unknown)}; there are {', '.join(known) or 'none'}")
        return [known[name] for name in names] if names else list(known.values())

    def pull(self, disks: t.Iterable[Disk]) -> None:
        """Remember that these are out."""
        self._out = sorted({*self._out, *(disk.name for disk in disks)})
        self._save()

    def push(self, disks: t.Iterable[Disk]) -> None:
        """Remember that these are in."""
        self._out = sorted({*self._out} - {disk.name for disk in disks})
        self._save()

    def replace(self, disk: Disk) -> None:
        """Take another disk in its place."""
        self._replaced[disk.name] = self._replaced.get(disk.name, 0) + 1
        self._save()

    def _serial(self, disk: Disk) -> str:
        count = self._replaced.get(disk.name, 0)
        suffix = f"-R{count}" if count else ""
        return disk.serial[: _SERIAL_LENGTH - len(suffix)] + suffix

    def _save(self) -> None:
        self._path.write_text(json.dumps({"out": self._out, "replaced": self._replaced}, indent=1) + "\n")
