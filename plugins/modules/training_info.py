#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: training_info
short_description: Read and judge the result of a training job
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Joins the result file of a training job with Slurm's facts about the job, and judges whether the model learned and
    whether every node and rank took part.
  - >-
    A job that did not complete is returned as a check record with the verdict V(fail), whose reason has what the
    training said itself of its end, a result that cannot be read as one with the verdict V(error). The task fails in
    neither case, only for a malformed expectation.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: It only reads.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  path:
    description:
      - >-
        JSON file that rank 0 wrote. C(world_size), C(ranks) (each with C(rank), C(host) and optionally C(cpus)),
        C(loss) (a list), C(samples_per_second) and C(seconds) are needed; C(model), C(backend), C(torch), C(steps),
        C(batch_size), C(samples), C(restarts), C(resumed_from) and C(lost_steps) are optional.
    type: path
    required: true
  job:
    description:
      - >-
        The job, as RV(hpcai.gpu_cluster.slurm_job#module:job) describes it. C(state), C(exit_code), C(job_id) and
        C(nodes) are used for the verdict.
    type: dict
    required: true
  nodes:
    description:
      - Number of nodes that were requested. The ranks must have run on exactly as many.
    type: int
    required: true
  max_loss_ratio:
    description:
      - >-
        Highest ratio of the last to the first loss that passes. Both are averaged over a tenth of the history, at least
        one value, so that a single batch does not decide.
      - A history of fewer than two values, or with one that is not finite, has no ratio, which counts as an error.
    type: float
    default: 0.5
  expect:
    description:
      - >-
        Further expectations of the check C(training), each with C(check), C(metric), C(op), C(value), C(unit) and
        C(source). Metrics with their units are C(samples_per_second) in V(samples/s), C(restarts) in V(restarts),
        C(lost_steps) in V(steps), C(loss_ratio) in V(ratio), C(silent_nodes) and C(nodes) in V(nodes), and
        C(missing_ranks) in V(ranks). Another unit is an error.
      - C(op) is one of C(>=), C(<=), C(>), C(<) and C(==). With C(verdict=warn) a miss is a warning.
    type: list
    elements: dict
    default: []
  run:
    description:
      - Identifier of the run, for the check record. It is V(null) there without this option.
    type: str
notes:
  - Role P(hpcai.gpu_cluster.training_job#role) calls this module.
seealso:
  - module: hpcai.gpu_cluster.slurm_job
  - plugin: hpcai.gpu_cluster.verdicts
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Train on two nodes
  hpcai.gpu_cluster.slurm_job:
    name: train
    script: "{{ lookup('ansible.builtin.file', 'train.sh') }}"
    options:
      nodes: 2
      exclusive: true
    chdir: /shared/train
    record: /shared/train/job.json
  register: submitted

- name: Judge how the training went
  hpcai.gpu_cluster.training_info:
    path: /shared/train/result.json
    job: "{{ submitted.job }}"
    nodes: 2
  register: trained

- name: Refuse a cluster whose training did not pass
  ansible.builtin.assert:
    that: trained.check.verdict == 'pass'
    fail_msg: "{{ trained.check.reason }}"

- name: Judge throughput and restarts too
  hpcai.gpu_cluster.training_info:
    path: /shared/train/result.json
    job: "{{ submitted.job }}"
    nodes: 2
    max_loss_ratio: 0.2
    expect:
      - check: training
        metric: samples_per_second
        op: ">="
        value: 20000
        unit: samples/s
        source: measured at acceptance
      - check: training
        metric: restarts
        op: "=="
        value: 0
        unit: restarts
        source: a training without faults
        verdict: warn
    run: 20260105T100000Z
"""

RETURN = r"""
training:
  description:
    - Loss history, throughput and ranks of the result, with the facts of the job.
    - >-
      C(model), C(backend), C(torch), C(steps), C(batch_size) and C(samples) are copied from the result. They are absent
      when it cannot be read, and V(null) when it lacks them.
  returned: success
  type: dict
  contains:
    last_lines:
      description:
        - The last lines, 15 at most, of a job that did not complete. They are those of the rank that was the first
          without a loss, where ranks have files of their own, or else those of the job's output.
      returned: always
      type: list
      elements: str
      sample: ["step 40 loss 0.4549", "the loss of rank 1 on gpu002 is nan at step 41"]
    job_id:
      description:
        - ID of the job.
      returned: always
      type: int
      sample: 7
    name:
      description:
        - Name of the job.
      returned: always
      type: str
      sample: train
    state:
      description:
        - State of the job.
      returned: always
      type: str
      sample: COMPLETED
    exit_code:
      description:
        - Exit code of the job.
      returned: always
      type: int
      sample: 0
    signal:
      description:
        - Number of the signal that ended the job, 0 without one.
      returned: always
      type: int
      sample: 0
    nodes:
      description:
        - Nodes of the job.
      returned: always
      type: list
      elements: str
      sample: [c1, c2]
    start:
      description:
        - Start of the job in local time.
      returned: always
      type: str
      sample: "2026-01-05T10:00:02"
    end:
      description:
        - End of the job in local time.
      returned: always
      type: str
      sample: "2026-01-05T10:01:03"
    output:
      description:
        - Output file of the job.
      returned: always
      type: str
      sample: /shared/train/job-7.out
    learned:
      description:
        - Whether the loss fell as far as O(max_loss_ratio) demands.
      returned: always
      type: bool
      sample: true
    loss:
      description:
        - The loss history. Values that are not finite are V(null); it is empty when the result cannot be read.
      returned: always
      type: list
      elements: float
      sample: [2.3, 0.9, 0.1]
    samples_per_second:
      description:
        - Throughput as the result states it, V(null) when it cannot be read.
      returned: always
      type: float
      sample: 24100.5
    seconds:
      description:
        - Seconds that the training took as the result states them, V(null) when it cannot be read.
      returned: always
      type: float
      sample: 58.4
    world_size:
      description:
        - Number of ranks of the process group, V(null) when the result cannot be read.
      returned: always
      type: int
      sample: 2
    ranks:
      description:
        - Ranks that reported, each with its host and the CPUs that it was bound to, where the result has them.
      returned: always
      type: list
      elements: dict
      sample:
        - rank: 0
          host: c1
          cpus: 0-23
    restarts:
      description:
        - Number of starts after the first one.
      returned: always
      type: int
      sample: 1
    resumed_from:
      description:
        - Step from which the last start went on, V(null) without a restart.
      returned: always
      type: int
      sample: 150
    lost_steps:
      description:
        - Steps that had to be computed again after restarts.
      returned: always
      type: int
      sample: 12
check:
  description:
    - >-
      The check record, with the verdict, the metrics C(loss_ratio), C(silent_nodes) (nodes of the job without a rank),
      C(missing_ranks), C(nodes), C(samples_per_second), C(restarts) and C(lost_steps), and what was expected of each.
  returned: success
  type: dict
  sample:
    schema: 1
    run: null
    node: null
    check: training
    time: 1767607263.2
    seconds: 58.4
    verdict: pass
    class: null
    reason: ""
    scope:
      group: [c1, c2]
    metrics:
      - name: loss_ratio
        value: 0.043
        unit: ratio
        expected: "<= 0.5"
        source: "the task is learnable: the loss must fall this far"
        ratio: 0.086
        verdict: pass
    samples: []
    evidence: ""
    context:
      tool: training_job
      job_id: 7
      version: 2.9.0
"""

import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs import training

SPEC = {
    "path": {"type": "path", "required": True},
    "job": {"type": "dict", "required": True},
    "nodes": {"type": "int", "required": True},
    "max_loss_ratio": {"type": "float", "default": 0.5},
    "expect": {"type": "list", "elements": "dict", "default": []},
    "run": {"type": "str"},
}


def perform(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Read what a training wrote and what Slurm says of its job, and judge both."""
    result, problem, why, rank = None, "", "", None
    foreign = _trusted.distrust(str(Path(params["path"]).absolute()), _trusted.trusted_users())
    try:
        if foreign and Path(params["path"]).exists():
            raise ValueError(f"not believed, as others could have written it: {foreign}")
        result = training.parse(Path(params["path"]).read_text(encoding="utf-8"))
    except training.EndedItself as exc:
        problem, why, rank = str(exc), str(exc), exc.rank
    except (OSError, ValueError) as exc:
        problem = f"{params['path']}: {exc}"
    facts = training.describe(result, params["job"])
    last = []
    if facts["state"] != training.GOOD_STATE:
        own = Path(params["path"]).parent / f"ranks/{facts['job_id']}/rank-{rank}.txt"
        last = training.last_lines(str(own)) or training.last_lines(str(facts["output"] or ""))
    expected = [*training.expectations(params["max_loss_ratio"], params["nodes"]), *params["expect"]]
    check = training.check(facts, problem, expected, time=time.time(), run=params["run"], why=why)
    return {"training": {**facts, "learned": training.learned(check), "last_lines": last}, "check": check}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot judge the training: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
