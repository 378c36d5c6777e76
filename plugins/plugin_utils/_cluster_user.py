# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which number the cluster's user has on every machine: shared files belong to numbers. No I/O; private."""

from __future__ import annotations

import collections
import typing as t

# Not from 1000, which is the first user of machines that join later.
FIRST, LAST = 2000, 59999
Json = t.Mapping[str, t.Any]


def numbers(name: str, machines: t.Mapping[str, Json]) -> dict[str, int]:
    """Return the user's number on each machine that has the user; a machine is what module node_info told of it."""
    found = {host: (told.get("users") or {}).get(name) for host, told in machines.items()}
    return {host: int(user["uid"]) for host, user in found.items() if user}


def number(name: str, machines: t.Mapping[str, Json], wanted: int = 0) -> int:
    """Return the number that the user has, or is to be made with: the wanted one, else the first that is free."""
    here = sorted(set(numbers(name, machines).values()))
    if here:
        return here[0]
    used = {int(one) for told in machines.values() for one in told.get("ids") or []}
    return wanted or next(one for one in range(FIRST, LAST + 1) if one not in used)


def problems(name: str, machines: t.Mapping[str, Json], wanted: int = 0) -> list[tuple[object, str, str]]:
    """Return why no number can be the user's on every machine: value, problem, what would be accepted."""
    hosts: dict[int, list[str]] = collections.defaultdict(list)
    for host, uid in numbers(name, machines).items():
        hosts[uid].append(host)
    if len(hosts) > 1:
        listed = "; ".join(f"{uid} on {', '.join(sorted(hosts[uid]))}" for uid in sorted(hosts))
        accepted = "one uid on all machines (usermod --uid, and the owner of the user's files), or another user"
        return [(name, f"its uid differs: {listed}", accepted)]
    if wanted and hosts and wanted not in hosts:
        (uid,) = hosts
        return [(wanted, f"{name} has uid {uid} on {', '.join(sorted(hosts[uid]))}", f"{uid}, or no number")]
    uid = number(name, machines, wanted)
    known = numbers(name, machines)
    taken = sorted(host for host, told in machines.items() if host not in known and uid in (told.get("ids") or []))
    if taken:
        return [
            (name, f"it is to be made with uid {uid}, which is somebody else's on {', '.join(taken)}", "a free uid")
        ]
    return []
