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

# Which requests to CycleCloud bring nodes to the requested state.


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
    """The request to send and its nodes; without a route nothing has to change."""

    route: str
    names: list[str]
    sets: list[Json]
    watched: list[str]  # also nodes that are on their way already
    goal: set[str]


def plan(status: Json, params: Json) -> NodesPlan:
    """Plan what brings the chosen nodes to the option ``state``; all problems are reported in one error."""
    if params["state"] == "present":
        return _present(status, params)
    known = {node["name"]: node for node in cluster_state.nodes(status)}
    route, goal = ROUTES[params["state"]]
    if params.get("names") is not None:
        chosen = list(dict.fromkeys(params["names"]))
    else:
        chosen = [name for name, node in known.items() if node["nodearray"] == params["nodearray"]]
    missing = [name for name in chosen if name not in known]
    if missing and params["state"] not in ("terminated", "absent", "shut_down"):
        raise CycleCloudError(f"there is no node {', '.join(missing)}; there are {', '.join(known) or 'none'}")
    chosen = [name for name in chosen if name in known]
    needing = [name for name in chosen if params["state"] in ONCE or _needs(known[name], params["state"], goal)]
    watched = [name for name in chosen if name in needing or known[name]["state"] not in goal]
    return NodesPlan(route if needing else "", needing, [], watched, goal)


def _needs(node: Json, state: str, goal: set[str]) -> bool:
    """Whether a node needs the request: one on its way to the state does not, a Failed one does."""
    if node["state"] in goal:
        return False
    if state == "started":
        return node["target_state"] != "Started" or node["state"] == "Failed"
    targets = {"deallocated": ("Deallocated",), "shut_down": ("Deallocated", "Terminated")}.get(state, ("Terminated",))
    return node["target_state"] not in targets or node["state"] == "Failed"


