# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Do partitions and switches name nodes that there are, in words that Slurm takes? No I/O; private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.model import topology_problems
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.slurm import pair
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.wording import one_of, say, twice

_PARTITION = re.compile(r"(?!(?i:default)$)[A-Za-z0-9][A-Za-z0-9_.+-]*")
_TIME = re.compile(r"(?i)\d+(:\d\d?){0,2}|\d+-\d\d?(:\d\d?){0,2}|unlimited|infinite")
_OWN_PARTITION_KEYS = {"partitionname": "name", "nodes": "nodes", "default": "default", "maxtime": "max_time"}
Inputs = t.Mapping[str, t.Any]


def members(inputs: Inputs) -> set[str]:
    """Inventory names and Slurm names of the nodes, and of those that Slurm may create."""
    computes = inputs.get("preflight_compute_hosts") or []
    elastic = unknown((str(item.get("names") or "") for item in inputs.get("slurm_elastic_nodes") or []), set())[0]
    if inputs.get("slurm_nodes"):
        return {*elastic, *(str(item.get(key)) for item in inputs["slurm_nodes"] for key in ("host", "name"))}
    return {*elastic, *computes, *(str(inputs.get("hosts", {}).get(host, {}).get("node")) for host in computes)}


def unknown(names: t.Iterable[str], known: set[str]) -> tuple[list[str], str]:
    """Names in hostlists that are not known, and what cannot be read as a hostlist."""
    try:
        return sorted({node for name in names for node in expand(str(name))} - known), ""
    except HostlistError as exc:
        return [], str(exc)


def partitions(inputs: Inputs) -> list[str]:
    """Return what is wrong with the partitions: names, the default, their nodes."""
    parts = inputs.get("slurm_partitions")
    if parts is None:
        return []
    variable = "slurm_partitions"
    problems = [say(variable, name, "defined twice", "each name once") for name in twice(p.get("name") for p in parts)]
    defaults = [part.get("name") for part in parts if part.get("default")]
    if len(defaults) != 1:
        problem = "several are the default" if defaults else "jobs that name no partition have nowhere to go"
        problems.append(say(f"{variable} with default: true", defaults, problem, "exactly one"))
    return problems + [text for part in parts for text in _partition(part, members(inputs) | {"ALL"})]


def _partition(part: t.Mapping[str, t.Any], known: set[str]) -> list[str]:
    label, problems = f"slurm_partitions ({part.get('name')})", []
    if not _PARTITION.fullmatch(str(part.get("name"))):
        problems.append(
            say(
                "slurm_partitions", part.get("name"), "no name for a partition", "letters, digits, _ . + -, not DEFAULT"
            )
        )
    nodes = part.get("nodes") or []
    names = [nodes] if isinstance(nodes, str) else list(nodes)
    strange, unread = unknown(names, known)
    if not names:
        problems.append(say(f"{label}.nodes", names, "has no nodes", "hosts of the group slurm_compute, or ALL"))
    if strange or unread:
        problem = unread or "not among the compute nodes"
        problems.append(say(f"{label}.nodes", strange or names, problem, "hosts of the group slurm_compute, or ALL"))
    limit = part.get("max_time")
    if limit is not None and not (isinstance(limit, str) and _TIME.fullmatch(limit)):
        problem = "no time" if isinstance(limit, str) else "a number, which YAML makes of 1:00:00 without quotes (3600)"
        problems.append(
            say(
                f"{label}.max_time", limit, problem, "text such as '90' (minutes), '1:00:00', '7-00:00:00', 'UNLIMITED'"
            )
        )
    for key, value in (part.get("options") or {}).items():
        problems += pair(f"{label}.options", key, value, _OWN_PARTITION_KEYS)
    return problems


def topology(inputs: Inputs) -> list[str]:
    """Return what is wrong with the switches, and which nodes hang on none or on several."""
    switches = inputs.get("slurm_topology") or []
    problems = _switches(inputs, "slurm_topology", switches)
    return problems + (_places(inputs, switches) if switches and not problems else [])


