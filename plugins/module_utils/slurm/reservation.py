# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations of our own: ``scontrol show reservation`` to the command that makes the wanted one. Private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.parse import hosts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError, fields, words

OWNED = "hpcai-"
_NAME = re.compile(r"hpcai-[A-Za-z0-9][A-Za-z0-9_.-]{0,100}")
_WORD = re.compile(r"[A-Za-z0-9_.@-]+")
# Slurm adds it to what it was told.
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
    found = [_reservation(fields(line)) for line in lines if line.startswith("ReservationName=")]
    if len(found) != len(lines) and not (len(lines) == 1 and _NOTHING.search(lines[0])):
        raise SlurmError(f"scontrol show reservation printed what cannot be read: {lines[0][:200]!r}")
    return found


def _reservation(found: t.Mapping[str, str]) -> Record:
    return {
        "name": found["ReservationName"],
        "nodes": sorted(hosts(found.get("Nodes"))),
        "users": sorted(words(found.get("Users"))),
        "flags": sorted(set(words(found.get("Flags"))) - _ADDED),
        "active": found.get("State") == "ACTIVE",
        "start": found.get("StartTime"),
        "end": found.get("EndTime"),
    }


def wanted(name: str, nodes: t.Sequence[str], users: t.Sequence[str], flags: t.Sequence[str]) -> Record:
    """Return the reservation as it shall be, or refuse it."""
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
    kept = sorted({flag.upper() for flag in flags})
    return {"name": name, "nodes": sorted(set(nodes)), "users": sorted(set(users)), "flags": kept}


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SlurmError(
            f"reservation {name!r} is not ours: its name has to start with {OWNED}, letters and digits follow"
        )


def others(now: t.Sequence[Record], want: Record) -> list[str]:
    """Say which reservations of other names hold the nodes now: somebody else has plans with them."""
    found = []
    for one in now:
        shared = sorted(set(one["nodes"]) & set(want["nodes"]))
        if shared and one["active"] and one["name"] != want["name"]:
            found.append(f"{one['name']} holds {compress(shared, sort=True)} for {', '.join(one['users']) or 'others'}")
    return found


def command(now: t.Sequence[Record], want: Record, minutes: int) -> list[str]:
    """Return the call that makes it so, empty where it is; when it ends is no difference."""
    if not 1 <= minutes <= 60 * 24 * 366:
        raise SlurmError(f"{minutes} minutes: 1 to 527040 (a year) are needed")
    before = next((one for one in now if one["name"] == want["name"]), None)
    same = before is not None and all(before[key] == want[key] for key in ("nodes", "users", "flags"))
    if before is not None and same and before["active"]:
        return []
    verb = "create" if before is None else "update"
    words_ = [
        f"reservationname={want['name']}",
        f"nodes={compress(want['nodes'], sort=True)}",
        f"users={','.join(want['users'])}",
        f"flags={','.join(want['flags'])}",
        f"duration={minutes}",
    ]
    return ["scontrol", verb, "reservation", *words_, *([] if before else ["starttime=now"])]


def perform(params: t.Mapping[str, t.Any], run: Run, check_mode: bool) -> Record:
    """Make it so; ``run`` returns what a command printed, or raises SlurmError."""
    check_name(params["name"])
    before = _look(run)
    argv, after = _plan(params, before)
    if argv and not check_mode:
        run(argv)
        after = _mine(params, _look(run))
    diff = {"before": _mine(params, before), "after": after}
    return {"changed": bool(argv), "reservation": after, "command": argv, "diff": diff}


def _look(run: Run) -> list[Record]:
    return reservations(run(["scontrol", "show", "reservation", "-o"]))


def _mine(params: t.Mapping[str, t.Any], found: t.Sequence[Record]) -> Record:
    return next((one for one in found if one["name"] == params["name"]), {})


def _plan(params: t.Mapping[str, t.Any], now: t.Sequence[Record]) -> tuple[list[str], Record]:
    """Return the call and what there is after it."""
    mine = _mine(params, now)
    if params["state"] == "absent":
        return (["scontrol", "delete", f"reservationname={params['name']}"] if mine else []), {}
    want = wanted(params["name"], expand(params["nodes"]), params["users"], params["flags"])
    taken = [] if params["share"] else others(now, want)
    if taken:
        raise SlurmError(f"{'; '.join(taken)}. Wait for its end, or set share to use the nodes all the same")
    return command(now, want, params["minutes"]), {**mine, **want, "active": True}
