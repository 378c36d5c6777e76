#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the state of a CycleCloud cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_cluster_info
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: State of a CycleCloud cluster, what nodes it can have, and whether their GPUs are seen
description:
  - Asks the documented REST interface of CycleCloud 8.7 or later. So far it has only met an emulator.
  - Fails where CycleCloud sees another number of GPUs than expected, since Slurm would then know of none.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.cyclecloud]
attributes:
  check_mode: {support: full}
  diff_mode: {support: N/A, details: It changes nothing.}
  idempotent: {support: full}
options:
  gpus:
    description: "How many GPUs a node of each node array has, as C(node array: GPUs)."
    type: dict
    default: {}
"""
EXAMPLES = r"""
- name: Check what CycleCloud sees
  hpcai.gpu_cluster.cyclecloud_cluster_info:
    cluster: nd
    gpus: {gpu: 8}
"""
RETURN = r"""
exists: {description: Whether there is such a cluster., returned: success, type: bool}
state: {description: "Its state, such as V(Started).", returned: when it exists, type: str}
target_state: {description: "What it shall be.", returned: when it exists, type: str}
ready: {description: Whether it is started and its schedulers are ready., returned: when it exists, type: bool}
failed_nodes: {description: Schedulers that failed and why., returned: when it exists, type: list, elements: str}
schedulers: {description: The nodes with this role., returned: when it exists, type: list, elements: dict}
login: {description: The nodes with this role., returned: when it exists, type: list, elements: dict}
node_arrays:
  description:
    - The machine types of each node array. C(available) nodes can be added, and C(limit) says what does not let more.
    - >-
      C(max) is the lowest of what the bucket, the node array, the family and the region allow; a spot node is not
      counted to its family.
  returned: when it exists
  type: dict
  sample:
    gpu:
      - {active: 0, available: 16, capacity_failed_seconds_ago: null, cores: 96, gpus: 8, infiniband: true,
         invalid_reason: "", limit: node array, machine_type: Standard_ND96asr_v4, max: 16, spot: false, valid: true}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import facts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.answers import CycleCloudError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.options import SPEC, client


def main() -> None:
    module = AnsibleModule(argument_spec={**SPEC, "gpus": {"type": "dict", "default": {}}}, supports_check_mode=True)
    name = module.params["cluster"]
    try:
        status = client(module.params).status(name)
        wanted = {array: int(count) for array, count in module.params["gpus"].items()}
    except CycleCloudError as exc:
        if exc.status == 404:
            module.exit_json(changed=False, exists=False)
        module.fail_json(msg=f"Cluster {name} cannot be read: {exc}")
    except (TypeError, ValueError):
        module.fail_json(msg=f"gpus holds no numbers: {module.params['gpus']}")
    problems = facts.gpu_problems(status, wanted)
    result = facts.cluster(status)
    if problems:
        module.fail_json(msg=f"Cluster {name} has no usable GPUs: {'; '.join(problems)}", **result)
    module.exit_json(changed=False, exists=True, **result)


if __name__ == "__main__":
    main()
