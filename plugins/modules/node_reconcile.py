#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_reconcile
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Drain the Slurm nodes that report to be broken, all of them in as few calls as there are reasons
description:
  - >-
    Makes one pass of C(hpcai-agent reconcile), which a timer on the controller makes every minute, with the same
    configuration. It compares what nodes report with what Slurm says of them and drains those with failed checks.
  - >-
    Only reasons that start with C(hpcai:) are ever replaced, besides C(Prolog error) and C(Epilog error) of Slurm where
    the node reports the failed check. Nothing is ever resumed. The nodes are read again right before each call.
  - >-
    More than the configured share of the cluster, or of one leaf, is not drained in one go: that is reported as a
    common cause in RV(findings). So are checks that could not be made, which drain nobody.
  - It runs on the controller as the Slurm user, or as root, who then acts as the Slurm user.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  config:
    description: The configuration of the reconciler, which role P(hpcai.gpu_cluster.node_health_check#role) writes.
    type: path
    default: /etc/hpcai/reconcile.json
  release:
    description:
      - Nodes that were certified, as a hostlist expression. What is latched of them and of the hosts they are on is
        forgotten, and what they reported before now does not count. No pass is made.
    type: str
  hold:
    description:
      - Nodes that a repair resumes inside a reservation. If it is cut short, the pass after its end drains them again
        for what they are drained for now. No pass is made.
    type: str
"""

EXAMPLES = r"""
- name: Drain what is broken now
  hpcai.gpu_cluster.node_reconcile:

- name: Let go of what a repair has proved
  hpcai.gpu_cluster.node_reconcile:
    release: c[3-4]
"""

RETURN = r"""
drained:
  {description: "Nodes that were (in check mode, would be) drained and the reasons.", returned: always, type: dict}
findings:
  description: What people should know, as kind (C(common_cause), C(infra), C(silent), C(watch), C(left_alone),
    C(provable)), text and nodes.
  returned: always
  type: list
  elements: dict
  sample: [{kind: infra, check: gpu_count, nodes: "c[1-2]", text: "gpu_count: nvidia-smi cannot be started"}]
left_alone: {description: Failing nodes with a reason that is not ours., returned: always, type: list, elements: dict}
commands: {description: What was run or would be in check mode., returned: always, type: list, elements: list}
released: {description: Latches that are gone., returned: always, type: list, elements: str}
held: {description: Nodes in a repair and their reasons., returned: with O(hold), type: dict}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import reconcile
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DEFAULT_CONFIG, DrainError, load
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import short

NO_PASS: dict[str, t.Any] = {"drained": {}, "findings": [], "left_alone": [], "commands": []}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "path", "default": DEFAULT_CONFIG},
            **{name: {"type": "str"} for name in ("release", "hold")},
        },
        mutually_exclusive=[("release", "hold")],
        supports_check_mode=True,
    )
    try:
        settings = load(module.params["config"])
        if module.params["release"]:
            gone = reconcile.release(settings, expand(module.params["release"]), module.check_mode)
            module.exit_json(changed=bool(gone), released=gone, diff={"before": gone, "after": []}, **NO_PASS)
        if module.params["hold"]:
            held, news = reconcile.hold(settings, expand(module.params["hold"]), module.check_mode)
            module.exit_json(changed=news, released=[], held=held, diff={"before": [], "after": held}, **NO_PASS)
        found = reconcile.perform(settings, module.check_mode)
    except (DrainError, HostlistError) as exc:
        module.fail_json(msg=f"No nodes were reconciled: {exc}")
    touched = set(found.drained)
    shown = [{k: v for k, v in short(side).items() if k in touched} for side in (found.before, found.after)]
    result: dict[str, t.Any] = {
        "changed": bool(touched) and (module.check_mode or not settings.dry_run),
        "drained": found.drained,
        "findings": found.findings,
        "left_alone": found.left_alone,
        "commands": found.commands,
        "released": [],
        "diff": {"before": shown[0], "after": shown[1]},
    }
    if found.problem:
        module.fail_json(msg=f"Slurm did not drain everything: {found.problem}", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
