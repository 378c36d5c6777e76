#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: certification
short_description: Certify nodes and the fabric between them through Slurm
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Has the nodes of a Slurm cluster test themselves and each other as jobs of the task's user, finds out which of them
    are at fault, and issues a certificate that says so with probabilities.
  - Only idle nodes take part. Nothing is drained or repaired; RV(drains) is what M(hpcai.gpu_cluster.slurm_node) takes.
  - Killed at any moment, the jobs go on, and the same task goes on with the same run and every result.
  - A named run that has its certificate is returned without running again.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full, details: [It returns the plan of what would be run, and which runs would be removed.]}
  diff_mode: {support: none}
  idempotent: {support: partial, details: ["With O(run); without it every call that finishes nothing measures again."]}
options:
  dir: {type: path, required: true, description: Directory for all runs; the same on this host and on the nodes.}
  run: {type: str, default: "", description: Name of the run. Without it one that was cut short or a new one.}
  agent: {type: path, required: true, description: "The agent (lookup P(hpcai.gpu_cluster.node_agent#lookup)), here."}
  cluster: {type: str, default: "", description: "Name of the cluster, for the certificate."}
  profile: {type: dict, default: {}, description: "What is expected (P(hpcai.gpu_cluster.sku_profile#lookup))."}
  hosts: {type: str, default: "", description: The nodes as a hostlist; all of the partition without it.}
  partition: {type: str, default: "", description: Slurm's default without it.}
  reservation: {type: str, default: "", description: Reservation in which everything runs; it holds the nodes.}
  nodes_at_once: {type: int, default: 0, description: "Most nodes that are taken at a time; V(0) is all."}
  options: {type: dict, default: {}, description: "Options of the planner: C(k), C(stages), C(drain_at), C(seed) ..."}
  suite: {type: str, default: full, choices: [full, boot, periodic], description: What a node tests of itself.}
  node: {type: dict, default: {}, description: "The agent's configuration on the nodes: C(paths), C(tools) ..."}
  tool: {type: str, default: auto, choices: [auto, nccl, torch], description: "V(auto) is V(nccl) if there are GPUs."}
  gpus: {type: int, description: GPUs of a node; those of the profile without it.}
  infiniband: {type: bool, description: Whether ranks must use InfiniBand; what the profile says without it.}
  nccl:
    {type: dict, default: {}, description: "C(path), C(max_size), C(topology_file), C(environment), C(cpu_masks),
      C(container_image), C(container_mounts) over those of the profile."}
  torch: {type: dict, default: {}, description: "C(python), C(backend), C(ranks_per_node) and C(max_size)."}
  environment: {type: dict, default: {}, description: Variables for measurements between nodes.}
  step_options: {type: dict, default: {}, description: Further long options of srun for measurements between nodes.}
  sbatch_options: {type: dict, default: {}, description: Further long options of sbatch.}
  interpreter: {type: path, default: /usr/bin/python3, description: Python on the nodes.}
  timeout: {type: float, default: 600, description: Seconds for one measurement between nodes.}
  suite_timeout: {type: float, default: 1800, description: Seconds for what a node tests of itself.}
  wait: {type: float, default: 120, description: Seconds that a job may wait for its nodes.}
  patience: {type: float, default: 10, description: Least seconds for a node to begin its task; more is learnt.}
  hold: {type: float, default: 20, description: Most seconds that a node is kept after its own test.}
  poll: {type: float, default: 2, description: Most seconds between looks.}
  keep: {type: int, default: 0, description: "Newest runs that are kept; V(0) is all. See RV(removed)."}
"""

EXAMPLES = r"""
- name: Certify all nodes
  hpcai.gpu_cluster.certification:
    dir: /shared/certification
    agent: /shared/certification/hpcai-agent.pyz
    profile: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96isr_H100_v5') }}"
"""

RETURN = r"""
run: {type: str, returned: always, description: Name of the run.}
directory: {type: str, returned: always, description: Where everything about it is.}
resumed: {type: bool, returned: always, description: Whether it had been begun before.}
removed:
  {type: list, elements: str, returned: always, description: "Runs that were removed, or in check mode would be: none
    that can go on, that has the last word on a node, or that the reason of a drained node names.",
   sample: [20260105T100000Z]}
plan: {type: dict, returned: always, description: "C(tests), C(wall_seconds), C(gpu_hours), C(cost), C(text)."}
certificate: {type: dict, returned: not in check mode, description: The certificate without its rounds.}
checks: {type: list, elements: dict, returned: not in check mode, description: "The records; of many, those not well."}
refused:
  {type: list, elements: dict, returned: not in check mode, description: "What is not well, and why.",
   sample: [{status: drained, text: "n3 is not certified: drained: nccl_pair: busbw ..."}]}
drains:
  {type: list, elements: dict, returned: not in check mode, description: Nodes that should be drained and the reason.,
   sample: [{name: "n[3,17]", reason: "hpcai:certification:hardware fault, run 20260105T100000Z"}]}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import request, task
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm_jobs import Slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT


def main() -> None:
    module = AnsibleModule(argument_spec=request.SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"SLURM_TIME_FORMAT": TIME_FORMAT, "SLURM_BITSTR_LEN": "0"}

    def run(argv: list[str]) -> tuple[int, str, str]:
        return module.run_command([module.get_bin_path(argv[0], required=True), *argv[1:]])

    try:
        found = task.perform(module.params, Slurm(run), module.check_mode)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Cannot certify: {exc}")
    result = {"changed": found.changed, "run": found.run, "directory": found.folder, "resumed": found.resumed}
    result["removed"] = list(found.removed)
    if found.certificate is not None:
        short = {key: value for key, value in found.certificate.items() if key != "rounds"}
        result.update(certificate=short, checks=task.told(found.records), drains=task.drains(found.certificate))
        result["refused"] = task.refused(found.certificate)
    module.exit_json(**result, plan=found.plan)


if __name__ == "__main__":
    main()
