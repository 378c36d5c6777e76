# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's checks of the node itself: CPUs, memory, swap, processes that jobs left."""

from __future__ import annotations

import os
import pwd
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import limits, node_access
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import AgentConfig, Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import LimitFinding, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import checks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import image as node_image
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.read import NodeAccess, cpus

# The checks of the module node_checks, run by the agent. Private, stdlib only.


# Longer than any of these programs takes, shorter than the time that the check is given.
TIMEOUT = 4.0


class ConfiguredNode(NodeAccess):
    """This node, with the system directories that the configuration names."""

    def __init__(self, config: AgentConfig) -> None:
        super().__init__(TIMEOUT)
        self._roots = {"/sys/": config.sysfs, "/proc/": config.proc}

    def read(self, path: str) -> str:
        for start, root in self._roots.items():
            if path.startswith(start):
                return Path(root, path[len(start) :]).read_text()
        return super().read(path)


def _run(name: str, context: Context) -> list[Json]:
    config = context.config
    profile = config.profile.get("profile")
    options = checks.NodeCheckOptions(config.node, config.expect, config.paths, run=context.run, profile=profile)
    return context.adopt(checks.perform([name], options, ConfiguredNode(config)))


def cpu_count(context: Context) -> list[Json]:
    return _run("cpu_count", context)


def memory(context: Context) -> list[Json]:
    return _run("memory", context)


def disk_space(context: Context) -> list[Json]:
    return _run("disk_space", context)


def munge(context: Context) -> list[Json]:
    """Check the node's own daemon; the check against the controller is another one."""
    return _run("munge", context)


# Checks of CPUs, memory, swap and of what is known of the machine type. Private, stdlib only.


_POISONED = re.compile(r"^HardwareCorrupted:\s+(\d+) kB$", re.MULTILINE)


def profile(context: Context) -> list[Json]:
    """Report a machine type without expectations: a node of which nothing is expected never fails."""
    known = context.config.profile
    name = known.get("sku") or known.get("profile") or "an unnamed machine type"
    if known.get("known") is False or not known.get("expect"):
        lacks = (
            f"there is no profile for {name}" if known.get("known") is False else f"the profile of {name} has no limits"
        )
        reason = f"{lacks}: nothing is expected of this node, so nothing was proved"
        return [report(context, "profile", LimitFinding(verdict="error", reason=reason))]
    return [report(context, "profile", LimitFinding(verdict="pass"))]


def cpus_online(context: Context) -> list[Json]:
    """Compare the CPUs that run with those that are there, and with the machine type."""
    folder = Path(context.config.sysfs, "devices/system/cpu")
    online, present = (cpus(node_access.needed(folder / name)) for name in ("online", "present"))
    metrics = [metric("online", online, "cpus"), metric("offline", present - online, "cpus")]
    # Without SMT the second threads are offline on purpose.
    single = node_access.text(folder / "smt/control") in ("off", "forceoff")
    expected = context.config.profile.get("vcpus")
    more = []
    if isinstance(expected, int) and not isinstance(expected, bool) and expected > 0:
        limit = {"op": "==", "value": expected, "unit": "cpus", "source": "vcpus of the profile"}
        more = [{"check": "cpus_online", "metric": "online", **limit}]
    finding = LimitFinding(metrics[:1], blame="config", more=more) if single else LimitFinding(metrics, more=more)
    return [report(context, "cpus_online", finding)]


def memory_errors(context: Context) -> list[Json]:
    """Count the errors that the memory controllers saw, and the pages that the kernel gave up."""
    controllers = node_access.listed(Path(context.config.sysfs, "devices/system/edac/mc"), "mc[0-9]*")
    counts = {name: [node_access.number(path / f"{name}_count") for path in controllers] for name in ("ue", "ce")}
    metrics: list[Json] = []
    if controllers:
        metrics += [
            metric("uncorrected", _sum(counts["ue"]), "errors"),
            metric("corrected", _sum(counts["ce"]), "errors"),
        ]
    poisoned = _POISONED.search(node_access.needed(Path(context.config.proc, "meminfo")))
    if poisoned:
        metrics.append(metric("poisoned", int(poisoned.group(1)) * 1024, "bytes"))
    if not metrics:
        reason = "this kernel counts no errors of memory"
        return [report(context, "memory_errors", LimitFinding(verdict="skipped", reason=reason))]
    bad = [path.name for path, number in zip(controllers, counts["ue"]) if number]
    scope = {"memory_controller": bad} if bad else {}
    return [report(context, "memory_errors", LimitFinding(metrics, scope=scope))]


