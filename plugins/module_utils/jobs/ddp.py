# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A training without a scheduler: whether nodes fit together, what to start on each, how it went. Pure, private."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t

Json = t.Dict[str, t.Any]
PREFIX = "hpcai-ddp-"
# For ddp_node.py to end its torchrun, which in turn gives the ranks time for a checkpoint.
STOP_SECONDS = 45
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80}")
_RUN = re.compile(r"run-(\d+)")


class DdpError(ValueError):
    """The training cannot be started or read; the text is fit for the user."""


def findings(nodes: t.Mapping[str, Json | None], processes: int, rendezvous: str, slurm: str = "refuse") -> list[str]:
    """Say what keeps these nodes from training together; ``nodes`` are the facts of ddp_node_info by name."""
    lost = sorted(name for name, facts in nodes.items() if not facts)
    if lost:
        return [f"{', '.join(lost)}: nothing is known of them; they could not be reached or asked"]
    if rendezvous not in nodes:
        return [f"the rendezvous {rendezvous} is none of the nodes {', '.join(nodes)}"]
    known = {name: facts for name, facts in nodes.items() if facts}
    found = [f"{name}: {text}" for name, facts in known.items() for text in _alone(facts, processes, slurm)]
    if not known[rendezvous]["port_free"]:
        found.append(f"{rendezvous}: port {known[rendezvous]['port']} is in use there (ddp_launch_port)")
    for key, what in (("torch", "version of PyTorch"), ("script_sha256", "content of the script"), ("gpus", "GPUs")):
        found += _differ({name: facts.get(key) for name, facts in known.items()}, what)
    return found


def _alone(facts: Json, processes: int, slurm: str) -> list[str]:
    found = []
    if not facts["torch"]:
        found.append(f"{facts['python']} cannot import torch: {facts['torch_problem']}")
    elif processes > (facts["gpus"] or facts["cpus"]):
        there = f"{facts['gpus']} GPUs" if facts["gpus"] else f"{facts['cpus']} CPUs"
        found.append(f"{processes} processes per node are more than its {there}")
    found += [f"{path} is missing or not readable for {facts['user']}" for path in facts["missing"]]
    found += [f"the name {name} does not resolve" for name in facts["unresolved"]]
    if facts["jobs"] and slurm == "refuse":
        found.append(f"Slurm has jobs there: {', '.join(facts['jobs'])} (ddp_launch_slurm)")
    if facts["jobs_problem"] and slurm == "refuse":
        found.append(f"Slurm does not say whether it has jobs there: {facts['jobs_problem']} (ddp_launch_slurm)")
    return found


def _differ(values: t.Mapping[str, t.Any], what: str) -> list[str]:
    """Name the nodes by value where they are not all the same."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        if value is not None:
            groups.setdefault(str(value)[:16], []).append(name)
    if len(groups) < 2:
        return []
    return [
        f"nodes differ in {what}: " + "; ".join(f"{value} on {', '.join(names)}" for value, names in groups.items())
    ]


def validate(spec: Json) -> None:
    """Refuse what could not become a unit, a file name or a command line."""
    for name in [*spec["nodes"], *spec["addresses"].values()]:
        if not _NAME.fullmatch(name):
            raise DdpError(f"{name!r} is no name of a node")
    if set(spec["nodes"]) != set(spec["addresses"]):
        raise DdpError("every node needs an address")
    if spec["processes"] < 1 or spec["timeout"] < 1:
        raise DdpError(f"processes {spec['processes']} and timeout {spec['timeout']} must be at least 1")
    bad = [str(name) for name in spec["environment"] if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name))]
    if bad:
        raise DdpError(f"{', '.join(bad)} is no name of an environment variable")


def digest(spec: Json, programs: t.Mapping[str, str]) -> str:
    """Name a training by its content: another script, node or argument is another one."""
    return hashlib.sha256(json.dumps([spec, dict(programs)], sort_keys=True).encode()).hexdigest()


def next_run(names: t.Iterable[str]) -> str:
    numbers = [int(match.group(1)) for match in map(_RUN.fullmatch, names) if match]
    return f"run-{max(numbers, default=0) + 1}"


def unit(folder: str) -> str:
    """Return the unit of the trainings of a directory: there is one at a time."""
    return f"{PREFIX}{hashlib.sha256(folder.encode()).hexdigest()[:12]}"


def start(systemd_run: str, name: str, user: str, spec: Json, run: str, node: str) -> list[str]:
    """Return the command that starts a node's part; systemd ends whatever is left of it."""
    properties = {
        "KillMode": "control-group",
        "TimeoutStopSec": STOP_SECONDS,
        # ddp_node.py ends at the timeout by itself; this is for one that hangs.
        "RuntimeMaxSec": int(spec["timeout"]) + 2 * STOP_SECONDS,
        "LimitMEMLOCK": "infinity",
        "LimitNOFILE": 1048576,
    }
    options = [f"--property={key}={value}" for key, value in properties.items()]
    front = [
        systemd_run,
        f"--unit={name}",
        f"--uid={user}",
        "--collect",
        "--quiet",
        f"--description=DDP training {run}",
    ]
    # The user can write the specification, and root reads it: nothing of it may become an option of systemd-run.
    return [*front, *options, "--", str(spec["python"]), f"{run}/ddp_node.py", "node", run, node]


def summary(spec: Json, nodes: t.Mapping[str, Json], ranks: t.Sequence[Json], failed: Json | None) -> Json:
    """Join what the nodes and ranks left behind; ``state`` is completed, failed, or running while a node is missing."""
    wanted = len(spec["nodes"]) * spec["processes"]
    good = [one for one in ranks if one["rc"] == 0]
    ended = set(spec["nodes"]) <= set(nodes)
    sound = ended and all(node["rc"] == 0 and not node["why"] for node in nodes.values()) and len(good) == wanted
    state = "failed" if failed else "running" if not ended else "completed" if sound else "failed"
    return {
        "state": state,
        "run": spec["run"],
        "nodes": [
            {"node": name, **nodes.get(name, {"rc": None, "why": "", "seconds": None})} for name in spec["nodes"]
        ],
        "ranks": sorted(ranks, key=lambda one: int(one["rank"])),
        "world_size": wanted,
        "seconds": max((node["seconds"] for node in nodes.values()), default=None),
        "failed": failed or (_silent(wanted, good) if state == "failed" else None),
        "ended": ended,
    }


def _silent(wanted: int, good: t.Sequence[Json]) -> Json:
    return {"node": None, "rank": None, "why": f"only {len(good)} of {wanted} ranks ended well"}


def report(found: Json, tail: str) -> str:
    """Say what failed first, and what it said last."""
    failed = found["failed"] or {}
    if failed.get("rank") is not None:
        who = f"rank {failed['rank']} on {failed['node']} {failed['why']}"
    else:
        who = f"{failed['node']}: {failed['why']}" if failed.get("node") else str(failed.get("why", "it did not end"))
    silent = [one["node"] for one in found["nodes"] if one["rc"] is None]
    lost = f" {', '.join(silent)} never told how it ended and may be what was lost." if silent else ""
    return f"{found['run']} failed: {who}.{lost}" + (f" Its last lines:\n{tail}" if tail else "")
