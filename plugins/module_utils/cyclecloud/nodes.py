# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be asked of CycleCloud so that nodes are as wanted. No I/O; private to this collection."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import CycleCloudError, Json

# State of the module -> the route, and the states of a node that needs it no more.
ROUTES = {
    "started": ("start", {"Ready"}),
    "shut_down": ("shutdown", facts.GONE),
    "deallocated": ("deallocate", {"Deallocated"}),
    "terminated": ("terminate", {"Off", "Terminated"}),
    "absent": ("remove", {"Off", "Terminated"}),
    "restarted": ("restart", {"Ready"}),
    "reimaged": ("reimage", {"Ready"}),
}
ONCE = ("restarted", "reimaged")


class Plan(t.NamedTuple):
    """What to ask, of which nodes; without a route nothing has to change."""

    route: str
    names: list[str]
    sets: list[Json]
    watched: list[str]  # also nodes that are on their way already
    goal: set[str]


def plan(status: Json, params: Json) -> Plan:
    """Decide for O(state) and what it is about; every problem is told at once."""
    if params["state"] == "present":
        return _present(status, params)
    known = {one["name"]: one for one in facts.nodes(status)}
    route, goal = ROUTES[params["state"]]
    if params.get("names") is not None:
        chosen = list(dict.fromkeys(params["names"]))
    else:
        chosen = [name for name, one in known.items() if one["nodearray"] == params["nodearray"]]
    missing = [name for name in chosen if name not in known]
    if missing and params["state"] not in ("terminated", "absent", "shut_down"):
        raise CycleCloudError(f"there is no node {', '.join(missing)}; there are {', '.join(known) or 'none'}")
    chosen = [name for name in chosen if name in known]
    needing = [name for name in chosen if params["state"] in ONCE or _needs(known[name], params["state"], goal)]
    watched = [name for name in chosen if name in needing or known[name]["state"] not in goal]
    return Plan(route if needing else "", needing, [], watched, goal)


def _needs(node: Json, state: str, goal: set[str]) -> bool:
    """A node that is on its way needs nothing more; a Failed one is asked again."""
    if node["state"] in goal:
        return False
    if state == "started":
        return node["target_state"] != "Started" or node["state"] == "Failed"
    wanted = {"deallocated": ("Deallocated",), "shut_down": ("Deallocated", "Terminated")}.get(state, ("Terminated",))
    return node["target_state"] not in wanted or node["state"] == "Failed"


def _present(status: Json, params: Json) -> Plan:
    array = params["nodearray"]
    known = [one for one in facts.nodes(status) if one["nodearray"] == array]
    alive = {one["name"]: one for one in known if one["target_state"] == "Started"}
    named = params.get("names")
    new = [name for name in dict.fromkeys(named or []) if name not in {one["name"] for one in known}]
    problems = _array_problems(status, params)
    asleep = [name for name in named or [] if name in {one["name"] for one in known} and name not in alive]
    if asleep:
        problems.append(f"{', '.join(asleep)} is there but not started; use state=started")
    count = len(new) if named is not None else _more(status, params, list(alive.values()))
    if not problems and count:
        problems += _limit_problems(status, params, count)
    if problems:
        raise CycleCloudError("; ".join(problems))
    sets = [_set(params, name) for name in new] if named is not None else _sets(params, count)
    route = "scale" if params.get("cores") is not None else "create"
    watched = [name for name in alive if (named is None or name in named) and alive[name]["state"] != "Ready"]
    return Plan(route if sets else "", new, sets, watched, {"Ready"})


