#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_reconcile
short_description: Drain the Slurm nodes that report failed checks
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Makes one pass of C(hpcai-agent reconcile), with the same configuration as the timer on the controller that makes
    one every minute. It compares the reports of the nodes with their state in Slurm and drains those with failed
    checks, with one call for each reason.
  - Only reasons that start with C(hpcai:) are replaced, besides C(Prolog error) and C(Epilog error) of Slurm where the
    node reports the failed check. No node is ever resumed. The state of the nodes is read again right before each call.
  - More than the configured share of the cluster, or number of nodes of one leaf switch, is not drained within the
    configured time. It is reported as a common cause in RV(findings). Checks that could not be made are findings, too,
    and drain no node.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  config:
    description:
      - Configuration of the reconciler, which the role P(hpcai.gpu_cluster.node_health_check#role) writes. The
        directory of its state must exist.
    type: path
    default: /etc/hpcai/reconcile.json
  release:
    description:
      - Certified nodes as a hostlist. The latched faults of these nodes and of their hosts are removed, and what they
        reported before counts no longer. No pass is made.
      - Mutually exclusive with O(hold).
    type: str
  hold:
    description:
      - Nodes as a hostlist that a repair is about to resume inside a reservation. The reasons for which they are
        drained are kept, so that the first pass after the reservation drains them again if the repair did not release
        them. No pass is made.
      - Mutually exclusive with O(release).
    type: str
notes:
  - Run the module on the controller, as the Slurm user or as root. As root it acts as the owner of the state directory.
seealso:
  - module: hpcai.gpu_cluster.slurm_node
  - module: hpcai.gpu_cluster.certification
"""

EXAMPLES = r"""
- name: Drain the nodes that report failed checks now
  hpcai.gpu_cluster.node_reconcile:
  become: true

- name: Show which nodes would be drained
  hpcai.gpu_cluster.node_reconcile:
  become: true
  check_mode: true
  register: planned

- name: Keep the reasons of two nodes while they are repaired
  hpcai.gpu_cluster.node_reconcile:
    hold: gpu-[003-004]
  become: true

- name: Release the two nodes after they were certified
  hpcai.gpu_cluster.node_reconcile:
    release: gpu-[003-004]
  become: true
"""

RETURN = r"""
drained:
  description: Nodes that were drained, or in check mode would be, with their reasons.
  type: dict
  returned: success
  sample: {gpu-003: "hpcai:gpu_count:7 of 8 GPUs answer"}
findings:
  description: What a person should know.
  type: list
  elements: dict
  returned: success
  contains:
    kind:
      description:
        - V(common_cause) for more nodes than may be drained, V(own_drains) for nodes that Slurm drained for a prolog or
          epilog, after which no other node may drain itself for a while, V(infra) for checks that could not be made,
          V(silent) for nodes that do not report, V(watch) for warnings, V(left_alone) for nodes with a reason of
          somebody else, V(provable) for drained nodes that report no fault any more, V(joining) for nodes that are held
          until they are certified beside proven ones.
      type: str
    text:
      description: The finding as a sentence.
      type: str
    nodes:
      description: The nodes as a hostlist.
      type: str
    check:
      description: Name of the check, if it is about one.
      type: str
  sample: [{kind: infra, check: gpu_count, nodes: "gpu-[001-002]", text: "gpu_count: nvidia-smi cannot be started"}]
left_alone:
  description: Nodes with failed checks that have a reason of somebody else, as Slurm describes them.
  type: list
  elements: dict
  returned: success
  sample: [{name: gpu-007, state: IDLE, reason: "waiting for a cable", drained: true}]
commands:
  description: Commands that were run, or in check mode would be.
  type: list
  elements: list
  returned: success
  sample: [[scontrol, update, nodename=gpu-003, state=drain, "reason=hpcai:gpu_count:7 of 8 GPUs answer"]]
released:
  description: Latched faults that were removed with O(release), or in check mode would be, as host or node and check.
  type: list
  elements: str
  returned: success
  sample: ["node:gpu-003|gpu_count"]
held:
  description: Nodes that O(hold) names and that are drained by this collection, with their reasons.
  type: dict
  returned: with O(hold)
  sample: {gpu-003: "hpcai:gpu_count:7 of 8 GPUs answer"}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import reconcile
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DEFAULT_CONFIG, DrainError, load
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import short

SPEC = {
    "config": {"type": "path", "default": DEFAULT_CONFIG},
    **{name: {"type": "str"} for name in ("release", "hold")},
}


NO_PASS: dict[str, t.Any] = {"drained": {}, "findings": [], "left_alone": [], "commands": []}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Forget what is known of nodes, hold them, or take one pass over all of them."""
    settings = load(params["config"])
    if params["release"]:
        gone = reconcile.release(settings, expand(params["release"]), check_mode)
        return {"changed": bool(gone), "released": gone, "diff": {"before": gone, "after": []}, **NO_PASS}
    if params["hold"]:
        held, news = reconcile.hold(settings, expand(params["hold"]), check_mode)
        return {"changed": news, "released": [], "held": held, "diff": {"before": [], "after": held}, **NO_PASS}
    outcome = reconcile.perform(settings, check_mode)
    drained = set(outcome.drained)
    shown = [{k: v for k, v in short(side).items() if k in drained} for side in (outcome.before, outcome.after)]
    return {
        "changed": bool(drained) and (check_mode or not settings.dry_run),
        "drained": outcome.drained,
        "findings": outcome.findings,
        "left_alone": outcome.left_alone,
        "commands": outcome.commands,
        "released": [],
        "diff": {"before": shown[0], "after": shown[1]},
        **({"problem": outcome.problem} if outcome.problem else {}),
    }


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, mutually_exclusive=[("release", "hold")], supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (DrainError, HostlistError) as exc:
        module.fail_json(msg=f"No nodes were reconciled: {exc}")
    problem = result.pop("problem", "")
    if problem:
        module.fail_json(msg=f"Slurm did not drain everything: {problem}", **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
