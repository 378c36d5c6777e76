# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes to drain or resume without touching what a person decided, and reservations of our own."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import hosts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError, fields, seconds, words

REASON_PREFIX = "hpcai:"
_FORM = re.compile(r"hpcai:[a-z0-9][a-z0-9_-]*:(\S|\S.*[^\s\"])")  # scontrol takes away a quote at the end
_MAX_REASON = 200
# What Slurm says when it drains a node by itself: nobody's decision, so a repair may take it over.
SLURMS_OWN = (
    "Duplicate jobid",
    "Epilog error",
    "Kill task failed",
    "Prolog error",
    "SlurmdSpoolDir is full",
    "batch job complete failure",
)


class NodeChange(t.NamedTuple):
    """What ``scontrol update`` sets on one node."""

    name: str
    state: str
    reason: str


class NodePlan(t.NamedTuple):
    """The changes to make, and the nodes that are left as they are because the reason is not ours."""

    changes: list[NodeChange]
    left_alone: list[dict[str, t.Any]]


def check_reason(reason: str) -> None:
    if not _FORM.fullmatch(reason) or len(reason) > _MAX_REASON:
        raise SlurmError(
            f"reason {reason!r} must be hpcai:<check>:<short cause> in one line of at most {_MAX_REASON} characters,"
            " for example 'hpcai:munge:key differs'"
        )


def pick(nodes: list[dict[str, t.Any]], names: list[str]) -> list[dict[str, t.Any]]:
    """Return the named nodes in the order of the names."""
    known = {node["name"]: node for node in nodes}
    missing = [name for name in names if name not in known]
    if missing:
        raise SlurmError(
            f"Slurm does not know {compress(missing)}; it knows {compress(list(known), sort=True) or 'no node'}"
        )
    return [known[name] for name in dict.fromkeys(names)]


def plan(nodes: list[dict[str, t.Any]], state: str, reason: str, replace: t.Sequence[str] = ()) -> NodePlan:
    """Return what brings the nodes to ``drained`` or ``resumed``.

    For ``resumed`` the reason, if any, limits which of our own drains are lifted. A drain may also ``replace`` reasons
    that are not ours.
    """
    decide = _drain if state == "drained" else _resume
    replaced = replace if state == "drained" else ()
    changes: list[NodeChange] = []
    left_alone: list[dict[str, t.Any]] = []
    for node in nodes:
        taken = node["reason"] in replaced
        change = NodeChange(node["name"], "drain", reason) if taken else decide(node, reason)
        if change:
            changes.append(change)
        elif _foreign(node) and (state == "drained" or out_of_service(node)):
            left_alone.append({key: node[key] for key in ("name", "state", "flags", "reason", "reason_user")})
    return NodePlan(changes, left_alone)


def _foreign(node: dict[str, t.Any]) -> bool:
    """Whether somebody else gave the reason, even as a note on a working node, or drained the node without one."""
    if node["reason"]:
        return not node["reason"].startswith(REASON_PREFIX)
    return bool({"DRAIN", "FAIL"} & set(node["flags"]))


def out_of_service(node: dict[str, t.Any]) -> bool:
    """Whether somebody, or Slurm itself, keeps new jobs away from the node."""
    return node["state"] == "DOWN" or bool({"DRAIN", "FAIL"} & set(node["flags"]))


def _drain(node: dict[str, t.Any], reason: str) -> NodeChange | None:
    if _foreign(node) or (node["drained"] and node["reason"] == reason):
        return None
    return NodeChange(node["name"], "drain", reason)


def _resume(node: dict[str, t.Any], reason: str) -> NodeChange | None:
    """Slurm's ``resume`` would also bring back a node that is down for another cause; ``undrain`` does not."""
    owned = node["drained"] and node["reason"].startswith(REASON_PREFIX) and node["reason"].startswith(reason)
    return NodeChange(node["name"], "undrain", "") if owned else None


