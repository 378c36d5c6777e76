# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a cluster ready, does it fail, has CycleCloud seen its GPUs? Judged from what facts.py reads. Pure; private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import facts

Json = t.Dict[str, t.Any]


class Look(t.NamedTuple):
    """``failed`` are causes to stop for; ``waiting`` tells what is not there yet, empty when all is."""

    failed: list[str]
    waiting: list[str]
    scheduler: Json
    login: list[Json]


def look(status: Json, login_wanted: int) -> Look:
    """Judge scheduler and login nodes; compute nodes come and go by themselves."""
    alive = [one for one in facts.nodes(status) if one["target_state"] != "Terminated"]
    heads = [one for one in alive if one["role"] == "scheduler"]
    login = [one for one in alive if one["role"] == "login"]
    mine = [*heads, *login]
    failed = [f"{one['name']} failed: {one['message'] or 'no cause given'}" for one in mine if one["state"] == "Failed"]
    waiting = [f"{one['name']} is {one['state']}" for one in mine if one["state"] != "Ready" or not address(one)]
    if not heads:
        waiting.append("there is no scheduler yet")
    if len(login) < login_wanted:
        waiting.append(f"{len(login)} of {login_wanted} login nodes are there")
    return Look(failed, waiting, heads[0] if heads else {}, login)


def address(node: t.Mapping[str, t.Any]) -> str:
    return str(node.get("address") or node.get("hostname") or "")


def place(node: t.Mapping[str, t.Any]) -> dict[str, str]:
    return {"name": str(node.get("name", "")), "address": address(node)}


def left(status: Json) -> list[str]:
    """Nodes that a terminated cluster still has."""
    return [f"{one['name']} is {one['state']}" for one in facts.nodes(status) if one["state"] not in facts.GONE]


def arrays(status: Json, wanted: t.Sequence[t.Mapping[str, t.Any]]) -> tuple[dict[str, Json], list[str], list[str]]:
    """Return for every array what the server can make, faults, and warnings."""
    there = facts.arrays(status)
    result: dict[str, Json] = {}
    warnings = []
    faults = facts.gpu_problems(status, {one["name"]: int(one.get("gpus") or 0) for one in wanted if one.get("gpus")})
    for one in wanted:
        name, machine, most = one["name"], one["machine_type"], int(one["max_nodes"])
        seen = next((kind for kind in there.get(name, []) if kind["machine_type"] == machine), None)
        if seen is None:
            faults.append(f"{name}: CycleCloud has no {machine} in this region; is the size offered there?")
            seen = {"gpus": 0, "available": 0, "active": 0, "valid": True}
        can = int(seen["available"]) + int(seen["active"])
        gpus = int(seen["gpus"] or 0)
        result[name] = {"machine_type": machine, "max_nodes": most, "gpus_per_node": gpus, "available": can}
        if not seen["valid"]:
            warnings.append(f"{name}: not usable: {seen['invalid_reason']}")
        elif can < most:
            warnings.append(f"{name}: {can} of {most} nodes can be had, limited by {seen.get('limit') or 'the region'}")
    return result, faults, warnings