def _present(status: Json, params: Json) -> NodesPlan:
    array = params["nodearray"]
    known = [node for node in cluster_state.nodes(status) if node["nodearray"] == array]
    alive = {node["name"]: node for node in known if node["target_state"] == "Started"}
    named = params.get("names")
    new = [name for name in dict.fromkeys(named or []) if name not in {node["name"] for node in known}]
    problems = _array_problems(status, params)
    asleep = [name for name in named or [] if name in {node["name"] for node in known} and name not in alive]
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
    """Return how many nodes are missing of the requested number of nodes or cores."""
    if params.get("cores") is None:
        return max(0, int(params["count"]) - len(alive))
    rows = cluster_state.array_types(status).get(params["nodearray"]) or [{}]
    missing_cores = params["cores"] - sum(node["cores"] or 0 for node in alive)
    return max(0, -(-missing_cores // (rows[0].get("cores") or 1)))


def _array_problems(status: Json, params: Json) -> list[str]:
    types = cluster_state.array_types(status)
    array = params["nodearray"]
    if array not in types:
        return [f"there is no node array {array}; there are {', '.join(types) or 'none'}"]
    problems = [f"{name} is negative" for name in ("count", "cores") if (params.get(name) or 0) < 0]
    machine_types = [row["machine_type"] for row in types[array]]
    if params.get("machine_type") and params["machine_type"] not in machine_types:
        problems.append(
            f"node array {array} has no machine type {params['machine_type']}, but {', '.join(machine_types)}"
        )
    bad = [name for name in params.get("names") or [] if not re.fullmatch(r"[A-Za-z0-9-]*[A-Za-z-][1-9][0-9]*", name)]
    if bad:
        problems.append(f"{', '.join(bad)} does not end with a number as names of new nodes must")
    return problems


def _limit_problems(status: Json, params: Json, count: int) -> list[str]:
    rows = cluster_state.array_types(status)[params["nodearray"]]
    row = next(
        (candidate for candidate in rows if candidate["machine_type"] == params.get("machine_type")),
        rows[0] if rows else None,
    )
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
    node_set: Json = {"nodearray": params["nodearray"]}
    if params.get("machine_type"):
        node_set["definition"] = {"machineType": params["machine_type"]}
    if params.get("placement_group"):
        node_set["placementGroupId"] = params["placement_group"]
    if params.get("attributes"):
        node_set["nodeAttributes"] = params["attributes"]
    return node_set


def _sets(params: Json, count: int) -> list[Json]:
    return [{**_common(params), "count": count}] if count > 0 else []


def _set(params: Json, name: str) -> Json:
    """Return a set of one node with this name, as CycleCloud takes it: a format and the number to start at."""
    stem, number = t.cast("re.Match[str]", re.fullmatch(r"(.*?)(\d+)", name)).groups()
    return {**_common(params), "count": 1, "nameFormat": f"{stem}%d", "nameOffset": int(number)}


def progress(nodes: list[Json], watched: list[str], goal: set[str]) -> tuple[list[str], list[str]]:
    """Return which watched nodes are still on their way, and what failed; a node that is gone counts as terminated."""
    known = {node["name"]: node for node in nodes}
    failed, waiting = [], []
    for name in watched:
        current = known.get(name)
        if current is None:
            if "Terminated" not in goal:
                failed.append(f"{name} is gone")
        elif current["state"] == "Failed":
            failed.append(f"{name} is Failed: {current['message'] or 'no message'}{hint(current['message'])}")
        elif current["state"] not in goal:
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
    """Return what to do about a message of CycleCloud, empty if it is not known."""
    return next((f" ({text})" for sign, text in HINTS if sign.lower() in message.lower()), "")


# Sending the requests, and waiting.


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
        """Create or end nodes as planned, wait for them if requested, and return the result with all problems."""
        before = self.client.status(self.cluster)
        todo = plan(before, self.params)
        if todo.route and self._done_before():
            todo = todo._replace(route="")
        watched, problems = list(todo.watched), []
        after = before
        if todo.route and not check_mode:
            watched += self._ask(todo, before)
            problems = self._short(todo)
            after = self.client.status(self.cluster)
        if self.params["wait"] and not check_mode and watched:
            after, failed = self._wait(watched, todo)
            problems += failed
        result = self._result(todo, before, after, check_mode)
        return {**result, "problems": problems}

    def _done_before(self) -> bool:
        """A restart is done once for each ID that the caller gives."""
        ident = self.params.get("request_id")
        return self.client.known(ident) if ident else False

    def _ask(self, todo: NodesPlan, before: Json) -> list[str]:
        """Send the request once; return the nodes to watch."""
        if todo.route == "scale":
            return self._scale({node["name"] for node in cluster_state.nodes(before)})
        body: Json = {"sets": todo.sets} if todo.sets else {"names": todo.names}
        answer = self.client.post_once(f"{self.path}/nodes/{todo.route}", body, self.params.get("request_id"))
        self.request = answer["requestId"]
        refused = [
            f"{node.get('name')}: {node.get('error')}"
            for node in answer.get("nodes") or []
            if node.get("status") == "Error"
        ]
        if refused:
            raise CycleCloudError(f"CycleCloud did not {todo.route} {'; '.join(refused)}")
        if todo.route != "create":
            return []
        return self._made(answer)

    def _scale(self, known: set[str]) -> list[str]:
        """Request a total number of cores; it may arrive twice, so new nodes are found by comparing the listings."""
        array = self.params["nodearray"]
        answer = self.client.post_total(f"{self.path}/scale/{quoted(array)}", totalCoreCount=str(self.params["cores"]))
        self.messages = [entry["message"] for entry in answer.get("sets") or [] if entry.get("message")]
        nodes = cluster_state.nodes(self.client.status(self.cluster))
        made = [entry["name"] for entry in nodes if entry["nodearray"] == array and entry["name"] not in known]
        self.added = len(made)
        return made

    def _made(self, answer: Json) -> list[str]:
        """Return the names of the nodes that a request created."""
        made = self.client.get(f"{self.path}/nodes", request_id=answer["requestId"])["nodes"]
        if "sets" in answer:
            self.added = sum(entry.get("added") or 0 for entry in answer["sets"])
            self.messages = [entry["message"] for entry in answer["sets"] if entry.get("message")]
        else:
            self.added = len(made)
        return [entry["Name"] for entry in made]

    def _short(self, todo: NodesPlan) -> list[str]:
        requested = sum(node_set["count"] for node_set in todo.sets)
        if self.added is None or self.added >= requested or self.params["partial"]:
            return []
        reason = "; ".join(self.messages) or "it does not say why; see its quota and limits"
        return [f"CycleCloud added {self.added} of {requested} nodes: {reason}"]

    def _wait(self, watched: list[str], todo: NodesPlan) -> tuple[Json, list[str]]:
        started = self.clock()
        left = set() if todo.route and self.params["state"] in ONCE else set(watched)
        while True:
            status = self.client.status(self.cluster)
            nodes = cluster_state.nodes(status)
            left |= {node["name"] for node in nodes if node["state"] != "Ready"}
            waiting, failed = progress(nodes, watched, todo.goal)
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
        states = {node["name"]: f"{node['state']} {node['message']}".strip() for node in nodes}
        states_text = "; ".join(f"{name} is {states.get(name)}" for name in waiting[:10])
        return f"not as wanted after {self.params['wait_timeout']:g} seconds: {states_text}"

    def _result(self, todo: NodesPlan, before: Json, after: Json, check_mode: bool) -> Json:
        old = {node["name"]: node["state"] for node in cluster_state.nodes(before)}
        nodes = cluster_state.nodes(after)
        new = {node["name"]: node["state"] for node in nodes}
        if check_mode and todo.route:
            new = {**old, **_foreseen(todo)}
        touched = set(todo.names) | {name for name in {**old, **new} if old.get(name) != new.get(name)}
        diff = {
            side: {name: states[name] for name in sorted(touched & set(states))}
            for side, states in (("before", old), ("after", new))
        }
        return {
            "changed": bool(todo.route),
            "nodes": nodes,
            "request_id": self.request,
            "added": self.added,
            "diff": diff,
        }


def _foreseen(todo: NodesPlan) -> dict[str, str]:
    goal = sorted(todo.goal)[0]
    if not todo.sets or todo.names:
        return dict.fromkeys(todo.names, goal)
    return {f"{node_set['nodearray']} ({node_set['count']} more)": goal for node_set in todo.sets}
