#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: opt_benchmark_info
short_description: Plan the OPT benchmark of metaseq, or judge the log of a run
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Without O(path) it returns what each GPU gets, and fails for GPUs that cannot train the model.
  - With O(path) it also reads the training log of the job and judges its words per second in a check record.
  - The sizes of models and batches are those of metaseq, with sequences of 2048 tokens. A benchmark has 50 updates.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  model:
    description:
      - OPT model, one of V(8m), V(125m), V(350m), V(760m), V(1.3b), V(2.7b), V(6.7b), V(13b), V(30b), V(66b) and
        V(175b). Each is split among 2, 4 or 8 GPUs, by which the number of GPUs has to be divisible.
    type: str
    default: 125m
  nodes:
    description:
      - Number of nodes, at least 1.
    type: int
    default: 1
  gpus_per_node:
    description:
      - Number of GPUs of each node, at least 2.
    type: int
    default: 8
  path:
    description:
      - Path of the training log. Of several runs in it the last is judged. A log that is missing is an error only when
        O(job) ended as C(COMPLETED).
    type: path
  job:
    description:
      - Slurm job, as RV(hpcai.gpu_cluster.slurm_job#module:job) describes it. The check fails unless its C(state) is
        C(COMPLETED), whatever the log holds.
    type: dict
    default: {}
  expect:
    description:
      - Expectations of a profile, C(expect) of the lookup P(hpcai.gpu_cluster.sku_profile#lookup). Those for
        C(opt_benchmark) and O(model) are compared. That all 50 updates were made is always expected.
    type: list
    elements: dict
    default: []
  gpu:
    description:
      - Model of the GPUs as profiles call it, C(gpu.model). Where others have published words per second of O(model) on
        that GPU, the record has the share of it that was reached, and the source.
    type: str
    default: ""
    version_added: 0.1.0
  run:
    description:
      - Identifier of the run of the collection, for the record.
    type: str
seealso:
  - module: hpcai.gpu_cluster.slurm_job
"""

EXAMPLES = r"""
- name: Fail unless four nodes with eight GPUs can train the model with 1.3 billion parameters
  hpcai.gpu_cluster.opt_benchmark_info:
    model: 1.3b
    nodes: 4
    gpus_per_node: 8
  register: planned

- name: Judge the benchmark with the expectations of the VM size
  hpcai.gpu_cluster.opt_benchmark_info:
    model: 1.3b
    nodes: 4
    path: /shared/opt/run-{{ submitted.job.job_id }}/train.log
    job: "{{ submitted.job }}"
    gpu: A100-SXM4-80GB
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96amsr_A100_v4').expect }}"
  register: benchmark

- name: Show the speed of each GPU
  ansible.builtin.debug:
    msg: "{{ (benchmark.words_per_second / benchmark.plan.gpus) | round }} words/s for each GPU"
"""

RETURN = r"""
plan:
  description:
    - The model and how it is trained.
  returned: success
  type: dict
  contains:
    model:
      description:
        - Name of the model.
      returned: always
      type: str
      sample: 125m
    parameters:
      description:
        - Number of its parameters, embeddings included.
      returned: always
      type: int
      sample: 125948928
    layers:
      description:
        - Number of layers.
      returned: always
      type: int
      sample: 12
    width:
      description:
        - Size of the embeddings.
      returned: always
      type: int
      sample: 768
    heads:
      description:
        - Number of attention heads.
      returned: always
      type: int
      sample: 12
    batch:
      description:
        - Tokens of a batch that metaseq sets for the model, of all GPUs together.
      returned: always
      type: int
      sample: 524288
    model_parallel:
      description:
        - Number of GPUs among which the model is split.
      returned: always
      type: int
      sample: 2
    gpus:
      description:
        - Number of GPUs of all nodes.
      returned: always
      type: int
      sample: 8
    sequences_per_gpu:
      description:
        - Sequences of one update for each replica of the model.
      returned: always
      type: int
      sample: 64
    words_per_update:
      description:
        - Tokens of one update of all replicas, at most C(batch).
      returned: always
      type: int
      sample: 524288
words_per_second:
  description:
    - Median of the words per second of all GPUs together in the later half of the logged intervals, V(null) when the
      log has none.
  returned: with O(path)
  type: float
  sample: 812345.6
check:
  description:
    - The check record. C(verdict) is V(pass), V(fail), V(warn), V(unjudged) or V(error), C(reason) says why, and
      C(metrics) has C(words_per_second), C(words_per_second_per_gpu), C(updates) and, with O(gpu),
      C(share_of_published), each with what was expected.
  returned: with O(path)
  type: dict
  sample:
    schema: 1
    check: opt_benchmark
    node: null
    run: 20261122-1
    verdict: fail
    class: software
    reason: "job 4711 ended as TIMEOUT, exit code 0:15"
    seconds: null
    scope: {group: [ndv4-gpu-1]}
    metrics: []
    context: {tool: metaseq, job_id: 4711, model: 125m, gpus: 8}
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import metaseq
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import opened
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import opt

SPEC: dict[str, dict[str, t.Any]] = {
    "model": {"type": "str", "default": "125m"},
    "nodes": {"type": "int", "default": 1},
    "gpus_per_node": {"type": "int", "default": 8},
    "path": {"type": "path"},
    "job": {"type": "dict", "default": {}},
    "expect": {"type": "list", "elements": "dict", "default": []},
    "gpu": {"type": "str", "default": ""},
    "run": {"type": "str"},
}


def perform(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the plan of a benchmark, and what its log and its job come to where there is a log."""
    plan = opt.plan(params["model"], params["nodes"], params["gpus_per_node"])
    if not params["path"]:
        return {"plan": plan}
    log: Log[metaseq.MetaseqRun] = Log([], None)
    try:
        with opened(params["path"]) as text:
            log = metaseq.parse(text)
    except OSError as exc:
        # A job that failed early has none, and that it failed is the news.
        if params["job"].get("state") == "COMPLETED":
            raise opt.OptError(f"the log {params['path']} cannot be read: {exc.strerror}") from exc
    expected = opt.expectations(params["expect"], params["model"])
    about = {"time": time.time(), "gpu": params["gpu"], "run": params["run"]}
    check = opt.check(log, plan, params["job"], expected, **about)
    return {"plan": plan, "words_per_second": log.runs[-1].words_per_second if log.runs else None, "check": check}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params)
    except ValueError as exc:
        module.fail_json(msg=f"OPT cannot be planned or judged: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
