#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: opt_benchmark_info
short_description: Plan metaseq's OPT benchmark, or read and judge what one measured
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Without O(path) it says what each GPU would get, and refuses GPUs that cannot train the model.
  - With O(path) it reads the training log of the job, and judges its words per second.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  model: {type: str, default: 125m, description: "Model, V(8m) to V(175b)."}
  nodes: {type: int, default: 1, description: Number of nodes.}
  gpus_per_node: {type: int, default: 8, description: GPUs of a node.}
  path: {type: path, description: The training log.}
  job: {type: dict, default: {}, description: "The job, as RV(hpcai.gpu_cluster.slurm_job#module:job) describes it."}
  expect: {type: list, elements: dict, default: [], description: Expectations of a profile.}
  run: {type: str, description: "Identifier of the run, for the record."}
"""

EXAMPLES = r"""
- name: Judge the benchmark
  hpcai.gpu_cluster.opt_benchmark_info:
    path: /shared/opt/train.log
    job: "{{ submitted.job }}"
    expect: "{{ profile.expect }}"
"""

RETURN = r"""
plan:
  description: The model, and what each GPU gets of it.
  type: dict
  returned: success
  sample: {model: 125m, layers: 12, width: 768, heads: 12, gpus: 8, sequences_per_gpu: 64, words_per_update: 524288}
words_per_second: {description: "Median of the later half of the intervals.", type: float, returned: with O(path)}
check: {description: The check record., type: dict, returned: with O(path)}
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import metaseq
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import opened
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import opt


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "default": "125m"},
            "nodes": {"type": "int", "default": 1},
            "gpus_per_node": {"type": "int", "default": 8},
            "path": {"type": "path"},
            "job": {"type": "dict", "default": {}},
            "expect": {"type": "list", "elements": "dict", "default": []},
            "run": {"type": "str"},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        planned = opt.plan(params["model"], params["nodes"], params["gpus_per_node"])
    except opt.OptError as exc:
        module.fail_json(msg=f"OPT cannot be trained: {exc}")
    if not params["path"]:
        module.exit_json(changed=False, plan=planned)
    log: Log[metaseq.Run] = Log([], None)
    try:
        with opened(params["path"]) as text:
            log = metaseq.parse(text)
    except OSError as exc:
        # A job that failed early has none, and that it failed is the news.
        if params["job"].get("state") == "COMPLETED":
            module.fail_json(msg=f"The log {params['path']} cannot be read: {exc.strerror}")
    try:
        expected = opt.expectations(params["expect"], params["model"])
        check = opt.check(log, planned, params["job"], expected, time=time.time(), run=params["run"])
    except ValueError as exc:
        module.fail_json(msg=f"Cannot judge the benchmark: {exc}")
    speed = log.runs[-1].words_per_second if log.runs else None
    module.exit_json(changed=False, plan=planned, words_per_second=speed, check=check)


if __name__ == "__main__":
    main()
