# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter of the role google_infra; documented in the YAML file beside this one."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _google_infra


def google_infra_plan(inputs: t.Any) -> dict[str, t.Any]:
    """Return the resources and machines of a cluster on Google Cloud."""
    if not isinstance(inputs, t.Mapping):
        raise AnsibleFilterError(f"google_infra_plan takes a dictionary, not {type(inputs).__name__}")
    try:
        return {"resources": _google_infra.resources(inputs), "groups": _google_infra.groups(inputs)}
    except KeyError as exc:
        raise AnsibleFilterError(f"google_infra_plan: the inputs lack {exc}") from exc


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"google_infra_plan": google_infra_plan}
