# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters that draw Slurm's files from the inventory; documented in the YAML files beside this one."""

from __future__ import annotations

import collections.abc as c
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lines import LineError, one_line
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
    except (node_lines.NodeError, HostlistError, LineError, SlurmError) as exc:
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


def slurm_machine_parameters(nodes: object) -> str:
    """Return SlurmdParameters that the machine types of the nodes need."""
    return ",".join(node_lines.machine_parameters(_list(nodes, "slurm_machine_parameters")))


def slurm_elastic_nodes(entries: object) -> list[dict[str, t.Any]]:
    """Describe the nodes that Slurm creates and removes by itself."""
    name = "slurm_elastic_nodes"
    listed = [_dict(entry, name) for entry in _list(entries, name)]
    return _guard(name, lambda: node_lines.elastic(listed))


def slurm_power_settings(nodes: object, power: object, version: str = "", base: str = "") -> dict[str, str]:
    """Return the settings of power saving in slurm.conf for a release."""
    name = "slurm_power_settings"
    listed, settings = _list(nodes, name), _dict(power, name)
    return _guard(name, lambda: node_lines.power_settings(listed, settings, str(version or ""), str(base or "")))


def slurm_node_lines(nodes: object) -> list[str]:
    """Return the node lines of slurm.conf."""
    return _lines("slurm_node_lines", lambda: node_lines.node_lines(_list(nodes, "slurm_node_lines")))


def slurm_partition_lines(partitions: object, nodes: object) -> list[str]:
    """Return the partition lines of slurm.conf."""
    name = "slurm_partition_lines"
    return _lines(name, lambda: node_lines.partition_lines(_list(partitions, name), _list(nodes, name)))


def slurm_setting_lines(base: object, extra: object = None) -> list[str]:
    """Return settings as lines, the extra ones last."""
    name = "slurm_setting_lines"
    return _lines(name, lambda: node_lines.setting_lines(_dict(base, name), _dict(extra or {}, name)))


def slurm_gres_lines(entries: object) -> list[str]:
    """Return the lines of gres.conf."""
    return _lines("slurm_gres_lines", lambda: node_lines.gres_lines(_list(entries, "slurm_gres_lines")))


def slurm_gres_names(nodes: object) -> list[str]:
    """Return the kinds of generic resource that the nodes have."""
    return node_lines.gres_names(_list(nodes, "slurm_gres_names"))


def slurm_memory_per_cpu(nodes: object) -> int:
    """Return the memory in MB that belongs to one CPU."""
    return _guard("slurm_memory_per_cpu", lambda: node_lines.memory_per_cpu(_list(nodes, "slurm_memory_per_cpu")))


def slurm_health_settings(health_check: object, version: str = "", extra: object = None) -> dict[str, str]:
    """Return the settings of health checks in slurm.conf for a release."""
    name = "slurm_health_settings"
    settings = {"program": "", "interval": 0, "states": [], "suspend_exc_states": [], **_dict(health_check, name)}
    states, exceptions = (
        [str(state) for state in _list(settings[key], name)] for key in ("states", "suspend_exc_states")
    )
    program, interval, release = str(settings["program"]), int(settings["interval"]), str(version or "")
    site = _dict(extra or {}, name)
    return _guard(name, lambda: node_lines.health_settings(program, interval, states, exceptions, release, site))


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {
            "slurm_elastic_nodes": slurm_elastic_nodes,
            "slurm_gres_lines": slurm_gres_lines,
            "slurm_gres_names": slurm_gres_names,
            "slurm_health_settings": slurm_health_settings,
            "slurm_machine_gres": slurm_machine_gres,
            "slurm_machine_parameters": slurm_machine_parameters,
            "slurm_memory_per_cpu": slurm_memory_per_cpu,
            "slurm_node_lines": slurm_node_lines,
            "slurm_nodes": slurm_nodes,
            "slurm_partition_lines": slurm_partition_lines,
            "slurm_power_settings": slurm_power_settings,
            "slurm_setting_lines": slurm_setting_lines,
        }
