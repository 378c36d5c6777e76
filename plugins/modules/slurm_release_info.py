#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell which Slurm is installed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_release_info
short_description: Read which Slurm is installed, also before it has a configuration
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Runs C(sinfo --version), which reads a C(slurm.conf) even for its version, with a temporary configuration of its
    own. No daemon is contacted and the C(slurm.conf) of the host is not read.
  - >-
    A setting that one release demands keeps another one from starting. The result tells the releases apart before a
    file is written.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: It only reads.
  diff_mode:
    support: none
  idempotent:
    support: full
options: {}
seealso:
  - module: hpcai.gpu_cluster.slurm_info
  - module: hpcai.gpu_cluster.slurm_config
"""
EXAMPLES = r"""
- name: Read which Slurm is installed
  hpcai.gpu_cluster.slurm_release_info:
  register: slurm

- name: Refuse a release that this site does not support
  ansible.builtin.assert:
    that: slurm.version == '' or slurm.version is version('23.11', '>=')
    fail_msg: "Slurm {{ slurm.version }} is installed, 23.11 or later is needed"

- name: Show the release of the controller
  hpcai.gpu_cluster.slurm_release_info:
  delegate_to: ctl
  register: slurm_of_controller
"""
RETURN = r"""
version:
  description:
    - Version of the client commands. Empty where C(sinfo) is not installed.
  returned: success
  type: str
  sample: 24.11.5
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import installed_release
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        version = installed_release(module)
    except SlurmError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, version=version)


if __name__ == "__main__":
    main()
