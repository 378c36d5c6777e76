# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documented REST routes. Errors have no body; whatever the reference does not list is refused."""

from __future__ import annotations

import json
import re
import time
import typing as t
import uuid

from . import limits, machine
from .store import Json, Store, UserError

# The object of each request, by the reference.
CREATE = {"requestId", "sets"}
SET = {"count", "nodearray", "definition", "nameFormat", "nameOffset", "nodeAttributes", "placementGroupId"}
FILTER = {"ids", "names", "hostnames", "ip_addresses", "filter", "requestId"}
ACTIONS = {"start", "shutdown", "deallocate", "terminate", "remove", "restart", "reimage"}


class Answer(t.NamedTuple):
    status: int
    body: t.Any = None
    location: str = ""


class Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


Query = t.Dict[str, str]
Route = t.Callable[[Store, "re.Match[str]", Query, t.Any], Answer]


def handle(store: Store, method: str, path: str, query: Query, body: bytes, content_type: str) -> Answer:
    """Answer one request; the lock is held and time is brought up to now."""
    seen = False
    for verb, pattern, allowed, route in ROUTES:
        match = re.fullmatch(pattern, path)
        seen = seen or match is not None
        if match is None or verb != method:
            continue
        if set(query) - set(allowed.split()):
            raise Refused(400, f"unknown query parameter {sorted(set(query) - set(allowed.split()))}")
        return route(store, match, query, _body(method, path, body, content_type))
    raise Refused(405 if seen else 404, f"{method} {path} is no documented route")


def _body(method: str, path: str, body: bytes, content_type: str) -> t.Any:
    if method == "GET" or not re.search(r"/nodes/[a-z]+$", path):
        if body:
            raise Refused(400, "a body where none belongs")
        return None
    if content_type.partition(";")[0].strip() != "application/json":
        raise Refused(415, f"content type {content_type!r}")
    try:
        return json.loads(body)
    except ValueError:
        raise Refused(409, "the body is no JSON") from None


def _cluster(store: Store, name: str) -> Json:
    if name not in store.state["clusters"]:
        raise Refused(404, f"cluster {name}")
    found: Json = store.state["clusters"][name]
    return found


def _flag(query: Query, name: str) -> bool:
    if query.get(name, "false") not in {"true", "false"}:
        raise Refused(400, f"{name} is true or false")
    return query.get(name) == "true"


def record(node: Json) -> Json:
    return {key: value for key, value in node.items() if not key.startswith("_") and value is not None}


def _status(store: Store, match: re.Match[str], query: Query, dummy: t.Any) -> Answer:
    cluster = _cluster(store, match[1])
    full = _flag(query, "nodes")
    arrays = []
    for name, array in cluster["arrays"].items():
        found = limits.buckets(store, cluster, name, full)
        detail = {**array["attributes"], "Configuration": array["configuration"]}
        most = limits.array_limit(array, 1)
        cores = max([limits.machine(kind).get("vcpuCount", 1) for kind in limits.types(array)] or [1])
        arrays.append(
            {
                "name": name,
                "maxCount": limits.array_limit(array, cores),
                "maxCoreCount": most * cores,
                "nodearray": detail,
                "buckets": found,
            }
        )
    answer = {
        "state": machine.state(cluster),
        "targetState": cluster["target"],
        "maxCount": sum(one["maxCount"] for one in arrays),
        "maxCoreCount": sum(one["maxCoreCount"] for one in arrays),
        "nodearrays": arrays,
    }
    if full:
        answer["nodes"] = [record(node) for node in cluster["nodes"].values()]
    return Answer(200, answer)


def _nodes(store: Store, match: re.Match[str], query: Query, dummy: t.Any) -> Answer:
    cluster = _cluster(store, match[1])
    if len(query) > 1:
        raise Refused(400, "operation or request_id, not both")
    found = list(cluster["nodes"].values())
    if not query:
        return Answer(200, {"nodes": [record(node) for node in found], "operation": None})
    ident = query.get("operation") or store.state["requests"].get(query.get("request_id", ""))
    operation = store.state["operations"].get(ident)
    if not operation:
        raise Refused(404, f"operation {query}")
    mine = [node for node in found if node["NodeId"] in operation["nodes"] or node.get("_operation") == ident]
    return Answer(200, {"nodes": [record(node) for node in mine], "operation": _shown(operation)})


