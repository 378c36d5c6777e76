#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell which Slurm is installed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_release_info
short_description: Tell which Slurm is installed, also before it has a configuration
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Asks C(sinfo), which wants a slurm.conf even to tell its version and is given one that only it sees.
  - A setting that one release demands keeps another one from starting; this tells them apart before a file is written.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options: {}
"""
EXAMPLES = r"""
- name: Learn which Slurm reads the files
  hpcai.gpu_cluster.slurm_release_info:
  register: slurm
"""
RETURN = r"""
version: {description: "Its version; empty without Slurm's commands.", type: str, returned: success, sample: 24.11.5}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.release import release
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        module.exit_json(changed=False, version=release(module))
    except SlurmError as exc:
        module.fail_json(msg=str(exc))


if __name__ == "__main__":
    main()
