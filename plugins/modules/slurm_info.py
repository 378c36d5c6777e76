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
  - >-
    Reads C(scontrol), C(sinfo) and C(squeue), as JSON where the release and its build can print it and as text
    otherwise. It changes nothing.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: It only reads.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  gather:
    description:
      - What to read. Each item costs one or two commands, so name only what is used on a large cluster.
      - >-
        V(version) and V(ping) also work while no C(slurmctld) answers. V(nodes), V(partitions) and V(jobs) fail then.
      - V(jobs) is not read by default.
    type: list
    elements: str
    choices: [version, ping, nodes, partitions, jobs]
    default: [version, ping, nodes, partitions]
  nodes:
    description:
      - Return only these nodes, in this order, as a hostlist expression such as V(c[1-4],c9).
      - A name that Slurm does not know is an error. Partitions and jobs are not filtered.
    type: str
notes:
  - Runs where the commands of Slurm work, usually on the controller or a login node.
  - Times are local times of the managed host. Hidden partitions and their nodes are included.
seealso:
  - module: hpcai.gpu_cluster.slurm_node
  - module: hpcai.gpu_cluster.slurm_job
  - plugin: hpcai.gpu_cluster.slurm
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Read version, controllers, nodes and partitions
  hpcai.gpu_cluster.slurm_info:
  register: cluster

- name: Read the nodes alone
  hpcai.gpu_cluster.slurm_info:
    gather: [nodes]
  register: cluster

- name: Refuse a cluster with nodes out of service
  ansible.builtin.assert:
    that: cluster.nodes | rejectattr('available') | list | length == 0
    fail_msg: "Out of service: {{ cluster.nodes | rejectattr('available') | map(attribute='name') | join(', ') }}"

- name: Read which jobs run on two nodes
  hpcai.gpu_cluster.slurm_info:
    gather: [nodes, jobs]
    nodes: c[3-4]
  register: busy

- name: Wait until a controller answers
  hpcai.gpu_cluster.slurm_info:
    gather: [ping]
  register: ping
  until: ping.controllers | default([]) | selectattr('up') | list | length > 0
  retries: 30
  delay: 2
"""

RETURN = r"""
version:
  description:
    - Version of the commands on this host (C(scontrol --version)).
  returned: when V(version) is gathered
  type: str
  sample: 24.11.5
controllers:
  description:
    - Every C(slurmctld) of the configuration.
  returned: when V(ping) is gathered
  type: list
  elements: dict
  contains:
    host:
      description:
        - Host of the controller.
      returned: always
      type: str
      sample: ctl
    role:
      description:
        - Role of the controller as C(scontrol ping) names it, such as V(primary) or V(backup).
      returned: always
      type: str
      sample: primary
    up:
      description:
        - Whether it answers.
      returned: always
      type: bool
      sample: true
nodes:
  description:
    - Every node, or those that O(nodes) names.
  returned: when V(nodes) is gathered
  type: list
  elements: dict
  contains:
    name:
      description:
        - Name of the node in Slurm.
      returned: always
      type: str
      sample: c1
    state:
      description:
        - >-
          Base state in capitals, one of C(ALLOCATED), C(DOWN), C(ERROR), C(FUTURE), C(IDLE), C(MIXED) and C(UNKNOWN).
      returned: always
      type: str
      sample: IDLE
    flags:
      description:
        - Flags beside the base state, sorted, such as C(DRAIN), C(NOT_RESPONDING) or C(POWERED_DOWN).
      returned: always
      type: list
      elements: str
      sample: [DRAIN]
    drained:
      description:
        - Whether the node has the flag C(DRAIN). Jobs may still run on it.
      returned: always
      type: bool
      sample: true
    available:
      description:
        - >-
          Whether the node can take jobs. It is C(IDLE), C(MIXED) or C(ALLOCATED) and neither drained, failing, silent,
          in maintenance, powered down nor about to reboot.
      returned: always
      type: bool
      sample: false
    reason:
      description:
        - Reason of the state, empty without one.
      returned: always
      type: str
      sample: "ops: cable swap"
    reason_user:
      description:
        - The user who set the reason, V(null) without one.
      returned: always
      type: str
      sample: root
    reason_time:
      description:
        - When the reason was set, V(null) without one.
      returned: always
      type: str
      sample: "2026-01-05T10:00:00"
    cpus:
      description:
        - CPUs of the node.
      returned: always
      type: int
      sample: 96
    allocated_cpus:
      description:
        - CPUs that jobs have.
      returned: always
      type: int
      sample: 0
    memory_mb:
      description:
        - Configured memory (C(RealMemory)) in MB.
      returned: always
      type: int
      sample: 1900000
    gres:
      description:
        - Generic resources as Slurm prints them, V(null) without any.
      returned: always
      type: str
      sample: gpu:a100:8
    features:
      description:
        - Available features.
      returned: always
      type: list
      elements: str
      sample: [ib]
    active_features:
      description:
        - Active features.
      returned: always
      type: list
      elements: str
      sample: [ib]
    partitions:
      description:
        - Partitions of the node.
      returned: always
      type: list
      elements: str
      sample: [main]
    address:
      description:
        - Address that Slurm uses (C(NodeAddr)), the name of the node where none is set.
      returned: always
      type: str
      sample: 10.0.0.5
    hostname:
      description:
        - Host name (C(NodeHostName)), the name of the node where none is set.
      returned: always
      type: str
      sample: c1
    version:
      description:
        - Version of the node's C(slurmd), V(null) while it has not registered.
      returned: always
      type: str
      sample: 24.11.5
    boot_time:
      description:
        - Last boot, V(null) where Slurm does not know it.
      returned: always
      type: str
      sample: "2026-01-05T08:00:00"
