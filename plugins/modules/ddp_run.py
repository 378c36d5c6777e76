#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ddp_run
short_description: Run a distributed training without a scheduler, one node's part at a time
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Keeps the runs of a training in a directory that all nodes see, and its processes in one systemd unit per node.
  - Role P(hpcai.gpu_cluster.ddp_launch#role) calls it on all nodes in the right order.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  path: {type: path, required: true, description: Directory of the training.}
  state:
    description:
      - V(prepared), on one node, makes the directory of a run, unless this very training has completed before.
      - V(started), on every node and as root, starts a node's part and does not wait.
      - V(completed), on one node, waits for the end on all nodes and fails if it was not a good one.
      - V(stopped), on every node and as root, leaves no process behind.
    type: str
    choices: [prepared, started, completed, stopped]
    required: true
  run: {type: str, description: "The run, as O(state=prepared) named it."}
  node: {type: str, description: "This node, as O(spec) names it."}
  user: {type: str, description: The user who trains.}
  spec:
    type: dict
    default: {}
    description:
      - "What to start: nodes, addresses, endpoint, processes, python, script, arguments, environment, chdir, timeout."
  programs: {type: dict, default: {}, description: Files of the run's directory by name.}
  again: {type: bool, default: false, description: Train also when this very training has completed before.}
  timeout: {type: int, default: 3600, description: Seconds to wait for the end.}
"""

EXAMPLES = r"""
- name: Stop what a node still does for a training
  hpcai.gpu_cluster.ddp_run:
    path: /shared/training/trainer/ddp_launch
    state: stopped
"""

RETURN = r"""
run: {description: The run that is to be started or was., returned: O(state=prepared), type: str, sample: run-1}
needed: {description: Whether there is something to start., returned: O(state=prepared), type: bool}
training:
  description: How the run went, on every node and for every rank; C(failed) is what failed first.
  returned: O(state=completed)
  type: dict
  sample:
    {state: completed, run: run-1, world_size: 2, seconds: 12.5, failed: null, nodes: [{node: c1, rc: 0, why: ""}],
     ranks: [{rank: 0, node: c1, rc: 0, output: /shared/training/run-1/ranks/rank-0.txt}]}
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs import ddp, ddp_runs, ddp_unit


def _perform(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    folder, name = Path(params["path"]), ddp.unit(params["path"])
    if params["state"] == "started":
        return {"changed": ddp_unit.start(module, name)}
    if params["state"] == "stopped":
        return {"changed": ddp_unit.stop(module, name)}
    if params["state"] == "prepared":
        needed, run = ddp_runs.prepare(folder, params["spec"], params["programs"], params["again"], module.check_mode)
        return {"changed": needed, "needed": needed, "run": run}
    found = ddp_runs.wait(folder, params["run"], params["timeout"])
    if found["state"] != "completed":
        module.fail_json(msg=ddp.report(found, ddp_runs.last_words(found)), training=found)
    return {"changed": False, "training": found}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["prepared", "started", "completed", "stopped"], "required": True},
            "run": {"type": "str"},
            "node": {"type": "str"},
            "user": {"type": "str"},
            "spec": {"type": "dict", "default": {}},
            "programs": {"type": "dict", "default": {}},
            "again": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 3600},
        },
        required_if=[
            ("state", "prepared", ["spec", "programs"]),
            ("state", "started", ["run", "node", "user"]),
            ("state", "completed", ["run"]),
        ],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**_perform(module))
    except (ddp.DdpError, OSError) as exc:
        module.fail_json(msg=f"Training in {module.params['path']}: {exc}")


if __name__ == "__main__":
    main()