def commands(changes: list[NodeChange]) -> list[list[str]]:
    """Return one scontrol call per target state and reason, however many nodes."""
    groups: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        groups.setdefault((change.state, change.reason), []).append(change.name)
    return [
        ["scontrol", "update", f"nodename={compress(names, sort=True)}", f"state={state}"]
        + ([f"reason={reason}"] if reason else [])
        for (state, reason), names in groups.items()
    ]


def after(nodes: list[dict[str, t.Any]], changes: list[NodeChange]) -> list[dict[str, t.Any]]:
    """Return the nodes as they will be after the changes; what only Slurm can know (who, when) is None."""
    change_of = {change.name: change for change in changes}
    return [_after(node, change_of.get(node["name"])) for node in nodes]


def _after(node: dict[str, t.Any], change: NodeChange | None) -> dict[str, t.Any]:
    if change is None:
        return node
    drained = change.state == "drain"
    flags = set(node["flags"]) - {"DRAIN"} | ({"DRAIN"} if drained else set())
    unknown = {"reason_user": None, "reason_time": None, "available": False if drained else None}
    # Slurm keeps the reason of a node that is down until it is up again.
    reason = node["reason"] if node["state"] == "DOWN" and not drained else change.reason
    return {**node, **unknown, "flags": sorted(flags), "drained": drained, "reason": reason}


