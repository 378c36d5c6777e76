#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read nodes of a CycleCloud cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_nodes_info
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Nodes of a CycleCloud cluster
description:
  - Asks the documented REST interface of CycleCloud 8.7 or later. So far it has only met an emulator.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.cyclecloud]
attributes:
  check_mode: {support: full}
  diff_mode: {support: N/A, details: It changes nothing.}
  idempotent: {support: full}
options:
  names: {description: Only these., type: list, elements: str}
  nodearray: {description: Only those of this node array or with this template name., type: str}
  states: {description: "Only those in these states, such as V(Ready).", type: list, elements: str}
  request_id: {description: "Only those that the request with this ID was about.", type: str}
"""
EXAMPLES = r"""
- name: Wait until the scheduler is ready
  hpcai.gpu_cluster.cyclecloud_nodes_info:
    cluster: nd
    names: [scheduler]
  register: scheduler
  until: scheduler.nodes[0].state == 'Ready' or scheduler.nodes[0].state == 'Failed'
  retries: 120
  delay: 15
"""
RETURN = r"""
nodes:
  description: The nodes, in the order of their names. C(gpus) is null where CycleCloud does not say.
  returned: success
  type: list
  elements: dict
  sample:
    - {address: 10.1.0.5, cores: 96, gpus: 8, hostname: nd-gpu-1, id: 5a1f, instance_id: 9c2e, keep_alive: false,
       machine_type: Standard_ND96asr_v4, message: "", name: gpu-1, nodearray: gpu, placement_group: null,
       role: execute, spot: false, state: Ready, target_state: Started}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.options import SPEC, client
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import CycleCloudError, quoted


def main() -> None:
    texts = {"type": "list", "elements": "str"}
    more = {"names": texts, "nodearray": {"type": "str"}, "states": texts, "request_id": {"type": "str"}}
    module = AnsibleModule(argument_spec={**SPEC, **more}, supports_check_mode=True)
    params = module.params
    try:
        asked = client(params)
        nodes = facts.nodes(asked.status(params["cluster"]))
        if params["request_id"]:
            path = f"/clusters/{quoted(params['cluster'])}/nodes"
            mine = {one["NodeId"] for one in asked.get(path, request_id=params["request_id"])["nodes"]}
            nodes = [one for one in nodes if one["id"] in mine]
    except CycleCloudError as exc:
        module.fail_json(msg=f"Nodes of cluster {params['cluster']} cannot be read: {exc}")
    for option, field in (("names", "name"), ("states", "state")):
        if params[option] is not None:
            nodes = [one for one in nodes if one[field] in params[option]]
    if params["nodearray"]:
        nodes = [one for one in nodes if one["nodearray"] == params["nodearray"]]
    module.exit_json(changed=False, nodes=nodes)


if __name__ == "__main__":
    main()
