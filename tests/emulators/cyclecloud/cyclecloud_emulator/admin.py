# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `cycle_server` asks of the server, and what tests ask of the emulator."""

from __future__ import annotations

import secrets
import string
import typing as t

from . import azure, records, rows
from .store import Json, Store, UserError

if t.TYPE_CHECKING:
    from .server import Home


def administer(home: Home, request: Json) -> Json:
    store = home.store
    try:
        return {"rc": 0, "out": ADMIN[request["command"]](store, request)}
    except UserError as exc:
        return {"rc": 1, "out": "", "err": str(exc)}


def _execute(store: Store, request: Json) -> t.Any:
    return records.execute(store, rows.rows(store), request["query"])


def _reset(store: Store, request: Json) -> str:
    users = store.find("AuthenticatedUser", Name=request["user"])
    if not users:
        raise UserError(f"No user {request['user']}")
    password = "".join(secrets.choice(string.ascii_letters + string.digits) for dummy in range(16)) + "-aA1"
    store.set_password(users[0], password)
    users[0]["ForcePasswordReset"] = True
    return password


def _action(store: Store, request: Json) -> str:
    verb, dummy, kind = request["action"].partition(":")
    every = [*store.find(kind), *rows.rows(store)(kind)]
    chosen = [one for one in every if records.condition(request["filter"])(one)]
    if (verb, kind) == ("Run", "Application.Timer"):
        if any(one["Name"] == "plugin.azure.monitor_reference" for one in chosen):
            store.state["types_kicked"] = store.now()
    elif (verb, kind) == ("Retry", "Cloud.Locker"):
        for one in chosen:
            _retry(store, one)
    else:
        raise UserError(f"Unknown action {request['action']}")
    return f"{verb}: {len(chosen)} records"


def _retry(store: Store, locker: Json) -> None:
    """Too soon after the last try it fails again."""
    early = store.now() - locker["_since"] < store.state["settings"]["locker_retry"]
    account = store.state["accounts"].get(locker["AccountName"], {})
    failure = "retried too soon" if early else azure.locker_problem(store, account)
    locker.update(State="Creating", _since=store.now(), _failure=failure)


def _import(store: Store, request: Json) -> str:
    for record in request["records"]:
        records.check(record)
    for record in request["records"]:
        records._put(store, record)
    return f"{len(request['records'])} records"


def _ssh(store: Store, request: Json) -> Json:
    """A head that is ready takes commands; its name, and its host keys where it is a machine of Azure."""
    store.state["log"].append({"method": "SSH", "path": f"/ssh/{request['what']}", "status": 0, "why": ""})
    nodes = [(one, node) for one in store.state["clusters"].values() for node in one["nodes"].values()]
    for cluster, node in nodes:
        if (
            request["address"] in (node.get("PrivateIp"), node.get("Hostname"), node["Name"])
            and node["Status"] == "Ready"
        ):
            return {"name": node["Name"], "keys": azure.host_keys(store, cluster, node)}
    raise UserError("Connection refused")


ADMIN: dict[str, t.Callable[[Store, Json], t.Any]] = {
    "execute": _execute,
    "reset_access": _reset,
    "run_action": _action,
    "import_data": _import,
    "ssh": _ssh,
}


# Tests


def control(home: Home, what: str, given: t.Any) -> t.Any:
    store = home.store
    if what == "state":
        hidden = {"key", "log"}
        return {
            **{k: v for k, v in store.state.items() if k not in hidden},
            "now": store.now(),
            "version": home.version,
        }
    if what == "log":
        return store.state["log"]
    if what == "ignored":
        return store.state["ignored"]
    if what == "clock":
        if "speed" in given:
            store.settings({"speed": given["speed"]})
        return {"now": store.advance(float(given.get("advance", 0)))}
    if what == "settings":
        return store.settings(given)
    if what == "faults":
        store.state["faults"] = given
        return given
    if what == "reset":
        store.reset()
        return {}
    raise UserError(f"no /_emulator/{what}")
