#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: apex_wheel
short_description: Build and prove a wheel of NVIDIA Apex for one PyTorch environment
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - A wheel is kept in a directory below O(directory) that is named after a digest of everything that decides its
    content, and built again only when that changes. The environment of O(python) is not changed.
  - The extensions that a release of Apex has, their modules and the way to select them are read from its own
    C(setup.py).
  - Nothing is built when PyTorch, CUDA toolkit, compiler, architectures or disk space do not fit. All problems are
    reported at once.
  - A wheel is kept only after all modules of O(extensions) were imported, hold code for O(architectures), and those
    with a check gave the results of PyTorch. The checks of fused Adam and fused layer norm need a GPU.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
attributes:
  check_mode:
    support: full
    details: Names of extensions are compared with the release only when it is built, because O(archive) is not read.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  directory:
    description:
      - Directory in which wheels are kept. It may be shared by nodes, and has to be with V(slurm).
      - It, and each directory above it, has to belong to root or the user of the task, and nobody else may write to it;
        a directory above it may be sticky, as C(/tmp) is. A wheel that somebody else put there is refused.
    type: path
    required: true
  python:
    description:
      - Path of the Python of an environment with PyTorch.
    type: path
    required: true
  source:
    description:
      - What pins the source of Apex, C(git) and C(commit), a full commit ID, or C(archive) and C(sha256). It is
        compared with O(archive) and never fetched.
    type: dict
    required: true
  extensions:
    description:
      - Extensions to build, the options of C(setup.py) without their dashes. At least one is required; V(cpp_ext) alone
        needs no CUDA toolkit.
    type: list
    elements: str
    default:
      - cpp_ext
      - cuda_ext
  architectures:
    description:
      - Compute capabilities of the GPUs, such as V(8.0), V(9.0a) or V(8.0+PTX). Required by every extension besides
        V(cpp_ext).
    type: list
    elements: str
    default: []
  submodules:
    description:
      - By the path of a git submodule in Apex, what pins its source, in the form of O(source). Some extensions need
        one, which the module then names.
    type: dict
    default: {}
  archive:
    description:
      - Tar archive on this host with the source. For C(git) it has to be made by C(git archive), which records the
        commit. Required when a wheel is built.
    type: path
  submodule_archives:
    description:
      - The archive of each path of O(submodules).
    type: dict
    default: {}
  tools:
    description:
      - Directory with wheels of the build tools that the environment lacks, see RV(tools). Required when a wheel is
        built and it lacks any.
    type: path
  cuda_home:
    description:
      - Directory of the CUDA toolkit. The default is the one in the environment of O(python), if it holds the package
        C(nvidia-cuda-nvcc), else C(/usr/local/cuda), else that of the C(nvcc) on E(PATH).
    type: path
  compiler:
    description:
      - Path of the C++ compiler, which nvcc uses as well. The default is E(CXX), else C(c++).
    type: path
  allow_cuda_mismatch:
    description:
      - Whether to build when the minor versions of nvcc and of the CUDA of PyTorch differ, which the C(setup.py) of
        Apex refuses. Different major versions are always refused.
    type: bool
    default: false
  build_through:
    description:
      - Where to build. V(local) builds on this host, V(slurm) on a node through C(srun).
    type: str
    choices:
      - local
      - slurm
    default: local
  prove_through:
    description:
      - Where to prove the wheel. The default is the value of O(build_through).
    type: str
    choices:
      - local
      - slurm
  srun_options:
    description:
      - Long options of C(srun) for V(slurm). Underscores stand for dashes, V(true) is an option without a value,
        V(false) leaves one out. One task on one node with the job name C(apex) is the default.
    type: dict
    default: {}
  build_dir:
    description:
      - Directory for temporary files of a build, which are removed afterwards. The default is C(/var/tmp), and
        O(directory) with O(build_through=slurm), because the node has to see it.
    type: path
  disk:
    description:
      - MiB that have to be free in O(build_dir).
    type: int
    default: 2048
  memory_per_job:
    description:
      - MiB of memory that are counted for one compiler process when their number is chosen.
    type: int
    default: 4096
  jobs:
    description:
      - Limit of the number of compiler processes. Without it CPUs and O(memory_per_job) alone decide.
    type: int
  environment:
    description:
      - Further environment variables of the build. They are part of the digest.
    type: dict
    default: {}
  timeout:
    description:
      - Seconds that one command, such as the build, may take. With V(slurm) this includes the time in the queue.
    type: float
    default: 7200