def _switches(inputs: Inputs, variable: str, switches: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    names = [str(switch.get("name")) for switch in switches]
    problems = [say(variable, name, "defined twice", "each switch once") for name in twice(names)]
    for switch in switches:
        label = f"{variable} ({switch.get('name')})"
        if bool(switch.get("nodes")) == bool(switch.get("switches")):
            problems.append(say(label, sorted(switch), "not one of nodes and switches", "either nodes or switches"))
        for key, known in (("nodes", members(inputs)), ("switches", set(names))):
            strange, unread = unknown(switch.get(key) or [], known)
            if strange or unread:
                problems.append(say(f"{label}.{key}", strange or switch[key], unread or "not defined", one_of(known)))
    return problems


def _places(inputs: Inputs, switches: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Slurm starts with nodes that are on no switch or on two, and then gives the first to no job with others."""
    here = inputs.get("hosts", {})
    slurm_names = {host: str(here.get(host, {}).get("node") or host) for host in _computes(inputs)}
    listed = [
        slurm_names.get(name, name) for s in switches for item in s.get("nodes") or [] for name in expand(str(item))
    ]
    nodes = {str(item["name"]) for item in inputs.get("slurm_nodes") or []} or set(slurm_names.values())
    absent = sorted(nodes - set(listed))
    several = twice(listed)
    problems = []
    if several:
        problems.append(say("slurm_topology", several, "nodes that are on several switches", "each node on one"))
    if absent:
        problems.append(say("slurm_topology", absent, "nodes that are on no switch", "each compute node on one switch"))
    return problems


def _computes(inputs: Inputs) -> list[str]:
    return [str(host) for host in inputs.get("preflight_compute_hosts") or []]


def topology_source(inputs: Inputs) -> list[str]:
    """Return what is wrong with the place from which the topology is to be read."""
    source, given = inputs.get("slurm_topology_source", "inventory"), inputs.get("slurm_topology")
    if source == "inventory":
        return []
    problems = []
    if given:
        accepted = "slurm_topology, or slurm_topology_source and no slurm_topology"
        problems.append(say("slurm_topology_source", source, "never asked, as slurm_topology is given", accepted))
    if source in ("google", "aws") and not inputs.get("slurm_topology_file"):
        accepted = "slurm_topology_file, a file on this host with what the cloud's command printed"
        problems.append(say("slurm_topology_source", source, "nothing to read it from", accepted))
    if source in ("hosts", "azure"):
        bare = [host for host in _computes(inputs) if not inputs.get("hosts", {}).get(host, {}).get("leaf")]
        accepted = "slurm_leaf for each compute node, such as leaf3 or pod1/leaf3"
        if source == "azure":
            accepted += ", or cc_placement_group, as the inventory of CycleCloud sets it"
        if bare:
            problems.append(say("slurm_leaf", None, f"not set for {', '.join(bare)}", accepted))
    known = members(inputs)
    strange = {str(key): str(name) for key, name in (inputs.get("slurm_topology_names") or {}).items()}
    for key, name in sorted(strange.items()):
        if name not in known:
            problems.append(say(f"slurm_topology_names.{key}", name, "no compute node", one_of(known)))
    return problems


def topologies(inputs: Inputs) -> list[str]:
    """slurmctld ends where a partition names a topology that topology.yaml has not."""
    given = inputs.get("slurm_topologies") or []
    problems = topology_problems(given)
    for entry in given:
        # One that only some partitions have may leave nodes out.
        problems += _switches(inputs, f"slurm_topologies ({entry.get('name')}).switches", entry.get("switches") or [])
    names = [str(entry.get("name")) for entry in given]
    for part in inputs.get("slurm_partitions") or []:
        for key, value in (part.get("options") or {}).items():
            if str(key).lower() == "topology" and str(value) not in names:
                label = f"slurm_partitions ({part.get('name')}).options.{key}"
                problems.append(say(label, value, "no topology of slurm_topologies", one_of(names)))
    return problems


CHECKS = (partitions, topology, topology_source, topologies)