def _more(status: Json, params: Json, alive: list[Json]) -> int:
    """How many nodes are missing of a number of nodes or cores."""
    if params.get("cores") is None:
        return max(0, int(params["count"]) - len(alive))
    rows = facts.arrays(status).get(params["nodearray"]) or [{}]
    left = params["cores"] - sum(one["cores"] or 0 for one in alive)
    return max(0, -(-left // (rows[0].get("cores") or 1)))


def _array_problems(status: Json, params: Json) -> list[str]:
    found = facts.arrays(status)
    array = params["nodearray"]
    if array not in found:
        return [f"there is no node array {array}; there are {', '.join(found) or 'none'}"]
    problems = [f"{name} is negative" for name in ("count", "cores") if (params.get(name) or 0) < 0]
    types = [one["machine_type"] for one in found[array]]
    if params.get("machine_type") and params["machine_type"] not in types:
        problems.append(f"node array {array} has no machine type {params['machine_type']}, but {', '.join(types)}")
    bad = [name for name in params.get("names") or [] if not re.fullmatch(r"[A-Za-z0-9-]*[A-Za-z-][1-9][0-9]*", name)]
    if bad:
        problems.append(f"{', '.join(bad)} does not end with a number as names of new nodes must")
    return problems


def _limit_problems(status: Json, params: Json, count: int) -> list[str]:
    rows = facts.arrays(status)[params["nodearray"]]
    row = next((one for one in rows if one["machine_type"] == params.get("machine_type")), rows[0] if rows else None)
    if row is None:
        return [f"node array {params['nodearray']} has no machine type that CycleCloud knows"]
    if row["valid"] and (row["available"] >= count or params.get("partial")):
        return []
    if not row["valid"]:
        reason = row["invalid_reason"]
        hint = (
            "start the cluster again, so that new node arrays become active"
            if reason == "NotActivated"
            else "choose another"
        )
        return [
            f"machine type {row['machine_type']} of node array {params['nodearray']} is {reason or 'not valid'}: {hint}"
        ]
    return [
        f"{count} more nodes of {row['machine_type']} are wanted, but the {row['limit']} leaves {row['available']}:"
        " raise that limit, stop other nodes, or accept fewer with partial=true"
    ]


def _common(params: Json) -> Json:
    made: Json = {"nodearray": params["nodearray"]}
    if params.get("machine_type"):
        made["definition"] = {"machineType": params["machine_type"]}
    if params.get("placement_group"):
        made["placementGroupId"] = params["placement_group"]
    if params.get("attributes"):
        made["nodeAttributes"] = params["attributes"]
    return made


def _sets(params: Json, count: int) -> list[Json]:
    return [{**_common(params), "count": count}] if count > 0 else []


def _set(params: Json, name: str) -> Json:
    """One node of this very name: the format and the number at which counting starts."""
    stem, number = t.cast("re.Match[str]", re.fullmatch(r"(.*?)(\d+)", name)).groups()
    return {**_common(params), "count": 1, "nameFormat": f"{stem}%d", "nameOffset": int(number)}


def progress(nodes: list[Json], watched: list[str], goal: set[str]) -> tuple[list[str], list[str]]:
    """Which of the watched nodes are not there yet, and what failed for good; a node that is gone is terminated."""
    known = {one["name"]: one for one in nodes}
    failed, waiting = [], []
    for name in watched:
        node = known.get(name)
        if node is None:
            if "Terminated" not in goal:
                failed.append(f"{name} is gone")
        elif node["state"] == "Failed":
            failed.append(f"{name} is Failed: {node['message'] or 'no message'}{hint(node['message'])}")
        elif node["state"] not in goal:
            waiting.append(name)
    return waiting, failed


HINTS = (
    (
        "awaiting system boot-up",
        "the node did not report within 30 minutes: is port 9443 of CycleCloud open to the subnet?",
    ),
    ("Software Installation", "its cluster-init failed: see /opt/cycle/jetpack/logs/cluster-init on the node"),
    ("capacity", "Azure has no such machines free: try later, another zone or region, or reserve capacity"),
    ("AllocationFailed", "Azure has no such machines free: try later, another zone or region, or reserve capacity"),
    ("Quota", "ask for more quota of the family and of the region"),
    ("SkuNotAvailable", "this machine type is not offered to the subscription here"),
)


def hint(message: str) -> str:
    """What to do about a message of CycleCloud."""
    return next((f" ({text})" for sign, text in HINTS if sign.lower() in message.lower()), "")