def short(nodes: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    """Return what a diff shows of each node."""
    return {node["name"]: {"drained": node["drained"], "reason": node["reason"]} for node in nodes}


# Reservations of our own: ``scontrol show reservation`` to the command that makes the requested one.


NAME_PREFIX = "hpcai-"
_NAME = re.compile(r"hpcai-[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")
_WORD = re.compile(r"[A-Za-z0-9_.@-]+")
# Slurm adds it to the flags that were set.
_ADDED = {"SPEC_NODES"}
_FLAGS = frozenset(
    "ANY_NODES DAILY FLEX IGNORE_JOBS MAGNETIC MAINT NO_HOLD_JOBS_AFTER OVERLAP STATIC_ALLOC WEEKLY".split()
)
_NOTHING = re.compile(r"no reservations in the system", re.IGNORECASE)

Record = t.Dict[str, t.Any]
Run = t.Callable[[t.List[str]], str]


def reservations(text: str) -> list[Record]:
    """Read ``scontrol show reservation -o``."""
    lines = [line for line in text.splitlines() if line.strip()]
    records = [_reservation(fields(line)) for line in lines if line.startswith("ReservationName=")]
    if len(records) != len(lines) and not (len(lines) == 1 and _NOTHING.search(lines[0])):
        raise SlurmError(f"scontrol show reservation printed what cannot be read: {lines[0][:200]!r}")
    return records


def _reservation(values: t.Mapping[str, str]) -> Record:
    lasts = seconds(values.get("Duration", ""))  # UNLIMITED is no number
    return {
        "name": values["ReservationName"],
        "nodes": sorted(hosts(values.get("Nodes"))),
        "users": sorted(words(values.get("Users"))),
        "flags": sorted(set(words(values.get("Flags"))) - _ADDED),
        "active": values.get("State") == "ACTIVE",
        "start": values.get("StartTime"),
        "end": values.get("EndTime"),
        "minutes": None if lasts is None else lasts // 60,
    }


def requested_reservation(name: str, nodes: t.Sequence[str], users: t.Sequence[str], flags: t.Sequence[str]) -> Record:
    """Return the reservation that the options ask for, or refuse them."""
    check_name(name)
    strange = [flag for flag in flags if flag.upper() not in _FLAGS]
    if strange:
        raise SlurmError(f"flags {', '.join(strange)}: accepted are {', '.join(sorted(_FLAGS))}")
    bad = [user for user in users if not _WORD.fullmatch(user)]
    if bad or not users:
        raise SlurmError(
            f"users {', '.join(map(repr, bad)) or 'are none'}: names of those whose jobs may enter are needed"
        )
    if not nodes:
        raise SlurmError("no node is named")
    unique_flags = sorted({flag.upper() for flag in flags})
    return {"name": name, "nodes": sorted(set(nodes)), "users": sorted(set(users)), "flags": unique_flags}


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SlurmError(
            f"reservation {name!r} is not ours: its name has to start with {NAME_PREFIX}, letters and digits follow"
        )


def other_holders(observed: t.Sequence[Record], request: Record) -> list[str]:
    """Say which active reservations of other names hold some of the nodes."""
    holders = []
    for reservation in observed:
        shared = sorted(set(reservation["nodes"]) & set(request["nodes"]))
        if shared and reservation["active"] and reservation["name"] != request["name"]:
            users = ", ".join(reservation["users"]) or "others"
            holders.append(f"{reservation['name']} holds {compress(shared, sort=True)} for {users}")
    return holders


def command(observed: t.Sequence[Record], request: Record, minutes: int) -> list[str]:
    """Return the call that makes the reservation, empty where it exists.

    An active one is prolonged and never shortened: an administrator may have prolonged it, and Slurm refuses an end
    that is over.
    """
    if not 1 <= minutes <= 60 * 24 * 366:
        raise SlurmError(f"{minutes} minutes: 1 to 527040 (a year) are needed")
    before = next((reservation for reservation in observed if reservation["name"] == request["name"]), None)
    same = before is not None and all(before[key] == request[key] for key in ("nodes", "users", "flags"))
    lasts = before is not None and before["active"] and not _shorter(before, minutes)
    if same and lasts:
        return []
    verb = "create" if before is None else "update"
    settings = [
        f"reservationname={request['name']}",
        f"nodes={compress(request['nodes'], sort=True)}",
        f"users={','.join(request['users'])}",
        f"flags={','.join(request['flags'])}",
        *([] if lasts else [f"duration={minutes}"]),
    ]
    return ["scontrol", verb, "reservation", *settings, *([] if before else ["starttime=now"])]


def _shorter(reservation: Record, minutes: int) -> bool:
    return reservation["minutes"] is not None and reservation["minutes"] < minutes


def perform(params: t.Mapping[str, t.Any], run: Run, check_mode: bool) -> Record:
    """Make or delete the reservation; ``run`` returns a command's output or raises SlurmError."""
    check_name(params["name"])
    before = _read_reservations(run)
    argv, after = _plan(params, before)
    if argv and not check_mode:
        run(argv)
        after = _named(params, _read_reservations(run))
    diff = {"before": _named(params, before), "after": after}
    return {"changed": bool(argv), "reservation": after, "command": argv, "diff": diff}


def _read_reservations(run: Run) -> list[Record]:
    return reservations(run(["scontrol", "show", "reservation", "-o"]))


def _named(params: t.Mapping[str, t.Any], observed: t.Sequence[Record]) -> Record:
    return next((reservation for reservation in observed if reservation["name"] == params["name"]), {})


def _plan(params: t.Mapping[str, t.Any], observed: t.Sequence[Record]) -> tuple[list[str], Record]:
    """Return the call, empty where nothing changes, and the reservation after it."""
    mine = _named(params, observed)
    if params["state"] == "absent":
        return (["scontrol", "delete", f"reservationname={params['name']}"] if mine else []), {}
    request = requested_reservation(params["name"], expand(params["nodes"]), params["users"], params["flags"])
    conflicts = [] if params["share"] else other_holders(observed, request)
    if conflicts:
        raise SlurmError(f"{'; '.join(conflicts)}. Wait for its end, or set share to use the nodes all the same")
    argv = command(observed, request, params["minutes"])
    after = {**mine, **request, "active": True}
    if any(word.startswith("duration=") for word in argv):
        after["minutes"] = params["minutes"]
        after.pop("end", None)  # as Slurm sets it
    return argv, after
