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
  - >-
    Keeps the runs of a training in a directory that all nodes share, as C(run-1), C(run-2) and so on, and the processes
    of a node in one systemd unit, so that nothing of a run outlives it.
  - >-
    Role P(hpcai.gpu_cluster.ddp_launch#role) calls the module on all nodes in the right order. Use the role unless you
    need another order.
  - There is one training at a time in a directory.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: partial
    details: O(state=completed) waits for the run and records how it ended in check mode too.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  path:
    description:
      - >-
        Directory of the training, on a file system that all nodes share. It must exist, and the user who trains must be
        able to write to it.
      - It, and each directory above it, has to belong to root or the user who trains, and nobody else may write to it;
        a directory above it may be sticky, as C(/tmp) is. Otherwise nothing in it is started.
    type: path
    required: true
  state:
    description:
      - >-
        V(prepared), on one node and as the user who trains, makes the directory of a new run. Nothing is made when the
        same training is running, or has completed before and O(again) is not set.
      - V(started), on every node and as root, starts the node's part of the run as a systemd unit and does not wait.
      - >-
        V(completed), on one node and as the user who trains, waits for the end on all nodes and fails unless all ranks
        ended with exit code 0.
      - V(stopped), on every node and as root, stops the unit with all of its processes. Nothing happens when none is
        active.
    type: str
    choices: [prepared, started, completed, stopped]
    required: true
  run:
    description:
      - Name of the run, as RV(run) of O(state=prepared). Required for O(state=started) and O(state=completed).
    type: str
  node:
    description:
      - Name of this node, as O(spec) lists it. Required for O(state=started).
    type: str
  user:
    description:
      - User who trains, under whom the processes run. Required for O(state=started).
    type: str
  spec:
    description:
      - >-
        What the run starts. C(nodes) are the names of the nodes, C(addresses) the address of each, C(endpoint) the
        C(HOST:PORT) of the rendezvous, and C(processes) the ranks of every node, at least 1.
      - >-
        C(python), C(script) and C(arguments) are the command; C({run}) in C(script) and C(arguments) stands for the
        directory of the run. C(environment) are variables of the ranks, C(chdir) is their working directory, and
        C(timeout) are the seconds, at least 1, after which a node ends the run.
      - >-
        C(scratch), where it is not empty, is a directory of each node's own disks, in which C(staging.py) of
        O(programs) unpacks the environment of C(python) before the ranks start.
      - >-
        Another value of any key, or another file in O(programs), makes another training. An identical one that has
        completed is not run again.
      - Needed for O(state=prepared) and ignored otherwise. C(nodes), C(addresses), C(endpoint), C(processes),
        C(python), C(script) and C(timeout) are required there.
    type: dict
    default: {}
  programs:
    description:
      - >-
        Text files for the directory of the run, by their names. C(ddp_node.py), the program of role
        P(hpcai.gpu_cluster.ddp_launch#role) that runs on every node, must be among them for O(state=started).
      - Used for O(state=prepared).
    type: dict
    default: {}
  again:
    description:
      - Prepare a new run although the same training has completed before.
    type: bool
    default: false
  timeout:
    description:
      - >-
        Seconds that O(state=completed) waits for the end, plus 45 seconds in which nodes end their processes. After the
        first failure of a node or rank it waits 45 seconds at most.
    type: int
    default: 3600
seealso:
  - module: hpcai.gpu_cluster.ddp_node_info
  - module: hpcai.gpu_cluster.training_info
"""

EXAMPLES = r"""
- name: Prepare a run of two nodes with eight ranks each
  hpcai.gpu_cluster.ddp_run:
    path: /shared/training/trainer/vision
    state: prepared
    spec:
      nodes: [gpu1, gpu2]
      addresses:
        gpu1: 10.0.0.5
        gpu2: 10.0.0.6
      endpoint: 10.0.0.5:29400
      processes: 8
      python: /shared/pytorch/current/bin/python
      script: /shared/training/trainer/train.py
      arguments: ["--steps", "200"]
      environment:
        CUDA_DEVICE_ORDER: PCI_BUS_ID
      chdir: /shared/training/trainer
      timeout: 3600
    programs:
      ddp_node.py: "{{ lookup('ansible.builtin.file', 'ddp_node.py') }}"
  become: true
  become_user: trainer
  run_once: true
  register: prepared

- name: Start the part of every node
  hpcai.gpu_cluster.ddp_run:
    path: /shared/training/trainer/vision
    state: started
    run: "{{ prepared.run }}"
    node: "{{ inventory_hostname }}"
    user: trainer
  become: true

- name: Wait for the end on all nodes
  hpcai.gpu_cluster.ddp_run:
    path: /shared/training/trainer/vision
    state: completed
    run: "{{ prepared.run }}"
    timeout: 3600
  become: true
  become_user: trainer
  run_once: true

- name: Stop what a node still runs of a training
  hpcai.gpu_cluster.ddp_run:
    path: /shared/training/trainer/vision
    state: stopped
  become: true
"""

RETURN = r"""
run:
  description:
    - >-
      Name of the run that is to be started, or of the one that is running or has completed. In check mode the name that
      a new run would have.
  returned: when O(state=prepared)
  type: str
  sample: run-1
needed:
  description:
    - Whether the run is to be started or awaited. V(false) when the same training has completed before.
  returned: when O(state=prepared)
  type: bool
  sample: true
training:
  description:
    - How the run went on every node and for every rank.
  returned: when O(state=completed), also when the training failed
  type: dict
  contains:
    state:
      description:
        - C(completed) or C(failed).
      returned: always
      type: str
      sample: completed
    run:
      description:
        - Name of the run.
      returned: always
      type: str
      sample: run-1
    directory:
      description:
        - Directory of the run.
      returned: always
      type: str
      sample: /shared/training/trainer/vision/run-1
    world_size:
      description:
        - Number of ranks that the run was to have.
      returned: always
      type: int
      sample: 16
    seconds:
      description:
        - Run time of the node that took longest, V(null) when no node wrote its end.
      returned: always
      type: float
      sample: 12.5
    ended:
      description:
        - Whether every node wrote its end.
      returned: always
      type: bool
      sample: true
    failed:
      description:
        - The first failure, with C(node), C(rank) (V(null) for a node as a whole) and C(why). V(null) without one.
      returned: always
      type: dict
      sample:
        node: gpu2
        rank: 11
        why: was killed by SIGKILL
    nodes:
      description:
        - >-
          Every node, with C(node), C(rc) (exit code of torchrun, V(null) when it wrote no end), C(why) (why it had to
          be ended, empty when it ended by itself) and C(seconds).
      returned: always
      type: list
      elements: dict
      sample:
        - node: gpu1
          rc: 0
          why: ""
          seconds: 12.5
    ranks:
      description:
        - >-
          Every rank that wrote its end, with C(rank), C(node), C(rc) (exit code, negative for a signal),
          C(signalled) (whether it got a signal to end) and C(output) (file of its output).
      returned: always
      type: list
      elements: dict
      sample:
        - rank: 0
          node: gpu1
          rc: 0
          signalled: false
          output: /shared/training/trainer/vision/run-1/ranks/rank-0.txt
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs import ddp

SPEC = {
    "path": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["prepared", "started", "completed", "stopped"], "required": True},
    "run": {"type": "str"},
    "node": {"type": "str"},
    "user": {"type": "str"},
    "spec": {"type": "dict", "default": {}},
    "programs": {"type": "dict", "default": {}},
    "again": {"type": "bool", "default": False},
    "timeout": {"type": "int", "default": 3600},
}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    params = module.params
    folder, name = Path(params["path"]), ddp.unit(params["path"])
    if params["state"] == "started":
        return {"changed": ddp.start_unit(module, name)}
    if params["state"] == "stopped":
        return {"changed": ddp.stop(module, name)}
    if params["state"] == "prepared":
        needed, run = ddp.prepare(folder, params["spec"], params["programs"], params["again"], module.check_mode)
        return {"changed": needed, "needed": needed, "run": run}
    training = ddp.wait(folder, params["run"], params["timeout"])
    if training["state"] != "completed":
        module.fail_json(msg=ddp.report(training, ddp.last_lines(training)), training=training)
    return {"changed": False, "training": training}


def main() -> None:
    module = AnsibleModule(
        argument_spec=SPEC,
        required_if=[
            ("state", "prepared", ["spec", "programs"]),
            ("state", "started", ["run", "node", "user"]),
            ("state", "completed", ["run"]),
        ],
        supports_check_mode=True,
    )
    try:
        result = perform(module)
    except (ddp.DdpError, OSError) as exc:
        module.fail_json(msg=f"Training in {module.params['path']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
