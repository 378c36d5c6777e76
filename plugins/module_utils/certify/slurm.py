# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a campaign has of Slurm: its commands, jobs that do a batch of tests, the nodes of the fleet. Private."""

from __future__ import annotations

import contextlib
import math
import re
import shlex
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import flags
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job import submitted_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import SlurmReader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import (
    SEPARATOR,
    SlurmError,
    fields,
    text_or_none,
)

# Slurm's commands as the coordinator of a certification uses them. Private, stdlib only.


Run = t.Callable[[t.List[str]], t.Tuple[int, str, str]]
# Errors of sbatch after which the same job may be accepted later; all others are final.
_LATER = re.compile(
    r"contact slurm controller|timed out|temporarily|connection|transport endpoint|zero bytes|try again"
    r"|Max(?:Submit|Job)|backup controller|in standby",
    re.I,
)
_ARRAY_SIZE = re.compile(r"^MaxArraySize\s*=\s*(\d+)", re.M)


class RefusedError(SlurmError):
    """Slurm will never take this job."""


class JobRow(t.NamedTuple):
    """One job or array task that Slurm still has; tasks of an array that wait are one row."""

    job_id: int
    name: str
    state: str
    host: str

    @property
    def waits(self) -> bool:
        return self.state == "PENDING"


class CampaignSlurm:
    """Slurm's commands, run as one user; raises SlurmError where one fails or does not answer."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.reader = SlurmReader(run)

    def nodes(self) -> list[Json]:
        return self.reader.nodes()

    def partition(self, name: str) -> Json | None:
        """Return the partition of this name, without one Slurm's default."""
        return partition_of(self.reader.partitions(), name)

    def topology(self) -> str:
        """Return the output of scontrol show topology; of no use in a cluster without a topology plugin."""
        rc, out, dummy = self._run(["scontrol", "show", "topology"])
        return "" if rc else out

    def array_size(self) -> int:
        """Return how many tasks an array may have; Slurm's default when it does not say."""
        rc, out, dummy = self._run(["scontrol", "show", "config"])
        match = None if rc else _ARRAY_SIZE.search(out)
        return max(1, int(match.group(1)) - 1) if match else 1000

    def submit(self, options: t.Sequence[str], script: Path) -> int:
        rc, out, err = self._run(["sbatch", *options, str(script)])
        if rc:
            output = (err or out).strip()
            kind = SlurmError if _LATER.search(output) or not output else RefusedError
            raise kind(f"sbatch refused {script.stem}: {output}")
        return submitted_id(out)

    def queue(self, names: t.Container[str]) -> list[JobRow]:
        """Return our jobs of these names, array tasks that wait as one row; ``host`` has a job's first task."""
        return [row for row in self._rows() if row.name in names]

    def held(self, run: str, names: t.Container[str]) -> bool:
        """Say whether other jobs of a run still hold nodes, if only until Slurm has tidied up after them."""
        return any(row.name.startswith(run) and row.name not in names and not row.waits for row in self._rows())

    def _rows(self) -> list[JobRow]:
        argv = ["squeue", "-h", "-a", "--me", "-o", SEPARATOR.join(["%A", "%F", "%T", "%B", "%j"])]
        rc, out, err = self._run(argv)
        if rc:
            raise SlurmError(f"squeue failed: {(err or out).strip()}")
        rows = [line.split(SEPARATOR, 4) for line in out.splitlines()]
        return [_row(cells) for cells in rows if len(cells) == 5]

    def cancel(self, job_id: int, waiting: bool = False) -> None:
        """End a job, or those of its tasks that have not begun; one that has ended already is no error."""
        with contextlib.suppress(SlurmError):
            self._run(["scancel", *(["--state=PENDING"] if waiting else []), str(job_id)])


def _row(cells: t.Sequence[str]) -> JobRow:
    job_id = int(cells[1]) if cells[1].isdigit() else int(cells[0])
    return JobRow(job_id, cells[4], cells[2], text_or_none(cells[3]) or "")


# The jobs that do a batch of tests, and the command lines that submit them. Pure.


