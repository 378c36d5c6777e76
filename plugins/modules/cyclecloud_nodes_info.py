#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read nodes of a CycleCloud cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_nodes_info
short_description: Read the nodes of a CycleCloud cluster
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Reads nodes through the documented REST interface of CycleCloud 8.7 or later, from any machine that reaches it.
  - Without O(names), O(nodearray), O(states) and O(request_id) it returns all nodes; with several of them the nodes
    that fit all. A cluster that does not exist is an error, a node that does not exist is left out.
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
  names:
    description:
      - Only nodes with these names. An empty list means none.
    type: list
    elements: str
  nodearray:
    description:
      - Only nodes of this node array, or with this template name, such as V(scheduler).
    type: str
  states:
    description:
      - Only nodes in these states, such as V(Ready) or V(Failed), as CycleCloud writes them.
    type: list
    elements: str
  request_id:
    description:
      - Only nodes of the request with this ID, such as
        RV(hpcai.gpu_cluster.cyclecloud_nodes#module:request_id).
    type: str
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_nodes
  - plugin: hpcai.gpu_cluster.cyclecloud
    plugin_type: inventory
notes:
  - Tested with an emulator of the interface; not yet run against a CycleCloud server.
"""
EXAMPLES = r"""
- name: Wait until the scheduler is Ready or has failed
  hpcai.gpu_cluster.cyclecloud_nodes_info:
    cluster: ndv4
    names:
      - scheduler
  register: scheduler
  until: scheduler.nodes | map(attribute='state') | intersect(['Ready', 'Failed']) | length > 0
  retries: 120
  delay: 15

- name: Read the failed nodes of the array gpu
  hpcai.gpu_cluster.cyclecloud_nodes_info:
    cluster: ndv4
    nodearray: gpu
    states:
      - Failed
  register: failed

- name: Show why they failed
  ansible.builtin.debug:
    msg: "{{ item.name }}: {{ item.message }}"
  loop: "{{ failed.nodes }}"
  loop_control:
    label: "{{ item.name }}"

- name: Read the nodes that an earlier request created
  hpcai.gpu_cluster.cyclecloud_nodes_info:
    cluster: ndv4
    request_id: "{{ created.request_id }}"
  register: new
"""
RETURN = r"""
nodes:
  description:
    - The nodes, sorted by name.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description:
        - ID of the node in CycleCloud.
      returned: always
      type: str
      sample: 5a1f0c9e-1f0e-4c8e-9a52-0d6f9f0f7f11
    name:
      description:
        - Name of the node in CycleCloud, which is unique in the cluster.
      returned: always
      type: str
      sample: gpu-1
    nodearray:
      description:
        - Node array, or the template name of a single node.
      returned: always
      type: str
      sample: gpu
    role:
      description:
        - V(scheduler), V(login), V(execute), or what the Slurm configuration of the node says; empty when unknown.
      returned: always
      type: str
      sample: execute
    state:
      description:
        - State of the node, such as V(Ready), V(Failed) or V(Off).
      returned: always
      type: str
      sample: Ready
    target_state:
      description:
        - State to which CycleCloud brings the node, such as V(Started) or V(Terminated).
      returned: always
      type: str
      sample: Started
    message:
      description:
        - Message of CycleCloud about the state, or empty.
      returned: always
      type: str
      sample: ""
    machine_type:
      description:
        - VM size.
      returned: always
      type: str
      sample: Standard_ND96asr_v4
    placement_group:
      description:
        - Label of its placement group, V(null) without one.
      returned: always
      type: str
      sample: rack-a
    hostname:
      description:
        - Host name, V(null) before the node has booted.
      returned: always
      type: str
      sample: ndv4-gpu-1
    address:
      description:
        - Private IP address, V(null) before the node has one.
      returned: always
      type: str
      sample: 10.80.1.6
    instance_id:
      description:
        - ID of the VM in Azure.
      returned: always
      type: str
      sample: 9c2e5f0ab1c24a3c8e0f5d7b6a493c21
    cores:
      description:
        - Number of cores.
      returned: always
      type: int
      sample: 96
    gpus:
      description:
        - Number of GPUs, V(null) where CycleCloud does not state it.
      returned: always
      type: int
      sample: 8
    spot:
      description:
        - Whether it is a Spot VM.
      returned: always
      type: bool
      sample: false
    keep_alive:
      description:
        - Whether autoscaling must not remove it.
      returned: always
      type: bool
      sample: false
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import cluster_state, rest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import CycleCloudError, client, quoted

SPEC: dict[str, dict[str, t.Any]] = {
    **rest.SPEC,
    "names": {"type": "list", "elements": "str"},
    "nodearray": {"type": "str"},
    "states": {"type": "list", "elements": "str"},
    "request_id": {"type": "str"},
}


def perform(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the nodes of a cluster that fit the options."""
    api = client(params)
    nodes = cluster_state.nodes(api.status(params["cluster"]))
    if params["request_id"]:
        answer = api.get(f"/clusters/{quoted(params['cluster'])}/nodes", request_id=params["request_id"])
        requested = {node["NodeId"] for node in answer["nodes"]}
        nodes = [node for node in nodes if node["id"] in requested]
    for option, field in (("names", "name"), ("states", "state")):
        if params[option] is not None:
            nodes = [node for node in nodes if node[field] in params[option]]
    if params["nodearray"]:
        nodes = [node for node in nodes if node["nodearray"] == params["nodearray"]]
    return {"nodes": nodes}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params)
    except CycleCloudError as exc:
        module.fail_json(msg=f"Nodes of cluster {module.params['cluster']} cannot be read: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
