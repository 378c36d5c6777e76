# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's nodes as inventory hosts. No I/O; private to this collection."""

from __future__ import annotations

import typing as t

_BUSY = {"ALLOCATED", "MIXED"}


class Host(t.NamedTuple):
    """One host of an inventory; the groups are names before Ansible's own rules for them."""

    name: str
    variables: dict[str, t.Any]
    groups: list[str]


def to_hosts(nodes: list[dict[str, t.Any]], prefix: str) -> list[Host]:
    """Make hosts of what ``read.Reader.nodes`` returns."""
    return [Host(node["name"], _variables(node), [f"{prefix}_{name}" for name in _groups(node)]) for node in nodes]


def _variables(node: dict[str, t.Any]) -> dict[str, t.Any]:
    """An address that only repeats the name must not hide one that another inventory source knows."""
    found = {f"slurm_node_{key}": value for key, value in node.items() if key not in {"name", "address"}}
    return {**found, "ansible_host": node["address"]} if node["address"] != node["name"] else found


def _groups(node: dict[str, t.Any]) -> list[str]:
    states = [_state(node), *(flag.lower() for flag in node["flags"] if flag != "DRAIN")]
    found = [f"partition_{name}" for name in node["partitions"]]
    found += [f"state_{name}" for name in dict.fromkeys(states)]
    return found + [f"feature_{name}" for name in node["features"]]


def _state(node: dict[str, t.Any]) -> str:
    """The word that sinfo shows, so that an idle node that is drained is not in the group of the idle ones."""
    if not node["drained"]:
        return str(node["state"]).lower()
    return "draining" if node["state"] in _BUSY or "COMPLETING" in node["flags"] else "drained"
