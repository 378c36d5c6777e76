#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: apex_wheel
short_description: Build and prove one wheel of NVIDIA Apex for one PyTorch
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - A wheel is kept below O(directory) with all that decided what it is, and built again only when that changes.
  - Extensions, their modules and the way they are asked for are read in the release's own C(setup.py).
  - Nothing is built where PyTorch, toolkit, compiler, architectures or disk space do not fit; what does not is named.
  - A wheel is kept after all modules of O(extensions) were imported and, on a GPU, computed what PyTorch computes.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full, details: "The release's own list of extensions is only known once there is O(archive)."}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  directory: {type: path, required: true, description: Where wheels are kept. It may be shared by nodes.}
  python: {type: path, required: true, description: Python of an environment with PyTorch. It is not changed.}
  source:
    {type: dict, required: true, description: "C(git) and C(commit), a full commit id, or C(archive) and C(sha256)."}
  extensions:
    {type: list, elements: str, default: [cpp_ext, cuda_ext], description: Options of C(setup.py) without their dashes.}
  architectures:
    {type: list, elements: str, default: [], description: "Compute capabilities such as V(8.0), for nvcc."}
  submodules:
    description: Path of a git submodule in Apex, and its source given like O(source). Some extensions need one.
    type: dict
    default: {}
  archive: {type: path, description: File on this host with O(source). Needed when there is something to build.}
  submodule_archives: {type: dict, default: {}, description: The same for each path of O(submodules).}
  tools: {type: path, description: Directory with wheels of RV(tools).}
  cuda_home: {type: path, description: "CUDA toolkit; without it C(/usr/local/cuda), then the C(nvcc) on E(PATH)."}
  compiler: {type: path, description: "C++ compiler, for nvcc as well; without it E(CXX), then C(c++)."}
  allow_cuda_mismatch:
    description: Build though the minor versions of nvcc and of PyTorch's CUDA differ. Other major ones are refused.
    type: bool
    default: false
  build_through:
    {type: str, choices: [local, slurm], default: local, description: Build here or on a node of srun's.}
  prove_through:
    {type: str, choices: [local, slurm], description: Where to prove it; without it where it is built.}
  srun_options:
    {type: dict, default: {}, description: Long options of srun; underscores stand for dashes.}
  build_dir:
    description: Where builds happen and leave nothing. The default is C(/var/tmp), with V(slurm) O(directory).
    type: path
  disk: {type: int, default: 2048, description: MiB that O(build_dir) must have free.}
  memory_per_job: {type: int, default: 4096, description: MiB of memory that one compiler is given.}
  jobs: {type: int, description: "Most compilers at a time; the default is what CPUs and memory allow."}
  environment: {type: dict, default: {}, description: More variables for the build.}
  timeout: {type: float, default: 7200, description: "Seconds for the build, with V(slurm) with the time in the queue."}
"""

EXAMPLES = r"""
- name: Build Apex for A100 on a login node without GPUs
  hpcai.gpu_cluster.apex_wheel:
    directory: /shared/wheels
    python: /shared/pytorch/current/bin/python
    source: {git: "https://github.com/NVIDIA/apex.git", commit: 6424da3b4faa6c8f062da4a48c424fff3f02d42d}
    archive: /var/tmp/apex.tar # made by git archive
    extensions: [cpp_ext, cuda_ext, xentropy]
    architectures: ["8.0"]
"""

RETURN = r"""
wheel:
  description: The wheel; V(null) in check mode when it would be built.
  type: dict
  returned: success
  sample:
    path: /shared/wheels/apex-3f1c52a09b7e/apex-0.1-cp311-cp311-linux_x86_64.whl
    sha256: 804a752d80d161a2112a24661d51d03255bb16e439bcc39d7b489ec6b2745d29
    seconds: 700.3
    edited: ""
    proof: {state: imported, said: "1 modules imported, not run: no GPU", gpu: null, modules: [amp_C], left_out: []}
    inputs: {torch: 2.11.0+cu130, nvcc: 13.0.88, compiler: g++ 12.2.0, architectures: ["8.0"]}
sources: {type: list, elements: str, returned: success, description: Sources that a build needs., sample: [apex]}
tools: {type: list, elements: str, returned: success, description: What the environment lacks., sample: [ninja]}
interpreter:
  description: What M(hpcai.gpu_cluster.python_wheelhouse) asks of O(python), when it lacks RV(tools).
  type: dict
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import apex


def main() -> None:
    module = AnsibleModule(argument_spec=apex.SPEC, supports_check_mode=True)
    try:
        result = apex.Worker(module.params, module.check_mode).run()
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Apex: {exc}")
    edited = result["changed"] and result["wheel"] and result["wheel"]["edited"]
    if edited:
        module.warn(f"The wheel of Apex is not built from the release as it is: {edited}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
