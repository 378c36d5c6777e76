#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gather the few facts that the roles read."""

from __future__ import annotations

DOCUMENTATION = r"""
module: machine_facts
short_description: Gather the few facts that this collection's roles read
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Host name, distribution, processors and memory, under the names that M(ansible.builtin.setup) gives them, and the
    names of installed packages. M(ansible.builtin.setup) looks at every disk and mount too, which takes far longer.
  - Set the variable C(ansible_facts_modules) to this module's name where C(gather_facts) shall use it.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
"""
EXAMPLES = r"""
- name: Learn what the machines are
  hosts: all
  gather_facts: true
  vars:
    ansible_facts_modules: [hpcai.gpu_cluster.machine_facts]
"""
RETURN = r"""
ansible_facts:
  description: The facts.
  type: dict
  returned: always
  contains:
    hpcai_packages: {description: Names of installed packages., type: list, elements: str, returned: always}
  sample: {hostname: c1, distribution: Debian, memtotal_mb: 24105, processor_count: 1, hpcai_packages: [munge]}
"""

import platform
import socket
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _machine as machine


def text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    node = platform.node()
    facts: dict[str, t.Any] = {
        "architecture": platform.machine(),
        "fqdn": socket.getfqdn(),
        "hostname": node.split(".")[0],
        "kernel": platform.release(),
        "nodename": node,
        **machine.system(text("/etc/os-release"), text("/etc/debian_version")),
    }
    try:
        facts.update(machine.processors(module.run_command(machine.LSCPU, check_rc=True)[1]))
        facts.update(machine.memory(text("/proc/meminfo")))
    except machine.MachineError as exc:
        module.fail_json(msg=f"Cannot tell what this machine has: {exc}")
    dpkg = module.run_command(machine.DPKG)[1] if module.get_bin_path(machine.DPKG[0]) else ""
    module.exit_json(changed=False, ansible_facts={**facts, **machine.packages(dpkg), "_ansible_facts_gathered": True})


if __name__ == "__main__":
    main()
