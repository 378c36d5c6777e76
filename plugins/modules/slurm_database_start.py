#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_database_start
short_description: Start an upgraded slurmdbd and follow it while it converts its database
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    A conversion can take hours, in which C(slurmdbd) does not answer and must not be killed. The module returns after
    O(wait) with the last lines of its log, and is called again until RV(done).
  - A C(slurmdbd) that runs another version is restarted, one that is converting is left alone.
  - >-
    When C(slurmdbd) ends meanwhile, it is stopped, so that systemd does not start it again on a database that is half
    converted, and the task fails with the errors of its log and O(way_back).
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: It tells whether slurmdbd would be started or restarted, and RV(done) is V(true).
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  version:
    description:
      - Upstream version that must run, such as V(26.05.5), without epoch and Debian's revision.
    type: str
    required: true
  wait:
    description:
      - Seconds to wait in this call until C(slurmdbd) answers.
    type: float
    default: 60
  way_back:
    description:
      - Text that ends the message of a failure, meant for RV(hpcai.gpu_cluster.slurm_database_dump#module:way_back).
    type: str
    default: ''
  config:
    description:
      - Configuration of C(slurmdbd), which names its port and its log (C(LogFile)). Without a log file there is no
        RV(progress).
    type: path
    default: /etc/slurm/slurmdbd.conf
notes:
  - Role P(hpcai.gpu_cluster.slurm_upgrade#role) calls this module.
  - Needs root, C(systemctl) and C(sacctmgr).
seealso:
  - module: hpcai.gpu_cluster.slurm_database_dump
"""
EXAMPLES = r"""
- name: Start the new slurmdbd, and wait a minute for it
  hpcai.gpu_cluster.slurm_database_start:
    version: 26.05.5
    way_back: "{{ dump.way_back }}"
  become: true
  register: started

- name: Follow the conversion for up to a day
  hpcai.gpu_cluster.slurm_database_start:
    version: 26.05.5
    wait: 900
    way_back: "{{ dump.way_back }}"
  become: true
  register: started
  until: started.done
  retries: 96
  delay: 1

- name: Say whether slurmdbd would be started
  hpcai.gpu_cluster.slurm_database_start:
    version: 26.05.5
  become: true
  check_mode: true
"""
RETURN = r"""
done:
  description:
    - Whether C(slurmdbd) answers.
  returned: success
  type: bool
  sample: true
seconds:
  description:
    - Seconds that this call waited.
  returned: success
  type: float
  sample: 3.1
progress:
  description:
    - The last three lines of its log. Empty in check mode.
  returned: success
  type: list
  elements: str
  sample: ["[2026-01-05T10:00:05] pre-converting job table for lab"]
clusters:
  description:
    - The clusters that the database knows, once C(slurmdbd) answers. Empty in check mode.
  returned: success
  type: list
  elements: str
  sample: [train]
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.database import Starter, StartError

SPEC = {
    "version": {"type": "str", "required": True},
    "wait": {"type": "float", "default": 60},
    "way_back": {"type": "str", "default": ""},
    "config": {"type": "path", "default": "/etc/slurm/slurmdbd.conf"},
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Start slurmdbd of the new release, and wait while it converts the database."""
    starter = Starter(params)
    word = starter.needed()
    result = {"done": True, "seconds": 0.0, "progress": [], "clusters": []} if check_mode else starter.run(word)
    return {"changed": bool(word), **result}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (StartError, OSError) as exc:
        module.fail_json(msg=f"{str(exc).rstrip('.')}. {module.params['way_back']}".strip())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
