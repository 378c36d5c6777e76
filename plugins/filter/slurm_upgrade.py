# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter that plans the upgrade of a whole cluster; documented in the YAML file beside this one."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.plan import plan


def slurm_upgrade_plan(groups: t.Any, hostvars: t.Any, name: str) -> dict[str, t.Any]:
    """Plan from the variable ``name`` that holds what slurm_packages returned on each host."""
    if not isinstance(groups, t.Mapping) or not isinstance(hostvars, t.Mapping):
        raise AnsibleFilterError("slurm_upgrade_plan takes the hosts of each role, hostvars and the name of a variable")
    members = {str(role): [str(host) for host in hosts] for role, hosts in groups.items()}
    observed = {}
    for host in {host for hosts in members.values() for host in hosts}:
        result = (hostvars.get(host) or {}).get(name)
        if result and "problem" in result:
            observed[host] = result
    return plan(members, observed)


class FilterModule:
    """What this file offers to templates."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"slurm_upgrade_plan": slurm_upgrade_plan}
