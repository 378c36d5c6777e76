#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_checks
short_description: Check what makes a node fit for jobs
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs short checks on a node and returns one check record for each. Nothing on the node is changed.
  - A check that cannot measure has the verdict V(error), never V(pass). One of which nothing is expected is
    V(unjudged). The module itself fails only for invalid options.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.measure]
attributes:
  check_mode:
    support: full
    details:
      - The module only reads, in check mode as well.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  name:
    description:
      - Name of the node in Slurm and in the check records. The default is its short host name.
    type: str
  checks:
    description:
      - Checks to run, in this order.
      - V(cpu_count) counts the CPUs that are online. V(memory) has the total and available memory in bytes,
        V(disk_space) size and free bytes of the file systems of O(paths), V(clock_skew) the seconds that the clock
        differs from O(controller_epoch). Their metrics are judged by O(expect).
      - V(munge) decodes a credential of this node, and O(credential). V(slurmd) fails unless the service is active and
        Slurm can use the node, and warns if the node is drained, reserved or otherwise held back.
    type: list
    elements: str
    choices: [cpu_count, memory, disk_space, clock_skew, munge, slurmd]
    default: [cpu_count, memory, disk_space, clock_skew, munge, slurmd]
  paths:
    description:
      - Paths for V(disk_space). One that does not exist fails the check.
    type: list
    elements: str
    default: [/]
  controller_epoch:
    description:
      - Time of the controller in seconds since the epoch, taken as late as possible, since the time until the module
        starts counts as skew. Without it V(clock_skew) is V(skipped).
    type: float
  credential:
    description:
      - Output of C(munge --no-input) on another host of the cluster, which the node must be able to decode. An empty
        one is an error.
      - Without it V(munge) finds a daemon that does not work, but not a key that differs from that of the cluster.
    type: str
  timeout:
    description:
      - Seconds for each program that a check starts.
    type: float
    default: 20
seealso:
  - module: hpcai.gpu_cluster.gpu_info
  - module: hpcai.gpu_cluster.munge_key
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Check a node against the profile of its machine type
  hpcai.gpu_cluster.node_checks:
    paths: [/, /shared, /mnt/resource_nvme]
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', cluster_sku).expect }}"
    profile: "{{ cluster_sku }}"

- name: Make a credential on the controller
  ansible.builtin.command: munge --no-input
  delegate_to: controller
  changed_when: false
  register: controller_munge

- name: Check that the node has the munge key of the cluster and a running slurmd
  hpcai.gpu_cluster.node_checks:
    checks: [munge, slurmd]
    credential: "{{ controller_munge.stdout }}"

- name: Require 100 GB of free space on the root file system
  hpcai.gpu_cluster.node_checks:
    checks: [disk_space]
    expect:
      - check: disk_space
        metric: free
        path: /
        op: ">="
        value: 100000000000
        unit: bytes
        source: container images of the jobs
"""

RETURN = r"""
checks:
  description: One check record per entry of O(checks).
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
      description: O(name), by default the short host name.
      type: str
      sample: gpu-001
    check:
      description: Name of the check, to which the entries of O(expect) refer.
      type: str
      sample: slurmd
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 0.06
    verdict:
      description:
        - V(pass), V(warn) and V(fail) say how the metrics compare with what is expected.
        - V(unjudged) means that something was measured and nothing was expected, V(skipped) that there was nothing to
          measure, V(error) that the check itself did not work, which says nothing about the hardware.
      type: str
      sample: warn
    class:
      description:
        - What a V(warn) or V(fail) is attributed to, V(hardware), V(fabric), V(config) or V(software). With V(error) it
          is V(infra), with the other verdicts null.
      type: str
      sample: software
    reason:
      description: What is wrong, or why nothing was measured, in one line. Empty where there is nothing to explain.
      type: str
      sample: "node is IDLE+DRAIN: hpcai:gpu_count:1 GPU missing"
    scope:
      description: Always empty.
      type: dict
      sample: {}
    metrics:
      description:
        - Measured values, each with C(name), C(value) (null if not measured), C(unit), the C(expected) limit, its
          C(source), the C(ratio) of value to limit, a C(verdict) of its own, and labels.
        - They are C(cpus), C(total) and C(available), C(size) and C(free) with the label C(path), C(skew) and
          C(round_trip).
      type: list
      elements: dict
      sample:
        - name: free
          value: 41231986688
          unit: bytes
          path: /
          expected: ">= 100000000000"
          source: container images
          ratio: 0.412
          verdict: fail
    samples:
      description: Always empty.
      type: list
      elements: dict
      sample: []
    evidence:
      description: What the verdict is based on, if it is not in the metrics.
      type: str
      sample: slurmd active, node IDLE+DRAIN
    context:
      description: Program that measured, its version and command line, O(profile), and what else explains the values.
      type: dict
      sample: {tool: node_checks, profile: Standard_ND96asr_v4, state: IDLE+DRAIN, idle: false}
"""

import socket
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import CheckError, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import checks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.checks import CHECKS, NodeCheckOptions
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.read import NodeAccess

SPEC = {
    "name": {"type": "str"},
    "checks": {"type": "list", "elements": "str", "choices": list(CHECKS), "default": list(CHECKS)},
    "paths": {"type": "list", "elements": "str", "default": ["/"]},
    "controller_epoch": {"type": "float"},
    "credential": {"type": "str", "no_log": True},
    "timeout": {"type": "float", "default": 20},
    **_checks.SPEC,
}


def perform(params: t.Mapping[str, t.Any], node: str) -> dict[str, t.Any]:
    """Look at the node, and return the records of its checks."""
    options = NodeCheckOptions(node, **{name: params[name] for name in NodeCheckOptions._fields if name != "node"})
    for expectation in options.expect:
        validate_expectation(expectation)
    return {"checks": checks.perform(params["checks"], options, NodeAccess(options.timeout))}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    node = module.params["name"] or socket.gethostname().split(".")[0]
    try:
        result = perform(module.params, node)
    except CheckError as exc:
        module.fail_json(msg=f"Cannot judge {node}: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
