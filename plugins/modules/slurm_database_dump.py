#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_database_dump
short_description: Copy Slurm's accounting database before an upgrade changes it
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Sees that there is room for the copy and for the conversion, stops slurmdbd, dumps the database in one transaction
    and proves that the dump is whole. slurmdbd stays stopped, for its packages are to be changed; it goes on when the
    dump fails.
  - Copy, C(slurmdbd.conf) and a record with checksum are readable by root only and never overwritten.
  - A copy that an earlier run made of the same state is used again.
  - In check mode slurmdbd goes on, and too little room is refused all the same.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  have: {description: Version of slurmdbd's package now., type: str, required: true}
  target: {description: Version that it gets., type: str, required: true}
  local:
    description: Whether the database runs here and lets root in over its socket; otherwise what O(config) says is used.
    type: bool
    default: true
  directory: {description: Where copies are kept., type: path, default: /var/backups/slurm}
  config: {description: Configuration of slurmdbd., type: path, default: /etc/slurm/slurmdbd.conf}
  data_directory: {description: Where a local database keeps its tables., type: path, default: /var/lib/mysql}
  installed: {description: "Slurm's packages with their versions, to say how to go back.", type: dict, default: {}}
  timeout: {description: Seconds that the dump may take., type: float, default: 86400}
"""
EXAMPLES = r"""
- name: Have a copy of the accounting database
  hpcai.gpu_cluster.slurm_database_dump:
    have: 24.11.5-4
    target: 26.05.5-1
"""
RETURN = r"""
dump:
  description: The copy; in check mode, where there is none yet, empty.
  type: dict
  returned: success
  sample:
    database: slurm_acct_db
    path: /var/backups/slurm/slurm_acct_db-24.11.5-4-before-26.05.5-1-20260105T100000Z.sql
    conf: /var/backups/slurm/slurm_acct_db-24.11.5-4-before-26.05.5-1-20260105T100000Z.slurmdbd.conf
    sha256: 5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9
    bytes: 1048576
    have: 24.11.5-4
    target: 26.05.5-1
    time: 1767607200.5
    seconds: 2.1
way_back: {description: How to have the old database again., type: str, returned: success, sample: "To go back: ..."}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.dump import DumpError, way_back
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.dump_host import Dumper


def main() -> None:
    spec: dict[str, t.Any] = {
        "have": {"type": "str", "required": True},
        "target": {"type": "str", "required": True},
        "local": {"type": "bool", "default": True},
        "directory": {"type": "path", "default": "/var/backups/slurm"},
        "config": {"type": "path", "default": "/etc/slurm/slurmdbd.conf"},
        "data_directory": {"type": "path", "default": "/var/lib/mysql"},
        "installed": {"type": "dict", "default": {}},
        "timeout": {"type": "float", "default": 86400},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        worker = Dumper(module.params)
        record = worker.earlier()
        changed = record is None
        if record is None and module.check_mode:
            worker.look()
        elif record is None:
            record = worker.make()
    except (DumpError, OSError, ValueError) as exc:
        module.fail_json(msg=f"No copy of the accounting database, so nothing was upgraded: {exc}")
    old = [f"{name}={version}" for name, version in sorted(module.params["installed"].items())]
    module.exit_json(changed=changed, dump=record or {}, way_back=way_back(record, old) if record else "")


if __name__ == "__main__":
    main()