partitions:
  description:
    - Every partition.
  returned: when V(partitions) is gathered
  type: list
  elements: dict
  contains:
    name:
      description:
        - Name of the partition.
      returned: always
      type: str
      sample: main
    state:
      description:
        - State in capitals, such as C(UP), C(DOWN), C(DRAIN) or C(INACTIVE).
      returned: always
      type: str
      sample: UP
    default:
      description:
        - Whether jobs without a partition go here.
      returned: always
      type: bool
      sample: true
    nodes:
      description:
        - Names of its nodes.
      returned: always
      type: list
      elements: str
      sample: [c1, c2]
    total_cpus:
      description:
        - CPUs of all its nodes.
      returned: always
      type: int
      sample: 192
    max_time:
      description:
        - Time limit in seconds, V(null) without a limit.
      returned: always
      type: int
      sample: 86400
jobs:
  description:
    - Every queued and running job, ordered by ID.
  returned: when V(jobs) is gathered
  type: list
  elements: dict
  contains:
    job_id:
      description:
        - ID of the job.
      returned: always
      type: int
      sample: 7
    name:
      description:
        - Name of the job.
      returned: always
      type: str
      sample: train
    user:
      description:
        - User who submitted it.
      returned: always
      type: str
      sample: anna
    account:
      description:
        - Account of the job, V(null) without accounting.
      returned: always
      type: str
      sample: research
    partition:
      description:
        - Partition, or partitions with commas in between while the job is queued for several.
      returned: always
      type: str
      sample: main
    state:
      description:
        - State in capitals.
      returned: always
      type: str
      sample: RUNNING
    reason:
      description:
        - Why the job is queued, V(null) without a reason.
      returned: always
      type: str
      sample: Resources
    nodes:
      description:
        - Names of its nodes, empty while it is queued.
      returned: always
      type: list
      elements: str
      sample: [c1, c2]
    node_count:
      description:
        - Number of nodes that it has or requests.
      returned: always
      type: int
      sample: 2
    submit:
      description:
        - Time of submission.
      returned: always
      type: str
      sample: "2026-01-05T10:00:00"
    start:
      description:
        - Start, or Slurm's estimate for a queued job, V(null) where there is none.
      returned: always
      type: str
      sample: "2026-01-05T10:00:02"
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import pick
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import SlurmReader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError

PARTS = ["version", "ping", "nodes", "partitions", "jobs"]
SPEC = {
    "gather": {"type": "list", "elements": "str", "choices": PARTS, "default": PARTS[:4]},
    "nodes": {"type": "str"},
}


def perform(params: t.Mapping[str, t.Any], reader: SlurmReader) -> dict[str, t.Any]:
    """Read the parts that are gathered, of all nodes or of those that are named."""
    names = expand(params["nodes"] or "")
    read = {
        "version": reader.version,
        "ping": reader.controllers,
        "nodes": reader.nodes,
        "partitions": reader.partitions,
        "jobs": reader.jobs,
    }
    result: dict[str, t.Any] = {part if part != "ping" else "controllers": read[part]() for part in params["gather"]}
    if names and "nodes" in result:
        result["nodes"] = pick(result["nodes"], names)
    return result


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"SLURM_TIME_FORMAT": TIME_FORMAT}

    def run(argv: list[str]) -> tuple[int, str, str]:
        return module.run_command([module.get_bin_path(argv[0], required=True), *argv[1:]])

    try:
        result = perform(module.params, SlurmReader(run))
    except (SlurmError, HostlistError) as exc:
        module.fail_json(msg=f"Cannot read the Slurm cluster: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