seealso:
  - module: hpcai.gpu_cluster.python_environment
  - module: hpcai.gpu_cluster.python_wheelhouse
    description: Downloads the wheels of RV(tools).
  - module: hpcai.gpu_cluster.source_wheel
"""

EXAMPLES = r"""
- name: Build Apex for A100 on a login node without GPUs
  hpcai.gpu_cluster.apex_wheel:
    directory: /shared/wheels
    python: /shared/pytorch/current/bin/python
    source:
      git: https://github.com/NVIDIA/apex.git
      commit: 6424da3b4faa6c8f062da4a48c424fff3f02d42d
    archive: /var/tmp/apex.tar
    extensions:
      - cpp_ext
      - cuda_ext
      - xentropy
    architectures:
      - "8.0"
  register: apex

- name: Build Apex for H100 on this host and prove it on a GPU through Slurm
  hpcai.gpu_cluster.apex_wheel:
    directory: /shared/wheels
    python: /shared/pytorch/current/bin/python
    source:
      archive: https://github.com/NVIDIA/apex/archive/refs/tags/25.09.tar.gz
      sha256: "{{ apex_sha256 }}"
    archive: /var/tmp/apex-25.09.tar.gz
    architectures:
      - "9.0"
    cuda_home: /usr/local/cuda-13.0
    prove_through: slurm
    srun_options:
      partition: gpu
      gres: gpu:1

- name: Read whether a wheel would be built, and which tools the environment lacks
  hpcai.gpu_cluster.apex_wheel:
    directory: /shared/wheels
    python: /shared/pytorch/current/bin/python
    source:
      git: https://github.com/NVIDIA/apex.git
      commit: 6424da3b4faa6c8f062da4a48c424fff3f02d42d
    architectures:
      - "8.0"
  check_mode: true
  register: plan
"""

RETURN = r"""
wheel:
  description:
    - The wheel, V(null) in check mode when it would be built.
  returned: success
  type: dict
  contains:
    path:
      description:
        - Path of the wheel.
      returned: always
      type: str
      sample: /shared/wheels/apex-3f1c52a09b7e/apex-0.1-cp311-cp311-linux_x86_64.whl
    sha256:
      description:
        - SHA-256 digest of the wheel.
      returned: always
      type: str
      sample: 804a752d80d161a2112a24661d51d03255bb16e439bcc39d7b489ec6b2745d29
    seconds:
      description:
        - Seconds that its build took.
      returned: always
      type: float
      sample: 700.3
    edited:
      description:
        - What was changed in C(setup.py) for the build, empty when nothing was. The module warns when it is not empty.
      returned: always
      type: str
      sample: ""
    proof:
      description:
        - The proof. C(state) is V(computed), or V(imported) when no result was compared on a GPU. C(summary) is a
          sentence, C(gpu) the name of the GPU, C(modules) what was imported, C(left_out) what the release left out.
        - C(code) is, by module, what it holds device code for, machine code (C(sm_)) or PTX (C(compute_)). It is read
          in the wheel itself; one that would not run on a GPU of O(architectures) is not kept. Wheels that were kept
          before modules were looked at do not have it.
      returned: always
      type: dict
      sample: {state: imported, summary: "amp_C imported, not run: no GPU", gpu: null, modules: [amp_C], left_out: [],
        code: {amp_C: [sm_80, sm_90]}}
    inputs:
      description:
        - Everything that decides the content of the wheel.
      returned: always
      type: dict
      sample: {torch: 2.11.0+cu130, cuda: "13.0", nvcc: 13.0.88, compiler: g++ 12.2.0, architectures: ["8.0"]}
sources:
  description:
    - Sources that the build needs or needed, C(apex) and the paths of O(submodules). Empty when the wheel was there.
  returned: success
  type: list
  elements: str
  sample: [apex]
tools:
  description:
    - Build tools that the environment lacks. Empty when the wheel was there.
  returned: success
  type: list
  elements: str
  sample: [ninja]
interpreter:
  description:
    - Description of O(python) for O(hpcai.gpu_cluster.python_wheelhouse#module:interpreter), V(null) when RV(tools) is
      empty.
  returned: success
  type: dict
  sample: {command: /shared/pytorch/current/bin/python, glibc: "2.36", markers: {python_version: "3.11"}}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import apex


def main() -> None:
    module = AnsibleModule(argument_spec=apex.SPEC, supports_check_mode=True)
    try:
        result = apex.ApexBuilder(module.params, module.check_mode).perform()
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Apex: {exc}")
    edited = result["changed"] and result["wheel"] and result["wheel"]["edited"]
    if edited:
        module.warn(f"The wheel of Apex is not built from the release as it is: {edited}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
