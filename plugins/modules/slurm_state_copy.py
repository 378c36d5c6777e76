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
  - >-
    Copies C(StateSaveLocation) of C(slurm.conf) and the whole directory of the configuration to
    C(state-HAVE-before-TARGET-TIME) below O(directory), with a record of the SHA-256 of every file of the state beside
    it.
  - >-
    A copy gets its name only when it is complete. Nothing is copied when the newest copy for O(target) holds the same
    state.
  - Refuses, in check mode too, where there is no room for a copy.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
    details: While slurmctld runs, its state changes, and every run may make a copy.
options:
  have:
    description:
      - Version of the installed package of slurmctld, for the name of the copy.
    type: str
    required: true
  target:
    description:
      - Version to which it is upgraded. Only copies for the same one are compared.
    type: str
    required: true
  directory:
    description:
      - Directory of the copies. It is made when missing and gets mode 0700. Copies are never overwritten or removed.
    type: path
    default: /var/backups/slurm
  config:
    description:
      - Directory of C(slurm.conf).
    type: path
    default: /etc/slurm
notes:
  - Role P(hpcai.gpu_cluster.slurm_upgrade#role) calls this module.
seealso:
  - module: hpcai.gpu_cluster.slurm_database_dump
"""
EXAMPLES = r"""
- name: Copy slurmctld's state before an upgrade
  hpcai.gpu_cluster.slurm_state_copy:
    have: 24.11.5-4
    target: 26.05.5-1
  become: true
  register: copy

- name: Refuse an upgrade for whose copy there is no room
  hpcai.gpu_cluster.slurm_state_copy:
    have: 24.11.5-4
    target: 26.05.5-1
    directory: /srv/backups/slurm
  become: true
  check_mode: true

- name: Copy the state of a Slurm whose configuration is elsewhere
  hpcai.gpu_cluster.slurm_state_copy:
    have: 24.11.5-4
    target: 26.05.5-1
    config: /opt/slurm/etc
  become: true
"""
RETURN = r"""
path:
  description:
    - >-
      Directory of the copy, with C(state) and C(etc) in it. In check mode the newest one for O(target), empty where
      there is none.
  returned: success
  type: str
  sample: /var/backups/slurm/state-24.11.5-4-before-26.05.5-1-20260105T100000Z
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import state

SPEC = {
    "have": {"type": "str", "required": True},
    "target": {"type": "str", "required": True},
    "directory": {"type": "path", "default": "/var/backups/slurm"},
    "config": {"type": "path", "default": "/etc/slurm"},
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Have a copy of slurmctld's state as it is now."""
    base, config = Path(params["directory"]), Path(params["config"])
    source = state.state_directory((config / "slurm.conf").read_text())
    record = state.latest(base, params["target"])
    changed = record.get("marks") != state.marks(source)
    if changed and check_mode:
        state.room(source, base)
    elif changed:
        record = state.copy(source, config, base, params["have"], params["target"])
    return {"changed": changed, "path": record.get("path", "")}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (state.StateError, OSError, ValueError) as exc:
        module.fail_json(msg=f"No copy of slurmctld's state, so nothing was upgraded: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
