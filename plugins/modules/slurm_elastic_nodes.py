#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have Slurm create nodes before they are needed, and let them go."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_elastic_nodes
short_description: Have Slurm's power saving create nodes before they are needed, and let them go
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - >-
    Works with every cluster whose nodes Slurm creates by its C(ResumeProgram): that of CycleCloud (C(azslurm)), that of
    the role C(slurm_power), or another. No machine is created in any other way, so Slurm and the cloud always agree.
  - >-
    Nodes are kept by one job each (C(hpcai-hold:<node>)) of the user who runs the task. It asks for the node by name,
    for one CPU and for 64 MB, so that other jobs may run beside it, and ends by itself after O(minutes). Slurm suspends
    no node that has a job, however long other nodes take to boot.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  state:
    description:
      - V(held) has Slurm resume nodes until O(count) of O(partition) are up, and keeps them. Nodes that are up count,
        busy ones too. A node that fails to resume gives its place to another one. Calling it again goes on waiting.
      - V(released) ends the jobs that keep nodes. Slurm suspends the nodes when they were idle for its C(SuspendTime).
      - V(suspended) has Slurm power down those of O(names) now that it created and that are idle. It needs the rights
        of a Slurm administrator, such as root's.
      - V(kept) adds O(names) to C(SuspendExcNodes), so that Slurm never suspends them, until somebody takes them out
        again (C(scontrol update SuspendExcNodes-=...)), or slurmctld reads a C(slurm.conf) without them. It needs Slurm
        23.02, also where O(names) is empty, and the rights of a Slurm administrator.
    type: str
    required: true
    choices:
      - held
      - released
      - suspended
      - kept
  count:
    description:
      - Number of nodes. V(0) means all nodes of the partition that are neither drained nor down.
    type: int
    default: 0
  partition:
    description:
      - Partition of the nodes. By default Slurm's default partition.
    type: str
    default: ""
  names:
    description:
      - Nodes, for O(state=suspended) and O(state=kept).
    type: list
    elements: str
    default: []
  minutes:
    description:
      - >-
        Time limit of the jobs that keep nodes, in minutes, from when a node is up. It bounds the cost where nobody
        releases them. Where the partition allows less, it is that.
    type: int
    default: 60
  wait:
    description:
      - >-
        Seconds to wait for the nodes, or for the jobs to end. When they are over, RV(settled) is false, which is no
        error: call the module again.
    type: float
    default: 60
  poll:
    description:
      - Seconds between two looks.
    type: float
    default: 5
  sbatch_options:
    description:
      - Further long options of C(sbatch) for the jobs, such as V(account). Underscores become dashes, V(true) is an
        option without a value.
    type: dict
    default: {}
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_nodes
  - module: hpcai.gpu_cluster.slurm_info
"""

EXAMPLES = r"""
- name: Show which nodes would be created
  hpcai.gpu_cluster.slurm_elastic_nodes:
    state: held
    count: 4
  check_mode: true
  register: nodes

- name: Have four nodes, however long they take to boot
  hpcai.gpu_cluster.slurm_elastic_nodes:
    state: held
    count: 4
  become: true
  become_user: hpcadmin
  register: nodes
  until: nodes.settled | default(false)
  retries: 40
  delay: 1

- name: Let jobs have the nodes alone
  hpcai.gpu_cluster.slurm_elastic_nodes:
    state: released
  become: true
  become_user: hpcadmin

- name: Remove them now
  hpcai.gpu_cluster.slurm_elastic_nodes:
    state: suspended
    names: "{{ nodes.up }}"
  become: true
"""

RETURN = r"""
up:
  description: Nodes that are up, for O(state=held).
  type: list
  elements: str
  returned: with O(state=held)
  sample: [train-ndv4-1, train-ndv4-2]
waiting:
  description: Nodes that are on their way, with the state that Slurm shows.
  type: dict
  returned: with O(state=held)
  sample: {train-ndv4-3: ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP}
unusable:
  description: Nodes of the partition that Slurm cannot use, with their state and reason.
  type: dict
  returned: with O(state=held)
  sample: {train-ndv4-4: "DOWN+CLOUD+POWERED_DOWN: ResumeTimeout reached"}
resumed:
  description: Nodes that this call had Slurm create, or in check mode would.
  type: list
  elements: str
  returned: with O(state=held)
  sample: [train-ndv4-1, train-ndv4-2]
short:
  description: How many fewer nodes can be had than O(count).
  type: int
  returned: with O(state=held)
  sample: 0
settled:
  description: Whether nothing more will come by waiting.
  type: bool
  returned: with O(state=held)
  sample: true
text:
  description: One line about how far the nodes are.
  type: str
  returned: with O(state=held)
  sample: "2 of 3 nodes are up; waiting for train-ndv4-3 ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP"
nodes:
  description: Nodes that were released, are powered down, or are kept.
  type: list
  elements: str
  returned: with the other states
  sample: [train-ndv4-1, train-ndv4-2]
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.elastic import ElasticNodes, options, progress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError

SPEC = {
    "state": {"type": "str", "required": True, "choices": ["held", "released", "suspended", "kept"]},
    "count": {"type": "int", "default": 0},
    "partition": {"type": "str", "default": ""},
    "names": {"type": "list", "elements": "str", "default": []},
    "minutes": {"type": "int", "default": 60},
    "wait": {"type": "float", "default": 60},
    "poll": {"type": "float", "default": 5},
    "sbatch_options": {"type": "dict", "default": {}},
}


def hold(slurm: ElasticNodes, params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Bring nodes up and hold them by jobs; in check mode say which."""
    partition, count = params["partition"], params["count"]
    if check_mode:
        plan = slurm.look(partition, count)
    else:
        limits = (params["minutes"], params["wait"], params["poll"])
        plan = slurm.bring_up(partition, count, *limits, options(params["sbatch_options"]))
    return {
        "changed": bool(plan.resume),
        **{name: getattr(plan, name) for name in ("up", "waiting", "unusable", "short")},
        "resumed": plan.resume,
        "settled": not plan.waiting,
        "text": progress(plan),
    }


def perform(params: t.Mapping[str, t.Any], slurm: ElasticNodes, check_mode: bool) -> dict[str, t.Any]:
    """Hold nodes, or let go of those that are named or held."""
    if params["count"] < 0 or params["minutes"] < 1 or params["poll"] <= 0:
        raise SlurmError("count must not be negative, minutes is at least 1, poll is more than 0")
    if params["state"] == "held":
        return hold(slurm, params, check_mode)
    if params["state"] == "released":
        nodes = [job.node for job in slurm.jobs()] if check_mode else slurm.release(params["wait"])
    elif params["state"] == "suspended":
        nodes = slurm.suspend(params["names"], check_mode)
    else:
        nodes = slurm.keep(params["names"], check_mode)
    return {"changed": bool(nodes), "nodes": nodes}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"SLURM_TIME_FORMAT": TIME_FORMAT}

    def run(argv: list[str]) -> tuple[int, str, str]:
        return module.run_command([module.get_bin_path(argv[0], required=True), *argv[1:]])

    try:
        result = perform(module.params, ElasticNodes(run), module.check_mode)
    except (SlurmError, HostlistError) as exc:
        module.fail_json(msg=f"Nodes cannot be {module.params['state']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
