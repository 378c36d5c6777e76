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
    Drains nodes with a reason that this collection owns, which is one that starts with C(hpcai:), and lifts such
    drains. Only these reasons are ever replaced or cleared.
  - >-
    A node that somebody else drained, or that carries somebody else's reason, is left as it is and listed in
    RV(left_alone). The task warns when such a node should be drained and still accepts jobs.
  - >-
    Nodes are read again right before the change, so that a drain which an operator set a moment ago is respected.
    All nodes with the same target go into one C(scontrol update).
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  name:
    description:
      - The nodes, as a hostlist expression such as V(c[1-4],c9). Repeated names count once.
      - A name that Slurm does not know is an error, and then no node is changed.
    type: str
    required: true
  state:
    description:
      - V(drained) lets running jobs end and keeps new ones away. A node that has another C(hpcai:) reason gets the new
        one.
      - >-
        V(resumed) lifts drains whose reason starts with C(hpcai:), by C(state=undrain). It does not bring up a node
        that is down, and does nothing to nodes that are not drained.
    type: str
    choices: [drained, resumed]
    required: true
  reason:
    description:
      - >-
        For O(state=drained), where it is required, why the nodes are drained, as C(hpcai:<check>:<short cause>) in one
        line of at most 200 characters. The check is lower case letters, digits, dashes and underscores.
      - For O(state=resumed), only drains whose reason starts with this text are lifted. Without it, all C(hpcai:) ones.
    type: str
  replace:
    description:
      - >-
        Reasons, in full, that O(state=drained) may replace although they do not start with C(hpcai:). They are meant
        for what Slurm writes when it drains a node itself, such as V(Prolog error).
      - Ignored for O(state=resumed).
    type: list
    elements: str
    default: []
notes:
  - Needs Slurm operator rights, usually root or the Slurm user on the controller.
seealso:
  - module: hpcai.gpu_cluster.slurm_info
  - module: hpcai.gpu_cluster.slurm_reservation
"""

EXAMPLES = r"""
- name: Drain two nodes whose munge key differs
  hpcai.gpu_cluster.slurm_node:
    name: c[3-4]
    state: drained
    reason: "hpcai:munge:key differs from the controller"
  become: true

- name: Resume what the munge check drained
  hpcai.gpu_cluster.slurm_node:
    name: c[1-8]
    state: resumed
    reason: "hpcai:munge:"
  become: true

- name: Resume every node that this collection drained
  hpcai.gpu_cluster.slurm_node:
    name: "{{ groups['slurm_compute'] | hpcai.gpu_cluster.hostlist_compress }}"
    state: resumed
  become: true

- name: Take over a drain that Slurm set after a failed prolog
  hpcai.gpu_cluster.slurm_node:
    name: c7
    state: drained
    reason: "hpcai:gpu_count:7 of 8 GPUs"
    replace:
      - Prolog error
  become: true
"""

RETURN = r"""
nodes:
  description:
    - The nodes after the change, in the order of O(name), with the keys that M(hpcai.gpu_cluster.slurm_info) returns.
    - >-
      In check mode they are as they would be, and C(reason_user) and C(reason_time) of a changed node are V(null), as
      is C(available) of a node that would be resumed.
  returned: always
  type: list
  elements: dict
  sample:
    - name: c3
      state: IDLE
      flags: [DRAIN]
      drained: true
      available: false
      reason: "hpcai:munge:key differs from the controller"
      reason_user: root
      reason_time: "2026-01-05T10:00:00"
      cpus: 96
      allocated_cpus: 0
      memory_mb: 1900000
      gres: gpu:a100:8
      features: [ib]
      active_features: [ib]
      partitions: [main]
      address: 10.0.0.7
      hostname: c3
      version: 24.11.5
      boot_time: "2026-01-05T08:00:00"
left_alone:
  description:
    - >-
      Nodes that were not changed because somebody else decided about them, by a reason that does not start with
      C(hpcai:) or by a drain without a reason. With O(state=resumed) only those that are out of service.
  returned: always
  type: list
  elements: dict
  contains:
    name:
      description:
        - Name of the node.
      returned: always
      type: str
      sample: c7
    state:
      description:
        - Base state of the node.
      returned: always
      type: str
      sample: IDLE
    flags:
      description:
        - Flags of the state.
      returned: always
      type: list
      elements: str
      sample: [DRAIN]
    reason:
      description:
        - The reason, empty without one.
      returned: always
      type: str
      sample: "ops: cable swap"
    reason_user:
      description:
        - The user who set it, V(null) where Slurm does not name one.
      returned: always
      type: str
      sample: root
commands:
  description:
    - The C(scontrol) commands that were run, or would be in check mode. Empty when nothing was to be changed.
  returned: always
  type: list
  elements: list
  sample:
    - [scontrol, update, "nodename=c[3-4]", state=drain, "reason=hpcai:munge:key differs from the controller"]
"""

import typing as t

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
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import Run, SlurmReader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError

SPEC = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["drained", "resumed"], "required": True},
    "reason": {"type": "str"},
    "replace": {"type": "list", "elements": "str", "default": []},
}


def perform(params: t.Mapping[str, t.Any], run: Run, check_mode: bool) -> dict[str, t.Any]:
    """Drain or resume the nodes that may be; what a person or Slurm did is left alone."""
    names, state, reason = expand(params["name"]), params["state"], params["reason"] or ""
    if state == "drained":
        check_reason(reason)
    before = pick(SlurmReader(run).nodes(), names)
    todo = plan(before, state, reason, params["replace"])
    if todo.changes and not check_mode:
        # Between a caller's read and now a person may have drained a node: plan on what is true now.
        before = pick(SlurmReader(run).nodes(), names)
        todo = plan(before, state, reason, params["replace"])
    wanted = after(before, todo.changes)
    for argv in [] if check_mode else commands(todo.changes):
        rc, out, err = run(argv)
        if rc:
            raise SlurmError(f"{' '.join(argv)} failed: {(err or out).strip()}")
    return {
        "changed": bool(todo.changes),
        "nodes": wanted if check_mode or not todo.changes else pick(SlurmReader(run).nodes(), names),
        "left_alone": todo.left_alone,
        "commands": commands(todo.changes),
        "diff": {"before": short(before), "after": short(wanted)},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, required_if=[("state", "drained", ["reason"])], supports_check_mode=True)
    module.run_command_environ_update = {"SLURM_TIME_FORMAT": TIME_FORMAT}
    state = module.params["state"]

    def run(argv: list[str]) -> tuple[int, str, str]:
        return module.run_command([module.get_bin_path(argv[0], required=True), *argv[1:]])

    try:
        result = perform(module.params, run, module.check_mode)
    except (SlurmError, HostlistError) as exc:
        module.fail_json(msg=f"Nodes {module.params['name']} cannot be {state}: {exc}")
    serving = [node["name"] for node in result["left_alone"] if state == "drained" and not out_of_service(node)]
    if serving:
        module.warn(f"{', '.join(serving)} still take jobs: a reason that is not ours is in the way, see left_alone.")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
