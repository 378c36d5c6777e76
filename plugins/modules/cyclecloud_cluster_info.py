#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the state of a CycleCloud cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_cluster_info
short_description: Read the state of a CycleCloud cluster, its limits and the GPUs that it sees
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Reads a cluster through the documented REST interface of CycleCloud 8.7 or later, from any machine that reaches it.
  - A cluster that does not exist is no error.
  - With O(gpus) it fails when CycleCloud sees another number of GPUs in a machine type, because Slurm would then get no
    GPUs in C(gres.conf).
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
    details: It changes nothing.
  idempotent:
    support: full
options:
  gpus:
    description:
      - Expected number of GPUs of one node, by the name of the node array. Arrays that are not listed are not examined.
    type: dict
    default: {}
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_cluster
  - module: hpcai.gpu_cluster.cyclecloud_nodes_info
notes:
  - Tested with an emulator of the interface; not yet run against a CycleCloud server.
"""
EXAMPLES = r"""
- name: Read the cluster ndv4, with the login from the environment
  hpcai.gpu_cluster.cyclecloud_cluster_info:
    cluster: ndv4
  register: ndv4

- name: Fail unless CycleCloud sees eight GPUs in the nodes of the array gpu
  hpcai.gpu_cluster.cyclecloud_cluster_info:
    url: https://cyclecloud.example.org
    username: hpcadmin
    password: "{{ cyclecloud_password }}"
    ca_path: /etc/ssl/certs/cyclecloud.pem
    cluster: ndv4
    gpus:
      gpu: 8

- name: Wait until the cluster is ready
  hpcai.gpu_cluster.cyclecloud_cluster_info:
    cluster: ndv4
  register: ndv4
  until: ndv4.ready | default(false)
  retries: 120
  delay: 15

- name: Show how many nodes can be added to the array gpu, and what limits them
  ansible.builtin.debug:
    msg: "{{ item.machine_type }}: {{ item.available }} ({{ item.limit }})"
  loop: "{{ ndv4.node_arrays.gpu }}"
"""
RETURN = r"""
exists:
  description:
    - Whether the cluster exists. When it does not, it is the only result.
  returned: success
  type: bool
  sample: true
state:
  description:
    - State of the cluster as CycleCloud names it.
  returned: when the cluster exists
  type: str
  sample: Started
target_state:
  description:
    - State to which CycleCloud brings the cluster.
  returned: when the cluster exists
  type: str
  sample: Started
ready:
  description:
    - Whether the target state is C(Started) and all schedulers are Ready.
  returned: when the cluster exists
  type: bool
  sample: true
failed_nodes:
  description:
    - Schedulers that failed, each with the message of CycleCloud.
  returned: when the cluster exists
  type: list
  elements: str
  sample: []
schedulers:
  description:
    - The schedulers, each as in RV(hpcai.gpu_cluster.cyclecloud_nodes_info#module:nodes).
  returned: when the cluster exists
  type: list
  elements: dict
  sample:
    - {address: 10.80.1.4, cores: 8, gpus: null, hostname: ndv4-scheduler, id: 7d3e, instance_id: 9c2e,
       keep_alive: false, machine_type: Standard_D8ads_v5, message: "", name: scheduler, nodearray: scheduler,
       placement_group: null, role: scheduler, spot: false, state: Ready, target_state: Started}
login:
  description:
    - The login nodes, each as in RV(hpcai.gpu_cluster.cyclecloud_nodes_info#module:nodes).
  returned: when the cluster exists
  type: list
  elements: dict
  sample: []
node_arrays:
  description:
    - By the name of each node array, a list of its machine types with the following keys.
    - C(machine_type), C(cores), C(gpus) and C(infiniband) are what CycleCloud states about the size, V(null) where it
      states nothing. C(spot) tells whether the nodes are Spot VMs.
    - C(valid) tells whether CycleCloud can use the machine type, C(invalid_reason) why not.
    - C(active) is the number of nodes that run or start, C(available) the number that can be added, and C(limit) what
      allows no more, such as C(node array), C(family quota) or C(regional quota).
    - C(max) is the lowest of the limits of bucket, node array, family and region. Spot nodes do not count against the
      family.
    - C(capacity_failed_seconds_ago) is the number of seconds since Azure last had no capacity, V(null) for never.
  returned: when the cluster exists
  type: dict
  sample:
    gpu:
      - {active: 0, available: 16, capacity_failed_seconds_ago: null, cores: 96, gpus: 8, infiniband: true,
         invalid_reason: "", limit: node array, machine_type: Standard_ND96asr_v4, max: 16, spot: false, valid: true}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import cluster_state, rest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import CycleCloudError, client

SPEC: dict[str, dict[str, t.Any]] = {**rest.SPEC, "gpus": {"type": "dict", "default": {}}}


def perform(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the state of a cluster, and what is wrong with the GPUs of its nodes."""
    try:
        gpus = {array: int(count) for array, count in params["gpus"].items()}
    except (TypeError, ValueError) as exc:
        raise CycleCloudError(f"gpus holds no numbers: {params['gpus']}") from exc
    try:
        status = client(params).status(params["cluster"])
    except CycleCloudError as exc:
        if exc.status == 404:
            return {"exists": False, "problems": []}
        raise
    problems = cluster_state.gpu_problems(status, gpus)
    return {"exists": True, **cluster_state.cluster(status), "problems": problems}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    name = module.params["cluster"]
    try:
        result = perform(module.params)
    except CycleCloudError as exc:
        module.fail_json(msg=f"Cluster {name} cannot be read: {exc}")
    problems = result.pop("problems")
    if problems:
        module.fail_json(msg=f"Cluster {name} has no usable GPUs: {'; '.join(problems)}", **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
