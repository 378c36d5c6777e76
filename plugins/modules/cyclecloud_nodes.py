#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change nodes of a CycleCloud cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_nodes
short_description: Create, start, stop, remove, restart or reimage nodes of a CycleCloud cluster
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Uses the documented REST interface of CycleCloud 8.7 or later, from any machine that reaches it.
  - Every request carries an ID, except those for O(cores), which name a total. When an answer is lost, the module
    reads whether CycleCloud has the request, so that nothing happens twice.
  - More nodes than the limits of CycleCloud allow are refused before anything is created.
  - It fails for a node that fails, with the message of CycleCloud and, for common messages, what to do.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows the state of the nodes that change.
  idempotent:
    support: partial
    details: V(restarted) and V(reimaged) happen each time, or once for each O(request_id).
options:
  state:
    description:
      - V(present) creates the nodes that are missing of O(names), O(count) or O(cores) in O(nodearray), and waits until
        they are Ready. It never removes nodes.
      - V(started) starts nodes that exist, and tries failed ones again.
      - V(shut_down) does what the shutdown policy of the node array says, V(deallocated) stops VMs and keeps them.
      - V(terminated) and V(absent) delete VMs. V(terminated) sends C(terminate), V(absent) sends C(remove).
      - V(restarted) restarts VMs, V(reimaged) gives them a new system disk.
      - A node that is on its way to its state needs no request and is waited for.
    type: str
    choices:
      - present
      - started
      - shut_down
      - deallocated
      - terminated
      - absent
      - restarted
      - reimaged
    default: present
  names:
    description:
      - Names of the nodes. With V(present) a new name has to end with a number, such as V(gpu-3), and a name that
        exists but is not started is an error. With V(terminated), V(absent) and V(shut_down) a name that does not
        exist is ignored, with the other states it is an error.
    type: list
    elements: str
  nodearray:
    description:
      - Name of the node array. Required by O(state=present). With the other states it means all nodes of the array,
        unless O(names) is given.
    type: str
  count:
    description:
      - Number of nodes of O(nodearray) that have to run or start, those that exist included.
    type: int
  cores:
    description:
      - Number of cores that O(nodearray) has to have in all. CycleCloud chooses the machine types, so it excludes
        O(machine_type) and O(placement_group).
    type: int
  machine_type:
    description:
      - VM size of new nodes, which must be one of the node array. The default is the first of the array.
    type: str
  placement_group:
    description:
      - Label of the placement group of new nodes. Nodes with the same label share an InfiniBand switch.
    type: str
  attributes:
    description:
      - Further attributes of new nodes, by their names in CycleCloud.
    type: dict
    default: {}
  partial:
    description:
      - Whether fewer new nodes than requested are a success, when limits or CycleCloud allow no more.
    type: bool
    default: false
  request_id:
    description:
      - ID for the request, such as that of a maintenance. When CycleCloud has a request of this ID, nothing is sent. By
        default every request gets a new ID. Requests for O(cores) carry no ID.
    type: str
  wait:
    description:
      - Whether to wait until the nodes reach their state.
    type: bool
    default: true
  wait_timeout:
    description:
      - Seconds after which waiting fails. CycleCloud gives the boot of a node up to 30 minutes.
    type: float
    default: 2400
  poll:
    description:
      - Seconds between two readings.
    type: float
    default: 10
  settle:
    description:
      - Seconds within which a node that restarts or is reimaged is expected to stop being Ready. A node that was Ready
        all that time counts as done. More than 60 has the effect of 60.
    type: float
    default: 60
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_nodes_info
  - module: hpcai.gpu_cluster.cyclecloud_cluster_info
notes:
  - Tested with an emulator of the interface; not yet run against a CycleCloud server.
"""
EXAMPLES = r"""
- name: Run four nodes in the array gpu
  hpcai.gpu_cluster.cyclecloud_nodes:
    cluster: ndv4
    nodearray: gpu
    count: 4

- name: Create two named nodes under one InfiniBand switch
  hpcai.gpu_cluster.cyclecloud_nodes:
    cluster: ndv4
    nodearray: gpu
    names:
      - gpu-7
      - gpu-8
    placement_group: rack-a

- name: Reimage a node once for this maintenance, however often the play runs
  hpcai.gpu_cluster.cyclecloud_nodes:
    cluster: ndv4
    names:
      - gpu-3
    state: reimaged
    request_id: 6d5bc5a4-2a28-4b4c-8f8f-6a86b4b1b6c0
    wait_timeout: 3600

- name: Remove every node of the array gpu without waiting
  hpcai.gpu_cluster.cyclecloud_nodes:
    cluster: ndv4
    nodearray: gpu
    state: absent
    wait: false
"""
RETURN = r"""
nodes:
  description:
    - Every node of the cluster after the task, as in RV(hpcai.gpu_cluster.cyclecloud_nodes_info#module:nodes). In check
      mode as they are now.
  returned: success, and when nodes do not reach their state
  type: list
  elements: dict
  sample:
    - {address: 10.80.1.6, cores: 96, gpus: 8, hostname: ndv4-gpu-1, id: 5a1f, instance_id: 9c2e, keep_alive: false,
       machine_type: Standard_ND96asr_v4, message: "", name: gpu-1, nodearray: gpu, placement_group: null,
       role: execute, spot: false, state: Ready, target_state: Started}
request_id:
  description:
    - ID of the request that was sent.
  returned: when a request with an ID was sent
  type: str
  sample: 6d5bc5a4-2a28-4b4c-8f8f-6a86b4b1b6c0
added:
  description:
    - Number of nodes that CycleCloud created.
  returned: when nodes had to be created, outside check mode
  type: int
  sample: 4
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import rest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.nodes import ROUTES, NodesTask
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import CycleCloudError, client

SPEC: dict[str, dict[str, t.Any]] = {
    **rest.SPEC,
    "state": {"type": "str", "choices": ["present", *ROUTES], "default": "present"},
    "names": {"type": "list", "elements": "str"},
    "nodearray": {"type": "str"},
    "count": {"type": "int"},
    "cores": {"type": "int"},
    "machine_type": {"type": "str"},
    "placement_group": {"type": "str"},
    "attributes": {"type": "dict", "default": {}},
    "partial": {"type": "bool", "default": False},
    "request_id": {"type": "str"},
    "wait": {"type": "bool", "default": True},
    "wait_timeout": {"type": "float", "default": 2400},
    "poll": {"type": "float", "default": 10},
    "settle": {"type": "float", "default": 60},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=SPEC,
        required_if=[("state", "present", ["nodearray"]), ("state", "present", ["names", "count", "cores"], True)],
        required_one_of=[("names", "nodearray")],
        mutually_exclusive=[("names", "count", "cores"), ("cores", "machine_type"), ("cores", "placement_group")],
        supports_check_mode=True,
    )
    params = module.params
    try:
        result = NodesTask(client(params), params).run(module.check_mode)
    except CycleCloudError as exc:
        module.fail_json(msg=f"Nodes of cluster {params['cluster']} cannot be {params['state']}: {exc}")
    problems = result.pop("problems")
    if problems:
        message = f"Nodes of cluster {params['cluster']} are not {params['state']}: {'; '.join(problems)}"
        module.fail_json(msg=message, **result)
    module.exit_json(**{key: value for key, value in result.items() if value is not None})


if __name__ == "__main__":
    main()
