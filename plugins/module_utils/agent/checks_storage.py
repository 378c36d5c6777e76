# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the node's own file systems: writable, with room, and an array that is whole. Private, stdlib only.

Network file systems are not touched here: one that hangs would take the local ones with it.
"""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import node_access
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import LimitFinding, report

# Checks of the node's own file systems: writable, with room, and an array that is whole. Private, stdlib only.


_HEALTHY = ("clean", "active", "active-idle", "write-pending", "read-auto")
_PROBE = 1 << 20
_SECTOR = 512  # what sysfs counts in
_NEAR = 0.02  # 3.84 TB are 3840.8 GB, and the next sizes 3.2 and 4 TB


def mounted(context: Context) -> list[node_access.MountedFilesystem]:
    """Return the mounts, as this process sees them."""
    mounts = context.once("mounts", lambda: node_access.parse(node_access.needed(Path(context.config.proc, "mounts"))))
    return t.cast("list[node_access.MountedFilesystem]", mounts)


def filesystems(context: Context) -> list[Json]:
    """Look at the root, the agent's spool and the paths of the configuration."""
    paths = list(dict.fromkeys(["/", context.config.spool, *context.config.paths]))
    every = mounted(context)
    metrics: list[Json] = []
    readonly: list[str] = []
    for path in paths:
        mount = node_access.holding(every, path)
        if mount is None or mount.network:
            continue
        if mount.read_only:
            readonly.append(path)
        metrics += _room(context, path)
    reason = "".join(f"{', '.join(readonly)}: the file system is read-only; see the kernel log for errors of its disk")
    finding = LimitFinding(
        metrics,
        verdict="fail" if readonly else None,
        reason=reason if readonly else "",
        blame="hardware" if readonly else "config",
    )
    return [report(context, "filesystems", finding)]


def _room(context: Context, path: str) -> list[Json]:
    """Return the free space and inodes; file systems that make inodes as they need them count none."""
    stat = context.once("statvfs", lambda: os.statvfs)
    usage = None
    # What will be made there takes its room from what holds it now.
    for folder in (Path(path), *Path(path).parents):
        try:
            usage = stat(str(folder))
            break
        except FileNotFoundError:
            continue
        except OSError:
            break
    if usage is None:
        return [metric("free", None, "%", path=path)]
    free = 100.0 * usage.f_bavail / usage.f_blocks if usage.f_blocks else None
    room = [metric("free", free, "%", path=path)]
    return room + ([metric("free_inodes", usage.f_favail, "inodes", path=path)] if usage.f_files else [])


def _scratch(context: Context, check: str) -> tuple[node_access.MountedFilesystem | None, Json | None]:
    """Return the mount of the scratch, or the record that says why there is none."""
    config = context.config.scratch
    path = str(config.get("mount") or "/mnt/resource_nvme") if config else ""
    if not config:
        return None, report(context, check, LimitFinding(verdict="skipped", reason="no scratch is configured"))
    mount = node_access.at(mounted(context), path)
    if mount is None and config.get("fallback"):
        reason = f"nothing is mounted at {path}, {config['fallback']} stands in for it"
        return None, report(context, check, LimitFinding(verdict="warn", reason=reason, blame="config"))
    if mount is None:
        reason = f"nothing is mounted at {path}: what jobs write there fills the system disk"
        return None, report(context, check, LimitFinding(verdict="fail", reason=reason))
    return mount, None


def scratch_array(context: Context) -> list[Json]:
    """Check the array under the scratch by sysfs: how many disks it has, and whether each is present."""
    mount, record = _scratch(context, "scratch_array")
    if mount is None:
        return [record] if record else []
    name = context.once("realpath", lambda: os.path.realpath)(mount.source).rpartition("/")[2]
    disks = (context.config.scratch or {}).get("count")
    expected = disks if isinstance(disks, int) and not isinstance(disks, bool) else None
    return [report(context, "scratch_array", array(Path(context.config.sysfs, "block", name), expected, mount.path))]


