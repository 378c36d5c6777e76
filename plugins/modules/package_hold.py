#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: package_hold
short_description: Hold installed Debian packages, and switch off automatic upgrades
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Holds the installed packages that match a pattern, and can switch off the periodic jobs of apt.
  - Packages that an administrator holds are left alone. Only what this module held is released again, which is kept in
    O(record).
  - A host without dpkg is left as it is, which is one of RV(findings).
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - V(absent) releases all packages that the module held, and switches the periodic jobs on again.
    type: str
    choices: [present, absent]
    default: present
  packages:
    description:
      - Names, or patterns with V(*), V(?) and V([]), of the packages to hold. Packages that are not installed do not
        matter. A package that the module held and that matches no longer is released.
    type: list
    elements: str
    default: []
  automatic_upgrades:
    description:
      - V(false) switches off the periodic jobs of apt, which update package lists and upgrade packages. V(true) removes
        the file with which the module did that.
    type: bool
    default: true
  only_on:
    description:
      - Paths of which one must exist. On a host that has none of them the module acts as with O(state=absent).
      - With an empty list it applies to every host.
    type: list
    elements: path
    default: []
  record:
    description:
      - File that keeps which packages the module held.
    type: path
    default: /var/lib/hpcai/package_hold.json
notes:
  - The module needs root privileges.
seealso:
  - module: ansible.builtin.dpkg_selections
  - module: hpcai.gpu_cluster.node_tuning
"""
EXAMPLES = r"""
- name: Hold the kernel and the NVIDIA driver of an HPC image
  hpcai.gpu_cluster.package_hold:
    packages: ["linux-image-*", "nvidia-*"]
    automatic_upgrades: false
    only_on: [/opt/azurehpc]
  become: true

- name: Hold Slurm alone, with automatic upgrades of everything else
  hpcai.gpu_cluster.package_hold:
    packages: ["slurm-smd*"]
  become: true

- name: Release what this module held
  hpcai.gpu_cluster.package_hold:
    state: absent
  become: true
"""
RETURN = r"""
findings:
  description: What a person should know.
  type: list
  elements: dict
  returned: success
  contains:
    level:
      description: V(error), V(warn) or V(info).
      type: str
    about:
      description: What it is about.
      type: str
    text:
      description: The finding as a sentence.
      type: str
  sample:
    - level: warn
      about: packages
      text: "packages: there is no dpkg here: packages and automatic upgrades are left as they are"
held:
  description: Packages that were held, or in check mode would be held.
  type: list
  elements: str
  returned: if the host has dpkg
  sample: [linux-image-azure, nvidia-driver-550]
released:
  description: Packages that were released, or in check mode would be released.
  type: list
  elements: str
  returned: if the host has dpkg
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import FileError, RecordError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._packages import perform

SPEC = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "packages": {"type": "list", "elements": "str", "default": []},
    "automatic_upgrades": {"type": "bool", "default": True},
    "only_on": {"type": "list", "elements": "path", "default": []},
    "record": {"type": "path", "default": "/var/lib/hpcai/package_hold.json"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module, module.params)
    except (FileError, OSError, RecordError) as exc:
        module.fail_json(msg=f"Cannot hold packages: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
