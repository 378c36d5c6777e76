#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_lock
short_description: Resolve packages into a lock file that fits an environment
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - With O(python) alone it returns the packages of an environment. With O(base), which is that result, it lets uv
    resolve O(packages) and the requirements of O(wheels) in such a way that no package of the environment changes. A
    conflict is an error with the text of uv.
  - The lock file has hashes and leaves out what the environment has. Its name follows from the options, and a file that
    exists is used as it is, so that a lock stays the same whatever is released meanwhile.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
requirements:
  - uv, on the host that resolves
attributes:
  check_mode:
    support: full
    details: It resolves in check mode as well, and does not write the file.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  python:
    description:
      - Python of an environment on this host. Either it or O(base) is required, and O(base) wins.
    type: path
  base:
    description:
      - RV(base) of the environment for which packages are resolved, from a run with O(python). Its machine has to be
        C(x86_64) or C(aarch64). It requires O(path).
    type: dict
  packages:
    description:
      - Packages of an index, each with C(name) and C(version), and optionally C(versions), those that go with the
        PyTorch of O(base), by its MAJOR.MINOR. Entries that have a C(source) are passed over, because they are built as
        wheels.
    type: list
    elements: dict
    default: []
  wheels:
    description:
      - Wheels that will be installed beside the lock. Each has C(name), C(version), C(requires), the list of its
        requirements, and optionally C(relax), names of requirements of which any version will do. They do not count as
        requirements of each other.
    type: list
    elements: dict
    default: []
  path:
    description:
      - Directory on this host in which lock files are kept. It is made when it does not exist.
    type: path
  uv:
    description:
      - Name or path of the program C(uv).
    type: str
    default: uv
  timeout:
    description:
      - Seconds that one run of uv may take. Two are needed when the environment has local versions such as
        C(2.14.1+cu130).
    type: float
    default: 300
seealso:
  - module: hpcai.gpu_cluster.python_wheelhouse
  - module: hpcai.gpu_cluster.python_environment
"""

EXAMPLES = r"""
- name: Read what the environment has
  hpcai.gpu_cluster.python_lock:
    python: /shared/pytorch/current/bin/python
  register: environment

- name: Lock ONNX Runtime for training beside it
  hpcai.gpu_cluster.python_lock:
    base: "{{ environment.base }}"
    packages:
      - name: onnxruntime-training
        version: 1.19.2
    path: ~/.cache/hpcai.gpu_cluster/locks
  delegate_to: localhost
  register: extras

- name: Lock what a wheel of DeepSpeed requires, with any version of pydantic
  hpcai.gpu_cluster.python_lock:
    base: "{{ environment.base }}"
    wheels:
      - name: deepspeed
        version: "{{ deepspeed.wheel.version }}"
        requires: "{{ deepspeed.wheel.requires }}"
        relax:
          - pydantic
    path: ~/.cache/hpcai.gpu_cluster/locks
  delegate_to: localhost
"""

RETURN = r"""
base:
  description:
    - The environment.
  returned: with O(python) and without O(base)
  type: dict
  contains:
    packages:
      description:
        - Versions of the installed packages by name.
      returned: always
      type: dict
      sample: {torch: 2.14.1+cu130, numpy: 2.3.4}
    python:
      description:
        - Python version without its last part.
      returned: always
      type: str
      sample: "3.11"
    machine:
      description:
        - Architecture of the machine.
      returned: always
      type: str
      sample: x86_64
path:
  description:
    - Path of the lock file, empty when there is nothing to install, because nothing is asked for or the environment has
      all of it. In check mode a new file is not there.
  returned: with O(base)
  type: str
  sample: /home/admin/.cache/hpcai.gpu_cluster/locks/extras-1f0b6de5a9c4.txt
"""

import hashlib
import json
import os
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import extras
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.extras import ExtrasError

SPEC: dict[str, dict[str, t.Any]] = {
    "python": {"type": "path"},
    "base": {"type": "dict"},
    "packages": {"type": "list", "elements": "dict", "default": []},
    "wheels": {"type": "list", "elements": "dict", "default": []},
    "path": {"type": "path"},
    "uv": {"type": "str", "default": "uv"},
    "timeout": {"type": "float", "default": 300},
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Return what the environment has, or the lock of what goes on top of it."""
    if not params["base"]:
        return {"changed": False, "base": extras.installed(params["python"])}
    requirements = extras.inputs(params["packages"], params["wheels"], str(params["base"]["packages"].get("torch", "")))
    if not requirements:
        return {"changed": False, "path": ""}
    base = extras.with_wheels(params["base"], params["wheels"])
    request = json.dumps([requirements, base], sort_keys=True)
    path = Path(params["path"]) / f"extras-{hashlib.sha256(request.encode()).hexdigest()[:12]}.txt"
    if path.is_file():
        return {"changed": False, "path": _named(path, path.read_text(encoding="utf-8"))}
    lock = extras.compile_lock(params["uv"], requirements, base, params["timeout"])
    if not check_mode:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.getpid()}")  # two runs may lock the same
        aside.write_text(lock, encoding="utf-8")
        aside.replace(path)
    return {"changed": True, "path": _named(path, lock)}


def _named(path: Path, lock: str) -> str:
    """Return the path of a lock that names packages: a wheel may need nothing that the environment lacks."""
    return str(path) if lock.strip() else ""


def main() -> None:
    module = AnsibleModule(
        argument_spec=SPEC,
        required_one_of=[("python", "base")],
        required_by={"base": ["path"]},
        supports_check_mode=True,
    )
    try:
        result = perform(module.params, module.check_mode)
    except (ExtrasError, OSError) as exc:
        module.fail_json(msg=f"No lock can be made: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
