#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_checks
short_description: Check what makes a node fit for work
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs short checks on a node and returns one check record for each. It changes nothing.
  - A check that cannot measure has the verdict V(error), never V(pass); one for which nothing is expected is
    V(unjudged). The module fails only for options that make no sense.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.measure]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  name: {type: str, description: The node's name in Slurm; by default the host's short name.}
  checks:
    type: list
    elements: str
    choices: [cpu_count, memory, disk_space, clock_skew, munge, slurmd]
    default: [cpu_count, memory, disk_space, clock_skew, munge, slurmd]
    description: Checks to run, in this order.
  paths: {type: list, elements: str, default: [/], description: Paths whose file systems must exist and have space.}
  controller_epoch:
    type: float
    description: A clock to compare with, in seconds since 1970 and as late as possible. Without it clocks are skipped.
  credential:
    type: str
    description:
      - What C(munge --no-input) printed on another host of the cluster; the node must be able to decode it.
      - Without it the munge check sees a stopped daemon but not a foreign key.
  timeout: {type: float, default: 20, description: Seconds for every single program a check starts.}
"""

EXAMPLES = r"""
- name: Check the node
  hpcai.gpu_cluster.node_checks:
    paths: [/, /shared, /scratch]
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', cluster_sku).expect }}"
"""

RETURN = r"""
checks:
  type: list
  elements: dict
  returned: success
  description: One check record per check.
  sample:
    - {schema: 1, node: c1, check: slurmd, verdict: warn, class: software, reason: "node is IDLE+DRAIN: hpcai:xid:79"}
"""

import socket

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _measure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import CheckError, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.checks import CHECKS, Node, Options, perform


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str"},
            "checks": {"type": "list", "elements": "str", "choices": list(CHECKS), "default": list(CHECKS)},
            "paths": {"type": "list", "elements": "str", "default": ["/"]},
            "controller_epoch": {"type": "float"},
            "credential": {"type": "str", "no_log": True},
            "timeout": {"type": "float", "default": 20},
            **_measure.SPEC,
        },
        supports_check_mode=True,
    )
    params = module.params
    node = params["name"] or socket.gethostname().split(".")[0]
    options = Options(node, **{name: params[name] for name in Options._fields if name != "node"})
    try:
        for expectation in options.expect:
            validate_expectation(expectation)
        checks = perform(params["checks"], options, Node(options.timeout))
    except CheckError as exc:
        module.fail_json(msg=f"Cannot judge {options.node}: {exc}")
    module.exit_json(changed=False, checks=checks)


if __name__ == "__main__":
    main()