_PREFIX = "hpcai-cert"
# Slurm looks at 100 jobs of a queue at a time (default_queue_depth): a longer array starts in several goes.
ARRAY = 100
# One srun for each step lives on one node.
ALLOCATION = 256
# Seconds that a job may wait for its turn, or for that of all others if only so many nodes may be used at once.
_LONGEST = (86400.0, 7 * 86400.0)
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")
# Ours alone, or with them sbatch does something else than to submit the script once and to say its number.
OWN_OPTIONS = frozenset(
    "array chdir clusters dependency error exclude job-name no-requeue nodelist nodes output parsable quiet requeue"
    " test-only wait wrap".split()
)

_Item = t.TypeVar("_Item")


class RoundJob(t.NamedTuple):
    """One submission: an array of one-node tasks, or one allocation in which steps run."""

    name: str
    tests: t.Sequence[Json]
    kind: str  # "array", "node" (an array's straggler) or "round"

    @property
    def nodes(self) -> list[str]:
        """Return the nodes of its tests, each once."""
        return list(dict.fromkeys(node for test in self.tests for node in test["nodes"]))


def jobs(run: str, batch: Json, tests: t.Sequence[Json], attempt: int, sizes: t.Mapping[str, int]) -> list[RoundJob]:
    """Return the jobs for the tests of a batch that still have no result; one attempt's names are not another's."""
    prefix = _SAFE.sub("-", f"{_PREFIX}-{run}-{batch['id']}-{attempt}")
    # Two jobs with the same nodes would wait for each other.
    same: dict[tuple[str, ...], list[Json]] = {}
    for test in tests:
        same.setdefault(tuple(test["nodes"]), []).append(test)
    alone = [few for nodes, few in same.items() if len(nodes) == 1]
    several = [few for nodes, few in same.items() if len(nodes) > 1]
    planned: list[RoundJob] = []
    # Nodes that test themselves share no job, though one step of many costs a fifth less: where one node hangs Slurm
    # ends the step for all, and keeps them for up to a minute after. A node that no task reached is requested by name.
    single = attempt > 1 and len(alone) <= sizes["stragglers"]
    for part in _parts(alone, lambda few: 1, 1 if single else sizes["array"]):
        mine = [test for few in part for test in few]
        planned.append(RoundJob(f"{prefix}.{len(planned)}", mine, "node" if len(part) == 1 else "array"))
    for part in _parts(several, lambda few: len(few[0]["nodes"]), sizes["allocation"]):
        mine = [test for few in part for test in few]
        planned.append(RoundJob(f"{prefix}.{len(planned)}", mine, "round"))
    return planned


def _parts(items: t.Sequence[_Item], weight: t.Callable[[_Item], int], most: int) -> t.Iterator[list[_Item]]:
    """Split items into parts of at most so much weight; one that is heavier by itself stays whole."""
    part: list[_Item] = []
    used = 0
    for item in items:
        if part and used + weight(item) > most:
            yield part
            part, used = [], 0
        part.append(item)
        used += weight(item)
    if part:
        yield part


