# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter over what is wrong with an inventory; documented in the YAML file beside this one."""

from __future__ import annotations

import collections.abc as c
import typing as t
from pathlib import Path

from ansible.errors import AnsibleError, AnsibleFilterError
from ansible.module_utils.common.yaml import yaml_load  # by libyaml, ten times as fast
from jinja2 import TemplateError, Undefined

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.image import older
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight import findings
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.inputs import check_shapes

ROLES = Path(__file__).resolve().parents[2] / "roles"
PREFIXES = ("cluster_", *(f"{path.name}_" for path in sorted(ROLES.iterdir())))
# Whose variables count where hosts differ, the last one most.
ORDER = ("preflight_compute_hosts", "preflight_login_hosts", "preflight_database_hosts", "preflight_controller_hosts")


def preflight_findings(inputs: object, hostvars: t.Mapping[str, t.Any] | None = None) -> list[str]:
    """Return every problem as a sentence; what the hosts are and what is set for them comes from ``hostvars``."""
    if not isinstance(inputs, c.Mapping):
        raise AnsibleFilterError(f"preflight_findings takes a dictionary, not {type(inputs).__name__}")
    settings = plain(inputs)
    groups = [[str(host) for host in settings.get(key) or []] for key in ORDER]
    known = {host: hostvars[host] for hosts in groups for host in hosts if hostvars and host in hostvars}
    hosts = {host: _host(variables) for host, variables in known.items()}
    first = [settings["preflight_host"]] if hostvars and "preflight_host" in settings else []
    order = [*first, *(hosts[0] for hosts in groups if hosts and hosts[0] in known)]
    # All of a host's variables are resolved: each host once, where it counts most.
    order = list(dict.fromkeys(reversed(order)))[::-1]
    sources = [known[host] if host in known else hostvars[host] for host in order] if hostvars else []
    variables, unresolved = _variables(sources)
    shared = sorted({path for host in hosts.values() for path in host["shared"]})
    specs = _specs()
    others = {host: known[host] for host in known if host not in order}
    found = findings({"hosts": hosts, "preflight_shared_paths": shared, **variables, **settings}, specs)
    return unresolved + found + _of_other_hosts(others, variables, specs)


def old_images(hosts: object, hostvars: t.Mapping[str, t.Any], cluster: t.Mapping[str, t.Any]) -> list[str]:
    """Return a sentence for each image that is older than the cluster, with the hosts that were started from it."""
    if not isinstance(hosts, c.Sequence) or isinstance(hosts, str) or not isinstance(cluster, c.Mapping):
        raise AnsibleFilterError("old_images takes a list of hosts, their variables and a dictionary of versions")
    hosts_of: dict[str, list[str]] = {}
    known = {host: hostvars[host] for host in map(str, hosts) if host in hostvars}
    for host, variables in known.items():
        facts = variables.get("ansible_facts", {})
        # A file of that name that is no JSON is a text here.
        record = (facts.get("ansible_local") or {}).get("hpcai_image")
        if not isinstance(record, c.Mapping):
            continue
        texts = older(plain(record), plain(cluster))
        if texts:
            hosts_of.setdefault(
                f"of {str(record.get('date') or 'an unknown date')[:40]} has {'; '.join(texts)}", []
            ).append(host)
    return [f"{', '.join(names)}: the image {text}" for text, names in hosts_of.items()]


def plain(value: t.Any) -> t.Any:
    """Return Ansible's lazy containers and tagged texts as Python's own; raises where something is not defined."""
    if isinstance(value, c.Mapping):
        return {plain(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    return str(value) if isinstance(value, (str, Undefined)) else value


def _variables(sources: list[t.Mapping[str, t.Any]]) -> tuple[dict[str, t.Any], list[str]]:
    """Return the variables of this collection, and a problem for each that cannot be resolved."""
    resolved: dict[str, t.Any] = {}
    unresolved: dict[str, str] = {}
    for source in sources:
        for name in [name for name in source if name.startswith(PREFIXES)]:
            try:
                resolved[str(name)] = plain(source[name])
            except (AnsibleError, TemplateError) as exc:
                unresolved[str(name)] = f"{name} cannot be resolved: {exc}; accepted: defined variables only"
    return resolved, list(unresolved.values())


def _of_other_hosts(
    others: t.Mapping[str, t.Mapping[str, t.Any]], variables: t.Mapping[str, t.Any], specs: t.Mapping[str, t.Any]
) -> list[str]:
    """Return what has the wrong shape among what is set for some hosts alone: configure.yml has no role look again.

    What cannot be resolved may be a fact of a node that is away, which delays nothing.
    """
    hosts_of: dict[str, list[str]] = {}
    for host, source in others.items():
        resolved = _variables([source])[0]
        own = {name: value for name, value in resolved.items() if name not in variables or variables[name] != value}
        for problem in check_shapes(own, specs)[0]:
            hosts_of.setdefault(problem, []).append(host)
    return [f"{', '.join(hosts)}: {problem}" for problem, hosts in hosts_of.items()]


def _host(variables: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    facts, override = variables.get("ansible_facts", {}), plain(variables.get("slurm_node") or {})
    port = variables.get("ansible_port")
    address = variables.get("ansible_host")
    ubuntu = facts.get("distribution") == "Ubuntu"
    named = override.get("name") if isinstance(override, dict) else None
    storage = [variables.get(key) or [] for key in ("shared_storage_mounts", "shared_storage_exports")]
    return {
        "address": f"{address}:{port}" if address and port else address,
        "facts": facts,
        "hostname": facts.get("hostname"),
        "leaf": variables.get("slurm_leaf") or variables.get("cc_placement_group"),
        "node": named or facts.get("hostname"),
        "release": facts.get("distribution_version" if ubuntu else "distribution_major_version"),
        "shared": [
            str(export["path"])
            for items in storage
            for export in items
            if isinstance(export, c.Mapping) and "path" in export and export.get("state") != "absent"
        ],
        "sku": variables.get("cluster_sku"),
        "slurm_node": override,
        "system": facts.get("distribution"),
    }


def _specs() -> dict[str, t.Any]:
    """Return the options of every role of the collection."""
    options: dict[str, t.Any] = {}
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        for entry in yaml_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            options.update(entry.get("options") or {})
    return options


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"old_images": old_images, "preflight_findings": preflight_findings}
