#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_wheelhouse
short_description: Download the packages of a lock file for another machine
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Runs C(pip download) on this host for the interpreter and platform of another one. Packages of an explicit conda
    specification are downloaded from their URLs and compared with their digests.
  - The directory has a digest in its name and appears in one step, so that it is complete when it exists. Then nothing
    is downloaded.
  - Only wheels are downloaded, no sources. Markers in the lock file are evaluated for the other machine, where pip
    would evaluate them for its own.
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
      - Directory on this host in which the directories of packages are kept. It has to belong to root or the user of
        the task, and nobody else may write to it.
    type: path
    required: true
  name:
    description:
      - Name of the lock file, with which the name of its directory begins.
    type: str
    required: true
  lock:
    description:
      - Text of the lock file, in which every package is pinned and has hashes.
    type: str
    required: true
  interpreter:
    description:
      - Interpreter of the other machine, C(environment.python) of module M(hpcai.gpu_cluster.python_environment).
        C(glibc) is the version of its C library, C(markers) are its environment markers.
    type: dict
    required: true
  platforms:
    description:
      - Platform tags of wheels, the best first. The default is every manylinux tag that the C library of the other
        machine supports.
    type: list
    elements: str
    default: []
  python:
    description:
      - Interpreter on this host whose pip downloads.
    type: path
    required: true
  indexes:
    description:
      - URLs of package indexes in addition to those that pip of this host is configured with. A URL with a password is
        refused.
    type: list
    elements: str
    default: []
  timeout:
    description:
      - Seconds that C(pip download) may take.
    type: float
    default: 3600
seealso:
  - module: hpcai.gpu_cluster.python_environment
    description: Installs from the directory, with its option C(folders).
"""

EXAMPLES = r"""
- name: Read what the nodes need
  hpcai.gpu_cluster.python_environment:
    path: /shared/pytorch
    builds: "{{ pytorch_builds }}"
  check_mode: true
  register: plan

- name: Download it on the control host
  hpcai.gpu_cluster.python_wheelhouse:
    path: ~/.cache/hpcai.gpu_cluster/wheelhouse
    name: "{{ plan.environment.build }}"
    lock: "{{ pytorch_builds[plan.environment.build].lock }}"
    interpreter: "{{ plan.environment.python }}"
    python: "{{ ansible_playbook_python }}"
    indexes: "{{ plan.environment.indexes }}"
  delegate_to: localhost
  register: wheelhouse

- name: Download build tools for nodes with an older C library
  hpcai.gpu_cluster.python_wheelhouse:
    path: ~/.cache/hpcai.gpu_cluster/wheelhouse
    name: tools
    lock: "{{ lookup('ansible.builtin.file', 'tools.txt') }}"
    interpreter: "{{ plan.environment.python }}"
    platforms:
      - manylinux2014_x86_64
      - linux_x86_64
    python: "{{ ansible_playbook_python }}"
  delegate_to: localhost
"""

RETURN = r"""
path:
  description:
    - Directory with the packages. In check mode a new directory is not there.
  returned: success
  type: str
  sample: /home/admin/.cache/hpcai.gpu_cluster/wheelhouse/cu130-py3.11-5b0f5f9c2ad1
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import lock_files as wheelhouse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.installer import public

SPEC = {
    "path": {"type": "path", "required": True},
    "name": {"type": "str", "required": True},
    "lock": {"type": "str", "required": True},
    "interpreter": {"type": "dict", "required": True},
    "platforms": {"type": "list", "elements": "str", "default": []},
    "python": {"type": "path", "required": True},
    "indexes": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "float", "default": 3600},
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Fill the wheelhouse of a lock unless it is there."""
    markers = params["interpreter"]["markers"]
    platforms = params["platforms"] or wheelhouse.platforms(params["interpreter"]["glibc"], markers["platform_machine"])
    request = wheelhouse.WheelhouseRequest(
        params["name"],
        params["lock"],
        markers,
        platforms,
        params["python"],
        public(params["indexes"]),
        params["timeout"],
    )
    target = wheelhouse.folder(params["path"], request)
    trusted = _trusted.trusted_users()
    _trusted.check(str(target.parent.absolute()), trusted)
    changed = not target.is_dir()
    foreign = "" if changed else _trusted.distrust(str(target.absolute()), trusted)
    if foreign:
        raise _trusted.TrustError(f"{target} is not used: {foreign}")
    if changed and not check_mode:
        wheelhouse.fill(target, request, open_url)
    return {"changed": changed, "path": str(target)}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Wheelhouse: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
