# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that power saving creates: have Slurm resume so many, keep them until they are needed, let them go."""

from __future__ import annotations

import re
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job import submitted_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import Record, SlurmReader, release
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SEPARATOR, SlurmError, text_or_none

# A node is wanted by a job that asks for it by name and for one of its CPUs: Slurm then resumes it, by whatever its
# ResumeProgram is, and does not suspend it while slower ones boot. Other jobs of the user may run beside it. Such a
# job ends by its time limit, so that nodes whose controller died go as any others do.
PREFIX = "hpcai-hold:"
_SWITCHED_OFF = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"}
_ON_THE_WAY = {"POWERING_UP", "POWER_UP"}
_OUT = {"DRAIN", "FAIL", "INVALID_REG", "BLOCKED", "MAINTENANCE", "REBOOT_ISSUED", "REBOOT_REQUESTED"}
_DYNAMIC_EXC = (23, 2)  # scontrol update SuspendExcNodes
_LISTED = 8
Run = t.Callable[[t.List[str]], t.Tuple[int, str, str]]


class HoldJob(t.NamedTuple):
    """A job of ours that keeps one node."""

    job_id: int
    node: str
    state: str


class ElasticPlan(t.NamedTuple):
    """What to do for so many nodes, and how far they are."""

    submit: list[str]  # nodes that no job of ours wants yet
    cancel: list[int]  # jobs for nodes that failed, or that are not needed
    resume: list[str]  # of ``submit`` those that are switched off
    up: list[str]
    waiting: dict[str, str]  # node -> its state
    unusable: dict[str, str]  # node -> why Slurm cannot use it
    short: int  # how many fewer there can be than were asked for


def switched_off(node: Record) -> bool:
    return bool(_SWITCHED_OFF & set(node["flags"])) and node["state"] != "DOWN"


def shown(node: Record) -> str:
    return "+".join([node["state"], *node["flags"]])


def out_of_service(node: Record) -> str:
    """Return why a node cannot be had; empty for one that is up, on its way, or switched off."""
    flags = set(node["flags"])
    if flags & _OUT or node["state"] in ("DOWN", "ERROR", "FUTURE"):
        return f"{shown(node)}{': ' + node['reason'] if node['reason'] else ''}"
    if node["state"] == "UNKNOWN" and not flags & (_SWITCHED_OFF | _ON_THE_WAY):
        return f"{shown(node)}: its slurmd never registered"
    return ""


def is_up(node: Record) -> bool:
    return bool(node["available"]) and not set(node["flags"]) & _ON_THE_WAY


def members(nodes: t.Sequence[Record], partitions: t.Sequence[Record], name: str) -> list[Record]:
    """Return the nodes of a partition, by default Slurm's default one, in its order."""
    chosen = [part for part in partitions if (part["name"] == name if name else part["default"])]
    if not chosen:
        known = ", ".join(part["name"] for part in partitions) or "none"
        raise SlurmError(f"there is no {f'partition {name}' if name else 'default partition'}; Slurm has {known}")
    known_nodes = {node["name"]: node for node in nodes}
    return [known_nodes[member] for member in chosen[0]["nodes"] if member in known_nodes]


def plan(nodes: t.Sequence[Record], jobs: t.Sequence[HoldJob], count: int) -> ElasticPlan:
    """Plan for ``count`` nodes, 0 for all that can be had: those that we keep, then those that are up, then others."""
    unusable = {node["name"]: why for node in nodes for why in [out_of_service(node)] if why}
    kept = {job.node for job in jobs}
    usable = [node for node in nodes if node["name"] not in unusable]
    usable.sort(key=lambda node: (node["name"] not in kept, not is_up(node), switched_off(node)))
    chosen = usable[: count or None]
    names = [node["name"] for node in chosen]
    submit = [name for name in names if name not in kept]
    off = {node["name"] for node in chosen if switched_off(node)}
    return ElasticPlan(
        submit=submit,
        cancel=[job.job_id for job in jobs if job.node not in names],
        resume=[name for name in submit if name in off],
        up=[node["name"] for node in chosen if is_up(node)],
        waiting={node["name"]: shown(node) for node in chosen if not is_up(node)},
        unusable=unusable,
        short=max(0, count - len(chosen)),
    )


def idle_elastic(nodes: t.Sequence[Record], names: t.Container[str]) -> list[str]:
    """Return which of these nodes Slurm made, runs, and has no job on."""
    return [
        node["name"]
        for node in nodes
        if node["name"] in names and "CLOUD" in node["flags"] and node["state"] == "IDLE" and not switched_off(node)
    ]


def jobs_from(text: str) -> list[HoldJob]:
    """Read ``squeue -h --me -o`` with id, state and name, and return what keeps nodes."""
    rows = [line.split(SEPARATOR, 2) for line in text.splitlines()]
    return [
        HoldJob(int(row[0]), row[2][len(PREFIX) :], row[1])
        for row in rows
        if len(row) == 3 and row[0].isdigit() and row[2].startswith(PREFIX) and row[1] != "COMPLETING"
    ]


def progress(todo: ElasticPlan) -> str:
    """Return one line about how far the nodes are."""
    total = len(todo.up) + len(todo.waiting)
    text = f"{len(todo.up)} of {total} nodes are up"
    if todo.waiting:
        listed = [f"{name} {state}" for name, state in list(todo.waiting.items())[:_LISTED]]
        more = len(todo.waiting) - len(listed)
        text += f"; waiting for {', '.join(listed)}{f' and {more} more' if more else ''}"
    if todo.unusable:
        text += f"; cannot be used: {'; '.join(f'{name} {why}' for name, why in list(todo.unusable.items())[:_LISTED])}"
    return text