def _shown(operation: Json) -> Json:
    return {"action": operation["action"], "startTime": operation["startTime"]}


def _operation(store: Store, action: str, request: str | None) -> str:
    if request is not None and not isinstance(request, str):
        raise Refused(409, "requestId is text")
    if request and request in store.state["requests"]:
        raise Refused(409, f"requestId {request} was used before")
    ident = str(uuid.uuid4())
    start = time.strftime("%Y-%m-%dT%H:%M:%S.000+00:00", time.gmtime(store.now()))
    store.state["operations"][ident] = {"action": action, "startTime": start, "nodes": []}
    if request:
        store.state["requests"][request] = ident
    return ident


def _known(given: t.Any, allowed: set[str], what: str) -> Json:
    if not isinstance(given, dict) or set(given) - allowed:
        raise Refused(
            409, f"{what}: unknown fields {sorted(set(given) - allowed) if isinstance(given, dict) else given!r}"
        )
    return given


def _wanted(cluster: Json, given: t.Any) -> Json:
    one = _known(given, SET, "set")
    array = cluster["arrays"].get(one.get("nodearray"))
    if array is None or isinstance(one.get("count"), bool) or not isinstance(one.get("count"), int) or one["count"] < 1:
        raise Refused(409, f"set needs count and the name of a node array: {one}")
    definition = _known(one.get("definition") or {}, {"machineType"}, "definition")
    if definition.get("machineType", limits.types(array)[0]) not in limits.types(array):
        raise Refused(409, f"machine type {definition}")
    form = one.get("nameFormat")
    if form is not None and not re.fullmatch(r"[A-Za-z0-9-]*%d", form):
        raise Refused(409, f"nameFormat {form!r}")
    return one


def _create(store: Store, match: re.Match[str], dummy: Query, body: t.Any) -> Answer:
    cluster = _cluster(store, match[1])
    given = _known(body, CREATE, "request")
    if not isinstance(given.get("sets"), list) or not given["sets"]:
        raise Refused(409, "no sets")
    wanted = [_wanted(cluster, one) for one in given["sets"]]
    ident = _operation(store, "create", given.get("requestId"))
    return _added(store, cluster, ident, wanted)


def _added(store: Store, cluster: Json, ident: str, wanted: list[Json]) -> Answer:
    sets = []
    for one in wanted:
        added, why = machine.add(store, cluster, one, ident)
        sets.append({"added": added, **({"message": why} if why else {})})
    return Answer(202, {"operationId": ident, "sets": sets}, f"/operations/{ident}")


def _action(store: Store, match: re.Match[str], dummy: Query, body: t.Any) -> Answer:
    cluster, action = _cluster(store, match[1]), match[2]
    given = _known(body, FILTER, "request")
    if not any(given.get(key) for key in FILTER - {"requestId"}):
        raise Refused(409, "a filter that names nothing")
    try:
        chosen = machine.select(cluster, given)
    except UserError as exc:
        raise Refused(409, str(exc)) from None
    ident = _operation(store, action, given.get("requestId"))
    store.state["operations"][ident]["nodes"] = [node["NodeId"] for node in chosen]
    results = []
    for node in chosen:
        one = {"id": node["NodeId"], "name": node["Name"], "status": "OK"}
        try:
            _act(store, cluster, node, action)
        except UserError as exc:
            one.update(status="Error", error=str(exc))
        results.append(one)
    return Answer(202, {"operationId": ident, "nodes": results}, f"/operations/{ident}")


def _act(store: Store, cluster: Json, node: Json, action: str) -> None:
    if action == "start":
        return machine.turn_on(store, node)
    if action in {"restart", "reimage"}:
        return machine.reboot(store, node)
    array = cluster["arrays"].get(node["Template"], cluster["heads"].get(node["Template"], {"attributes": {}}))
    policy = array["attributes"].get("ShutdownPolicy") or "Terminate"
    keep = action == "deallocate" or (action == "shutdown" and str(policy).lower() == "deallocate")
    return machine.turn_off(store, node, keep)


