#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environment
short_description: Build, prove and switch to a pinned PyTorch environment
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - An environment is a directory below C(envs) in O(path). Its name ends with a digest of everything that decides its
    content, such as lock files, wheels, installer, interpreter and platform. It is built once, proved, never changed
    afterwards, and used through O(link), which is moved in one step.
  - A build of PyTorch that a driver or its GPUs cannot run is refused before anything is changed. What the finished
    environment reports about its CUDA and GPUs is compared again.
  - Old environments are removed when no link and no program needs them, see O(keep).
  - Run it as the user who owns O(path). Runs at the same time, on any host, wait for each other.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details: Shows where O(link) points.
  idempotent:
    support: full
options:
  path:
    description:
      - Directory of the environments, at the same path on all nodes.
      - All users run what is in it. So C(envs) in it, and each directory above that, has to belong to root or the user
        of the task, and nobody else may write to it; a directory above it may be sticky, as C(/tmp) is. What somebody
        else made there is refused, and the message names its path and owner.
    type: path
    required: true
  link:
    description:
      - Name of the link in O(path) that is to point to the environment. The link C(<link>.previous) points to the
        environment before it.
    type: str
    default: current
  state:
    description:
      - V(current) builds and proves the environment, moves the link and removes old environments. V(built) builds and
        proves it, and leaves the link where it is.
    type: str
    choices:
      - current
      - built
    default: current
  builds:
    description:
      - Builds of PyTorch to choose from, by name. Each is a dictionary of the following keys.
      - C(lock), required, is the text of a lock file, a requirements file in which every package is pinned, or for
        O(installer=conda) an explicit conda specification with digests.
      - C(cuda) is the CUDA version of the build, empty for CPUs, which is the default, or V(null) when only the
        finished environment can tell.
      - C(capabilities), C(pythons) and C(machines) are lists of the compute capabilities, Python versions and
        architectures to which the build is limited. A list that is empty or missing limits nothing.
      - C(indexes) are package indexes that have the build, used when O(indexes) is empty.
    type: dict
    required: true
  build:
    description:
      - Name of the build in O(builds), or V(auto). V(auto) takes the build with the newest CUDA that all O(drivers)
        run natively, otherwise the one with the oldest CUDA that they run by minor version compatibility, and without
        drivers the first build for CPUs.
    type: str
    default: auto
  drivers:
    description:
      - NVIDIA drivers of the nodes that use the environment. Each is a dictionary of C(host), C(version), such as
        V(580.65.06), C(capabilities), the list of compute capabilities of the GPUs, and C(cuda); or of C(host) and
        C(text), the output of C(nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader).
      - C(cuda) is the CUDA version that NVIDIA's forward compatibility package brings. It counts instead of C(version).
    type: list
    elements: dict
    default: []
  extra_locks:
    description:
      - Further lock files, installed in their order after the one of the build. Each has C(name) and C(text). A
        requirements file has hashes for every package.
    type: list
    elements: dict
    default: []
  wheels:
    description:
      - Wheels on this host, installed last and without an index. Each has C(path) and C(sha256), which is compared.
    type: list
    elements: dict
    default: []
  installer:
    description:
      - Program that installs. V(uv) and V(pip) create a virtual environment; V(pip) needs the modules venv and
        ensurepip of the interpreter. V(conda) is micromamba, mamba or conda and brings its own Python.
    type: str
    choices:
      - uv
      - pip
      - conda
    default: uv
  installer_path:
    description:
      - Path of the installer. Without it uv comes from a wheel in O(folders), else the program on E(PATH) or in a usual
        directory is taken. It has no effect with O(installer=pip).
    type: path
  installer_lock:
    description:
      - Text of a lock file of uv itself, with hashes. The uv wheel in O(folders) has to match one of them.
    type: str
  python:
    description:
      - Interpreter, as a path or as a version such as V(3.12), which is looked up in E(PATH) and usual directories.
        Empty means C(/usr/bin/python3).
    type: str
    default: ""
  folders:
    description:
      - Directories on this host that hold all packages. With any, no index is used. The first holds the packages of a
        conda specification.
    type: list
    elements: path
    default: []
  indexes:
    description:
      - URLs of package indexes in addition to those that pip or uv of this host are configured with. A URL with a
        password is refused, put it into the C(~/.netrc) of the user.
    type: list
    elements: str
    default: []
  imports:
    description:
      - Modules besides torch that a proof has to import.
    type: list
    elements: str
    default: []
  proof:
    description:
      - Proof that is required before the link moves. V(slurm) requires O(proved), a proof on a compute node. V(local)
        is satisfied with the proof on this host, which every build includes. V(none) accepts a recorded environment
        without a new proof when O(imports) has changed.
    type: str
    choices:
      - slurm
      - local
      - none
    default: local
  proved:
    description:
      - Result RV(hpcai.gpu_cluster.python_environment_proof#module:proved) of module
        M(hpcai.gpu_cluster.python_environment_proof), which is recorded with the environment.
    type: dict
  archive:
    description:
      - Whether the environment also has all of its files in one, C(environment.tar) in its directory. Nodes unpack it
        on their own disks instead of reading each file from O(path). It doubles the space that an environment takes.
      - V(false) leaves one that is there.
    type: bool
    default: false
  keep:
    description:
      - Number of environments that stay at least, the newest ones. Others stay as long as a link points to them, a
        process on this host uses them, or a Slurm job runs that started before the link left them. V(0) removes none,
        negative numbers are refused.
    type: int
    default: 3
  timeout:
    description:
      - Seconds that one command, such as the installation of one lock file, may take.
    type: float
    default: 3600
seealso:
  - module: hpcai.gpu_cluster.python_environment_proof
  - module: hpcai.gpu_cluster.python_wheelhouse
  - module: hpcai.gpu_cluster.python_lock
"""

EXAMPLES = r"""
- name: Build PyTorch for CPUs from packages that are on this host
  hpcai.gpu_cluster.python_environment:
    path: /shared/pytorch
    builds:
      cpu:
        lock: "{{ lookup('ansible.builtin.file', 'cpu.txt') }}"
        cuda: ""
    folders:
      - /var/cache/wheels
  become: true
  become_user: trainer

- name: Build the newest PyTorch that the drivers of the nodes run, without using it yet
  hpcai.gpu_cluster.python_environment:
    path: /shared/pytorch
    state: built
    builds:
      cu128:
        lock: "{{ lookup('ansible.builtin.file', 'cu128.txt') }}"
        cuda: "12.8"
        capabilities: ["8.0", "9.0"]
      cu130:
        lock: "{{ lookup('ansible.builtin.file', 'cu130.txt') }}"
        cuda: "13.0"
        capabilities: ["8.0", "9.0", "10.0"]
    drivers:
      - host: ndv4-gpu-1
        version: 580.65.06
        capabilities: ["8.0"]
    proof: slurm
  become: true
  become_user: trainer
  register: built

- name: Use it after it was proved on a compute node
  hpcai.gpu_cluster.python_environment:
    path: /shared/pytorch
    builds: "{{ pytorch_builds }}"
    drivers: "{{ pytorch_drivers }}"
    proof: slurm
    proved: "{{ proof.proved }}"
    keep: 2
  become: true
  become_user: trainer

- name: Build an environment with Python 3.12, a further lock file and a wheel of Apex, under a link of its own
  hpcai.gpu_cluster.python_environment:
    path: /shared/pytorch
    link: apex
    builds: "{{ pytorch_builds }}"
    build: cu130
    python: "3.12"
    extra_locks:
      - name: extras
        text: "{{ lookup('ansible.builtin.file', extras.path) }}"
    wheels:
      - path: "{{ apex.wheel.path }}"
        sha256: "{{ apex.wheel.sha256 }}"
    imports:
      - apex
  become: true
  become_user: trainer
"""

RETURN = r"""
environment:
  description:
    - The environment that the options describe, whether it exists yet or not.
  returned: success
  type: dict
  contains:
    name:
      description:
        - Name of its directory.
      returned: always
      type: str
      sample: cu130-py3.11-3f1c52a09b7e
    path:
      description:
        - Path of its directory.
      returned: always
      type: str
      sample: /shared/pytorch/envs/cu130-py3.11-3f1c52a09b7e
    build:
      description:
        - Name of the build in O(builds).
      returned: always
      type: str
      sample: cu130
    cuda:
      description:
        - CUDA version of the build, empty for CPUs, V(null) when unknown.
      returned: always
      type: str
      sample: "13.0"
    why:
      description:
        - Why this build was chosen.
      returned: always
      type: str
      sample: the newest that driver 580.65.06 runs natively
    python:
      description:
        - The interpreter with C(command), C(glibc) and C(markers), for
          O(hpcai.gpu_cluster.python_wheelhouse#module:interpreter).
      returned: always
      type: dict
      sample: {command: /usr/bin/python3, glibc: "2.36", markers: {python_version: "3.11", platform_machine: x86_64}}
    facts:
      description:
        - What the environment reported when it was built, as in
          RV(hpcai.gpu_cluster.python_environment_proof#module:proved). V(null) before.
      returned: always
      type: dict
      sample: {torch: 2.14.1+cu130, cuda: "13.0", python: 3.11.2, imports: []}
    seconds:
      description:
        - Seconds that the installation took, V(null) when nothing was built.
      returned: always
      type: float
      sample: 184.2
    indexes:
      description:
        - Package indexes that are used besides the configured ones.
      returned: always
      type: list
      elements: str
      sample: ["https://download.pytorch.org/whl/cu130"]
    want:
      description:
        - What a proof has to find, for O(hpcai.gpu_cluster.python_environment_proof#module:want).
      returned: always
      type: dict
      sample: {cuda: "13.0", torch: 2.14.1, imports: [], drivers: []}
    proofs:
      description:
        - Recorded proofs, C(local) and C(slurm).
      returned: always
      type: dict
      sample: {local: {host: ndv4-scheduler, torch: 2.14.1+cu130, cuda: "13.0", gpus: 0, imports: []}}
needs:
  description:
    - What the caller still has to provide.
  returned: success
  type: dict
  contains:
    packages:
      description:
        - Whether the environment does not exist, so that a build needs packages.
      returned: always
      type: bool
      sample: true
    proof:
      description:
        - Whether O(proof=slurm) and no proof on a compute node covers O(imports).
      returned: always
      type: bool
      sample: true
settled:
  description:
    - Whether there was nothing to do.
  returned: success
  type: bool
  sample: false
removed:
  description:
    - Names of old environments that were removed, in check mode of those that would be.
  returned: success
  type: list
  elements: str
  sample: [cu128-py3.11-90c1d5a2f0be]
kept:
  description:
    - By the name of each other environment, the reason why it stays. Empty with O(state=built).
  returned: success
  type: dict
  sample: {cu130-py3.11-3f1c52a09b7e: "a link points to it, or pointed to it before"}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import environment


def main() -> None:
    module = AnsibleModule(argument_spec=environment.SPEC, supports_check_mode=True)
    os.umask(0o022)  # users run what is installed, whatever the owner's own habit is
    try:
        result = environment.EnvironmentWorker(module.params, module.check_mode).perform()
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Python environment: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
