# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of role azure_teardown; documented in the YAML files beside this one."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _azure_runbook

_NEEDED = ("cluster", "nodes_cluster", "subscription", "home")


def azure_teardown_runbook(settings: t.Any) -> str:
    """Return the script that Azure Automation runs on the day of a cluster."""
    if not isinstance(settings, t.Mapping) or not all(settings.get(name) for name in _NEEDED):
        raise AnsibleFilterError(f"takes a dictionary with {', '.join(_NEEDED)}")
    cloud = str(settings.get("cloud") or "AzureCloud")
    known = client.CLOUDS.get(cloud)
    if known is None:
        raise AnsibleFilterError(
            f"Azure Automation is known in {', '.join(client.CLOUDS)}, not in {cloud}: leave azure_teardown_schedule"
            " false, and have destroy.yml -e azure_teardown_due_only=true run each day"
        )
    return _azure_runbook.text({**{name: str(settings[name]) for name in _NEEDED}, "manager": known[1]})


class FilterModule:
    """What this file offers to templates."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"azure_teardown_runbook": azure_teardown_runbook}
