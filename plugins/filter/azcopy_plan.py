# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter for uploads to blob storage; documented in azcopy_plan.yml beside this file."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.site import LEAST_MBPS, PlanError, plan


def azcopy_plan(
    limit: t.Any,
    files: int,
    nodes: int = 1,
    cores: int = 96,
    node_limit: float | None = None,
    cap: int | None = None,
    least: int = LEAST_MBPS,
) -> dict[str, int]:
    """Return the cap and the connections of every copy."""
    try:
        return plan(limit, files, nodes, cores, node_gbps=node_limit, cap_mbps=cap, least_mbps=least)._asdict()
    except PlanError as exc:
        raise AnsibleFilterError(f"azcopy_plan: {exc}") from exc


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"azcopy_plan": azcopy_plan}
