# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that describe a cluster; the same as SPEC of module_utils/cyclecloud/cluster_task.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  template: {description: "Text of the template, with one cluster in it.", type: str, default: ""}
  builtin:
    description: Name of a template that is in the server, such as V(slurm_template_4.0.9), instead of O(template).
    type: str
    default: ""
  region: {description: Region., type: str}
  subnet_id: {description: "C(group/network/subnet), or the resource ID.", type: str}
  credentials: {description: Cloud account., type: str, default: azure}
  node_arrays:
    description:
      - Node arrays, each with C(name), C(machine_type), C(image), C(max_nodes), and C(gpus), C(spot), C(zone).
    type: list
    elements: dict
    default: []
  scheduler: {description: "C(machine_type), C(image) and C(disk_gb) of the scheduler.", type: dict, default: {}}
  login: {description: "C(machine_type), C(image) and C(count) of login nodes.", type: dict, default: {}}
  shared:
    description: C(size_gb) and C(sched_size_gb) of the scheduler's disks, or C(nfs_address) and C(nfs_export).
    type: dict
    default: {}
  slurm: {description: "C(version) and C(node_prefix).", type: dict, default: {}}
  autoscale: {description: Whether Slurm makes and removes nodes., type: bool, default: true}
  node_identity: {description: Resource ID of the identity that nodes carry., type: str, default: ""}
  tags: {description: Tags of every resource of a node., type: dict, default: {}}
  max_scaleset_size: {description: Nodes of one scale set., type: int, default: 100}
  parameters: {description: Further parameters., type: dict, default: {}}
  secret_parameters: {description: "The same, never shown.", type: dict, default: {}}
  project: {description: What module cyclecloud_project returned., type: dict, default: {}}
  specs:
    description: Further cluster-init specs, each with C(project), C(spec), C(version) and C(nodes).
    type: list
    elements: dict
    default: []
  locker: {description: Locker of the project., type: str, default: ""}
"""
