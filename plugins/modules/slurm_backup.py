#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Back up Slurm's accounting database or slurmctld's state, and put a backup back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_backup
short_description: Back up Slurm's accounting database or slurmctld's state, and restore it
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    A backup is a directory below O(directory) with compressed files and C(manifest.json), which has the cluster, the
    version of the daemon and the SHA-256 of each file. It gets its name when it is complete, and is root's alone.
  - >-
    Nothing is stopped for a backup. The database is dumped in one transaction. The files of C(StateSaveLocation) are
    packed whole, as C(slurmctld) replaces them by renaming, the list of jobs before their scripts; they are
    packed again, up to five times, while some of them change.
  - >-
    O(state=restored) refuses a backup of another cluster or with a wrong digest, one that the installed daemon cannot
    read, and a daemon that runs unless O(stop) is true. What it replaces stays beside: tables in a database
    C(NAME_replaced_TIME), the state in a directory C(NAME.replaced-TIME).
  - >-
    A restored state never lets the numbers of jobs go backwards: the number of the next one is raised to that of the
    present state and to O(next_job).
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: O(state=restored) checks everything that it would refuse.
  diff_mode:
    support: none
  idempotent:
    support: none
    details: Every O(state=present) makes a backup, and every O(state=restored) restores one.
options:
  part:
    description:
      - V(accounting) is the database, on the host of C(slurmdbd). V(controller) is C(slurmctld)'s state, with the
        configuration files beside it.
    type: str
    choices: [accounting, controller]
    required: true
  state:
    description:
      - V(present) makes a backup and removes the oldest ones.
      - V(restored) puts one back and leaves the daemon stopped.
      - V(listed) reads what backups there are and the number of the next job.
    type: str
    choices: [listed, present, restored]
    default: present
  cluster:
    description:
      - Name of the cluster (C(ClusterName)). A backup of another one is refused.
    type: str
    required: true
  directory:
    description:
      - >-
        Directory of the backups, made with mode 0700. No other user may own or write to it or a directory above it. It
        needs as much room as the database or the state takes before compression.
    type: path
    default: /var/backups/slurm_backup
  keep:
    description:
      - Number of backups of the part that are kept; older ones are removed after a new one is complete. V(0) keeps all.
    type: int
    default: 7
  secrets:
    description:
      - Whether C(slurmdbd.conf), which can hold a password, and the munge key, whose holder is any user of the cluster,
        are in the backup as well. A lost key is made anew by the role P(hpcai.gpu_cluster.munge#role).
    type: bool
    default: false
  local:
    description:
      - Whether the database runs on this host and admits root over its socket. With V(false) host, port, user, password
        and TLS come from C(slurmdbd.conf), and a restore needs a user who may create databases.
    type: bool
    default: true
  config:
    description:
      - Directory of C(slurm.conf) and C(slurmdbd.conf).
    type: path
    default: /etc/slurm
  data_directory:
    description:
      - Directory of a local database's tables, in which a restore needs room. Not used with O(local=false).
    type: path
    default: /var/lib/mysql
  name:
    description:
      - Name of the backup that is restored. V(latest) is the newest.
    type: str
    default: latest
  next_job:
    description:
      - Least number of the next job after O(state=restored) of O(part=controller), usually RV(next_job) of the
        accounting database.
    type: int
    default: 0
  stop:
    description:
      - Whether O(state=restored) may stop a daemon that runs. Jobs submitted since the backup are lost, and
        C(slurmctld) ends those of them that run when their nodes report.
    type: bool
    default: false
  timeout:
    description:
      - Seconds that a dump, a load or the exchange of tables may take, each.
    type: float
    default: 86400
notes:
  - Role P(hpcai.gpu_cluster.slurm_backup#role) calls this module.
  - >-
    Scripts and environments of jobs are in the state, and whatever secrets users have put there.
  - Needs root, and C(mariadb-dump) or C(mysqldump) for O(part=accounting).
seealso:
  - module: hpcai.gpu_cluster.slurm_database_dump
  - module: hpcai.gpu_cluster.slurm_state_copy
"""
EXAMPLES = r"""
- name: Back up the accounting database and keep two weeks of it
  hpcai.gpu_cluster.slurm_backup:
    part: accounting
    cluster: lab
    keep: 14
  become: true

- name: Back up slurmctld's state to a disk of its own
  hpcai.gpu_cluster.slurm_backup:
    part: controller
    cluster: lab
    directory: /srv/backups/slurm
  become: true

- name: Read which backups there are
  hpcai.gpu_cluster.slurm_backup:
    part: accounting
    state: listed
    cluster: lab
  become: true
  register: accounting

- name: Restore slurmctld's state on a controller that was made anew
  hpcai.gpu_cluster.slurm_backup:
    part: controller
    state: restored
    cluster: lab
    name: controller-20261123T020000Z
    next_job: "{{ accounting.next_job }}"
    stop: true
  become: true
"""
RETURN = r"""
place:
  description:
    - Directory of the backup that was made or restored. Empty with O(state=listed) and for O(state=present) in check
      mode.
  returned: success
  type: str
  sample: /var/backups/slurm_backup/accounting-20261123T020000Z
backup:
  description:
    - The manifest of that backup; empty where RV(place) is.
  returned: success
  type: dict
  contains:
    name:
      description: Name of the backup.
      returned: when there is one
      type: str
      sample: accounting-20261123T020000Z
    cluster:
      description: Name of the cluster.
      returned: when there is one
      type: str
      sample: lab
    version:
      description: Version of the daemon that was installed.
      returned: when there is one
      type: str
      sample: 24.11.5
    time:
      description: When it was complete, in seconds since 1970.
      returned: when there is one
      type: int
      sample: 1795399200
    bytes:
      description: Size of its files.
      returned: when there is one
      type: int
      sample: 104857600
    files:
      description: SHA-256 of each file.
      returned: when there is one
      type: dict
      sample: {dump.sql.gz: 5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9}
    next_job:
      description: Number of the next job.
      returned: when there is one
      type: int
      sample: 48211
backups:
  description:
    - Names of all backups of the part, oldest first.
  returned: success
  type: list
  elements: str
  sample: [accounting-20261122T020000Z, accounting-20261123T020000Z]
removed:
  description:
    - Names of the backups that were removed, or would be in check mode.
  returned: success
  type: list
  elements: str
  sample: [accounting-20261115T020000Z]
next_job:
  description:
    - Least number of the next job by what is known here, also after O(state=restored).
  returned: success
  type: int
  sample: 48211
version:
  description:
    - Version of the installed daemon, without a package's revision.
  returned: with O(state=restored)
  type: str
  sample: 24.11.5
text:
  description:
    - What was done, in a line for people.
  returned: success
  type: str
  sample: >-
    /var/backups/slurm_backup/accounting-20261123T020000Z, 104857600 bytes, Slurm 24.11.5; older ones removed: none
replaced:
  description:
    - Where a restore left what it replaced, a database or a directory. Empty where there was nothing.
  returned: success
  type: str
  sample: slurm_acct_db_replaced_20261123T101500Z
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup.model import BackupError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.backup.module import SPEC, Backup
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.database import DumpError


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = Backup(module.params, module.check_mode).perform()
    except (BackupError, DumpError, OSError, ValueError, EOFError) as exc:
        verb = {"restored": "restore", "present": "back up", "listed": "list"}[module.params["state"]]
        module.fail_json(msg=f"Cannot {verb} part {module.params['part']} of {module.params['cluster']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
