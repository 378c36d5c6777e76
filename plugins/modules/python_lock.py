#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_lock
short_description: Resolve packages into a lock file that fits an environment
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - With O(python) it returns what an environment has. With O(base), which is that, it has uv resolve O(packages) and
    what O(wheels) require, so that nothing of the environment changes. What does not fit is an error that names it.
  - A lock stays what it is as long as nothing that was asked for changes, whatever is released meanwhile.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full, details: Resolves also in check mode; only the file is not written.}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  python: {type: path, description: Python of an environment on this host.}
  base: {type: dict, description: What this module returned as RV(base) for the environment.}
  packages: {type: list, elements: dict, default: [], description: "C(name) and C(version) of packages of the index."}
  wheels: {type: list, elements: dict, default: [], description: "C(name), C(requires), C(relax) of wheels."}
  path: {type: path, description: Directory for lock files.}
  uv: {type: str, default: uv, description: The program.}
  timeout: {type: float, default: 300, description: Seconds for uv.}
"""

EXAMPLES = r"""
- name: Ask what the environment has
  hpcai.gpu_cluster.python_lock:
    python: /shared/pytorch/current/bin/python
  register: asked

- name: Lock ONNX Runtime training for it
  hpcai.gpu_cluster.python_lock:
    base: "{{ asked.base }}"
    packages: [{name: onnxruntime-training, version: 1.19.2}]
    path: ~/.cache/locks
  delegate_to: localhost
"""

RETURN = r"""
base: {type: dict, description: Packages of the environment and which Python it is., returned: with O(python)}
path: {type: str, description: The lock file; empty when there is nothing to install., returned: with O(base)}
"""

import hashlib
import json
import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import extras_lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.extras_wheel import ExtrasError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path"},
            "base": {"type": "dict"},
            "packages": {"type": "list", "elements": "dict", "default": []},
            "wheels": {"type": "list", "elements": "dict", "default": []},
            "path": {"type": "path"},
            "uv": {"type": "str", "default": "uv"},
            "timeout": {"type": "float", "default": 300},
        },
        required_one_of=[("python", "base")],
        required_by={"base": ["path"]},
        supports_check_mode=True,
    )
    params = module.params
    try:
        if not params["base"]:
            module.exit_json(changed=False, base=extras_lock.installed(params["python"]))
        wanted = extras_lock.inputs(params["packages"], params["wheels"])
        if not wanted:
            module.exit_json(changed=False, path="")
        asked = json.dumps([wanted, params["base"]], sort_keys=True)
        path = Path(params["path"]) / f"extras-{hashlib.sha256(asked.encode()).hexdigest()[:12]}.txt"
        if path.is_file():
            module.exit_json(changed=False, path=str(path))
        lock = extras_lock.compile_lock(params["uv"], wanted, params["base"], params["timeout"])
        if not module.check_mode:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            aside = path.with_name(f".{path.name}.{os.getpid()}")  # two runs may lock the same
            aside.write_text(lock, encoding="utf-8")
            aside.replace(path)
    except (ExtrasError, OSError) as exc:
        module.fail_json(msg=f"No lock can be made: {exc}")
    module.exit_json(changed=True, path=str(path))


if __name__ == "__main__":
    main()
