#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: collective_test
short_description: Measure and judge collectives between nodes with torch.distributed
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Starts one Slurm step over several nodes and measures collectives in it, without nccl-tests and without GPUs.
  - Sizes, algbw and busbw mean what they mean in nccl-tests. Every size is checked for wrong values.
  - A measurement that cannot be trusted (too few ranks, all on one host, no answer in time) is returned as a check
    with the verdict V(error); a single rank, or nodes that jobs have, as V(skipped). The module itself fails only for
    options that make no sense.
  - The step takes whole nodes (C(exclusive)) and waits a minute for them (C(immediate)), unless O(srun_options) differ.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.measure]
attributes:
  check_mode: {support: none, details: [It would start a Slurm step.]}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  nodes: {type: int, default: 2, description: Number of nodes.}
  ntasks_per_node: {type: int, default: 1, description: Ranks on every node; the number of GPUs with V(nccl).}
  backend: {type: str, default: gloo, choices: [gloo, nccl], description: Backend of torch.distributed.}
  operations:
    {type: list, elements: str, default: [all_reduce, all_to_all], choices: [all_reduce, all_to_all],
     description: Collectives to measure.}
  min_size: {type: int, default: 8, description: Smallest size in bytes.}
  max_size: {type: int, default: 67108864, description: Largest size in bytes; it is always measured.}
  factor: {type: int, default: 4, description: From one size to the next.}
  warmup: {type: int, default: 5, description: Untimed operations per size.}
  iterations: {type: int, default: 20, description: Timed operations per size.}
  python: {type: path, default: python3, description: Interpreter on the nodes that can import torch.}
  busy: {type: list, elements: str, default: [], description: "Nodes left out because they have jobs, for the record."}
  partition: {type: str, description: Slurm partition.}
  srun_options:
    {type: dict, default: {}, description: "Further long options of srun; underscores become dashes, true is a flag."}
  environment: {type: dict, default: {}, description: "Variables for the ranks, such as E(GLOO_SOCKET_IFNAME)."}
  timeout: {type: float, default: 600, description: "Seconds for everything, the wait for nodes included."}
"""

EXAMPLES = r"""
- name: Measure the network between two nodes
  hpcai.gpu_cluster.collective_test:
    nodes: 2
    python: /shared/pytorch/current/bin/python
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'lab').expect }}"
"""

RETURN = r"""
checks: {type: list, elements: dict, returned: success, description: One check record per collective.}
rows:
  type: list
  elements: dict
  returned: success
  description: One entry per collective and size, bandwidths in GB/s.
  sample: [{collective: all_reduce, size: 512, bytes: 512, time_us: 91.2, algbw: 0.0056, busbw: 0.0056, wrong: 0}]
peak: {type: dict, returned: success, description: Highest busbw per collective, sample: {all_reduce: 1.03}}
ranks:
  type: list
  elements: dict
  returned: success
  description: Rank, Slurm node and machine of all that took part.
  sample: [{rank: 0, host: c1, machine: c1}]
argv: {type: list, elements: str, returned: success, description: The srun command line.}
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _measure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.collective import request as asked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.collective import result as collective


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **asked.SPEC,
            "python": {"type": "path", "default": "python3"},
            "busy": {"type": "list", "elements": "str", "default": []},
            "partition": {"type": "str"},
            "srun_options": {"type": "dict", "default": {}},
            "environment": {"type": "dict", "default": {}},
            "timeout": {"type": "float", "default": 600},
            **_measure.SPEC,
        },
        supports_check_mode=False,
    )
    params = module.params
    request = asked.Request(**{name: params[name] for name in asked.SPEC})
    options = {"partition": params["partition"], **params["srun_options"]}
    variables = {name: str(value) for name, value in params["environment"].items()}
    context = {"time": time.time(), "run": params["run"], "profile": params["profile"], "busy": params["busy"]}
    try:
        asked.validate(request, params["expect"])
        if request.nodes * request.ntasks_per_node == 1:
            module.exit_json(changed=False, argv=[], **collective.skip(request, context))
        srun = module.get_bin_path("srun", required=True)
        argv = asked.command(srun, params["python"], request, options, params["timeout"])
        outcome = run(argv, params["timeout"], asked.source(), variables)
        result = collective.result(outcome, request, params["expect"], {**context, "argv": argv})
    except ValueError as exc:
        module.fail_json(msg=f"Cannot measure collectives: {exc}")
    module.exit_json(changed=False, argv=argv, **result)


if __name__ == "__main__":
    main()
