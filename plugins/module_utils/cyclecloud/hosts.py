# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CycleCloud's nodes as inventory hosts. No I/O; private to this collection."""

from __future__ import annotations

import re
import typing as t

Json = t.Dict[str, t.Any]
# A node says its host name itself, and ssh takes one that begins with a dash for an option.
_ADDRESS = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:_-]*")
# Field of a node -> variable.
VARIABLES = {
    "id": "cc_node_id",
    "nodearray": "cc_nodearray",
    "state": "cc_state",
    "target_state": "cc_target_state",
    "machine_type": "cc_machine_type",
    "placement_group": "cc_placement_group",
    "role": "cc_role",
    "gpus": "cc_gpu_count",
    "instance_id": "cc_instance_id",
    "hostname": "cc_hostname",
    "spot": "cc_spot",
}


class Host(t.NamedTuple):
    """One host; groups are names before Ansible's own rules for them. Remote is what the cluster says."""

    name: str
    remote: dict[str, t.Any]
    groups: list[str]


def to_hosts(nodes: list[Json], cluster: str, states: list[str], prefix: str) -> list[Host]:
    """Hosts of the nodes that are in one of the states, stay, and can be reached."""
    chosen = [
        node for node in nodes if node["state"] in states and node["target_state"] != "Terminated" and _address(node)
    ]
    return [Host(node["name"], _variables(node, cluster), _groups(node, cluster, prefix)) for node in chosen]


def _variables(node: Json, cluster: str) -> dict[str, t.Any]:
    found = {variable: node[field] for field, variable in VARIABLES.items()}
    return {**found, "cc_cluster": cluster, "ansible_host": _address(node)}


def _address(node: Json) -> str:
    found = str(node["address"] or node["hostname"] or "")
    return found if _ADDRESS.fullmatch(found) else ""


def _groups(node: Json, cluster: str, prefix: str) -> list[str]:
    found = [f"cluster_{cluster}", f"nodearray_{node['nodearray']}", f"state_{str(node['state']).lower()}"]
    found += [f"{kind}_{node[kind]}" for kind in ("role", "machine_type") if node[kind]]
    return [f"{prefix}_{name}" if prefix else name for name in found]
