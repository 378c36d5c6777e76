#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_site
short_description: Set up CycleCloud's first user and the login of its command line
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Runs as root on the CycleCloud VM, whose server has to run.
  - Creates the records that end the installation of CycleCloud without its web pages, the first user with the rights of
    an administrator among them. Missing records are imported through the directory that the server watches. The files
    hold the password, so they are removed afterwards, as are those of a run that was interrupted.
  - Installs the command line from the archive that comes with the server, again after an upgrade of the server, writes
    its settings, and proves the login. A login that is refused does not replace settings that worked. No password is on
    a command line.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud_server
  - hpcai.gpu_cluster.cyclecloud_server.cli
attributes:
  check_mode:
    support: full
    details: Where the server cannot be queried yet, all records are reported as missing.
  diff_mode:
    support: full
    details: Shows names of records and files, no values.
  idempotent:
    support: full
options:
  user:
    description:
      - Name of the first user.
    type: str
    required: true
  password:
    description:
      - Password of the first user, 8 to 123 characters with three of lowercase letters, capitals, digits and other
        signs, without C(%), control characters and spaces at its ends.
      - A user that exists keeps its password. Another one in this option makes the module fail at the login.
    type: str
    required: true
  ssh_public_key:
    description:
      - SSH public key of the user, for the nodes. When it is empty no key is set.
    type: str
    default: ""
  url:
    description:
      - Address of the server for the command line, such as V(https://localhost:8443). Its certificate is verified.
    type: str
    required: true
  timeout:
    description:
      - Seconds within which the server has to import the records.
    type: int
    default: 360
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_settings
  - module: hpcai.gpu_cluster.cyclecloud_account
"""
EXAMPLES = r"""
- name: Set up the first user and the command line
  hpcai.gpu_cluster.cyclecloud_site:
    user: hpcadmin
    password: "{{ vault_cyclecloud_password }}"
    url: https://localhost:8443
  become: true

- name: Set up the first user with an SSH key on a slow machine
  hpcai.gpu_cluster.cyclecloud_site:
    user: hpcadmin
    password: "{{ vault_cyclecloud_password }}"
    ssh_public_key: "{{ lookup('ansible.builtin.file', '~/.ssh/id_ed25519.pub') }}"
    url: https://cyclecloud.example.org:8443
    timeout: 900
  become: true

- name: Say whether the first user and the command line would be set up
  hpcai.gpu_cluster.cyclecloud_site:
    user: hpcadmin
    password: "{{ vault_cyclecloud_password }}"
    url: https://localhost:8443
  become: true
  check_mode: true
"""
RETURN = r"""
records:
  description:
    - Type and name of the records that were missing or different.
  returned: success
  type: list
  elements: str
  sample:
    - Application.Setting cycleserver.installation.complete
    - AuthenticatedUser hpcadmin
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import CLI_SPEC, CliError, alone
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.site import bring

SPEC: dict[str, t.Any] = {
    "user": {"type": "str", "required": True},
    "password": {"type": "str", "required": True, "no_log": True},
    "ssh_public_key": {"type": "str", "default": "", "no_log": False},
    "url": {"type": "str", "required": True},
    "timeout": {"type": "int", "default": 360},
    **CLI_SPEC,
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Set up the first user of the server and its command line, where they are not as they should be."""
    with alone(params["state_dir"], check_mode):
        return bring(params, check_mode)


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (CliError, OSError) as exc:
        module.fail_json(msg=f"CycleCloud's user {module.params['user']} cannot be set up: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