def sbatch_arguments(
    job: RoundJob, how: Json, others: t.Sequence[str], seconds: float, log: str, after: int | None = None
) -> list[str]:
    """Return the options of sbatch. A task that failed is never started again by Slurm: that is for us to decide."""
    nodes = job.nodes
    selection: Json = {"nodes": len(nodes), "nodelist": compress(nodes)}
    if job.kind == "array":
        selection = {"nodes": 1, "array": f"0-{len(nodes) - 1}", "exclude": compress(others) or None}
    options = {
        "parsable": True,
        "no_requeue": True,
        "exclusive": True,
        "no_kill": job.kind == "round",
        "chdir": "/",
        # A job that still waits when no coordinator runs any more must not start some day.
        "deadline": f"now+{math.ceil((_LONGEST[bool(how['at_once'])] + seconds) / 60)}minutes",
        "time": min(math.ceil(seconds / 60) + 1, max(1, int(how.get("longest") or 1e9) // 60)),
        "export": "PATH,HOME,USER",
        "mem": 0,
        "gpus_per_node": how["gpus"] or None,
        "partition": how["partition"] or None,
        "reservation": how["reservation"] or None,
    }
    given = {str(key).replace("-", "_"): value for key, value in how["sbatch_options"].items()}
    # So many nodes at a time is one job at a time.
    selection["dependency"] = f"afterany:{after}" if after and how["at_once"] else None
    return flags({**options, **given, **selection, "job_name": job.name, "output": log})


def job_script(job: RoundJob, how: Json, agent: str, file: str) -> str:
    """Return the batch script: the agent, and no shell of anybody's."""
    command = [how["interpreter"], "-IS", agent, "round" if job.kind == "round" else "local", file]
    return f"#!/bin/sh\nexec {' '.join(shlex.quote(word) for word in command)}\n"


def job_content(job: RoundJob, batch: Json, request: Json, folder: str) -> Json:
    """Return what stands in the job's file, which the agent on the nodes reads."""
    how = request["how"]
    wide = job.kind == "round"
    single = batch["stage"] != "reach"
    return {
        "schema": 1,
        "run": request["run"],
        "folder": folder,
        "agent": how["agent_path"],
        "batch": batch["id"],
        "tests": list(job.tests),
        "concurrent": _at_once(job, batch) if wide else 1,
        "how": {**how, "agent": how["agent"] if single and not wide else {}},
    }


def _at_once(job: RoundJob, batch: Json) -> int:
    """Return how many tests of a job run at the same time: of the same nodes one."""
    apart = len({tuple(test["nodes"]) for test in job.tests})
    return max(1, min(int(batch.get("concurrent") or apart), apart))


def job_seconds(job: RoundJob, batch: Json, how: Json) -> float:
    """Return how long a job may take: its tests one after the other where no more may run at once."""
    if batch["stage"] == "reach":
        return float(how["hold"]) + 60
    if job.kind != "round":
        return float(how["suite_timeout"]) + float(how["hold"]) + 60
    rails = 2 + (int(how["gpus"]) if any(test.get("rails") for test in job.tests) else 0)
    return math.ceil(len(job.tests) / _at_once(job, batch)) * rails * (float(how["timeout"]) + 30)


# The fleet that is certified, as Slurm describes it. Pure.


# Ours inside its own reservation; anybody else's node in one is not free.
_RESERVED = {"RESERVED", "MAINTENANCE", "MAINT"}
_FREE = {"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "COMPLETING", "PLANNED"}
_SWITCHED_OFF = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"}
_STATES = (
    ({"DRAIN", "FAIL", "INVALID_REG", "BLOCKED"}, "drained"),
    ({"NOT_RESPONDING"}, "down"),
    (_SWITCHED_OFF, "powered_down"),
    ({"POWERING_UP", "POWER_UP"}, "powering_up"),
    ({"REBOOT_ISSUED", "REBOOT_REQUESTED", "REBOOT"}, "rebooting"),
)


def state(node: Json, reservation: bool = False) -> str:
    """Return idle, or why a node takes part in nothing."""
    words = set(node["flags"]) - _FREE - (_RESERVED if reservation else set())
    for among, name in _STATES:
        # One that did not come within ResumeTimeout is DOWN and switched off: that is a fault, and not power saving.
        if words & among and not (among is _SWITCHED_OFF and node["state"] == "DOWN"):
            return name
    if node["state"] in ("ALLOCATED", "MIXED"):
        return "busy"
    if node["state"] != "IDLE":
        return str(node["state"]).lower()
    return "reserved" if words & _RESERVED else "idle" if not words else "_".join(sorted(words)).lower()


def mute(node: Json) -> bool:
    """Say whether a node does not answer Slurm itself."""
    return "NOT_RESPONDING" in node["flags"]


def switched_off(node: Json) -> bool:
    """Say whether power saving has removed a node that nobody needs, which is no fault of the node."""
    return state(node) == "powered_down"


def selected(nodes: t.Sequence[Json], hosts: t.Sequence[str], partition: Json | None) -> list[Json]:
    """Return the named nodes, or those of the partition; each once."""
    known = {node["name"]: node for node in nodes}
    names = hosts or (partition["nodes"] if partition else list(known))
    missing = [name for name in dict.fromkeys(names) if name not in known]
    if missing:
        raise SlurmError(f"Slurm does not know {compress(missing)}; it knows {compress(list(known), sort=True)}")
    if not names:
        raise SlurmError("there is no node to certify")
    members = set(partition["nodes"] if partition else names)
    outside = [name for name in dict.fromkeys(names) if name not in members]
    if outside:
        raise SlurmError(f"partition {(partition or {}).get('name')} does not have {compress(outside, sort=True)}")
    return [known[name] for name in dict.fromkeys(names)]


def partition_of(partitions: t.Sequence[Json], name: str) -> Json | None:
    """Return the partition that jobs go to, None where Slurm has no default."""
    matches = [partition for partition in partitions if (partition["name"] == name if name else partition["default"])]
    if name and not matches:
        raise SlurmError(
            f"Slurm has no partition {name}; it has {', '.join(partition['name'] for partition in partitions)}"
        )
    return matches[0] if matches else None


def places(text: str) -> dict[str, dict[str, str]]:
    """Return leaf and pod of each node from the output of scontrol show topology; empty where there is no topology."""
    switches = []
    for line in text.splitlines():
        values = fields(line)
        if line.startswith("BlockName=") and "BlockIndex" in values:
            switches.append((0, values["BlockName"], expand(values.get("Nodes", ""))))
        if line.startswith("SwitchName=") and values.get("Level", "").isdigit():
            switches.append((int(values["Level"]), values["SwitchName"], expand(values.get("Nodes", ""))))
    leaf = {name: switch for level, switch, names in switches if level == 0 for name in names}
    pod = {name: switch for level, switch, names in switches if level == 1 for name in names}
    return {name: {"leaf": leaf[name], "pod": pod.get(name, "")} for name in leaf}


def read_places(
    slurm: CampaignSlurm, leaves: t.Mapping[str, t.Mapping[str, str]]
) -> t.Mapping[str, t.Mapping[str, str]]:
    """Return leaf and pod of each node as Slurm has them, or where it has none as they are given."""
    return places(slurm.topology()) or leaves


class Fleet(t.NamedTuple):
    """The nodes to certify as a campaign reads them, and the names of all others, which Slurm might give instead."""

    nodes: list[Json]
    others: list[str]


def fleet(
    nodes: t.Sequence[Json],
    hosts: t.Sequence[str],
    partition: Json | None,
    where: t.Mapping[str, t.Mapping[str, str]],
    suspicion: t.Mapping[str, float],
    reservation: bool = False,
) -> Fleet:
    """Return the named hosts, or what of the partition power saving has not switched off."""
    chosen = selected(nodes, hosts, partition)
    present = {node["name"]: node for node in chosen if hosts or not switched_off(node)}
    if not present:
        off = compress([node["name"] for node in chosen], sort=True)
        raise SlurmError(
            f"there is no node to certify: power saving has switched off all of {off}. Say in cluster_nodes how many"
            " Slurm is to resume for this, or have a job resume them, then run this again"
        )
    blank = {"leaf": "", "pod": "", "physical_host": ""}
    described = [
        {
            **blank,
            **where.get(name, {}),
            "name": name,
            "state": state(node, reservation),
            "reason": node.get("reason") or _silence(node),
            "suspicion": suspicion.get(name, 0.0),
        }
        for name, node in present.items()
    ]
    return Fleet(described, [node["name"] for node in nodes if node["name"] not in present])


def _silence(node: Json) -> str:
    if node["state"] == "UNKNOWN":
        return "its slurmd never registered"
    return "its slurmd does not answer, or has another munge key" if mute(node) else ""


def history(certificates: t.Sequence[t.Any]) -> dict[str, float]:
    """Return how far earlier certificates, the newest last, suspect a node that none has cleared since."""
    suspicion: dict[str, float] = {}
    for certificate in certificates:
        nodes = certificate.get("nodes") if isinstance(certificate, dict) else None
        for name, verdict in (nodes or {}).items() if isinstance(nodes, dict) else []:
            status = verdict.get("status") if isinstance(verdict, dict) else None
            if status == "cleared":
                suspicion.pop(name, None)
            elif status in ("watched", "drained"):
                posterior = verdict.get("posterior")
                number = isinstance(posterior, (int, float)) and not isinstance(posterior, bool)
                suspicion[name] = min(1.0, max(0.0, float(posterior))) if number else 0.5
    return suspicion
