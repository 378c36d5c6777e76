# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of the NVMe scratch (Request) and what the planner answers (Plan): data only, private."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Directory:
    """A directory that is wanted below the mount; ``path`` is relative to it."""

    path: str
    owner: str = "root"
    group: str = "root"
    mode: str = "1777"


@dataclass(frozen=True)
class Request:
    """What is asked for. ``ids`` alone select when given, else ``models`` and, if told so, ``unused`` namespaces."""

    name: str = "scratch"
    mount: str = "/mnt/resource_nvme"
    models: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    unused: bool = False
    wipe: tuple[str, ...] = ()
    count: int | None = None  # disks that this machine type has; None: unknown
    fewer: str = "refuse"  # or "allow": a smaller array is better than none
    filesystem: str = "xfs"  # or "ext4"
    chunk: int | None = None  # KiB; None: from the disks
    options: tuple[str, ...] = ("noatime",)
    mode: str = "1777"
    directories: tuple[Directory, ...] = ()
    adopt: tuple[str, ...] = ("/nvme",)
    fallback: str = ""  # directory that stands in where there is no disk; empty: then there is no scratch
    rebuild: bool = False


@dataclass(frozen=True)
class Action:
    """One step. ``argv`` is the command, where one command does it; ``kind`` says what else belongs to it:

    fstab       comment ``lines`` (numbers) of ``/etc/fstab`` out, with ``text`` in front of each, and have systemd read
                it again: a mount unit of the old line would take our mount away
    mark        write ``uuid`` into the marker file and sync it and its directory
    unmark      remove the marker file
    umount      argv
    stop        argv: stop the array ``device``
    wipe        argv (wipefs of partitions and disk), then zero the first and last MiB of ``device``, opened
                exclusively, sync, have the kernel read the partition table again, settle
    create      argv: make the array ``uuid`` as ``device``; settle, wait for ``device``
    assemble    argv: start the array ``uuid`` as ``device``; settle, wait for ``device``
    mkfs        argv: on ``device``, which is the array ``uuid``; sync
    directory   have the directory ``path`` with ``owner``, ``group``, ``mode`` (no symbolic link followed below root)
    mount       argv: ``device`` at ``path``
    remount     argv: ``path`` with other options
    bind        argv: the directory ``device`` at ``path``
    """

    kind: str
    argv: tuple[str, ...] = ()
    device: str = ""
    disks: tuple[str, ...] = ()  # ids of the disks that it writes to
    uuid: str = ""
    path: str = ""
    owner: str = ""
    group: str = ""
    mode: str = ""
    lines: tuple[int, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that a person should know. ``text`` is a whole sentence; ``advice`` is the exact next step."""

    level: str  # note (changes no verdict), warn, fail, error
    blame: str  # class of the check record: hardware, config, software, infra
    code: str  # foreign, in_use, missing, damaged, … : for tests and programs
    text: str
    advice: str = ""
    device: str = ""
    id: str = ""
    found: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.advice}".strip()


@dataclass(frozen=True)
class Plan:
    """What to do and what that leads to. ``verdict`` and ``after`` tell of the machine once every action has succeeded;
    with no action they tell of the machine as it is."""

    verdict: str  # pass, warn, fail, skipped, error
    blame: str  # class of the record for warn, fail, error; else empty
    reason: str
    findings: tuple[Finding, ...] = ()
    actions: tuple[Action, ...] = ()
    before: dict[str, t.Any] = field(default_factory=dict)
    after: dict[str, t.Any] = field(default_factory=dict)
    path: str = ""  # where scratch is in the end; empty: nowhere
    source: str = ""  # array, adopted, fallback or empty
    disks: tuple[str, ...] = ()  # ids of the selected disks
    array: str = ""  # md UUID in the end; empty: none
    size: int = 0  # bytes of the array, or of the disks that it will be made of
    members: int = 0  # of the array in the end
