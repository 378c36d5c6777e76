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
  - Sizes, algbw and busbw have the meaning that they have in nccl-tests. The results of every size are checked for
    wrong values.
  - A result that cannot be trusted (fewer ranks than requested, all ranks on one host, no output in time) has the
    verdict V(error). A single rank, and nodes that have jobs, have the verdict V(skipped). Without a limit for a
    bandwidth in O(expect) the verdict is at best V(unjudged). The module itself fails only for invalid options and
    without C(srun).
  - By default the step allocates whole nodes (C(exclusive)) and waits up to 60 seconds for them (C(immediate)).
    O(srun_options) replaces both.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.measure]
attributes:
  check_mode:
    support: none
    details:
      - The module starts a Slurm step, so that it is skipped in check mode.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  nodes:
    description:
      - Number of nodes, at least 1. Ranks on another number of machines are an error.
    type: int
    default: 2
  ntasks_per_node:
    description:
      - Ranks on every node, at least 1. With O(backend=nccl) the number of GPUs of a node.
    type: int
    default: 1
  backend:
    description:
      - Backend of torch.distributed. V(gloo) uses CPUs and TCP, V(nccl) GPUs.
    type: str
    default: gloo
    choices: [gloo, nccl]
  operations:
    description:
      - Collectives to measure. Each returns one check record.
    type: list
    elements: str
    default: [all_reduce, all_to_all]
    choices: [all_reduce, all_to_all]
  min_size:
    description:
      - Smallest size in bytes, at least 4.
    type: int
    default: 8
  max_size:
    description:
      - Largest size in bytes. It is always measured, also if it is not reached from O(min_size) by O(factor).
    type: int
    default: 67108864
  factor:
    description:
      - Factor from one size to the next, at least 2.
    type: int
    default: 4
  warmup:
    description:
      - Operations per size before those that are timed. V(0) is none.
    type: int
    default: 5
  iterations:
    description:
      - Timed operations per size, at least 1.
    type: int
    default: 20
  seconds:
    description:
      - Time in seconds for one size. When the first operation shows that O(warmup) and O(iterations) would take longer,
        both are cut down in proportion, to two timed operations at the least. V(0) is without a limit.
      - What is measured of a slow network then costs little more than that of a sound one.
    type: int
    default: 0
  python:
    description:
      - Python interpreter on the nodes that can import torch.
    type: path
    default: python3
  busy:
    description:
      - Names of the nodes that were left out because they have jobs. They are kept in the check record, and explain
        there why a single rank was left.
    type: list
    elements: str
    default: []
  partition:
    description:
      - Slurm partition of the step. By default the default partition of the cluster.
    type: str
  srun_options:
    description:
      - Long options of C(srun), which replace those that the module sets by default. Underscores become dashes, V(true)
        is an option without a value, V(false) and null leave the option out.
    type: dict
    default: {}
  environment:
    description:
      - Environment variables for the ranks, such as E(GLOO_SOCKET_IFNAME). Quote values that YAML would read as
        booleans.
    type: dict
    default: {}
  timeout:
    description:
      - Seconds for all collectives together. The time that Slurm needs to allocate the nodes is included.
    type: float
    default: 600
requirements:
  - C(srun) on this host
  - PyTorch on the nodes
seealso:
  - module: hpcai.gpu_cluster.nccl_tests
    description: The same measurement with nccl-tests.
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Measure the network between two nodes
  hpcai.gpu_cluster.collective_test:
    nodes: 2
    python: /shared/pytorch/current/bin/python
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', cluster_sku).expect }}"
    profile: "{{ cluster_sku }}"
  register: network

- name: Show the highest busbw of each collective in GB/s
  ansible.builtin.debug:
    msg: "{{ network.peak }}"

- name: Measure four given nodes over one Ethernet interface
  hpcai.gpu_cluster.collective_test:
    nodes: 4
    partition: cpu
    srun_options:
      nodelist: cpu-[001-004]
    environment:
      GLOO_SOCKET_IFNAME: eth0
    operations: [all_reduce]
    max_size: 268435456

- name: Measure the GPUs of two nodes with NCCL
  hpcai.gpu_cluster.collective_test:
    nodes: 2
    ntasks_per_node: 8
    backend: nccl
    python: /shared/pytorch/current/bin/python
    max_size: 1073741824
    srun_options:
      gpus_per_node: 8
