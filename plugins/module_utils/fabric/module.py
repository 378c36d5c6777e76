# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module slurm_topology_info without Ansible. Private, stdlib only."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric import read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.model import (
    FabricError,
    Placement,
    leaves,
    settle,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.conf import lines
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import fields

SOURCES = ("hosts", "infiniband", "google", "aws")
Record = t.Dict[str, t.Any]


def perform(params: t.Mapping[str, t.Any], text: str, present: str) -> Record:
    """Return switches, leaves and findings; ``present`` is the topology.conf or topology.yaml that there is."""
    nodes = list(dict.fromkeys(name for item in params["nodes"] for name in expand(str(item))))
    if not nodes:
        raise FabricError("nodes is empty: it has to name all nodes of the cluster")
    placement = _placement(params, nodes, text)
    joined = params["joined"] if params["joined"] is not None else params["source"] != "infiniband"
    tree, findings, missing = settle(placement, nodes, before(present), joined)
    below = {child for switch in tree for child in switch.get("switches") or []}
    tops = [switch["name"] for switch in tree if switch["name"] not in below]
    if len(tops) > 1:
        findings.append(
            f"nothing joins {', '.join(tops)}: Slurm gives no job nodes of several of them. Set joined if jobs may"
            " span them"
        )
    return {"switches": tree, "leaves": leaves(tree), "missing": missing, "findings": findings}


def _placement(params: t.Mapping[str, t.Any], nodes: t.Sequence[str], text: str) -> Placement:
    source = params["source"]
    names = {str(key): str(value) for key, value in params["names"].items()}
    if source == "infiniband":
        return read.infiniband(text, nodes, names)
    if source == "hosts":
        placement = read.hosts(params["hosts"])
        strange = sorted(set(placement.places) - set(nodes))
        if strange:
            raise FabricError(f"hosts names nodes that Slurm does not have: {', '.join(strange)}")
    else:
        placement = (read.google if source == "google" else read.aws)(text, names)
    if not set(placement.places) & set(nodes):
        raise FabricError(
            f"{source} tells of none of the nodes {', '.join(nodes[:8])}; it has"
            f" {', '.join(sorted(placement.places)[:8]) or 'no places at all'}. Say in names which is which"
        )
    return placement


# Lines of a topology.yaml as it is drawn here; one in another form, of a person, has no places.
_YAML_SWITCH = re.compile(r'    - (?:switch|block): ("[^"]+")')
_YAML_NODES = re.compile(r'      nodes: ("[^"]+")')


def before(text: str) -> dict[str, str]:
    """Return the switch or block that topology.conf, or our topology.yaml, has each node on; of several the first."""
    places: dict[str, str] = {}
    drawn = text.splitlines()
    for line, following in zip(drawn, drawn[1:]):
        switch, nodes = _YAML_SWITCH.fullmatch(line), _YAML_NODES.fullmatch(following)
        if switch and nodes:
            name = str(json.loads(switch.group(1)))
            places = {**dict.fromkeys(expand(str(json.loads(nodes.group(1)))), name), **places}
    if places:
        return places
    for line in lines(text):
        values = {key.lower(): value for key, value in fields(line).items()}
        try:
            names = expand(values.get("nodes", ""))
        except HostlistError:
            continue
        places.update(dict.fromkeys(names, values.get("switchname") or values.get("blockname") or ""))
    return places
