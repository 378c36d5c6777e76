#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: python_wheelhouse
short_description: Download the packages of a lock file for another machine
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs C(pip download) for another interpreter and platform; an explicit conda specification is downloaded as it is.
  - The directory has a digest in its name, appears in one step and is whole from then on. It is never asked for again.
  - Markers in a lock file are those of the other machine; pip itself would read its own.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  path: {type: path, required: true, description: Directory where such directories are kept.}
  name: {type: str, required: true, description: Name of the lock file.}
  lock: {type: str, required: true, description: Its text.}
  interpreter:
    description: C(python) of RV(hpcai.gpu_cluster.python_environment#module:environment).
    type: dict
    required: true
  platforms: {type: list, elements: str, default: [], description: Platforms of wheels; by default from the C library.}
  python: {type: path, required: true, description: Interpreter on this host whose pip downloads.}
  indexes: {type: list, elements: str, default: [], description: Package indexes besides those of pip's own settings.}
  timeout: {type: float, default: 3600, description: Seconds for the download.}
"""

EXAMPLES = r"""
- name: Download what the nodes need
  hpcai.gpu_cluster.python_wheelhouse:
    path: ~/.cache/hpcai.gpu_cluster/wheelhouse
    name: cpu
    lock: "{{ lookup('ansible.builtin.file', 'cpu.txt') }}"
    interpreter: "{{ plan.environment.python }}"
    python: "{{ ansible_playbook_python }}"
  delegate_to: localhost
"""

RETURN = r"""
path: {type: str, returned: success, description: Directory with the packages.}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import python_env_wheelhouse as wheelhouse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_install import public


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "lock": {"type": "str", "required": True},
            "interpreter": {"type": "dict", "required": True},
            "platforms": {"type": "list", "elements": "str", "default": []},
            "python": {"type": "path", "required": True},
            "indexes": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "float", "default": 3600},
        },
        supports_check_mode=True,
    )
    params = module.params
    markers = params["interpreter"]["markers"]
    asked = params["platforms"] or wheelhouse.platforms(params["interpreter"]["glibc"], markers["platform_machine"])
    try:
        indexes = public(params["indexes"])
        wish = wheelhouse.Request(
            params["name"], params["lock"], markers, asked, params["python"], indexes, params["timeout"]
        )
        target = wheelhouse.folder(params["path"], wish)
        changed = not target.is_dir()
        if changed and not module.check_mode:
            wheelhouse.fill(target, wish, open_url)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Wheelhouse: {exc}")
    module.exit_json(changed=changed, path=str(target))


if __name__ == "__main__":
    main()
