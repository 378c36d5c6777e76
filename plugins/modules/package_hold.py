#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: package_hold
short_description: Keep installed packages at their versions, and automatic upgrades away
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Holds the packages that are installed and fit a pattern, and can switch apt's periodic jobs off.
  - What an administrator holds is left alone. Released again is only what this module held, which O(record) tells.
  - A host without dpkg is left as it is.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  state: {type: str, choices: [present, absent], default: present, description: V(absent) gives everything back.}
  packages: {type: list, elements: str, default: [], description: "Names or patterns such as V(linux-image-*)."}
  automatic_upgrades:
    {type: bool, default: true, description: V(false) switches off that apt updates its lists and upgrades by itself.}
  only_on:
    {type: list, elements: path, default: [], description: "A host that has none of these paths is left as it is, or
     given back what it had. When empty, every host is meant."}
  record: {type: path, default: /var/lib/hpcai/package_hold.json, description: What the module held.}
"""
EXAMPLES = r"""
- name: Keep kernel and driver of an HPC image
  hpcai.gpu_cluster.package_hold:
    packages: ["linux-image-*", "nvidia-*"]
    automatic_upgrades: false
    only_on: [/opt/azurehpc]
"""
RETURN = r"""
findings: {description: What somebody should know., type: list, elements: dict, returned: success, sample: []}
held: {description: Packages that were held., type: list, elements: str, returned: success, sample: [linux-image-azure]}
released: {description: Packages that were released., type: list, elements: str, returned: success, sample: []}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import FileError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import RecordError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._package_hold_task import perform


def main() -> None:
    spec = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "packages": {"type": "list", "elements": "str", "default": []},
        "automatic_upgrades": {"type": "bool", "default": True},
        "only_on": {"type": "list", "elements": "path", "default": []},
        "record": {"type": "path", "default": "/var/lib/hpcai/package_hold.json"},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = perform(module, module.params)
    except (FileError, OSError, RecordError) as exc:
        module.fail_json(msg=f"Cannot hold packages: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
