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
  - >-
    Checks that there is room for the copy and for the conversion, stops C(slurmdbd), dumps the database in one
    transaction, and checks that the dump is complete. C(slurmdbd) stays stopped, as its packages change next. It is
    started again when the dump fails.
  - >-
    The dump, C(slurmdbd.conf) and a record with the checksum are readable by root only and never overwritten.
  - >-
    A dump for the same O(target) is used again when its checksum is right and C(slurmdbd) has not run since. Where
    O(have) is O(target) already, the newest dump for it is used.
  - In check mode C(slurmdbd) goes on, and too little room is refused all the same.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  have:
    description:
      - Version of the installed package of slurmdbd, for the name of the dump.
    type: str
    required: true
  target:
    description:
      - Version to which it is upgraded.
    type: str
    required: true
  local:
    description:
      - >-
        Whether the database runs on this host and admits root over its socket. With V(false) host, port, user, password
        and TLS come from O(config).
    type: bool
    default: true
  directory:
    description:
      - >-
        Directory of the dumps. It is made when missing and gets mode 0700. It needs 1.2 times the size of the database
        free.
    type: path
    default: /var/backups/slurm
  config:
    description:
      - Configuration of C(slurmdbd), which also names the database (C(StorageLoc)).
    type: path
    default: /etc/slurm/slurmdbd.conf
  data_directory:
    description:
      - >-
        Directory of a local database's tables. It needs 1.2 times the size of the largest table free, for its
        conversion. Not used with O(local=false).
    type: path
    default: /var/lib/mysql
  installed:
    description:
      - Installed packages of Slurm with their versions, for RV(way_back).
    type: dict
    default: {}
  timeout:
    description:
      - Seconds that the dump may take.
    type: float
    default: 86400
notes:
  - Role P(hpcai.gpu_cluster.slurm_upgrade#role) calls this module.
  - Needs root and C(mariadb-dump) or C(mysqldump).
seealso:
  - module: hpcai.gpu_cluster.slurm_database_start
  - module: hpcai.gpu_cluster.slurm_state_copy
"""
EXAMPLES = r"""
- name: Refuse an upgrade for whose dump there is no room
  hpcai.gpu_cluster.slurm_database_dump:
    have: 24.11.5-4
    target: 26.05.5-1
  become: true
  check_mode: true

- name: Stop slurmdbd and dump its local database
  hpcai.gpu_cluster.slurm_database_dump:
    have: 24.11.5-4
    target: 26.05.5-1
    installed:
      slurmdbd: 24.11.5-4
      slurm-wlm-mysql-plugin: 24.11.5-4
  become: true
  register: dump

- name: Dump a database on another host to a large disk
  hpcai.gpu_cluster.slurm_database_dump:
    have: 24.11.5-4
    target: 26.05.5-1
    local: false
    directory: /srv/backups/slurm
  become: true
"""
RETURN = r"""
dump:
  description:
    - The dump that was made or is used again. Empty in check mode when it would be made.
  returned: success
  type: dict
  contains:
    database:
      description:
        - Name of the database.
      returned: when there is a dump
      type: str
      sample: slurm_acct_db
    path:
      description:
        - Path of the dump.
      returned: when there is a dump
      type: str
      sample: /var/backups/slurm/slurm_acct_db-24.11.5-4-before-26.05.5-1-20260105T100000Z.sql
    conf:
      description:
        - Path of the copy of O(config).
      returned: when there is a dump
      type: str
      sample: /var/backups/slurm/slurm_acct_db-24.11.5-4-before-26.05.5-1-20260105T100000Z.slurmdbd.conf
    sha256:
      description:
        - SHA-256 of the dump.
      returned: when there is a dump
      type: str
      sample: 5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9
    bytes:
      description:
        - Size of the dump.
      returned: when there is a dump
      type: int
      sample: 1048576
    have:
      description:
        - The O(have) with which it was made.
      returned: when there is a dump
      type: str
      sample: 24.11.5-4
    target:
      description:
        - The O(target) for which it was made.
      returned: when there is a dump
      type: str
      sample: 26.05.5-1
    time:
      description:
        - When it was complete, in seconds since 1970.
      returned: when there is a dump
      type: float
      sample: 1767607200.5
    seconds:
      description:
        - Seconds that it took.
      returned: when there is a dump
      type: float
      sample: 2.1
way_back:
  description:
    - Commands that bring the old packages and database back, in one line, joined by C(&&) so that nothing runs after a
      failure, and a second line that says what is lost. Empty when there is no dump.
  returned: success
  type: str
  sample: >-
    To go back: systemctl stop slurmdbd && apt-get install --allow-downgrades slurmdbd=24.11.5-4 && echo
    '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    /var/backups/slurm/slurm_acct_db-24.11.5-4-before-26.05.5-1-20260105T100000Z.sql' | sha256sum --check && mariadb -e
    'DROP DATABASE `slurm_acct_db`' && mariadb <
    /var/backups/slurm/slurm_acct_db-24.11.5-4-before-26.05.5-1-20260105T100000Z.sql && cp -p
    /var/backups/slurm/slurm_acct_db-24.11.5-4-before-26.05.5-1-20260105T100000Z.slurmdbd.conf
    /etc/slurm/slurmdbd.conf && systemctl start slurmdbd
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.database import Dumper, DumpError, way_back

SPEC = {
    "have": {"type": "str", "required": True},
    "target": {"type": "str", "required": True},
    "local": {"type": "bool", "default": True},
    "directory": {"type": "path", "default": "/var/backups/slurm"},
    "config": {"type": "path", "default": "/etc/slurm/slurmdbd.conf"},
    "data_directory": {"type": "path", "default": "/var/lib/mysql"},
    "installed": {"type": "dict", "default": {}},
    "timeout": {"type": "float", "default": 86400},
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Have a copy of the database as it is before the upgrade; an earlier one of this upgrade serves."""
    dumper = Dumper(params)
    record = dumper.earlier()
    changed = record is None
    if record is None and check_mode:
        dumper.look()
    elif record is None:
        record = dumper.make()
    old = [f"{name}={version}" for name, version in sorted(params["installed"].items())]
    return {"changed": changed, "dump": record or {}, "way_back": way_back(record, old) if record else ""}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (DumpError, OSError, ValueError) as exc:
        module.fail_json(msg=f"No copy of the accounting database, so nothing was upgraded: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
