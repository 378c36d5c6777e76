# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter over what is wrong with an inventory; documented in the YAML file beside this one."""

from __future__ import annotations

import collections.abc as c
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._preflight import findings


def preflight_findings(inputs: object, hostvars: t.Mapping[str, t.Any] | None = None) -> list[str]:
    """Return every problem as a sentence; the facts of the hosts come from ``hostvars``."""
    if not isinstance(inputs, c.Mapping):
        raise AnsibleFilterError(f"preflight_findings takes a dictionary, not {type(inputs).__name__}")
    names: dict[str, None] = {}
    for key, value in inputs.items():
        if key.endswith("_hosts"):
            names.update(dict.fromkeys(value or []))
    hosts = {name: _known(hostvars[name]) for name in names if hostvars and name in hostvars}
    return findings({"hosts": hosts, **inputs})


def _known(variables: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    facts, override = variables.get("ansible_facts", {}), variables.get("slurm_node", {})
    port = variables.get("ansible_port")
    address = variables.get("ansible_host")
    return {
        "address": f"{address}:{port}" if address and port else address,
        "node": override.get("name") or facts.get("hostname"),
        "release": facts.get("distribution_version")
        if facts.get("distribution") == "Ubuntu"
        else facts.get("distribution_major_version"),
        "system": facts.get("distribution"),
    }


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"preflight_findings": preflight_findings}
