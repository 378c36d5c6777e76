#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_info
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Read the state of a Slurm cluster
description:
  - Returns version, controllers, nodes, partitions and jobs in one shape for Slurm 22.05 to 26.05.
  - Runs where the Slurm commands work, usually on the controller or a login node.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full, details: It only reads.}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  gather:
    description: What to read. V(ping) alone does not fail when no controller answers.
    type: list
    elements: str
    choices: [version, ping, nodes, partitions, jobs]
    default: [version, ping, nodes, partitions]
  nodes:
    description: Return only these nodes; a hostlist expression such as V(c[1-4]). Unknown names are an error.
    type: str
"""

EXAMPLES = r"""
- name: Read the nodes
  hpcai.gpu_cluster.slurm_info:
    gather: [nodes]
  register: cluster

- name: Refuse a cluster with nodes out of service
  ansible.builtin.assert:
    that: cluster.nodes | rejectattr('available') | list | length == 0
"""

RETURN = r"""
version: {description: Slurm's version., returned: when gathered, type: str, sample: 24.11.5}
controllers:
  description: Every slurmctld with its role and whether it answers.
  returned: when V(ping) is gathered
  type: list
  elements: dict
  sample: [{host: ctl, role: primary, up: true}]
nodes:
  description:
    - Every node with its base state in capitals, its flags, and whether it can take jobs (C(available)).
  returned: when gathered
  type: list
  elements: dict
  sample:
    - {name: c1, state: IDLE, flags: [DRAIN], drained: true, available: false, reason: "ops: cable", reason_user: root,
       reason_time: "2026-01-05T10:00:00", cpus: 96, allocated_cpus: 0, memory_mb: 1900000, gres: "gpu:a100:8",
       features: [ib], active_features: [ib], partitions: [main], address: 10.0.0.5, hostname: c1, version: 24.11.5,
       boot_time: "2026-01-05T08:00:00"}
partitions:
  description: Every partition; C(max_time) is in seconds, V(null) without a limit.
  returned: when gathered
  type: list
  elements: dict
  sample: [{name: main, state: UP, default: true, nodes: [c1, c2], total_cpus: 192, max_time: 86400}]
jobs:
  description: Every job that waits or runs.
  returned: when gathered
  type: list
  elements: dict
  sample:
    - {job_id: 7, name: train, user: anna, account: research, partition: main, state: RUNNING, reason: null,
       nodes: [c1, c2], node_count: 2, submit: "2026-01-05T10:00:00", start: "2026-01-05T10:00:02"}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import pick
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.read import Reader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError

PARTS = ["version", "ping", "nodes", "partitions", "jobs"]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "gather": {"type": "list", "elements": "str", "choices": PARTS, "default": PARTS[:4]},
            "nodes": {"type": "str"},
        },
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"SLURM_TIME_FORMAT": TIME_FORMAT}

    def run(argv: list[str]) -> tuple[int, str, str]:
        return module.run_command([module.get_bin_path(argv[0], required=True), *argv[1:]])

    reader = Reader(run)
    read = {
        "version": reader.version,
        "ping": reader.controllers,
        "nodes": reader.nodes,
        "partitions": reader.partitions,
        "jobs": reader.jobs,
    }
    try:
        names = expand(module.params["nodes"] or "")
        found: dict[str, t.Any] = {
            part if part != "ping" else "controllers": read[part]() for part in module.params["gather"]
        }
        if names and "nodes" in found:
            found["nodes"] = pick(found["nodes"], names)
    except (SlurmError, HostlistError) as exc:
        module.fail_json(msg=f"Cannot read the Slurm cluster: {exc}")
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
