# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters that draw Slurm's files from the inventory; documented in the YAML files beside this one."""

from __future__ import annotations

import collections.abc as c
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lines import LineError, one_line
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import installation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.model import FabricError, conf_lines, yaml_lines
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import node_lines
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError


def _list(value: object, name: str) -> list[t.Any]:
    if isinstance(value, (str, bytes, c.Mapping)) or not isinstance(value, c.Iterable):
        raise AnsibleFilterError(f"{name} takes a list, not {type(value).__name__}")
    return list(value)


def _dict(value: object, name: str) -> t.Mapping[str, t.Any]:
    if not isinstance(value, c.Mapping):
        raise AnsibleFilterError(f"{name} takes a dictionary, not {type(value).__name__}")
    return value


def _lines(name: str, work: t.Callable[[], list[str]]) -> list[str]:
    """Return lines, each of which is one line in Slurm's eyes as well."""
    return t.cast("list[str]", _guard(name, lambda: one_line(work(), "line ")))


def _guard(name: str, work: t.Callable[[], t.Any]) -> t.Any:
    try:
        return work()
    except (node_lines.NodeError, HostlistError, LineError, SlurmError, FabricError) as exc:
        raise AnsibleFilterError(f"{name}: {exc}") from exc
    except KeyError as exc:
        raise AnsibleFilterError(f"{name}: an entry lacks {exc}") from exc


def slurm_nodes(
    hosts: object,
    hostvars: t.Mapping[str, t.Any],
    headroom: float = 0.05,
    profiles: object = (),
    gpu_hosts: object = (),
) -> list[dict[str, t.Any]]:
    """Describe every host from its facts, its machine type and its ``slurm_node``."""
    name = "slurm_nodes"
    machines = {str(_dict(profile, name)["sku"]): profile.get("slurm") or {} for profile in _list(profiles, name)}
    with_gpus = set(_list(gpu_hosts, name))
    nodes = []
    for host in _list(hosts, name):
        variables = hostvars.get(host) or {}
        facts, override = variables.get("ansible_facts", {}), variables.get("slurm_node", {})
        machine = machines.get(str(variables.get("cluster_sku"))) if host in with_gpus else None
        nodes.append(_guard(name, lambda: node_lines.node(host, facts, override, float(headroom), machine)))  # noqa: B023
    return nodes


def slurm_machine_gres(nodes: object) -> list[dict[str, t.Any]]:
    """Return the lines of gres.conf that the machine types of the nodes have."""
    return node_lines.machine_gres(_list(nodes, "slurm_machine_gres"))


def slurm_conf(
    settings: object,
    nodes: object,
    partitions: object,
    health: object,
    power: object,
    elastic_nodes: object = (),
    topology: str = "",
    version: str = "",
    extra: object = None,
) -> list[str]:
    """Return the lines of slurm.conf."""
    name = "slurm_conf"
    checks = {"program": "", "interval": 0, "states": [], "suspend_exc_states": [], **_dict(health, f"{name}: health")}
    for key in ("states", "suspend_exc_states"):
        _list(checks[key], f"{name}: {key} of health")
    conf = node_lines.SlurmConf(
        settings=_dict(settings, name),
        nodes=_list(nodes, f"{name}: nodes"),
        elastic_nodes=[
            _dict(entry, f"{name}: elastic_nodes") for entry in _list(elastic_nodes, f"{name}: elastic_nodes")
        ],
        partitions=_list(partitions, f"{name}: partitions"),
        topology=str(topology or ""),
        power=_dict(power, f"{name}: power"),
        health=checks,
        version=str(version or ""),
        extra=_dict(extra or {}, f"{name}: extra"),
    )
    return _lines(name, lambda: node_lines.conf_lines(conf))


def slurm_topology_lines(
    switches: object, plugin: str = "tree", block_sizes: object = (), version: str = ""
) -> list[str]:
    """Return the lines of topology.conf."""
    name = "slurm_topology_lines"
    entries = [_dict(entry, name) for entry in _list(switches, name)]
    sizes = _list(block_sizes, f"{name}: block_sizes")
    return _lines(name, lambda: conf_lines(entries, str(plugin), sizes, str(version or "")))


def slurm_topologies_lines(topologies: object, switches: object = (), version: str = "") -> list[str]:
    """Return the lines of topology.yaml."""
    name = "slurm_topologies_lines"
    given = [_dict(entry, name) for entry in _list(topologies, name)]
    entries = [_dict(entry, name) for entry in _list(switches, name)]
    if not given:
        raise AnsibleFilterError(f"{name}: there is no topology")
    return _lines(name, lambda: yaml_lines(given, entries, str(version or "")))


def slurm_topology_hosts(nodes: object, hostvars: t.Mapping[str, t.Any], source: str) -> dict[str, dict[str, str]]:
    """Return what the variables of hosts say: the place of each node, and its name in the cloud."""
    places, names = {}, {}
    for node in _list(nodes, "slurm_topology_hosts"):
        host = node.get("host", node["name"])
        # Ansible's hostvars have no default for a host that is not there.
        variables = hostvars[host] if host in hostvars else {}  # noqa: SIM401
        place = str(variables.get("slurm_leaf") or "")
        if source == "azure" and not place:
            place = str(variables.get("cc_placement_group") or "").replace("/", "-")
        if place:
            places[str(node["name"])] = place
        if source == "aws" and variables.get("instance_id"):
            names[str(variables["instance_id"])] = str(node["name"])
    return {"places": places, "names": names}


def slurm_installations(hosts: object, hostvars: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return which installation of a machine each node is, of those whose facts tell."""
    installations = {}
    for host in _list(hosts, "slurm_installations"):
        variables = hostvars[host] if host in hostvars else {}  # noqa: SIM401
        mark = installation.digest(str((variables.get("ansible_facts") or {}).get("machine_id") or ""))
        if mark:
            installations[str((variables.get("slurm_node") or {}).get("name") or host)] = mark
    return installations


def slurm_setting_lines(base: object, extra: object = None) -> list[str]:
    """Return settings as lines, the extra ones last."""
    name = "slurm_setting_lines"
    return _lines(name, lambda: node_lines.setting_lines(_dict(base, name), _dict(extra or {}, name)))


def slurm_gres_lines(entries: object) -> list[str]:
    """Return the lines of gres.conf."""
    return _lines("slurm_gres_lines", lambda: node_lines.gres_lines(_list(entries, "slurm_gres_lines")))


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {
            "slurm_conf": slurm_conf,
            "slurm_gres_lines": slurm_gres_lines,
            "slurm_installations": slurm_installations,
            "slurm_machine_gres": slurm_machine_gres,
            "slurm_nodes": slurm_nodes,
            "slurm_setting_lines": slurm_setting_lines,
            "slurm_topologies_lines": slurm_topologies_lines,
            "slurm_topology_hosts": slurm_topology_hosts,
            "slurm_topology_lines": slurm_topology_lines,
        }
