# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of processes that a job left behind. Reported, never killed. Private, stdlib only."""

from __future__ import annotations

import os
import pwd
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import jobs_here
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.limits import Finding, report

CHECK = "leftover_processes"
# login.defs: UID_MIN and UID_MAX; from there to 65535 are services (systemd's own, Debian's slurm) and nobody.
_PEOPLE = range(1000, 60001)
_DIRECTORY = 65536
_TOLD = 20


def leftover(context: Context) -> list[Json]:
    """Find processes of people who have no job here, by the cgroup of the job or by who logged in."""
    every = jobs_here.processes(context.config.proc)
    if not every:
        return [report(context, CHECK, Finding(verdict="error", reason=f"{context.config.proc} shows no process"))]
    services = _service(context.config.mailbox_user)
    found = left(every, jobs_here.ended(context.suite), services, logins=context.suite == "epilog")
    stuck = [process for process in found if process.state == "D"]
    reason = f"{len(found)} processes of users without a job here" if found else ""
    if stuck:
        reason += f", {len(stuck)} of them in uninterruptible sleep, which only a reboot ends"
    samples = [
        {"pid": one.pid, "user": _name(one.uid), "job": one.job, "state": one.state, "command": one.command[:120]}
        for one in found[:_TOLD]
    ]
    metrics = [metric("processes", len(found), "processes"), metric("uninterruptible", len(stuck), "processes")]
    verdict = "warn" if found else "pass"
    return [report(context, CHECK, Finding(metrics, verdict, reason, "software", samples=samples))]


def left(
    every: t.Sequence[jobs_here.Process],
    gone: t.Collection[str] = (),
    services: t.Collection[int] = (),
    logins: bool = True,
) -> list[jobs_here.Process]:
    """Return the processes that nobody's job here explains.

    A user with another job here may have more than is in its cgroup (a shell that came by ssh), so only what is in
    the cgroup of a job that has ended counts against him. Between jobs people with rights may log in: without
    ``logins`` only cgroups are looked at.
    """
    running = jobs_here.jobs(every) - set(gone)
    owners = {process.uid for process in every if process.job in running}
    found = [process for process in every if _is_left(process, running, owners, services)]
    return [process for process in found if process.job or logins]


def _is_left(
    process: jobs_here.Process, running: t.Collection[str], owners: t.Collection[int], services: t.Collection[int]
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
