# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter from nodes to node arrays; documented in the YAML file beside this one."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._cyclecloud_arrays import ArrayError, node_arrays


def cyclecloud_node_arrays(nodes: t.Any, preflight: t.Any) -> list[dict[str, t.Any]]:
    """Return one node array for each entry."""
    try:
        return node_arrays(list(nodes), dict(preflight or {}))
    except ArrayError as exc:
        raise AnsibleFilterError(f"cyclecloud_node_arrays: {exc}") from exc
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise AnsibleFilterError(
            f"cyclecloud_node_arrays wants azure_infra_nodes and what azure_compute_preflight returned: {exc!r}"
        ) from exc


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"cyclecloud_node_arrays": cyclecloud_node_arrays}