def _scale(store: Store, match: re.Match[str], query: Query, dummy: t.Any) -> Answer:
    cluster, name = _cluster(store, match[1]), match[2]
    if name not in cluster["arrays"] or len(query) != 1:
        raise Refused(409, "needs a node array and totalNodeCount or totalCoreCount")
    if not next(iter(query.values())).isdigit():
        raise Refused(409, f"{query}")
    members = [
        node for node in cluster["nodes"].values() if node["Template"] == name and node["TargetState"] == "Started"
    ]
    cores = limits.machine(limits.types(cluster["arrays"][name])[0]).get("vcpuCount", 1)
    total = int(query.get("totalNodeCount") or -(-int(query.get("totalCoreCount", 0)) // cores))
    ident = _operation(store, "scale", None)
    more = total - len(members)
    return _added(store, cluster, ident, [{"nodearray": name, "count": more}] if more > 0 else [])


def _usage(store: Store, match: re.Match[str], query: Query, dummy: t.Any) -> Answer:
    cluster = _cluster(store, match[1])
    frame, grain = query.get("timeframe", "monthToDate"), query.get("granularity", "daily")
    if frame not in {"monthToDate", "lastMonth", "weekToDate", "custom"} or grain not in {"total", "daily", "hourly"}:
        raise Refused(400, f"{query}")
    if (frame == "custom") != ({"from", "to"} <= set(query)):
        raise Refused(400, "custom needs from and to")
    total = sum(node["CoreCount"] for node in cluster["nodes"].values() if node["Status"] == "Ready")
    day = time.strftime("%Y-%m-%d", time.gmtime(store.now()))
    one = {"category": "nodearray", "hours": total}
    return Answer(
        200, {"usage": [{"start": day, "end": day, "total": [{**one, "category": "total"}], "breakdown": [one]}]}
    )


def _report(store: Store, match: re.Match[str], query: Query, dummy: t.Any) -> Answer:
    node = _cluster(store, match[1])["nodes"].get(match[2])
    if node is None:
        raise Refused(404, f"node {match[2]}")
    if not query.get("category"):
        raise Refused(400, "no category")
    if node.get("_reported"):
        raise Refused(409, "reported before")
    node["_reported"] = True
    return Answer(202)


def _reported(store: Store, match: re.Match[str], dummy: Query, nothing: t.Any) -> Answer:
    node = _cluster(store, match[1])["nodes"].get(match[2])
    if node is None or not node.get("_reported"):
        raise Refused(404, f"node {match[2]}")
    return Answer(200)


def _operations(store: Store, dummy: re.Match[str], query: Query, nothing: t.Any) -> Answer:
    if "request_id" not in query:
        raise Refused(400, "no request_id")
    ident = store.state["requests"].get(query["request_id"])
    return Answer(200, [_shown(store.state["operations"][ident])] if ident else [])


def _one_operation(store: Store, match: re.Match[str], dummy: Query, nothing: t.Any) -> Answer:
    if match[1] not in store.state["operations"]:
        raise Refused(404, match[1])
    return Answer(200, _shown(store.state["operations"][match[1]]))


_C = r"/clusters/([\w.-]+)"
ROUTES: list[tuple[str, str, str, Route]] = [
    ("GET", _C + "/status", "nodes", _status),
    ("GET", _C + "/nodes", "operation request_id", _nodes),
    ("POST", _C + "/nodes/create", "", _create),
    ("POST", _C + f"/nodes/({'|'.join(sorted(ACTIONS))})", "", _action),
    ("POST", _C + r"/scale/([\w.-]+)", "totalNodeCount totalCoreCount", _scale),
    ("GET", _C + "/usage", "timeframe granularity from to", _usage),
    ("POST", _C + r"/nodes/([\w.-]+)/ghr", "category description", _report),
    ("GET", _C + r"/nodes/([\w.-]+)/ghr", "", _reported),
    ("GET", "/operations/", "request_id", _operations),
    ("GET", r"/operations/([\w-]+)", "", _one_operation),
]
