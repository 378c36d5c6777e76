# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Munge keys, and one that is exchanged on all hosts: what they have, and what is to be done. No I/O; private."""

from __future__ import annotations

import typing as t

LEAST = 32  # bytes that munged takes


class Keys(t.NamedTuple):
    """Marks of the keys of a host, equal for equal keys; empty where there is none."""

    key: str = ""
    next: str = ""
    previous: str = ""


class RotationPlan(t.NamedTuple):
    """``back`` are the hosts that return to their previous key, ``settle`` those that have leftovers to remove."""

    back: list[str]
    settle: list[str]
    problem: str = ""


def recover(hosts: t.Mapping[str, Keys]) -> RotationPlan:
    """Return how the hosts of a rotation that was cut short get one key again, before another one begins.

    Where all have one key it is the cluster's. Else the rotation was cut short in its middle, and nothing was proved
    yet: whoever has a previous key returns to it.
    """
    settle = sorted(host for host, keys in hosts.items() if keys.next or keys.previous)
    if len({keys.key for keys in hosts.values()}) <= 1:
        return RotationPlan([], settle)
    back = sorted(host for host, keys in hosts.items() if keys.previous)
    after = {host: keys.previous or keys.key for host, keys in hosts.items()}
    if len(set(after.values())) == 1:
        return RotationPlan(back, settle)
    groups: dict[str, list[str]] = {}
    for host, mark in sorted(hosts.items()):
        groups.setdefault(mark.key, []).append(host)
    listed = "; ".join(", ".join(members) for members in groups.values())
    return RotationPlan([], [], f"the hosts do not have one key now; those that share one: {listed}")
