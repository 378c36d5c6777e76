#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change nodes of a CycleCloud cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_nodes
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Create, start, stop, remove, restart or reimage nodes of a CycleCloud cluster
description:
  - Uses the documented REST interface of CycleCloud 8.7 or later, from any machine that reaches it.
  - Every request carries an ID. After an answer that did not come CycleCloud is asked whether it has that ID, so that
    nothing happens twice.
  - More nodes than the limits of CycleCloud leave are refused before anything is created. A node that fails is named
    with the message of CycleCloud.
  - So far it has only met an emulator.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.cyclecloud]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent:
    support: partial
    details: V(restarted) and V(reimaged) happen each time, or once for each O(request_id).
options:
  state:
    description:
      - V(present) creates what is missing of O(names), O(count) or O(cores). It never removes nodes.
      - V(shut_down) does what the node's shutdown policy says. V(terminated) and V(absent) remove nodes of node arrays.
    type: str
    choices: [present, started, shut_down, deallocated, terminated, absent, restarted, reimaged]
    default: present
  names: {description: "The nodes. Those that V(present) creates end with a number.", type: list, elements: str}
  nodearray: {description: "The node array, all its nodes without O(names); needed by V(present).", type: str}
  count: {description: "How many nodes O(nodearray) shall have that run or start.", type: int}
  cores: {description: "How many cores it shall have instead, of machine types that CycleCloud chooses.", type: int}
  machine_type: {description: "One of those of the node array, the first without.", type: str}
  placement_group: {description: "Label of nodes that share an InfiniBand switch.", type: str}
  attributes: {description: "More attributes of new nodes.", type: dict, default: {}}
  partial: {description: Be content with fewer nodes than wanted., type: bool, default: false}
  request_id: {description: "An own ID, such as that of a maintenance; used once.", type: str}
  wait: {description: Wait until the nodes are as wanted., type: bool, default: true}
  wait_timeout: {description: Seconds for it; a boot may take CycleCloud 30 minutes., type: float, default: 2400}
  poll: {description: Seconds between two looks., type: float, default: 10}
  settle: {description: "Seconds within which a node that restarts is seen to, 60 at most.", type: float, default: 60}
"""
EXAMPLES = r"""
- name: Have four nodes
  hpcai.gpu_cluster.cyclecloud_nodes:
    cluster: nd
    nodearray: gpu
    count: 4

- name: Remove one
  hpcai.gpu_cluster.cyclecloud_nodes:
    cluster: nd
    names: [gpu-3]
    state: absent
"""
RETURN = r"""
nodes:
  description: Every node of the cluster as in RV(hpcai.gpu_cluster.cyclecloud_nodes_info#module:nodes).
  returned: always
  type: list
  elements: dict
request_id: {description: ID of the request that was sent., returned: when one was sent, type: str}
added: {description: How many nodes were created., returned: when some were to be, type: int}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.answers import CycleCloudError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.nodes import ROUTES
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.nodes_task import Task
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.options import SPEC, client


def main() -> None:
    number, text = {"type": "float"}, {"type": "str"}
    module = AnsibleModule(
        argument_spec={
            **SPEC,
            "state": {"type": "str", "choices": ["present", *ROUTES], "default": "present"},
            "names": {"type": "list", "elements": "str"},
            "nodearray": text,
            "count": {"type": "int"},
            "cores": {"type": "int"},
            "machine_type": text,
            "placement_group": text,
            "attributes": {"type": "dict", "default": {}},
            "partial": {"type": "bool", "default": False},
            "request_id": text,
            "wait": {"type": "bool", "default": True},
            "wait_timeout": {**number, "default": 2400},
            "poll": {**number, "default": 10},
            "settle": {**number, "default": 60},
        },
        required_if=[("state", "present", ["nodearray"]), ("state", "present", ["names", "count", "cores"], True)],
        required_one_of=[("names", "nodearray")],
        mutually_exclusive=[("names", "count", "cores"), ("cores", "machine_type"), ("cores", "placement_group")],
        supports_check_mode=True,
    )
    params = module.params
    try:
        result = Task(client(params), params).run(module.check_mode)
    except CycleCloudError as exc:
        module.fail_json(msg=f"Nodes of cluster {params['cluster']} cannot be {params['state']}: {exc}")
    problems = result.pop("problems")
    if problems:
        told = f"Nodes of cluster {params['cluster']} are not {params['state']}: {'; '.join(problems)}"
        module.fail_json(msg=told, **result)
    module.exit_json(**{key: value for key, value in result.items() if value is not None})


if __name__ == "__main__":
    main()
