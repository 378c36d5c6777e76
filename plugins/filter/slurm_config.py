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


def slurm_conf(
    settings: object,
    nodes: object,
    partitions: object,
    health: object,
    power: object,
    elastic_nodes: object = (),
    topology: bool = False,
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
        topology=bool(topology),
        power=_dict(power, f"{name}: power"),
        health=checks,
        version=str(version or ""),
        extra=_dict(extra or {}, f"{name}: extra"),
    )
    return _lines(name, lambda: node_lines.conf_lines(conf))


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
            "slurm_machine_gres": slurm_machine_gres,
            "slurm_nodes": slurm_nodes,
            "slurm_setting_lines": slurm_setting_lines,
        }
