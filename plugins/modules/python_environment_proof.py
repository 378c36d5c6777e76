#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environment_proof
short_description: Prove a PyTorch environment on a compute node
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Starts the environment's interpreter through O(launch) as the task's user, imports and computes there, on a GPU
    where O(gpu) says so, and fails unless what it finds is what O(want) says.
  - In check mode nothing is started.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  path: {type: path, required: true, description: Directory of the environment.}
  launch: {type: list, elements: str, default: [], description: "What starts a program elsewhere, such as C(srun)."}
  want:
    {type: dict, required: true, description: "C(want) of RV(hpcai.gpu_cluster.python_environment#module:environment)."}
  gpu: {type: bool, default: false, description: Whether it has to compute on a GPU.}
  timeout: {type: float, default: 600, description: "Seconds that it may take, with its time in a queue."}
"""

EXAMPLES = r"""
- name: Prove it on a node with GPUs
  hpcai.gpu_cluster.python_environment_proof:
    path: "{{ built.environment.path }}"
    launch: [srun, --nodes=1, --ntasks=1, --gres=gpu:1, --chdir=/]
    want: "{{ built.environment.want }}"
    gpu: true
  become: true
  become_user: trainer
"""

RETURN = r"""
proved:
  {type: dict, returned: success, description: What the environment found there; null in check mode.,
   sample: {host: c1, torch: 2.14.1+cu130, cuda: "13.0", gpus: 1, gpu_sum: 262144.0, imports: []}}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import python_env_proof as proof


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "launch": {"type": "list", "elements": "str", "default": []},
            "want": {"type": "dict", "required": True},
            "gpu": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": 600},
        },
        supports_check_mode=True,
    )
    params, found = module.params, None
    if not module.check_mode:
        argv = [*params["launch"], *proof.argv(params["path"], params["want"].get("imports") or [])]
        where = f"when started by {' '.join(params['launch'])}" if params["launch"] else "here"
        try:
            outcome = run(argv, params["timeout"])
            found = proof.accept(proof.read(outcome, where), params["want"], params["gpu"], where)
        except (ValueError, OSError) as exc:
            advice = "Nothing was switched; pytorch_proof and pytorch_proof_gpu say where it has to work"
            module.fail_json(msg=f"Proof of {params['path']}: {exc}. {advice}")
    module.exit_json(changed=False, proved=found)


if __name__ == "__main__":
    main()
