#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_state_copy
short_description: Copy slurmctld's state and configuration before an upgrade changes them
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Copies C(StateSaveLocation) and the configuration to a directory that only root reads, with every file's digest.
  - Refuses, in check mode too, where there is no room for it.
  - Nothing is copied where the newest copy made for O(target) holds the same.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  have: {description: Version of slurmctld's package now., type: str, required: true}
  target: {description: Version that it gets., type: str, required: true}
  directory: {description: Where copies are kept., type: path, default: /var/backups/slurm}
  config: {description: Directory of slurm.conf., type: path, default: /etc/slurm}
"""
EXAMPLES = r"""
- name: Have a copy of slurmctld's state
  hpcai.gpu_cluster.slurm_state_copy:
    have: 24.11.5-4
    target: 26.05.5-1
"""
RETURN = r"""
path: {description: The copy; empty in check mode where there is none., type: str, returned: success,
  sample: /var/backups/slurm/state-24.11.5-4-before-26.05.5-1-20260105T100000Z}
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import state


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "have": {"type": "str", "required": True},
            "target": {"type": "str", "required": True},
            "directory": {"type": "path", "default": "/var/backups/slurm"},
            "config": {"type": "path", "default": "/etc/slurm"},
        },
        supports_check_mode=True,
    )
    params = module.params
    base, config = Path(params["directory"]), Path(params["config"])
    try:
        source = state.place((config / "slurm.conf").read_text())
        record = state.latest(base, params["target"])
        changed = record.get("marks") != state.marks(source)
        if changed and module.check_mode:
            state.room(source, base)
        elif changed:
            record = state.copy(source, config, base, params["have"], params["target"])
    except (state.StateError, OSError, ValueError) as exc:
        module.fail_json(msg=f"No copy of slurmctld's state, so nothing was upgraded: {exc}")
    module.exit_json(changed=changed, path=record.get("path", ""))


if __name__ == "__main__":
    main()
