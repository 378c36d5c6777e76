# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's checks of file systems, NVMe disks, scratch and what the nodes share."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import node_access
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import LimitFinding, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import checks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.checks import BrokenError

# Checks of the node's own file systems: writable, with room, and an array that is whole. Private, stdlib only.


_HEALTHY = ("clean", "active", "active-idle", "write-pending", "read-auto")
_PROBE = 1 << 20


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
    """Count the NVMe disks of the machine type by the name of their controller, never by how many there were."""
    profile = context.config.profile.get("nvme") or {}
    count, model = profile.get("count") or 0, str(profile.get("controller") or "")
    if not count:
        return [report(context, "nvme_disks", LimitFinding(verdict="skipped", reason="no NVMe disk is expected"))]
    folders = node_access.listed(Path(context.config.sysfs, "class/nvme"), "nvme*")
    disks = [path for path in folders if model.lower() in (node_access.text(path / "model") or "").lower()]
    dead = [path.name for path in disks if (node_access.text(path / "state") or "live") != "live"]
    named = f"profile: {count} of {model or 'any model'}"
    limit = {"check": "nvme_disks", "metric": "disks", "op": "==", "value": count, "unit": "disks", "source": named}
    metrics = [metric("disks", len(disks) - len(dead), "disks")]
    reason = f"{', '.join(dead)}: the controller does not answer" if dead else ""
    return [report(context, "nvme_disks", LimitFinding(metrics, reason=reason, more=[limit]))]


# Checks of what a node shares with its cluster: the directory, the munge key, the time. Private, stdlib only.


# The key was right: it is looked at before the receiver, the time, and whether the credential was seen before.
_PROVED = ("Success", "Replayed", "Unauthorized")
_ENCODED = re.compile(r"^ENCODE_TIME:.*\((\d{1,12})\)\s*$", re.MULTILINE)
_KEY = "its munge key is not the controller's: run configure.yml, or copy /etc/munge/munge.key"


def shared_directory(context: Context) -> list[Json]:
    """Write, read and compare a file where all nodes write; without a mailbox only look at the directory."""
    config = context.config
    if not config.shared_dir and not config.mailbox:
        return [report(context, "shared_directory", LimitFinding(verdict="skipped", reason="no shared directory"))]
    if config.shared_dir:
        os.listdir(config.shared_dir)  # noqa: PTH208 - the answer does not matter, only that there is one
    if not config.mailbox:
        reason = f"{config.shared_dir} answers; nothing is written without a mailbox"
        return [report(context, "shared_directory", LimitFinding(verdict="pass", reason=reason))]
    done = node_access.share(context).probe
    metrics = [metric("seconds", done.seconds, "s")]
    verdict = "fail" if done.problem else "pass"
    # Whatever its server did wrong, no node's hardware is to blame for that.
    return [report(context, "shared_directory", LimitFinding(metrics, verdict, done.problem, "config"))]


def munge(context: Context) -> list[Json]:
    """Decode a credential of this node and one of the controller: only the cluster's key opens that."""
    return [report(context, "munge", _munge(context))]


def _munge(context: Context) -> LimitFinding:
    ask = node_access.node_commands(context).ask
    made = ask(["munge", "-n"])
    if made.problem:
        return LimitFinding(verdict="fail", reason=f"munge: {made.problem}", blame="config")
    own = ask(["unmunge"], made.out)
    metrics = [metric("round_trip", made.seconds + own.seconds, "s")]
    status = _status(own)
    if not status.startswith("Success"):
        return LimitFinding(metrics, "fail", f"unmunge: {status}", "config")
    if not context.config.mailbox:
        return LimitFinding(metrics, None, "no mailbox is configured: only the node's own credential was decoded")
    letter = _letter(context)
    if isinstance(letter, str):
        return LimitFinding(metrics, "error", letter)
    foreign = ask(["unmunge"], letter.credential)
    status = _status(foreign)
    if status.startswith(_PROVED):
        return LimitFinding(metrics, "pass", evidence=f"controller's credential: {status}")
    if status.startswith("Expired") and letter.age > node_access.STALE / 3:
        return LimitFinding(metrics, "error", f"unmunge: {status}: the controller made it {letter.age:.0f} s ago")
    if status.startswith(("Expired", "Rewound")):
        return LimitFinding(metrics, "fail", f"unmunge: {status}: the clocks of node and controller differ", "config")
    invalid = status.startswith("Invalid")
    reason = f"unmunge: {status}; {_KEY}" if invalid else f"unmunge: {status}"
    return LimitFinding(metrics, "fail" if invalid else "error", reason, "config")


def _status(outcome: Outcome) -> str:
    """Return the status that unmunge gives a credential; of one that it does not open only standard error has it."""
    if outcome.out.strip():
        return checks.munge_status(outcome.out)
    return outcome.problem.rpartition("unmunge: Error: ")[2]


def _letter(context: Context) -> node_access.Letter | str:
    """Return the controller's letter, or why it proves nothing."""
    try:
        share = node_access.share(context)
    except (BrokenError, OSError) as exc:
        return str(exc)
    if share.letter is None:
        return share.problem
    if share.letter.age > node_access.STALE:
        name = Path(context.config.mailbox, node_access.NAME)
        return f"{name} is {share.letter.age:.0f} s old: the controller's reconciler does not run"
    return share.letter


def clock_skew(context: Context) -> list[Json]:
    """Compare the clocks of node and controller by way of the file server's, which saw both of them write.

    What is not known is how fresh a time in the letter is; so the distance of the controller to the file server is
    taken from the moment in which the letter was written, that of this node from a directory that it just made.
    """
    if not context.config.mailbox:
        return [report(context, "clock_skew", LimitFinding(verdict="skipped", reason="no mailbox is configured"))]
    letter, done = _letter(context), node_access.share(context).probe
    if isinstance(letter, str) or done.skew is None:
        reason = letter if isinstance(letter, str) else done.problem or "the file server told no time"
        return [report(context, "clock_skew", LimitFinding(verdict="error", reason=reason))]
    skew = done.skew - (encoded(context, letter) - letter.written)
    evidence = f"node minus controller: {skew:.2f} s (node minus file server: {done.skew:.2f} s)"
    finding = LimitFinding([metric("skew", abs(skew), "s")], blame="config", evidence=evidence)
    return [report(context, "clock_skew", finding)]


def encoded(context: Context, letter: node_access.Letter) -> float:
    """Return when the controller made the letter: munge's own time cannot be forged, the other one is finer."""
    try:
        outcome = node_access.node_commands(context).ask(["unmunge"], letter.credential)
    except BrokenError:
        return letter.time
    match = _ENCODED.search(outcome.out)
    munge_time = float(match.group(1)) if match else letter.time
    return letter.time if abs(munge_time - letter.time) < 2 else munge_time
