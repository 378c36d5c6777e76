#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cyclecloud_package
short_description: Have CycleCloud's package in one version, held, and upgrade it with its server stopped
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Runs on the CycleCloud VM. What is installed and fits O(version) stays. Nothing goes back to an earlier version.
  - For an upgrade the server is stopped, the package moved, and the server started and awaited.
  - Package lists are fetched only where something is missing. A dpkg that was killed is brought to its end first.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.cyclecloud_server]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  name: {description: The package., type: str, default: cyclecloud8}
  version: {description: "Whole version (V(8.9.3-3500)), or its upstream part (V(8.9.3)).", type: str, required: true}
  beside: {description: Packages that have to be there besides., type: list, elements: str, default: []}
  lists_max_age: {description: Seconds for which package lists are young; V(-1) never fetches them., type: int,
    default: 86400}
  startup: {description: Seconds for the server to start after an upgrade., type: int, default: 900}
  timeout: {description: Seconds for one command of apt., type: float, default: 3600}
"""
EXAMPLES = r"""
- name: Have CycleCloud in this release
  hpcai.gpu_cluster.cyclecloud_package:
    version: 8.9.3
    beside: [openjdk-8-jre-headless]
"""
RETURN = r"""
version: {description: The version that is there after., type: str, returned: success, sample: 8.9.3-3500}
upgraded: {description: Whether a server of an earlier version was upgraded., type: bool, returned: success,
  sample: false}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import SPEC, Cli, CliError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.package import Apt


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": "cyclecloud8"},
            "version": {"type": "str", "required": True},
            "beside": {"type": "list", "elements": "str", "default": []},
            "lists_max_age": {"type": "int", "default": 86400},
            "startup": {"type": "int", "default": 900},
            "timeout": {"type": "float", "default": 3600},
            **SPEC,
        },
        supports_check_mode=True,
    )
    params = module.params
    what = f"{params['name']} {params['version']}"
    apt = Apt(Cli(params), {**params, "check": module.check_mode})
    try:
        todo, before = apt.look()
        if todo.changed and not module.check_mode:
            apt.carry_out(todo, params["startup"])
    except CliError as exc:
        module.fail_json(msg=f"{what} cannot be installed: {exc}")
    diff = {"before": f"{before}\n" if before else "", "after": f"{params['name']} {todo.version} held\n"}
    module.exit_json(changed=todo.changed, version=todo.version, upgraded=todo.upgrade, diff=diff)


if __name__ == "__main__":
    main()
