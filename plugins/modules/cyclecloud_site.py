#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_site
short_description: Have CycleCloud's first user and the settings that end its installation, and log the command line in
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs on the CycleCloud VM. Records that are missing are dropped into the folder that the server watches, all at once
    and owned by its user. What the server leaves of them holds the password, and is removed, also that of earlier runs.
  - Installs the command line from the archive that comes with the server, writes its settings, and proves the login.
    No password is on a command line.
  - A user who is there keeps the password.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud_server
  - hpcai.gpu_cluster.cyclecloud_server.cli
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  user: {description: The first user., type: str, required: true}
  password: {description: Its password., type: str, required: true}
  ssh_public_key: {description: Its key for nodes., type: str, default: ""}
  url: {description: Address of the server as the command line calls it., type: str, required: true}
  timeout: {description: Seconds for the server to take records in., type: int, default: 360}
"""
EXAMPLES = r"""
- name: Have the first user
  hpcai.gpu_cluster.cyclecloud_site:
    user: hpcadmin
    password: "{{ secret }}"
    url: https://localhost:8443
"""
RETURN = r"""
records: {description: Records that were missing., type: list, elements: str, returned: success,
  sample: ["AuthenticatedUser hpcadmin"]}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import CLI_SPEC, CliError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.site import bring


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "password": {"type": "str", "required": True, "no_log": True},
            "ssh_public_key": {"type": "str", "default": "", "no_log": False},
            "url": {"type": "str", "required": True},
            "timeout": {"type": "int", "default": 360},
            **CLI_SPEC,
        },
        supports_check_mode=True,
    )
    try:
        result = bring(module.params, module.check_mode)
    except (CliError, OSError) as exc:
        module.fail_json(msg=f"CycleCloud's user {module.params['user']} cannot be set up: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