"""

RETURN = r"""
checks:
  description: One check record per entry of O(operations).
  type: list
  elements: dict
  returned: success
  contains:
    schema:
      description: Version of the format of the record.
      type: int
      sample: 1
    run:
      description: Value of O(run), null without it.
      type: str
      sample: nightly-2026-11-02
    node:
      description: Always null, as a collective is about several nodes.
      type: str
      sample: gpu-001
    check:
      description: Name of the check, to which the entries of O(expect) refer.
      type: str
      sample: collective_test
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 12.4
    verdict:
      description:
        - V(pass), V(warn) and V(fail) say how the metrics compare with what is expected.
        - V(unjudged) means that something was measured and nothing was expected, V(skipped) that there was nothing to
          measure, V(error) that the check itself did not work, which says nothing about the hardware.
      type: str
      sample: fail
    class:
      description:
        - What a V(warn) or V(fail) is attributed to, V(hardware), V(fabric), V(config) or V(software). With V(error) it
          is V(infra), with the other verdicts null.
      type: str
      sample: fabric
    reason:
      description: What is wrong, or why nothing was measured, in one line. Empty where there is nothing to explain.
      type: str
      sample: "busbw_peak (collective=all_reduce): 0.12 GB/s, expected >= 1"
    scope:
      description: Names of the nodes that took part as C(group).
      type: dict
      sample: {group: [c1, c2]}
    metrics:
      description:
        - Measured values, each with C(name), C(value) (null if not measured), C(unit), the C(expected) limit, its
          C(source), the C(ratio) of value to limit, a C(verdict) of its own, and labels.
        - They are C(busbw) of each size, with the labels C(collective) and C(size) in bytes, and C(busbw_peak) and
          C(wrong) of each collective.
      type: list
      elements: dict
      sample:
        - name: busbw_peak
          value: 0.12
          unit: GB/s
          collective: all_reduce
          expected: ">= 1"
          source: 10 Gb/s Ethernet
          ratio: 0.12
          verdict: fail
    samples:
      description: The entries of RV(rows) of this collective.
      type: list
      elements: dict
      sample: [{collective: all_reduce, size: 512, bytes: 512, time_us: 91.2, algbw: 0.0056, busbw: 0.0056, wrong: 0}]
    evidence:
      description: End of the error output of C(srun).
      type: str
      sample: ""
    context:
      description: Program that measured, its version and command line, O(profile), and what else explains the values.
      type: dict
      sample: {tool: torch.distributed, version: 2.5.1, backend: gloo, collective: all_reduce, busy: [], profile: ours}
rows:
  description:
    - One entry per collective and size. C(size) is the nominal size and C(bytes) the measured one, which is a multiple
      of the elements and ranks. C(algbw) and C(busbw) are GB/s, C(time_us) microseconds, C(wrong) is the number of
      wrong values.
  type: list
  elements: dict
  returned: success
  sample: [{collective: all_reduce, size: 512, bytes: 512, time_us: 91.2, algbw: 0.0056, busbw: 0.0056, wrong: 0}]
peak:
  description: Highest busbw in GB/s by collective, null where nothing was measured.
  type: dict
  returned: success
  sample: {all_reduce: 1.03, all_to_all: 0.98}
ranks:
  description: Rank, Slurm node and machine of all ranks that took part.
  type: list
  elements: dict
  returned: success
  sample: [{rank: 0, host: c1, machine: c1}, {rank: 1, host: c2, machine: c2}]
argv:
  description: Command line of C(srun). Empty for a single rank.
  type: list
  elements: str
  returned: success
  sample: [/usr/bin/srun, --job-name=collective_test, --nodes=2, --ntasks=2, python3, "-", --backend=gloo]
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.collective import run as collective_run

SPEC = {
    **collective_run.SPEC,
    "python": {"type": "path", "default": "python3"},
    "busy": {"type": "list", "elements": "str", "default": []},
    "partition": {"type": "str"},
    "srun_options": {"type": "dict", "default": {}},
    "environment": {"type": "dict", "default": {}},
    "timeout": {"type": "float", "default": 600},
    **_checks.SPEC,
}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Start the collectives by srun and judge what they print; one rank alone has none."""
    params = module.params
    request = collective_run.CollectiveRequest(**{name: params[name] for name in collective_run.SPEC})
    options = {"partition": params["partition"], **params["srun_options"]}
    variables = {name: str(value) for name, value in params["environment"].items()}
    context = {"time": time.time(), "run": params["run"], "profile": params["profile"], "busy": params["busy"]}
    collective_run.validate(request, params["expect"])
    if request.nodes * request.ntasks_per_node == 1:
        return {"argv": [], **collective_run.skip(request, context)}
    srun = module.get_bin_path("srun", required=True)
    argv = collective_run.command(srun, params["python"], request, options, params["timeout"])
    outcome = run(argv, params["timeout"], collective_run.source(), variables)
    return {"argv": argv, **collective_run.result(outcome, request, params["expect"], {**context, "argv": argv})}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=False)
    try:
        result = perform(module)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot measure collectives: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
