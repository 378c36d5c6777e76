# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that stand for a machine's disks. Private."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.argv import backing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.spec import Disk, MachineError


def make_root(directory: Path, image: str) -> None:
    """Make the system disk: everything that differs from the image."""
    path = directory / "root.qcow2"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", f"{image}/root.raw", str(path)]
    done = run(argv, timeout=60)
    if done.problem:
        raise MachineError(f"Cannot make {path} on {image}/root.raw. qemu-img: {done.problem}")


def make(directory: Path, disks: t.Iterable[Disk]) -> None:
    """Make the disks that are not there; they take no room until something is written."""
    for disk in disks:
        path = Path(backing(str(directory), disk))
        if not path.exists():
            _extend(path, disk.size)


def blank(directory: Path, disks: t.Iterable[Disk]) -> None:
    """Make disks empty again."""
    for disk in disks:
        _extend(Path(backing(str(directory), disk)), disk.size)


def _extend(path: Path, size: int) -> None:
    with path.open("wb") as handle:
        handle.truncate(size)


def digest(directory: Path, disk: Disk) -> str:
    """SHA-256 of everything on a disk; a hole counts as the zeros that it reads as."""
    return sha256(backing(str(directory), disk))
