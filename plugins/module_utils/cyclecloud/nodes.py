# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module cyclecloud_nodes: add, start, stop and remove nodes of a cluster."""

from __future__ import annotations

import re
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import cluster_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import (
    CycleClient,
    CycleCloudError,
    Json,
    quoted,
)

# What has to be asked of CycleCloud so that nodes are as wanted. No I/O; private to this collection.


# State of the module -> the route, and the states of a node that needs it no more.
ROUTES = {
    "started": ("start", {"Ready"}),
    "shut_down": ("shutdown", cluster_state.GONE),
    "deallocated": ("deallocate", {"Deallocated"}),
    "terminated": ("terminate", {"Off", "Terminated"}),
    "absent": ("remove", {"Off", "Terminated"}),
    "restarted": ("restart", {"Ready"}),
    "reimaged": ("reimage", {"Ready"}),
}
ONCE = ("restarted", "reimaged")


class NodesPlan(t.NamedTuple):
    """What to ask, of which nodes; without a route nothing has to change."""

    route: str
    names: list[str]
    sets: list[Json]
    watched: list[str]  # also nodes that are on their way already
    goal: set[str]


def plan(status: Json, params: Json) -> NodesPlan:
    """Decide for O(state) and what it is about; every problem is told at once."""
    if params["state"] == "present":
        return _present(status, params)
    known = {one["name"]: one for one in cluster_state.nodes(status)}
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
    return NodesPlan(route if needing else "", needing, [], watched, goal)


def _needs(node: Json, state: str, goal: set[str]) -> bool:
    """A node that is on its way needs nothing more; a Failed one is asked again."""
    if node["state"] in goal:
        return False
    if state == "started":
        return node["target_state"] != "Started" or node["state"] == "Failed"
    wanted = {"deallocated": ("Deallocated",), "shut_down": ("Deallocated", "Terminated")}.get(state, ("Terminated",))
    return node["target_state"] not in wanted or node["state"] == "Failed"


def _present(status: Json, params: Json) -> NodesPlan:
    array = params["nodearray"]
    known = [one for one in cluster_state.nodes(status) if one["nodearray"] == array]
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
    return NodesPlan(route if sets else "", new, sets, watched, {"Ready"})


