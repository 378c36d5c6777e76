# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Long-running operations: begun, settled when their time has come, asked about in both of ARM's styles."""

from __future__ import annotations

import time
import typing as t
import uuid

from . import behaviour
from .http import ArmError, Request, Response
from .state import State

Effect = t.Callable[[State, t.Dict[str, t.Any]], None]
EFFECTS: dict[str, Effect] = {}


def effect(name: str) -> t.Callable[[Effect], Effect]:
    """Register what happens at the end of an operation; kept by name, so that it survives a restart."""

    def keep(function: Effect) -> Effect:
        EFFECTS[name] = function
        return function

    return keep


def begin(state: State, what: str, resource: str, delay: float | None = None, **more: t.Any) -> dict[str, t.Any]:
    """Start an operation whose effect is called ``what``."""
    seconds = state.settings["delay"] if delay is None else delay
    made = {"id": str(uuid.uuid4()), "effect": what, "resource": resource, "due": time.time() + seconds}
    made.update({"status": "InProgress", "error": None, "started": time.time(), **more})
    state.operations[made["id"]] = made
    return made


def settle(state: State) -> bool:
    """Finish what is due; tell whether anything was."""
    now, any_done = time.time(), False
    for operation in list(state.operations.values()):
        if operation["status"] == "InProgress" and operation["due"] <= now:
            operation["status"] = "Failed" if operation["error"] else "Succeeded"
            EFFECTS[operation["effect"]](state, operation)
            any_done = True
    return any_done


def pause(state: State) -> dict[str, str]:
    """Say when to ask again, in one of the two ways that Azure has."""
    seconds = float(state.settings["retry_after"])
    if state.settings["retry_after_ms"]:
        return {"retry-after-ms": str(int(seconds * 1000))}
    return {"Retry-After": f"{seconds:g}"}


def headers(state: State, request: Request, operation: dict[str, t.Any], style: str) -> dict[str, str]:
    """Say where to ask; style is async, location or both."""
    subscription = operation["resource"].split("/")[2]
    base = f"{request.origin}/subscriptions/{subscription}/providers/Microsoft.Emulator/{{}}/{operation['id']}"
    ask = f"?api-version={request.version}"
    made = pause(state)
    if style in ("async", "both"):
        made["Azure-AsyncOperation"] = base.format("operations") + ask
    if style in ("location", "both"):
        made["Location"] = base.format("operationResults") + ask
    return made


def ask(state: State, request: Request, kind: str, name: str) -> Response:
    """Answer a poll."""
    operation = state.operations.get(name)
    if not operation:
        raise ArmError(404, "OperationNotFound", f"The operation '{name}' was not found.")
    more = pause(state)
    if kind.lower() == "operations":
        body = {"id": request.path, "name": name, "status": operation["status"]}
        if operation["error"]:
            body["error"] = operation["error"]
        return Response(200, body, more if operation["status"] == "InProgress" else {})
    if operation["status"] == "InProgress":
        return Response(
            202, None, {**more, "Location": f"{request.origin}{request.path}?api-version={request.version}"}
        )
    if operation["status"] == "Failed":
        return Response(operation.get("error_status", 409), {"error": operation["error"]})
    if "result" in operation:
        return Response(200, operation["result"])
    found = state.get(operation["resource"])
    return Response(200, behaviour.of(found["type"]).show(state, found, {})) if found else Response(200)
