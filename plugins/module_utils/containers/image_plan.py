# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes get images, in which order, and what became of them: planned = staged + missing. Pure, private."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_node import UNPROVED
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_stage import GOOD, MARK
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import pick

Record = t.Dict[str, t.Any]
# srun's words; the nodes that it then ends the others on are named as well, and are not to blame.
BLAMED = re.compile(r"(?:failed on node|Node failure on) ([A-Za-z0-9_.,\[\]-]+)")
LATE = "did not end within"
BUSY = "jobs have it, or Slurm keeps it for others; run this again later"


class Group(t.NamedTuple):
    """Nodes that one job can have, and those of its partition that it must not take."""

    partition: str
    nodes: list[str]
    others: list[str]
    max_time: int | None = None


class Missing(t.NamedTuple):
    """A node without the images; ``fault`` is false where it could not even be asked."""

    node: str
    reason: str
    fault: bool = False


def choose(
    nodes: list[Record], partitions: list[Record], wanted: list[str], partition: str | None
) -> tuple[list[str], list[Group], list[Missing]]:
    """Return the planned nodes, the jobs that reach those in service, and the others with the reason."""
    asked = pick(nodes, wanted) if wanted else [node for node in nodes if node["state"] != "FUTURE"]
    ranks = {one["name"]: not one["default"] for one in partitions if one["state"] == "UP"}
    by_partition: dict[str, list[str]] = {}
    missing = []
    for node in asked:
        open_to = [name for name in node["partitions"] if name in ranks and partition in (None, "", name)]
        reason = out_of_service(node) or ("" if open_to else f"is in no open partition {partition or ''}".rstrip())
        if reason:
            missing.append(Missing(node["name"], reason))
        else:
            by_partition.setdefault(sorted(open_to, key=lambda name: (ranks[name], name))[0], []).append(node["name"])
    groups = [
        Group(
            name,
            members,
            [one["name"] for one in nodes if name in one["partitions"] and one["name"] not in members],
            next(one["max_time"] for one in partitions if one["name"] == name),
        )
        for name, members in sorted(by_partition.items())
    ]
    return [node["name"] for node in asked], groups, missing


def out_of_service(node: Record) -> str:
    """Say why Slurm gives a node to no job, empty when it does."""
    if node["available"]:
        return ""
    states = "+".join([node["state"], *node["flags"]]).lower()
    return f"is {states}{': ' + node['reason'] if node['reason'] else ''}"


def occupied(nodes: list[Record]) -> set[str]:
    """Return the nodes that no job can have now; one whose job is only ending is free in a moment."""
    return {
        node["name"]
        for node in nodes
        if node["cpus"] and (node["allocated_cpus"] or 0) >= node["cpus"] and "COMPLETING" not in node["flags"]
    }


def answers(text: str) -> dict[str, Record]:
    """Return what nodes said; a line that was cut off is no answer."""
    found: dict[str, Record] = {}
    for line in text.splitlines():
        dummy, mark, said = line.partition(MARK)
        try:
            answer = json.loads(said) if mark else None
        except ValueError:
            continue
        if isinstance(answer, dict):
            found[str(answer.get("node"))] = answer
    return found


def sort_out(nodes: t.Sequence[str], said: t.Mapping[str, Record], trouble: str) -> tuple[list[str], list[Missing]]:
    """Part the nodes that did what they were told from those that did not."""
    good, missing = [], []
    for node in nodes:
        problem = wrong(said[node]) if node in said else f"gave no answer{': ' + trouble if trouble else ''}"
        if problem:
            missing.append(Missing(node, problem, fault=True))
        else:
            good.append(node)
    return good, missing


def again(nodes: t.Sequence[str], said: t.Mapping[str, Record], trouble: str) -> list[list[str]]:
    """Return which of the nodes that gave no answer are to be asked again, in which company.

    Without those that srun names, or else in two halves, until what is dead is alone. Late nodes are not asked again.
    """
    silent = [node for node in nodes if node not in said]
    if LATE in trouble or len(silent) < 2 or not trouble:
        return []
    dead = {name for found in BLAMED.findall(trouble) for name in expand(found)}
    rest = [node for node in silent if node not in dead]
    if 0 < len(rest) < len(silent):
        return [rest]
    half = len(silent) // 2
    return [silent[:half], silent[half:]]


def wrong(answer: Record) -> str:
    """Say what a node could not do, empty when it did everything."""
    bad = [f"{name}: {state}" for name, state in answer["images"].items() if state not in GOOD]
    return "; ".join([text for text in (answer.get("problem"), *bad) if text])


def lacking(answer: Record) -> bool:
    """Say whether a node that looked needs anything, removals included."""
    return bool(answer.get("absent")) or any(state != "current" for state in answer["images"].values())


def changing(answer: Record) -> bool:
    """Say whether that is more than to remember that a file was hashed again."""
    return bool(answer.get("absent")) or any(state not in ("current", UNPROVED) for state in answer["images"].values())


def needs(answer: Record) -> str:
    """Say in words what a node that looked is going to get."""
    short = [f"{name} {state}" for name, state in answer["images"].items() if state != "current"]
    return "; ".join([*short, *(f"{name} is to be removed" for name in answer.get("absent", []))])


def waves(nodes: t.Sequence[str], size: int) -> list[list[str]]:
    """Part nodes so that no more than this many read from the shared directory at a time."""
    step = size if size > 0 else max(1, len(nodes))
    return [list(nodes[start : start + step]) for start in range(0, len(nodes), step)]


def report(planned: t.Sequence[str], staged: t.Sequence[str], missing: t.Sequence[Missing]) -> Record:
    """Return every planned node once, as staged or as missing with the reason."""
    reasons = {one.node: one for one in missing}
    for node in planned:
        if node not in staged and node not in reasons:
            reasons[node] = Missing(node, "was not reached")
    return {
        "planned": list(planned),
        "staged": sorted(set(staged) - set(reasons)),
        "missing": [reasons[node]._asdict() for node in planned if node in reasons],
    }


def sentence(found: Record) -> str:
    """Tell the report in one sentence."""
    told = "; ".join(f"{one['node']} {one['reason']}" for one in found["missing"])
    count = f"{len(found['staged'])} of {len(found['planned'])} nodes have the images"
    return f"{count}. Missing: {told}" if told else count
