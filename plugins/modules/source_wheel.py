#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: source_wheel
short_description: Build a wheel of a pinned source for one PyTorch environment
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - A wheel is kept in a directory below O(directory) that is named after a digest of everything that decides its
    content, and built again only when that changes.
  - The environment of O(python) is not changed, and nothing is fetched. Build tools are unpacked beside the source.
  - Run it as the user who owns O(directory). Runs at the same time wait for each other.
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
  directory:
    description:
      - Directory in which wheels are kept. It is made when it does not exist.
      - It, and each directory above it, has to belong to root or the user of the task, and nobody else may write to it;
        a directory above it may be sticky, as C(/tmp) is. A wheel that somebody else put there is refused.
    type: path
    required: true
  python:
    description:
      - Path of the Python of an environment with PyTorch, with which the wheel is built.
    type: path
    required: true
  name:
    description:
      - Name of the project. A source that turns out to be another project is refused.
    type: str
    required: true
  version:
    description:
      - Version that the source has to have. Empty accepts any.
    type: str
    default: ""
  source:
    description:
      - What pins the source, C(git) and C(commit), a full commit ID, or C(archive) and C(sha256). It is compared with
        O(archive) and never fetched.
    type: dict
    required: true
  archive:
    description:
      - Tar archive on this host with the source. For C(git) it has to be made by C(git archive), which records the
        commit. Required when the wheel is built.
    type: path
  tools:
    description:
      - Projects that the build imports, each of which needs a wheel in O(tools_dir). They are part of the digest.
    type: list
    elements: str
    default:
      - pip
      - setuptools
      - wheel
  tools_dir:
    description:
      - Directory on this host with one wheel of each of O(tools). Required when the wheel is built and O(tools) is not
        empty.
    type: path
  build_options:
    description:
      - Options for the C(setup.py) of the source, which then builds the wheel itself. Without any, C(pip wheel) builds.
    type: list
    elements: str
    default: []
  editable:
    description:
      - Whether the wheel only points to the source, which is kept beside it. For projects that do not work when they
        are installed.
    type: bool
    default: false
  environment:
    description:
      - Environment variables of the build. They are part of the digest.
    type: dict
    default: {}
  timeout:
    description:
      - Seconds that the build may take.
    type: float
    default: 3600
seealso:
  - module: hpcai.gpu_cluster.python_lock
    description: Resolves what the wheel requires.
  - module: hpcai.gpu_cluster.python_environment
  - module: hpcai.gpu_cluster.apex_wheel
"""

EXAMPLES = r"""
- name: Build DeepSpeed without compiled operators
  hpcai.gpu_cluster.source_wheel:
    directory: /shared/extras
    python: /shared/pytorch/current/bin/python
    name: deepspeed
    version: 0.19.8
    source:
      archive: >-
        https://files.pythonhosted.org/packages/bc/d8/3162fc810870df1183e686ec70b57028b464a5940b148a90767c727f113c/deepspeed-0.19.8.tar.gz
      sha256: 9e491abd0827ea5c389dd702e15e11e13d83d904bac4a20d6c2a4cb37207a9af
    archive: /var/tmp/deepspeed.tar.gz
    tools:
      - pip
      - setuptools
      - wheel
      - packaging
      - py-cpuinfo
    tools_dir: /var/tmp/tools
    environment:
      DS_BUILD_OPS: "0"
  register: deepspeed

- name: Build a project from a git commit that stays editable
  hpcai.gpu_cluster.source_wheel:
    directory: /shared/extras
    python: /shared/pytorch/current/bin/python
    name: metaseq
    source:
      git: https://github.com/facebookresearch/metaseq.git
      commit: f7ffa5fd61cf90f498a36d365c13dd7f1a912ff7
    archive: /var/tmp/metaseq.tar
    tools_dir: /var/tmp/tools
    editable: true

- name: Read whether the wheel has to be built
  hpcai.gpu_cluster.source_wheel:
    directory: /shared/extras
    python: /shared/pytorch/current/bin/python
    name: metaseq
    source:
      git: https://github.com/facebookresearch/metaseq.git
      commit: f7ffa5fd61cf90f498a36d365c13dd7f1a912ff7
    editable: true
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
      sample: /shared/extras/deepspeed-13dcab0a6b2c/deepspeed-0.19.8-py3-none-any.whl
    file:
      description:
        - Name of its file.
      returned: always
      type: str
      sample: deepspeed-0.19.8-py3-none-any.whl
    name:
      description:
        - Name of the project as the wheel writes it.
      returned: always
      type: str
      sample: deepspeed
    version:
      description:
        - Version of the wheel.
      returned: always
      type: str
      sample: 0.19.8
    requires:
      description:
        - Requirements of the wheel without those of extras.
      returned: always
      type: list
      elements: str
      sample: ["torch>=2.0.0", "pydantic>=2.0.0"]
    sha256:
      description:
        - SHA-256 digest of the wheel.
      returned: always
      type: str
      sample: 209e7b4c38c6245dd7bc3870c81817fa2eef3d75a77f2c4b9111d89e417a58fb
interpreter:
  description:
    - Description of O(python) for O(hpcai.gpu_cluster.python_wheelhouse#module:interpreter).
  returned: success
  type: dict
  sample: {command: /shared/pytorch/current/bin/python, glibc: "2.36", markers: {python_version: "3.11"}}
"""

import os
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import extras, installer

SPEC = {
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


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Build the wheel for this interpreter unless it is stored."""
    environment = {key: str(value) for key, value in params["environment"].items()}
    own = {key: params[key] for key in ("python", "name", "version", "source", "tools", "editable")}
    request = extras.ExtraRequest(
        directory=Path(params["directory"]), options=params["build_options"], environment=environment, **own
    )
    facts = extras.facts_of(request.python)
    where = extras.wheel_dir(request, facts)
    manifest = extras.stored_manifest(where)
    changed = manifest is None
    if changed and not check_mode:
        if not params["archive"]:
            raise extras.ExtrasError("it is not built yet, and no archive of its source is given")
        manifest = extras.build(request, facts, params["archive"], params["tools_dir"] or "", params["timeout"])
    interpreter = installer.ask(request.python)
    wheel = manifest and {**manifest, "path": str(where / manifest["file"])}
    return {"changed": changed, "wheel": wheel, "interpreter": interpreter and interpreter._asdict()}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    os.umask(0o022)  # users import what stays editable, whatever the owner's own habit is
    try:
        result = perform(module.params, module.check_mode)
    except (extras.ExtrasError, OSError) as exc:
        module.fail_json(msg=f"No wheel of {module.params['name']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
