#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environment_proof
short_description: Prove a PyTorch environment on this host or on a compute node
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Starts the interpreter of the environment, imports torch and further modules, computes on the CPU and, where the
    build is for CUDA, on a GPU. It fails unless the results are those that O(want) describes.
  - It runs as the user of the task and changes nothing. In check mode nothing is started.
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
  path:
    description:
      - Directory of the environment, at the same path where the proof runs.
    type: path
    required: true
  launch:
    description:
      - Command that starts a program elsewhere, such as C(srun) with its options. Empty for this host.
    type: list
    elements: str
    default: []
  want:
    description:
      - Expected results, C(environment.want) of module M(hpcai.gpu_cluster.python_environment).
    type: dict
    required: true
    suboptions:
      torch:
        description:
          - Version of PyTorch. An empty one is not compared.
        type: str
      cuda:
        description:
          - CUDA version that PyTorch is built for, empty for CPUs. V(null) is not compared.
        type: str
      imports:
        description:
          - Modules to import.
        type: list
        elements: str
        default: []
      drivers:
        description:
          - Drivers that have to be able to run the build, as
            O(hpcai.gpu_cluster.python_environment#module:drivers) takes them.
        type: list
        elements: dict
        default: []
  gpu:
    description:
      - Whether the computation on a GPU has to succeed. Otherwise it is tried and reported only.
    type: bool
    default: false
  timeout:
    description:
      - Seconds that the proof may take, time in a queue of Slurm included.
    type: float
    default: 600
seealso:
  - module: hpcai.gpu_cluster.python_environment
"""

EXAMPLES = r"""
- name: Prove the environment on a node with GPUs
  hpcai.gpu_cluster.python_environment_proof:
    path: "{{ built.environment.path }}"
    launch:
      - srun
      - --nodes=1
      - --ntasks=1
      - --gres=gpu:1
      - --chdir=/
    want: "{{ built.environment.want }}"
    gpu: true
    timeout: 1800
  become: true
  become_user: trainer
  register: proof

- name: Prove an environment for CPUs on this host
  hpcai.gpu_cluster.python_environment_proof:
    path: /shared/pytorch/current
    want:
      torch: 2.14.1
      cuda: ""
      imports:
        - deepspeed

- name: Prove the environment on this host as the user who trains
  hpcai.gpu_cluster.python_environment_proof:
    path: /shared/pytorch/current
    want: "{{ built.environment.want }}"
    gpu: true
  become: true
  become_user: trainer
"""

RETURN = r"""
proved:
  description:
    - Results of the proof, V(null) in check mode.
  returned: success
  type: dict
  contains:
    host:
      description:
        - Short name of the host on which it ran.
      returned: always
      type: str
      sample: ndv4-gpu-1
    python:
      description:
        - Python version.
      returned: always
      type: str
      sample: 3.11.2
    torch:
      description:
        - PyTorch version.
      returned: always
      type: str
      sample: 2.14.1+cu130
    cuda:
      description:
        - CUDA version that PyTorch is built for, V(null) for CPUs.
      returned: always
      type: str
      sample: "13.0"
    site:
      description:
        - Directory in which PyTorch is installed.
      returned: always
      type: str
      sample: /shared/pytorch/envs/cu130-py3.11-3f1c52a09b7e/lib/python3.11/site-packages
    cxx11abi:
      description:
        - Whether PyTorch is built with the C++11 ABI.
      returned: always
      type: bool
      sample: true
    archs:
      description:
        - GPU architectures that PyTorch has code for, empty for CPUs.
      returned: always
      type: list
      elements: str
      sample: [sm_80, sm_90, sm_100]
    imports:
      description:
        - Modules that were imported.
      returned: always
      type: list
      elements: str
      sample: [deepspeed]
    sum:
      description:
        - Sum of the elements of a product on the CPU, which has to be 8.
      returned: always
      type: float
      sample: 8.0
    gpus:
      description:
        - Number of GPUs that PyTorch sees.
      returned: always
      type: int
      sample: 1
    gpu_sum:
      description:
        - Sum of the elements of a product on a GPU, 262144 when it is right, V(null) when it could not be computed.
      returned: always
      type: float
      sample: 262144.0
    gpu_error:
      description:
        - Why it could not be computed on a GPU, else V(null).
      returned: always
      type: str
      sample:
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import installer as proof

SPEC = {
    "path": {"type": "path", "required": True},
    "launch": {"type": "list", "elements": "str", "default": []},
    "want": {
        "type": "dict",
        "required": True,
        "options": {
            "torch": {"type": "str"},
            "cuda": {"type": "str"},
            "imports": {"type": "list", "elements": "str", "default": []},
            "drivers": {"type": "list", "elements": "dict", "default": []},
        },
    },
    "gpu": {"type": "bool", "default": False},
    "timeout": {"type": "float", "default": 600},
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Import and try what the environment is for, where it has to work."""
    if check_mode:
        return {"proved": None}
    argv = [*params["launch"], *proof.argv(params["path"], params["want"]["imports"] or [])]
    where = f"when started by {' '.join(params['launch'])}" if params["launch"] else "here"
    outcome = run(argv, params["timeout"])
    return {"proved": proof.accept(proof.read(outcome, where), params["want"], params["gpu"], where)}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (ValueError, OSError) as exc:
        advice = "Nothing was switched; pytorch_proof and pytorch_proof_gpu say where it has to work"
        module.fail_json(msg=f"Proof of {module.params['path']}: {exc}. {advice}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
