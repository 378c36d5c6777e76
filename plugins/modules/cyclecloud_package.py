#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_package
short_description: Install CycleCloud in one version and hold it, or upgrade it
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Runs as root on the CycleCloud VM, which has to be a Debian or Ubuntu with a repository that offers the package.
  - An installed version that fits O(version) stays. An upgrade stops the server, installs the package, starts the
    server and waits until it answers. A downgrade is refused, because CycleCloud cannot read its data store afterwards.
  - The package is held (C(apt-mark hold)), so that an upgrade of the system leaves it alone.
  - A C(dpkg) that was interrupted is completed first.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.cyclecloud_server
attributes:
  check_mode:
    support: full
    details: Package lists are not fetched, so a version that they do not have yet is reported as O(version) says.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  name:
    description:
      - Name of the package.
    type: str
    default: cyclecloud8
  version:
    description:
      - Version of the package, whole as V(8.9.3-3500), or its first parts as V(8.9.3) or V(8.9). Of several versions
        that fit, the newest is installed.
    type: str
    required: true
  beside:
    description:
      - Further packages that have to be installed, such as a Java runtime. Any version of them will do, and they are
        not held.
    type: list
    elements: str
    default: []
  lists_max_age:
    description:
      - Age in seconds up to which package lists are used without fetching them. Lists are fetched only when something
        has to be installed, and always when they do not offer the version. V(-1) never fetches them.
    type: int
    default: 86400
  startup:
    description:
      - Seconds within which the server has to start and to answer after an upgrade.
    type: int
    default: 900
  timeout:
    description:
      - Seconds that one command of apt or dpkg may take.
    type: float
    default: 3600
seealso:
  - module: hpcai.gpu_cluster.cyclecloud_settings
"""
EXAMPLES = r"""
- name: Install CycleCloud 8.9.3 with its Java runtime
  hpcai.gpu_cluster.cyclecloud_package:
    version: 8.9.3
    beside:
      - openjdk-8-jre-headless
  become: true

- name: Install exactly this build
  hpcai.gpu_cluster.cyclecloud_package:
    version: 8.9.3-3500
  become: true

- name: Install from a mirror whose lists the image brought, without fetching lists
  hpcai.gpu_cluster.cyclecloud_package:
    version: "8.9"
    lists_max_age: -1
    startup: 1800
  become: true
"""
RETURN = r"""
version:
  description:
    - Version of the package after the task. In check mode the version that would be installed.
  returned: success
  type: str
  sample: 8.9.3-3500
upgraded:
  description:
    - Whether an earlier version was upgraded, in check mode whether it would be.
  returned: success
  type: bool
  sample: false
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import server_cli
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.package import ServerApt
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import Cli, CliError, alone

SPEC: dict[str, t.Any] = {
    "name": {"type": "str", "default": "cyclecloud8"},
    "version": {"type": "str", "required": True},
    "beside": {"type": "list", "elements": "str", "default": []},
    "lists_max_age": {"type": "int", "default": 86400},
    "startup": {"type": "int", "default": 900},
    "timeout": {"type": "float", "default": 3600},
    **server_cli.SPEC,
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Install the package of the server in its version and hold it there."""
    with alone(params["state_dir"], check_mode):
        apt = ServerApt(Cli(params), {**params, "check": check_mode})
        todo, before = apt.look()
        if todo.changed and not check_mode:
            apt.carry_out(todo, params["startup"])
        diff = {"before": f"{before}\n" if before else "", "after": f"{params['name']} {todo.version} held\n"}
        return {"changed": todo.changed, "version": todo.version, "upgraded": todo.upgrade, "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (CliError, OSError) as exc:
        module.fail_json(msg=f"{module.params['name']} {module.params['version']} cannot be installed: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
