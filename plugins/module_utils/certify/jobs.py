# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs that do a batch of tests, and the command lines that submit them. Pure, private, stdlib only."""

from __future__ import annotations

import math
import re
import shlex
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import flags
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress

PREFIX = "hpcai-cert"
# Slurm looks at 100 jobs of a queue at a time (default_queue_depth): a longer array starts in several goes.
ARRAY = 100
# One srun for each step lives on one node.
ALLOCATION = 256
# Seconds that a job may wait for its turn, or for that of all others if only so many nodes may be used at once.
_LONGEST = (86400.0, 7 * 86400.0)
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")
# Ours alone, or with them sbatch does something else than to submit the script once and to say its number.
RESERVED = frozenset(
    "array chdir clusters dependency error exclude job-name no-requeue nodelist nodes output parsable quiet requeue"
    " test-only wait wrap".split()
)

_Item = t.TypeVar("_Item")


class RoundJob(t.NamedTuple):
    """One submission: an array of one-node tasks, or one allocation in which steps run."""

    name: str
    tests: t.Sequence[Json]
    nodes: t.Sequence[str]
    kind: str  # "array", "node" (an array's straggler) or "round"


def job_name(run: str, batch: str, part: str) -> str:
    return _SAFE.sub("-", f"{PREFIX}-{run}-{batch}-{part}")


def jobs(run: str, batch: Json, tests: t.Sequence[Json], attempt: int, sizes: t.Mapping[str, int]) -> list[RoundJob]:
    """Return the jobs for the tests of a batch that still have no result; one attempt's names are not another's."""
    alone: dict[str, list[Json]] = {}
    for test in tests:
        if len(test["nodes"]) == 1:
            alone.setdefault(test["nodes"][0], []).append(test)
    several = [test for test in tests if len(test["nodes"]) > 1]
    planned: list[RoundJob] = []
    # Nodes that test themselves share no job, though one step of many costs a fifth less: where one node hangs Slurm
    # ends the step for all, and keeps them for up to a minute after. A node that no task reached is requested by name.
    single = attempt > 1 and len(alone) <= sizes["stragglers"]
    for part in _parts(list(alone), lambda name: 1, 1 if single else sizes["array"]):
        mine = [test for name in part for test in alone[name]]
        planned.append(_job(run, batch["id"], f"{attempt}.{len(planned)}", mine, "node" if len(part) == 1 else "array"))
    for wide in _parts(several, lambda test: len(test["nodes"]), sizes["allocation"]):
        planned.append(_job(run, batch["id"], f"{attempt}.{len(planned)}", wide, "round"))
    return planned


def _job(run: str, batch: str, part: str, tests: t.Sequence[Json], kind: str) -> RoundJob:
    nodes = list(dict.fromkeys(name for test in tests for name in test["nodes"]))
    return RoundJob(job_name(run, batch, part), tests, nodes, kind)


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


def arguments(
    job: RoundJob, how: Json, others: t.Sequence[str], seconds: float, log: str, after: int | None = None
) -> list[str]:
    """Return the options of sbatch. A task that failed is never started again by Slurm: that is for us to decide."""
    selection: Json = {"nodes": len(job.nodes), "nodelist": compress(job.nodes)}
    if job.kind == "array":
        selection = {"nodes": 1, "array": f"0-{len(job.nodes) - 1}", "exclude": compress(others) or None}
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


def script(job: RoundJob, how: Json, agent: str, file: str) -> str:
    """Return the batch script: the agent, and no shell of anybody's."""
    command = [how["interpreter"], "-IS", agent, "round" if job.kind == "round" else "local", file]
    return f"#!/bin/sh\nexec {' '.join(shlex.quote(word) for word in command)}\n"


def content(job: RoundJob, batch: Json, request: Json, folder: str) -> Json:
    """Return what stands in the job's file, which the agent on the nodes reads."""
    how = request["how"]
    wide = job.kind == "round"
    most = max(1, min(int(batch.get("concurrent") or len(job.tests)), len(job.tests)))
    single = batch["stage"] != "reach"
    return {
        "schema": 1,
        "run": request["run"],
        "folder": folder,
        "agent": how["agent_path"],
        "batch": batch["id"],
        "tests": [_with_defaults(test) for test in job.tests],
        "concurrent": most if wide else 1,
        "how": {**how, "agent": how["agent"] if single and not wide else {}},
    }


def _with_defaults(test: Json) -> Json:
    blank = {"collective": "", "rails": False, "round": 0}
    return {**blank, **test, "nodes": list(test["nodes"])}


def seconds(job: RoundJob, batch: Json, how: Json) -> float:
    """Return how long a job may take: its tests one after the other where no more may run at once."""
    if batch["stage"] == "reach":
        return float(how["hold"]) + 60
    if job.kind != "round":
        return float(how["suite_timeout"]) + float(how["hold"]) + 60
    most = max(1, min(int(batch.get("concurrent") or len(job.tests)), len(job.tests)))
    rails = 2 + (int(how["gpus"]) if any(test.get("rails") for test in job.tests) else 0)
    return math.ceil(len(job.tests) / most) * rails * (float(how["timeout"]) + 30)
