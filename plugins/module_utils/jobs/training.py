# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what a training job left behind and judge whether it learned."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, finite, judge, metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    CpuListError,
    GpuPlace,
    NumaNode,
    Topology,
    facts,
)

# Read what a training job left behind and judge whether it learned. Pure.


CHECK = "training"
GOOD_STATE = "COMPLETED"


class TrainingError(ValueError):
    """The result cannot be used; the text is fit for the user."""


class EndedItself(TrainingError):
    """The training says why it ended, and which rank was the first to know."""

    def __init__(self, problem: str, rank: int | None) -> None:
        super().__init__(problem)
        self.rank = rank


def parse(text: str) -> Json:
    """Read result.json; numbers that are not finite become null and are found by the judge.

    A training that ended itself says only why, which is raised as EndedItself.
    """
    try:
        result = json.loads(text)
        if isinstance(result, dict) and result.get("problem"):
            rank = result.get("rank")
            raise EndedItself(_plain(str(result["problem"])), None if rank is None else int(rank))
        return {
            **{key: result.get(key) for key in ("model", "backend", "torch", "steps", "batch_size", "samples")},
            "world_size": int(result["world_size"]),
            "ranks": [_rank(rank) for rank in result["ranks"]],
            "loss": [finite(value) for value in result["loss"]],
            "samples_per_second": finite(result["samples_per_second"]),
            "seconds": finite(result["seconds"]),
            "restarts": int(result.get("restarts") or 0),
            "resumed_from": None if result.get("resumed_from") is None else int(result["resumed_from"]),
            "lost_steps": int(result.get("lost_steps") or 0),
        }
    except EndedItself:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise TrainingError(f"the result cannot be read: {exc!r}") from exc


def _rank(rank: Json) -> Json:
    cpus = rank.get("cpus")
    bound = {} if cpus is None else {"cpus": machine.write(int(cpu) for cpu in cpus)}
    return {"rank": int(rank["rank"]), "host": str(rank["host"]), **bound}


def describe(result: Json | None, job: t.Mapping[str, t.Any]) -> Json:
    """Return the job's own result joined with Slurm's record of the job."""
    about = {key: job.get(key) for key in ("name", "job_id", "state", "exit_code", "signal", "nodes", "start", "end")}
    none: Json = {"ranks": [], "loss": [], "world_size": None, "samples_per_second": None, "seconds": None}
    starts: Json = {"restarts": 0, "resumed_from": None, "lost_steps": 0}
    return {**about, "output": job.get("output"), **starts, **(result or none)}


def loss_ratio(loss: t.Sequence[float | None]) -> float | None:
    """Return last / first, both taken over a tenth of the history so that one lucky batch decides nothing."""
    if len(loss) < 2 or any(value is None for value in loss):
        return None
    values = [value for value in loss if value is not None]
    tenth = max(1, len(values) // 10)
    first, last = sum(values[:tenth]) / tenth, sum(values[-tenth:]) / tenth
    return last / first if first else None


def expectations(max_loss_ratio: float, nodes: int) -> list[Json]:
    """Return the expectations that hold for every training job."""
    return [
        _expect("loss_ratio", "<=", max_loss_ratio, "ratio", "the task is learnable: the loss must fall this far"),
        _expect("silent_nodes", "==", 0, "nodes", "every node of the allocation must hold ranks"),
        _expect("missing_ranks", "==", 0, "ranks", "every rank of the process group must report"),
        _expect("nodes", "==", nodes, "nodes", "the number of nodes that was asked for"),
    ]


def _expect(name: str, op: str, value: float, unit: str, source: str) -> Json:
    return {"check": CHECK, "metric": name, "op": op, "value": value, "unit": unit, "source": source}


def measure(training: Json) -> list[Json]:
    """Return the metrics of a training that has a result."""
    hosts = {rank["host"].split(".", 1)[0] for rank in training["ranks"]}
    allocated = {str(name).split(".", 1)[0] for name in training["nodes"] or []}
    return [
        metric("loss_ratio", loss_ratio(training["loss"]), "ratio"),
        metric("silent_nodes", len(allocated - hosts) if allocated else None, "nodes"),
        metric("missing_ranks", training["world_size"] - len({rank["rank"] for rank in training["ranks"]}), "ranks"),
        metric("nodes", len(hosts), "nodes"),
        metric("samples_per_second", training["samples_per_second"], "samples/s"),
        metric("restarts", training["restarts"], "restarts"),
        metric("lost_steps", training["lost_steps"], "steps"),
    ]


def check(
    training: Json,
    problem: str,
    expected: t.Sequence[Json],
    *,
    time: float,
    run: str | None = None,
    why: str = "",
) -> Json:
    """Return the record of one training job; ``why`` is what the training says of its end."""
    about: Json = {
        "time": time,
        "run": run,
        "seconds": training["seconds"],
        "scope": {"group": training["nodes"] or []},
        "context": {
            "tool": "training_job",
            "name": training["name"],
            "job_id": training["job_id"],
            "version": training.get("torch"),
        },
    }
    if training["state"] != GOOD_STATE:
        reason = f"job {training['job_id']} ended as {training['state']}, exit code {training['exit_code']}"
        reason += f": {why}" if why else ""
        return record(CHECK, None, verdict="fail", blame="software", reason=reason, **about)
    if problem:
        return record(CHECK, None, verdict="error", reason=problem, **about)
    return record(CHECK, None, metrics=judge(CHECK, measure(training), expected), blame="software", **about)


def learned(record: Json) -> bool:
    """Say whether the record shows that the loss fell far enough."""
    return any(metric["name"] == "loss_ratio" and metric["verdict"] == "pass" for metric in record["metrics"])


def last_lines(path: str, count: int = 15) -> list[str]:
    """Return the last lines of a file, without control characters; none of what is no regular file."""
    return [line for line in map(_plain, _files.last_lines(path)) if line][-count:]


def _plain(line: str) -> str:
    """Return a line that whoever runs jobs may have written, without control characters."""
    return "".join(c if c.isprintable() else " " for c in line).rstrip()[:300]


# Where the GPUs of a machine type are, as gpu_info would find them on one. Pure.


def topology(profile: t.Mapping[str, t.Any]) -> Json:
    """Return the topology of a profile; what it lacks is left empty, so that nothing is bound to a guess.

    NUMA nodes of these machines are consecutive runs of CPUs of one length (topology files in Azure/azhpc-images).
    """
    vcpus, nodes = profile.get("vcpus"), profile.get("numa_nodes")
    gpus = (profile.get("topology") or {}).get("gpus") or []
    if not vcpus or not nodes or not gpus:
        return facts(Topology())
    if vcpus % nodes:
        raise CpuListError(f"{vcpus} vcpus of a profile cannot be shared out among {nodes} NUMA nodes")
    share = vcpus // nodes
    cpus = {node: f"{node * share}-{(node + 1) * share - 1}" for node in range(nodes)}
    lost = [str(gpu.get("pci_domain")) for gpu in gpus if gpu.get("numa_node") not in cpus]
    if lost:
        raise CpuListError(f"the GPUs {', '.join(lost)} of a profile are on none of its {nodes} NUMA nodes")
    places = [
        GpuPlace(
            index,
            f"0000{gpu['pci_domain']}:00:00.0".upper(),
            gpu["numa_node"],
            cpus[gpu["numa_node"]],
            [gpu["nic"]] if gpu.get("nic") else [],
        )
        for index, gpu in enumerate(sorted(gpus, key=lambda gpu: int(str(gpu["pci_domain"]), 16)))
    ]
    return facts(Topology([NumaNode(node, text) for node, text in cpus.items()], places))