def _more(status: Json, params: Json, alive: list[Json]) -> int:
    """How many nodes are missing of a number of nodes or cores."""
    if params.get("cores") is None:
        return max(0, int(params["count"]) - len(alive))
    rows = cluster_state.array_types(status).get(params["nodearray"]) or [{}]
    left = params["cores"] - sum(one["cores"] or 0 for one in alive)
    return max(0, -(-left // (rows[0].get("cores") or 1)))


def _array_problems(status: Json, params: Json) -> list[str]:
    found = cluster_state.array_types(status)
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
    rows = cluster_state.array_types(status)[params["nodearray"]]
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


# Change nodes and wait until they are as wanted. Private to this collection.


GRACE = 60.0  # seconds within which a node that restarts stops being Ready


class NodesTask:
    """One run of the module."""

    def __init__(self, client: CycleClient, params: Json, clock: t.Callable[[], float] = time.monotonic) -> None:
        self.client, self.params, self.clock = client, params, clock
        self.cluster = params["cluster"]
        self.path = f"/clusters/{quoted(self.cluster)}"
        self.request: str | None = None
        self.added: int | None = None
        self.messages: list[str] = []

    def run(self, check_mode: bool) -> Json:
        before = self.client.status(self.cluster)
        wanted = plan(before, self.params)
        if wanted.route and self._done_before():
            wanted = wanted._replace(route="")
        watched, problems = list(wanted.watched), []
        after = before
        if wanted.route and not check_mode:
            watched += self._ask(wanted, before)
            problems = self._short(wanted)
            after = self.client.status(self.cluster)
        if self.params["wait"] and not check_mode and watched:
            after, more = self._wait(watched, wanted)
            problems += more
        result = self._result(wanted, before, after, check_mode)
        return {**result, "problems": problems}

    def _done_before(self) -> bool:
        """A restart is done once for each ID that the caller gives."""
        ident = self.params.get("request_id")
        return self.client.known(ident) if ident else False

    def _ask(self, wanted: NodesPlan, before: Json) -> list[str]:
        """Ask once; return the nodes to watch."""
        if wanted.route == "scale":
            return self._scale({one["name"] for one in cluster_state.nodes(before)})
        body: Json = {"sets": wanted.sets} if wanted.sets else {"names": wanted.names}
        answer = self.client.post_once(f"{self.path}/nodes/{wanted.route}", body, self.params.get("request_id"))
        self.request = answer["requestId"]
        refused = [
            f"{one.get('name')}: {one.get('error')}"
            for one in answer.get("nodes") or []
            if one.get("status") == "Error"
        ]
        if refused:
            raise CycleCloudError(f"CycleCloud did not {wanted.route} {'; '.join(refused)}")
        if wanted.route != "create":
            return []
        return self._made(answer)

    def _scale(self, known: set[str]) -> list[str]:
        """A total may be asked for twice, so what it made is judged by the nodes that there are."""
        array = self.params["nodearray"]
        answer = self.client.post_total(f"{self.path}/scale/{quoted(array)}", totalCoreCount=str(self.params["cores"]))
        self.messages = [one["message"] for one in answer.get("sets") or [] if one.get("message")]
        nodes = cluster_state.nodes(self.client.status(self.cluster))
        made = [one["name"] for one in nodes if one["nodearray"] == array and one["name"] not in known]
        self.added = len(made)
        return made

    def _made(self, answer: Json) -> list[str]:
        """The nodes that a request created."""
        made = self.client.get(f"{self.path}/nodes", request_id=answer["requestId"])["nodes"]
        if "sets" in answer:
            self.added = sum(one.get("added") or 0 for one in answer["sets"])
            self.messages = [one["message"] for one in answer["sets"] if one.get("message")]
        else:
            self.added = len(made)
        return [one["Name"] for one in made]

    def _short(self, wanted: NodesPlan) -> list[str]:
        asked = sum(one["count"] for one in wanted.sets)
        if self.added is None or self.added >= asked or self.params["partial"]:
            return []
        said = "; ".join(self.messages) or "it does not say why; see its quota and limits"
        return [f"CycleCloud added {self.added} of {asked} nodes: {said}"]

    def _wait(self, watched: list[str], wanted: NodesPlan) -> tuple[Json, list[str]]:
        started = self.clock()
        left = set() if wanted.route and self.params["state"] in ONCE else set(watched)
        while True:
            status = self.client.status(self.cluster)
            nodes = cluster_state.nodes(status)
            left |= {one["name"] for one in nodes if one["state"] != "Ready"}
            waiting, failed = progress(nodes, watched, wanted.goal)
            spent = self.clock() - started
            settling = (
                [name for name in watched if name not in left] if spent < min(GRACE, self.params["settle"]) else []
            )
            if not waiting and not settling:
                return status, failed
            if spent >= self.params["wait_timeout"]:
                return status, [*failed, self._late(nodes, waiting or settling)]
            self.client.sleep(self.params["poll"])

    def _late(self, nodes: list[Json], waiting: list[str]) -> str:
        states = {one["name"]: f"{one['state']} {one['message']}".strip() for one in nodes}
        told = "; ".join(f"{name} is {states.get(name)}" for name in waiting[:10])
        return f"not as wanted after {self.params['wait_timeout']:g} seconds: {told}"

    def _result(self, wanted: NodesPlan, before: Json, after: Json, check_mode: bool) -> Json:
        old = {one["name"]: one["state"] for one in cluster_state.nodes(before)}
        nodes = cluster_state.nodes(after)
        new = {one["name"]: one["state"] for one in nodes}
        if check_mode and wanted.route:
            new = {**old, **_foreseen(wanted)}
        touched = set(wanted.names) | {name for name in {**old, **new} if old.get(name) != new.get(name)}
        diff = {
            side: {name: states[name] for name in sorted(touched & set(states))}
            for side, states in (("before", old), ("after", new))
        }
        return {
            "changed": bool(wanted.route),
            "nodes": nodes,
            "request_id": self.request,
            "added": self.added,
            "diff": diff,
        }


def _foreseen(wanted: NodesPlan) -> dict[str, str]:
    goal = sorted(wanted.goal)[0]
    if not wanted.sets or wanted.names:
        return dict.fromkeys(wanted.names, goal)
    return {f"{one['nodearray']} ({one['count']} more)": goal for one in wanted.sets}
