#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_environment
short_description: Build, prove and switch to a pinned PyTorch environment
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - An environment is a directory below C(envs) that is named after a digest of all that decides what it is. It is built
    once, proved, never changed afterwards, and used through O(link), which moves in one step.
  - A PyTorch that a driver or its GPUs cannot run is refused before anything is changed, and again when the environment
    tells for which CUDA and GPUs it really is.
  - Run it as the user who owns O(path). Runs that meet, on any host, wait for each other.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  path: {type: path, required: true, description: Directory that all nodes see.}
  link: {type: str, default: current, description: Name of the link beside C(envs) that is to point to the environment.}
  state:
    {type: str, choices: [current, built], default: current, description: V(built) leaves the link where it is.}
  builds:
    description:
      - What there is to choose from. Each has C(lock), the text of a lock file; C(cuda), empty for a build for CPUs and
        null where only the environment will tell; C(capabilities), C(pythons) and C(machines), where it is limited; and
        C(indexes), asked unless O(indexes) names others.
    type: dict
    required: true
  build:
    {type: str, default: auto, description: "One of O(builds), or V(auto) for the newest that O(drivers) run."}
  drivers:
    description:
      - C(host), C(version), C(capabilities) and C(cuda) of each; or C(host) and C(text), what
        C(nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader) said there.
      - A C(cuda) that is given counts more than C(version), for forward compatibility packages.
    type: list
    elements: dict
    default: []
  extra_locks:
    {type: list, elements: dict, default: [], description: "Further lock files (C(name), C(text)), installed after it."}
  wheels:
    {type: list, elements: dict, default: [], description: "Wheels on this host (C(path), C(sha256)), installed last."}
  installer: {type: str, choices: [uv, pip, conda], default: uv, description: What installs.}
  installer_path: {type: path, description: Its program; by default uv from O(folders) or what the host has.}
  installer_lock: {type: str, description: Text of uv's own lock file.}
  python: {type: str, default: "", description: "Interpreter, a path or a version; empty is C(/usr/bin/python3)."}
  folders:
    {type: list, elements: path, default: [], description: Directories with all packages; without any O(indexes) count.}
  indexes: {type: list, elements: str, default: [], description: Package indexes besides those of the host's settings.}
  imports: {type: list, elements: str, default: [], description: Modules that have to be importable besides torch.}
  proof:
    type: str
    choices: [slurm, local, none]
    default: local
    description: Where it has to be proved before the link moves. A build is always proved on its host.
  proved: {type: dict, description: "What M(hpcai.gpu_cluster.python_environment_proof) returned."}
  keep:
    {type: int, default: 3, description: "How many environments stay at least; V(0) removes none, see the role."}
  timeout: {type: float, default: 3600, description: Seconds for one command.}
"""

EXAMPLES = r"""
- name: Have PyTorch for CPUs
  hpcai.gpu_cluster.python_environment:
    path: /shared/pytorch
    builds:
      cpu: {lock: "{{ lookup('ansible.builtin.file', 'cpu.txt') }}", cuda: ""}
    folders: [/var/cache/wheels]
"""

RETURN = r"""
environment:
  {type: dict, returned: success, description: "The environment; C(facts) are what it says of itself.",
   sample: {name: cu130-py3.11-3f1c52a09b7e, build: cu130, facts: {torch: 2.14.1+cu130, cuda: "13.0"}}}
needs:
  {type: dict, returned: success, description: Whether packages or a proof through Slurm are needed.,
   sample: {packages: true, proof: true}}
settled: {type: bool, returned: success, description: Whether there was nothing to do.}
removed: {type: list, elements: str, returned: success, description: Old environments that were removed.}
kept: {type: dict, returned: success, description: Why each of the others stays.}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import python_env


def main() -> None:
    module = AnsibleModule(argument_spec=python_env.SPEC, supports_check_mode=True)
    os.umask(0o022)  # users run what is installed, whatever the owner's own habit is
    try:
        result = python_env.Worker(module.params, module.check_mode).run()
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Python environment: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
