#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Drain and resume Slurm nodes without undoing what people decided
description:
  - >-
    Only reasons that start with C(hpcai:) are ever replaced or cleared. A node with somebody else's reason is left as
    it is and listed in RV(left_alone), with a warning when it still takes jobs.
  - >-
    The nodes are read again right before the change, and all nodes with the same target go into one C(scontrol) call.
  - Needs Slurm operator rights, usually root or the Slurm user on the controller.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  name:
    description: The nodes, as a hostlist expression such as V(c[1-4],c9).
    type: str
    required: true
  state:
    description:
      - V(drained) takes no new jobs and lets running ones end.
      - V(resumed) lifts our own drain; it does not bring up a node that is down.
    type: str
    choices: [drained, resumed]
    required: true
  reason:
    description:
      - Why the nodes are drained, as C(hpcai:<check>:<short cause>). Needed for O(state=drained).
      - With O(state=resumed), lift only drains whose reason starts with this text.
    type: str
  replace:
    description: Reasons, in full, that are not ours and may be replaced all the same; for those of Slurm itself.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Take two nodes out of service
  hpcai.gpu_cluster.slurm_node:
    name: c[3-4]
    state: drained
    reason: "hpcai:munge:key differs from the controller"

- name: Give back what the munge check drained
  hpcai.gpu_cluster.slurm_node:
    name: c[1-8]
    state: resumed
    reason: "hpcai:munge:"
"""

RETURN = r"""
nodes:
  description: The nodes after the change (in check mode, as they would be), as in M(hpcai.gpu_cluster.slurm_info).
  returned: always
  type: list
  elements: dict
left_alone:
  description: Nodes with a reason that is not ours, or drained without one.
  returned: always
  type: list
  elements: dict
  sample: [{name: c7, state: IDLE, flags: [DRAIN], reason: "ops: cable swap", reason_user: root}]
commands: {description: What was run or would be in check mode., returned: always, type: list, elements: list}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import (
    after,
    check_reason,
    commands,
    out_of_service,
    pick,
    plan,
    short,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.read import Reader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["drained", "resumed"], "required": True},
            "reason": {"type": "str"},
            "replace": {"type": "list", "elements": "str", "default": []},
        },
        required_if=[("state", "drained", ["reason"])],
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"SLURM_TIME_FORMAT": TIME_FORMAT}
    state, reason = module.params["state"], module.params["reason"] or ""

    def run(argv: list[str]) -> tuple[int, str, str]:
        return module.run_command([module.get_bin_path(argv[0], required=True), *argv[1:]])

    try:
        names = expand(module.params["name"])
        if state == "drained":
            check_reason(reason)
        before = pick(Reader(run).nodes(), names)
        todo = plan(before, state, reason, module.params["replace"])
        if todo.changes and not module.check_mode:
            # Between a caller's read and now a person may have drained a node: plan on what is true now.
            before = pick(Reader(run).nodes(), names)
            todo = plan(before, state, reason, module.params["replace"])
        wanted = after(before, todo.changes)
        for argv in [] if module.check_mode else commands(todo.changes):
            rc, out, err = run(argv)
            if rc:
                raise SlurmError(f"{' '.join(argv)} failed: {(err or out).strip()}")
        nodes = wanted if module.check_mode or not todo.changes else pick(Reader(run).nodes(), names)
    except (SlurmError, HostlistError) as exc:
        module.fail_json(msg=f"Nodes {module.params['name']} cannot be {state}: {exc}")
    serving = [node["name"] for node in todo.left_alone if state == "drained" and not out_of_service(node)]
    if serving:
        module.warn(f"{', '.join(serving)} still take jobs: a reason that is not ours is in the way, see left_alone.")
    module.exit_json(
        changed=bool(todo.changes),
        nodes=nodes,
        left_alone=todo.left_alone,
        commands=commands(todo.changes),
        diff={"before": short(before), "after": short(wanted)},
    )


if __name__ == "__main__":
    main()
