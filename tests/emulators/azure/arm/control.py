# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests ask the emulator itself: its state and log, faults, settings, a fresh start."""

from __future__ import annotations

import time
import typing as t

from . import automation, operations
from .http import Request, Response
from .state import State

if t.TYPE_CHECKING:
    from .app import App

LONGEST = 20000


def note(state: State, request: Request, answer: Response) -> None:
    """Log a request without anything secret: no body, no header, no token."""
    code = ""
    if isinstance(answer.body, dict) and isinstance(answer.body.get("error"), dict):
        code = answer.body["error"].get("code", "")
    said = {"time": round(time.time(), 3), "method": request.method, "path": request.path, "code": code}
    said.update({"api-version": request.version, "status": answer.status})
    with state.lock:
        state.log.append(said)
        del state.log[:-LONGEST]


def leftovers(state: State) -> list[str]:
    """Return the ids of everything that somebody made and did not delete."""
    seeded = {key for key, value in state.hidden.items() if value.get("seeded")}
    return [one["id"] for key, one in sorted(state.resources.items()) if key not in seeded]


def answer(app: App, request: Request) -> Response:
    state, what = app.state, request.path[len("/_emulator/") :]
    if request.headers.get("X-Emulator") != "1":
        return Response(403, {"error": "the header X-Emulator: 1 is missing"})
    with state.lock:
        operations.settle(state)
        if request.method == "GET":
            return _read(state, what)
        if request.method != "POST":
            return Response(405, {"error": "GET or POST"})
        try:
            return _write(app, what, request.body)
        finally:
            state.save()


def _read(state: State, what: str) -> Response:
    if what == "state":
        kept = ("resources", "directory", "registered", "settings", "faults", "operations")
        said = {key: state.data[key] for key in kept}
        said["settings"] = {key: value for key, value in said["settings"].items() if "secrets" not in key}
        return Response(200, {**said, "leftovers": leftovers(state)})
    if what == "log":
        return Response(200, state.log)
    if what == "jobs":
        return Response(200, state.data.get("jobs", []))
    if what == "settings":
        return Response(200, {key: value for key, value in state.settings.items() if "secrets" not in key})
    return Response(404, {"error": f"there is no {what}: state, log, settings, faults, reset"})


def _write(app: App, what: str, body: t.Any) -> Response:
    state = app.state
    if what == "faults":
        for rule in body:
            if set(rule) - {"match", "do", "times"} or set(rule.get("match", {})) - {"method", "path", "nth"}:
                return Response(400, {"error": f"not understood: {rule}"})
        state.data["faults"] = body
    elif what == "settings":
        unknown = sorted(set(body) - set(state.settings))
        if unknown:
            return Response(400, {"error": f"no such settings: {unknown}; there are {sorted(state.settings)}"})
        state.settings.update(body)
        if "unregistered" in body:
            state.data["registered"] = {name.lower(): "NotRegistered" for name in body["unregistered"]}
    elif what == "fire":
        return Response(200, automation.fire(state, body["schedule"]))
    elif what == "reset":
        state.reset()
        state.settings.update((body or {}).get("settings", {}))
        app.prepare()
    elif what == "secrets":
        state.settings.update({key: body[key] for key in ("secrets", "expired_secrets") if key in body})
    else:
        return Response(404, {"error": f"there is no {what}"})
    return Response(200, {"ok": True})
