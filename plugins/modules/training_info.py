#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: training_info
short_description: Read and judge what a training job left behind
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Joins the result file of a training job with Slurm's facts about the job, and judges whether the model learned and
    whether every node took part.
  - A job that failed, or whose result cannot be read, is returned as a check with the verdict V(fail) or V(error).
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  path: {type: path, required: true, description: The JSON file that rank 0 wrote.}
  job: {type: dict, required: true, description: "The job, as RV(hpcai.gpu_cluster.slurm_job#module:job) describes it."}
  nodes: {type: int, required: true, description: Number of nodes that was asked for.}
  max_loss_ratio:
    {type: float, default: 0.5, description: "Last loss over first loss, at most; a tenth of the history is averaged."}
  expect: {type: list, elements: dict, default: [], description: "Further expectations of check C(training)."}
  run: {type: str, description: "Identifier of the run, for the record."}
"""

EXAMPLES = r"""
- name: Read how the training went
  hpcai.gpu_cluster.training_info:
    path: /shared/train/result.json
    job: "{{ submitted.job }}"
    nodes: 2
"""

RETURN = r"""
training:
  type: dict
  returned: success
  description:
    - Loss history, throughput, ranks and the job's facts.
    - C(restarts) counts the starts after the first, the last of which went on from step C(resumed_from), and
      C(lost_steps) the steps that had to be done again.
  sample:
    {job_id: 7, state: COMPLETED, world_size: 2, loss: [2.3, 0.1], ranks: [{rank: 0, host: c1, cpus: 0-23}],
     restarts: 1, resumed_from: 150, lost_steps: 12}
check: {type: dict, returned: success, description: The check record.}
"""

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs import training


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "job": {"type": "dict", "required": True},
            "nodes": {"type": "int", "required": True},
            "max_loss_ratio": {"type": "float", "default": 0.5},
            "expect": {"type": "list", "elements": "dict", "default": []},
            "run": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params = module.params
    result, problem = None, ""
    try:
        result = training.parse(Path(params["path"]).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        problem = f"{params['path']}: {exc}"
    found = training.describe(result, params["job"])
    expected = [*training.expectations(params["max_loss_ratio"], params["nodes"]), *params["expect"]]
    try:
        check = training.check(found, problem, expected, time=time.time(), run=params["run"])
    except ValueError as exc:
        module.fail_json(msg=f"Cannot judge the training: {exc}")
    module.exit_json(changed=False, training={**found, "learned": training.learned(check)}, check=check)


if __name__ == "__main__":
    main()
