# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands for each step of a plan. Pure, private.

Nothing here decides; each function says how one thing is done, with every option that its idempotence needs.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ids import array_uuid, filesystem_uuid
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Disk
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Action, Request

FSTAB_NOTE = "# hpcai.gpu_cluster nvme_scratch mounts this place itself: "

_LARGEST_LOG_STRIPE = 256  # KiB: mkfs.xfs takes no more


def device(request: Request) -> str:
    return f"/dev/md/{request.name}"


def wipe(disk: Disk) -> Action:
    argv = ("wipefs", "--all", "--force", *disk.partitions, disk.path)
    return Action("wipe", argv, disk.path, (disk.id,))


def stop(md: str) -> Action:
    return Action("stop", ("mdadm", "--stop", md), md)


def umount(path: str) -> Action:
    return Action("umount", ("umount", path), path=path)


def create(request: Request, disks: t.Sequence[Disk], chunk: int) -> Action:
    ids = tuple(disk.id for disk in disks)
    uuid, count = array_uuid(request.name, ids), len(disks)
    argv = ["mdadm", "--create", device(request), "--run", "--level=0", f"--raid-devices={count}", "--metadata=1.2"]
    # Without a home host the name is this machine's on every machine, whatever it is called at the next boot.
    argv += [f"--chunk={chunk}", "--homehost=any", f"--name={request.name}", f"--uuid={uuid}"]
    argv += ["--force"] if count == 1 else []
    return Action("create", (*argv, *(disk.path for disk in disks)), device(request), ids, uuid)


def assemble(request: Request, uuid: str, disks: t.Sequence[Disk]) -> Action:
    # Not --run: an array without all its members must stay as it is.
    argv = ("mdadm", "--assemble", device(request), f"--uuid={uuid}", *(disk.path for disk in disks))
    return Action("assemble", argv, device(request), tuple(disk.id for disk in disks), uuid)


def mkfs(request: Request, md: str, uuid: str, chunk: int, ids: t.Sequence[str]) -> Action:
    made = filesystem_uuid(uuid)
    if request.filesystem == "xfs":
        log = min(chunk, _LARGEST_LOG_STRIPE)
        stripe = ["-d", f"su={chunk}k,sw={len(ids)}", "-l", f"su={log}k"]
        # -K: discarding terabytes takes minutes, and a node that boots does not wait for it.
        argv = ["mkfs.xfs", "-q", "-f", "-K", "-m", f"uuid={made}", *stripe, md]
    else:
        stride = chunk // 4
        stripe = ["-E", f"nodiscard,stride={stride},stripe_width={stride * len(ids)}"]
        argv = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-U", made, *stripe, md]
    return Action("mkfs", tuple(argv), md, tuple(ids), uuid)


def mount(request: Request, md: str) -> Action:
    options = ("-o", ",".join(request.options)) if request.options else ()
    return Action("mount", ("mount", *options, md, request.mount), md, path=request.mount)


def remount(request: Request) -> Action:
    argv = ("mount", "-o", ",".join(("remount", *request.options)), request.mount)
    return Action("remount", argv, path=request.mount)


def bind(request: Request, source: str) -> Action:
    return Action("bind", ("mount", "--bind", source, request.mount), source, path=request.mount)


def directory(path: str, owner: str, group: str, mode: str) -> Action:
    return Action("directory", path=path, owner=owner, group=group, mode=mode)
