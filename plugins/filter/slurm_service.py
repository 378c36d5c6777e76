# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter that tells whether a cluster's nodes are in service."""

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm_service
short_description: Tell whether Slurm can use its nodes
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Judges a result of M(hpcai.gpu_cluster.slurm_info). Nodes that somebody drained and nodes that power saving has
    switched off do not count.
options:
  _input:
    description:
      - Result of the module with C(nodes) and C(partitions).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Wait for the nodes
  hpcai.gpu_cluster.slurm_info:
    gather: [nodes, partitions]
  register: cluster
  until: cluster is succeeded and (cluster | hpcai.gpu_cluster.slurm_service)['settled']
  retries: 60
  delay: 10

- name: Show which nodes Slurm cannot use
  ansible.builtin.debug:
    msg: "{{ (cluster | hpcai.gpu_cluster.slurm_service)['broken'] }}"
"""

RETURN = r"""
_value:
  description:
    - C(settled) tells whether every node is usable, and those of the default partition are idle or busy with jobs.
    - C(broken) has for every node that Slurm cannot use its name, state and reason.
    - C(proof) is the number of nodes, at most 2, on which a job would start at once, 0 when jobs keep them busy.
  type: dict
  sample: {settled: false, broken: ["c2 is DOWN+NOT_RESPONDING: Not responding"], proof: 0}
"""

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._slurm_service import service


def slurm_service(cluster: t.Any) -> dict[str, t.Any]:
    """Judge the result of slurm_info."""
    if not isinstance(cluster, t.Mapping) or not {"nodes", "partitions"} <= set(cluster):
        raise AnsibleFilterError("slurm_service wants a result of slurm_info that holds nodes and partitions")
    return service(cluster)


class FilterModule:
    """What this file offers to templates."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"slurm_service": slurm_service}
