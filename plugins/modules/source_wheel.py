#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: source_wheel
short_description: Build a wheel of a pinned source for one PyTorch environment
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - A wheel is kept below O(directory) in a directory named after a digest of all that decided what it is, and built
    again only when that changes. The environment is not changed and nothing is fetched.
  - Run it as the user who owns O(directory). Runs that meet wait for each other.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  directory: {type: path, required: true, description: Where wheels are kept.}
  python: {type: path, required: true, description: Python of an environment with PyTorch.}
  name: {type: str, required: true, description: Name of the project; a source of another one is refused.}
  version: {type: str, default: "", description: "Version that the source must turn out to be; empty takes any."}
  source:
    {type: dict, required: true, description: "C(git) and C(commit), a full commit id, or C(archive) and C(sha256)."}
  archive: {type: path, description: File on this host with O(source). Needed when there is something to build.}
  tools:
    {type: list, elements: str, default: [pip, setuptools, wheel], description: Projects that the build imports.}
  tools_dir: {type: path, description: Directory with wheels of O(tools).}
  build_options:
    {type: list, elements: str, default: [], description: "Options of the source's C(setup.py), which then builds."}
  editable: {type: bool, default: false, description: "Keep the source beside the wheel, which then only points to it."}
  environment: {type: dict, default: {}, description: Variables for the build.}
  timeout: {type: float, default: 3600, description: Seconds for the build.}
"""

EXAMPLES = r"""
- name: Build DeepSpeed
  hpcai.gpu_cluster.source_wheel:
    directory: /shared/extras
    python: /shared/pytorch/current/bin/python
    name: deepspeed
    version: 0.19.8
    source:
      archive: https://files.pythonhosted.org/packages/source/d/deepspeed/deepspeed-0.19.8.tar.gz
      sha256: 9e491abd0827ea5c389dd702e15e11e13d83d904bac4a20d6c2a4cb37207a9af
    archive: /var/tmp/deepspeed.tar.gz
    tools: [pip, setuptools, wheel, packaging, py-cpuinfo]
    tools_dir: /var/tmp/tools
    environment: {DS_BUILD_OPS: "0"}
"""

RETURN = r"""
wheel:
  description: The wheel; V(null) in check mode when it would be built.
  type: dict
  returned: success
  sample: {path: /shared/extras/deepspeed-13dcab0a6b2c/deepspeed-0.19.8-py3-none-any.whl, name: deepspeed,
           version: 0.19.8, requires: [torch>=2.0.0],
           sha256: 209e7b4c38c6245dd7bc3870c81817fa2eef3d75a77f2c4b9111d89e417a58fb}
interpreter:
  description: What O(python) is, for M(hpcai.gpu_cluster.python_wheelhouse).
  type: dict
  returned: success
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import extras_wheel as extras
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import python_env_python

ARGUMENTS = {
    "directory": {"type": "path", "required": True},
    "python": {"type": "path", "required": True},
    "name": {"type": "str", "required": True},
    "version": {"type": "str", "default": ""},
    "source": {"type": "dict", "required": True},
    "archive": {"type": "path"},
    "tools": {"type": "list", "elements": "str", "default": ["pip", "setuptools", "wheel"]},
    "tools_dir": {"type": "path"},
    "build_options": {"type": "list", "elements": "str", "default": []},
    "editable": {"type": "bool", "default": False},
    "environment": {"type": "dict", "default": {}},
    "timeout": {"type": "float", "default": 3600},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    os.umask(0o022)  # users import what stays editable, whatever the owner's own habit is
    params = module.params
    environment = {key: str(value) for key, value in params["environment"].items()}
    own = {key: params[key] for key in ("python", "name", "version", "source", "tools", "editable")}
    request = extras.Request(
        directory=Path(params["directory"]), options=params["build_options"], environment=environment, **own
    )
    try:
        facts = extras.facts_of(request.python)
        where = extras.place(request, facts)
        found = extras.kept(where)
        changed = found is None
        if changed and not module.check_mode:
            if not params["archive"]:
                raise extras.ExtrasError(f"{request.name} is not built yet, and no archive of its source is given")
            found = extras.build(request, facts, params["archive"], params["tools_dir"] or "", params["timeout"])
    except (extras.ExtrasError, OSError) as exc:
        module.fail_json(msg=f"No wheel of {request.name}: {exc}")
    interpreter = python_env_python.ask(request.python)
    wheel = found and {**found, "path": str(where / found["file"])}
    module.exit_json(changed=changed, wheel=wheel, interpreter=interpreter and interpreter._asdict())


if __name__ == "__main__":
    main()