def _sum(values: t.Sequence[int | None]) -> int | None:
    """Return the sum, None where one controller has no number."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def swap(context: Context) -> list[Json]:
    """Measure the swap space; machine types of a cloud have none, of others nobody knows."""
    lines = node_access.needed(Path(context.config.proc, "swaps")).splitlines()
    rows = [line.split() for line in lines[1:]]
    if not lines[0].startswith("Filename") or any(len(row) < 5 or not row[-3].isdigit() for row in rows):
        return [report(context, "swap", LimitFinding(verdict="error", reason=f"/proc/swaps reads {lines[-1][:100]!r}"))]
    size = sum(int(row[-3]) for row in rows) * 1024
    more = [limits.SWAP] if context.config.profile.get("vm_size") else []
    samples = [{"device": row[0], "bytes": int(row[-3]) * 1024} for row in rows]
    finding = LimitFinding(
        [metric("swap", size, "bytes")], blame="config", action="monitor", samples=samples, more=more
    )
    return [report(context, "swap", finding)]


def image(context: Context) -> list[Json]:
    """Warn where the image that the node was started from is older than what configured it: the next node is, too.

    The options are what the cluster has (collection, slurm, driver); ``path`` is for tests.
    """
    options = context.config.options("image")
    try:
        record = node_image.read_record(str(options.get("path") or node_image.PATH))
    except node_image.ImageError as exc:
        # The directory may be root's alone, and a certification is a user's job.
        hidden = isinstance(exc.__cause__, PermissionError)
        return [report(context, "image", LimitFinding(verdict="skipped" if hidden else "error", reason=str(exc)))]
    if record is None:
        reason = "the node was not started from an image of image.yml"
        return [report(context, "image", LimitFinding(verdict="skipped", reason=reason))]
    differences = node_image.older(record, options)
    samples = [{name: record.get(name) for name in ("date", "system", "kernel", *node_image.PARTS)}]
    if not differences:
        return [report(context, "image", LimitFinding(verdict="pass", samples=samples))]
    date = str(record.get("date") or "an unknown date")[:40]
    reason = f"the image of {date} is older than the cluster: {'; '.join(differences)}"
    finding = LimitFinding(verdict="warn", reason=reason, blame="config", action="monitor", samples=samples)
    return [report(context, "image", finding)]


# The check of processes that a job left behind. Reported, never killed. Private, stdlib only.


CHECK = "leftover_processes"
# login.defs: UID_MIN and UID_MAX; from there to 65535 are services (systemd's own, Debian's slurm) and nobody.
_PEOPLE = range(1000, 60001)
_DIRECTORY = 65536
_LISTED = 20


def leftover(context: Context) -> list[Json]:
    """Find processes of people who have no job here, by the cgroup of the job or by who logged in."""
    every = node_access.processes(context.config.proc)
    if not every:
        return [report(context, CHECK, LimitFinding(verdict="error", reason=f"{context.config.proc} shows no process"))]
    services = _service(context.config.mailbox_user)
    leftovers = left(every, node_access.ended(context.suite), services, logins=context.suite == "epilog")
    stuck = [process for process in leftovers if process.state == "D"]
    reason = f"{len(leftovers)} processes of users without a job here" if leftovers else ""
    if stuck:
        reason += f", {len(stuck)} of them in uninterruptible sleep, which only a reboot ends"
    samples = [
        {
            "pid": process.pid,
            "user": _name(process.uid),
            "job": process.job,
            "state": process.state,
            "program": process.program,
        }
        for process in leftovers[:_LISTED]
    ]
    metrics = [metric("processes", len(leftovers), "processes"), metric("uninterruptible", len(stuck), "processes")]
    verdict = "warn" if leftovers else "pass"
    return [report(context, CHECK, LimitFinding(metrics, verdict, reason, "software", samples=samples))]


def left(
    every: t.Sequence[node_access.JobProcess],
    gone: t.Collection[str] = (),
    services: t.Collection[int] = (),
    logins: bool = True,
) -> list[node_access.JobProcess]:
    """Return the processes that nobody's job here explains.

    A user with another job here may have more than is in its cgroup (a shell that came by ssh), so only what is in
    the cgroup of a job that has ended counts against him. Between jobs people with rights may log in: without
    ``logins`` only cgroups are looked at.
    """
    running = node_access.jobs(every) - set(gone)
    owners = {process.uid for process in every if process.job in running}
    leftovers = [process for process in every if _is_left(process, running, owners, services)]
    return [process for process in leftovers if process.job or logins]


def _is_left(
    process: node_access.JobProcess, running: t.Collection[str], owners: t.Collection[int], services: t.Collection[int]
) -> bool:
    people = (process.uid in _PEOPLE or process.uid >= _DIRECTORY) and process.uid not in services
    if not people or process.state == "Z" or process.pid == os.getpid():
        return False
    if process.job:
        return process.job not in running
    # What init started for a service has no login; systemd's own manager of a user ends by itself.
    if process.login is None or process.group.rstrip().endswith("/init.scope"):
        return False
    return process.uid not in owners


def _service(user: str) -> set[int]:
    try:
        return {pwd.getpwnam(user).pw_uid} if user else set()
    except KeyError:
        return set()


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