def options(given: t.Mapping[str, t.Any]) -> list[str]:
    """Return long options of sbatch as arguments."""
    argv = []
    for key, value in sorted(given.items()):
        name = f"--{str(key).replace('_', '-')}"
        if not re.fullmatch(r"--[a-z][a-z0-9-]+", name):
            raise SlurmError(f"sbatch_options has {key!r}, which is no long option of sbatch")
        if value is not None and value is not False:
            argv.append(name if value is True else f"{name}={value}")
    return argv


class ElasticNodes:
    """Slurm's commands for this, run as one user."""

    def __init__(
        self,
        run: Run,
        clock: t.Callable[[], float] = time.monotonic,
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:
        self._run, self._clock, self._sleep = run, clock, sleep
        self._reader = SlurmReader(run)

    def _ask(self, argv: list[str]) -> str:
        rc, out, err = self._run(argv)
        if rc:
            raise SlurmError(f"{' '.join(argv)} failed with {rc}: {(err or out).strip()}")
        return out

    def jobs(self) -> list[HoldJob]:
        return jobs_from(self._ask(["squeue", "-h", "-a", "--me", "-o", SEPARATOR.join(["%A", "%T", "%j"])]))

    def look(self, partition: str, count: int) -> ElasticPlan:
        return plan(members(self._reader.nodes(), self._reader.partitions(), partition), self.jobs(), count)

    def limit(self, partition: str, minutes: int) -> int:
        """Return how many minutes a job may have: no more than the partition allows, else it would wait for ever."""
        parts = self._reader.partitions()
        most = [part["max_time"] for part in parts if (part["name"] == partition if partition else part["default"])]
        return min(minutes, most[0] // 60) if most and most[0] else minutes

    def hold(self, todo: ElasticPlan, partition: str, minutes: int, options: t.Sequence[str] = ()) -> None:
        """Submit a job for each node that has none, and cancel what is not needed any more."""
        minutes = self.limit(partition, minutes)
        for name in todo.submit:
            argv = ["sbatch", "--parsable", f"--job-name={PREFIX}{name}", f"--nodelist={name}", "--nodes=1"]
            argv += ["--ntasks=1", "--mem=64M", f"--time={minutes}", "--requeue", "--chdir=/", "--output=/dev/null"]
            argv += [f"--partition={partition}"] if partition else []
            submitted_id(self._ask([*argv, *options, "--wrap", f"exec sleep {minutes * 60}"]))
        self.cancel(todo.cancel)

    def cancel(self, jobs: t.Sequence[int]) -> None:
        if jobs:
            self._ask(["scancel", *(str(job) for job in jobs)])

    def bring_up(
        self, partition: str, count: int, minutes: int, wait: float, poll: float, options: t.Sequence[str] = ()
    ) -> ElasticPlan:
        """Have so many nodes wanted, and wait until all that can come are up or the time is over.

        A node that fails gives its place to another one. ``resume`` of the result has all nodes that this resumed.
        """
        end = self._clock() + wait
        resumed: list[str] = []
        while True:
            todo = self.look(partition, count)
            if todo.submit or todo.cancel:
                self.hold(todo, partition, minutes, options)
                resumed += [name for name in todo.resume if name not in resumed]
            left = end - self._clock()
            if not todo.waiting or left <= 0:
                return todo._replace(resume=resumed)
            self._sleep(min(poll, left))

    def release(self, wait: float) -> list[str]:
        """Cancel all jobs that keep nodes, wait until they are gone, and return their nodes."""
        jobs = self.jobs()
        self.cancel([job.job_id for job in jobs])
        end = self._clock() + wait
        while jobs and self.jobs():
            if self._clock() > end:
                raise SlurmError(f"jobs {PREFIX}* were cancelled {wait:g} s ago and are in the queue still")
            self._sleep(0.5)
        return [job.node for job in jobs]

    def suspend(self, names: t.Sequence[str], check_mode: bool) -> list[str]:
        """Have Slurm remove idle nodes now rather than after SuspendTime; jobs that begin meanwhile end first."""
        going = idle_elastic(self._reader.nodes(), set(names))
        if going and not check_mode:
            self._ask(["scontrol", "update", f"nodename={compress(going)}", "state=power_down"])
        return going

    def keep(self, names: t.Sequence[str], check_mode: bool) -> list[str]:
        """Have Slurm never suspend these nodes, until somebody takes them from SuspendExcNodes again."""
        version = self._reader.version()
        if release(version) < _DYNAMIC_EXC:
            raise SlurmError(
                f"Slurm {version} cannot be told while it runs, as 23.02 and newer can; name"
                f" {compress(list(names)) or 'the nodes'} in SuspendExcNodes of slurm.conf"
            )
        configured = re.search(r"^SuspendExcNodes\s*=\s*(\S+)", self._ask(["scontrol", "show", "config"]), re.MULTILINE)
        # A number of nodes may stand behind names: gpu-[1-8]:4.
        listed = re.sub(r":\d+", "", text_or_none(configured.group(1)) or "") if configured else ""
        known = expand(listed)
        new = [name for name in names if name not in known]
        if new and not check_mode:
            self._ask(["scontrol", "update", f"SuspendExcNodes+={compress(new)}"])
        return new