def array(block: Path, expected: int | None, path: str) -> LimitFinding:
    """Judge an array by its directory in sysfs; a disk without an array is one disk. The path is for people."""
    md = block / "md"
    if not block.is_dir():
        return LimitFinding(verdict="error", reason=f"the kernel has no {block.name}")
    members = node_access.listed(md, "dev-*") if md.is_dir() else [block]
    state = node_access.text(md / "array_state") if md.is_dir() else "active"
    bad = [
        f"{path.name[4:]} is {problem}"
        for path, problem in ((p, _member(p)) for p in members)
        if problem and md.is_dir()
    ]
    disks, degraded = (
        node_access.number(md / "raid_disks") if md.is_dir() else 1,
        node_access.number(md / "degraded") or 0,
    )
    problems = [*bad, *([f"{degraded} disks are missing"] if degraded else [])]
    if state not in _HEALTHY:
        problems.append(f"the array is {state or 'in an unknown state'}")
    if disks is None:
        return LimitFinding(verdict="error", reason=f"{md}/raid_disks cannot be read")
    whole = len(members) - len(bad)
    limits = [
        {"check": "scratch_array", "metric": "disks", "op": "==", "value": count, "unit": "disks", "source": source}
        for count, source in ((disks, "what the array was made of"), (expected, "count of nvme_scratch"))
        if count is not None
    ]
    reason = f"{block.name}: {'; '.join(problems)}" if problems else ""
    metrics = [metric("disks", whole, "disks", path=path)]
    return LimitFinding(metrics, verdict="fail" if problems else None, reason=reason, more=limits)


def _member(path: Path) -> str:
    """Return what is wrong with a member; of a disk that was pulled the array may still report that all is well."""
    state = node_access.text(path / "state") or "in an unknown state"
    if "in_sync" not in state.split(",") or "faulty" in state:
        return state
    name, sysfs = path.name[len("dev-") :], path.parents[3]
    present = (sysfs / "block" / name).is_dir() or (sysfs / "class/block" / name).is_dir()
    return "" if present else "gone"


def scratch_probe(context: Context) -> list[Json]:
    """Write and read a MiB on the scratch."""
    mount, record = _scratch(context, "scratch_probe")
    if mount is None:
        return [record] if record else []
    done = node_access.probe(mount.path, _PROBE)
    metrics = [metric("seconds", done.seconds, "s")]
    # What a job fills it will empty, or its epilog.
    theirs = done.full and (context.suite == "epilog" or node_access.jobs(node_access.processes(context.config.proc)))
    verdict = "warn" if theirs else "fail" if done.problem else "pass"
    return [report(context, "scratch_probe", LimitFinding(metrics, verdict, done.problem, done.kind))]


def nvme_disks(context: Context) -> list[Json]:
    """Count the NVMe disks of the machine type by what they are, never by how many there were.

    That is the name of their controller. Where a machine type has none, as its maker takes the disks from several, it
    is their size: the disks of the operating system are NVMe, too, and smaller or larger.
    """
    profile = context.config.profile.get("nvme") or {}
    count, models, size = profile.get("count") or 0, profile.get("controller") or [], profile.get("size_gb") or 0
    models = [models] if isinstance(models, str) else models
    if not count:
        return [report(context, "nvme_disks", LimitFinding(verdict="skipped", reason="no NVMe disk is expected"))]
    disks, dead = [], []
    for path in node_access.listed(Path(context.config.sysfs, "class/nvme"), "nvme*"):
        sizes = [node_access.number(file) for file in node_access.listed(path, "nvme*n*/size")]
        if models:
            model = (node_access.text(path / "model") or "").lower()
            chosen = any(str(name).lower() in model for name in models)
        else:
            chosen = not size or any(
                abs((sectors or 0) * _SECTOR - size * 1e9) <= _NEAR * size * 1e9 for sectors in sizes
            )
        gone = (node_access.text(path / "state") or "live") != "live"
        disks += [path.name] if chosen and not gone else []
        # Who does not answer has no size any more.
        dead += [path.name] if gone and (chosen or not (models or any(sizes))) else []
    what = " or ".join(map(str, models)) or (f"{size:g} GB" if size else "any kind, or more")
    limit = {
        "check": "nvme_disks",
        "metric": "disks",
        "value": count,
        "unit": "disks",
        "source": f"profile: {count} of {what}",
    }
    limit["op"] = "==" if models or size else ">="
    metrics = [metric("disks", len(disks), "disks")]
    reason = f"{', '.join(dead)}: the controller does not answer" if dead else ""
    return [report(context, "nvme_disks", LimitFinding(metrics, reason=reason, more=[limit]))]
