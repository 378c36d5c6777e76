#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell whether a host's enroot can be used, and where it keeps images."""

from __future__ import annotations

DOCUMENTATION = r"""
module: enroot_info
short_description: Read whether a host has enroot, and whether it keeps images on scratch
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Reads an enroot that something else installed and configured, such as CycleCloud's Slurm project, which puts its
    directories on C(/nvme) where that is mounted when Slurm is installed, else on C(/mnt), else on C(/tmp).
  - It reads C(enroot.conf) alone, whose values win over those of C(enroot.conf.d).
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: It only reads.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  conf:
    description:
      - Configuration of enroot.
    type: path
    default: /etc/enroot/enroot.conf
  scratch:
    description:
      - >-
        Directory on the node's fast disks. Cache, containers and temporary files have to be on the same file system.
        Empty does not compare.
    type: str
    default: ""
  must_fit:
    description:
      - Fail when there are findings.
    type: bool
    default: false
seealso:
  - module: hpcai.gpu_cluster.enroot_config
  - module: hpcai.gpu_cluster.pyxis_info
"""

EXAMPLES = r"""
- name: Read which enroot this host has
  hpcai.gpu_cluster.enroot_info:
  register: enroot

- name: Refuse an enroot that keeps images elsewhere than on NVMe disks
  hpcai.gpu_cluster.enroot_info:
    scratch: /mnt/resource_nvme
    must_fit: true

- name: Read another configuration
  hpcai.gpu_cluster.enroot_info:
    conf: /opt/site/etc/enroot/enroot.conf
"""

RETURN = r"""
version:
  description:
    - What C(enroot version) prints. Empty where it is not installed.
  returned: success, and when O(must_fit) fails
  type: str
  sample: 4.0.1
paths:
  description:
    - Directories by the setting that names them, as far as they are the same for all users.
  returned: success, and when O(must_fit) fails
  type: dict
  sample: {ENROOT_CACHE_PATH: /nvme/enroot/enroot-cache}
findings:
  description:
    - What keeps jobs from running containers here, or from doing so on scratch.
  returned: success, and when O(must_fit) fails
  type: list
  elements: str
  sample: ["ENROOT_DATA_PATH is /tmp/enroot/enroot-data, which is not on the disks of /mnt/resource_nvme"]
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_places

SPEC = {
    "conf": {"type": "path", "default": "/etc/enroot/enroot.conf"},
    "scratch": {"type": "str", "default": ""},
    "must_fit": {"type": "bool", "default": False},
}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Read what enroot is here and where it keeps what it unpacks, and judge it."""
    program = module.get_bin_path("enroot")
    version = ""
    if program:
        status, out, dummy = module.run_command([program, "version"])
        version = "" if status else out.strip()
    host = enroot_places.observe(Path(module.params["conf"]), version)
    scratch = module.params["scratch"]
    findings = enroot_places.judge(host, scratch, enroot_places.device(scratch))
    return {"version": version, "paths": dict(host.paths), "findings": findings}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    result = perform(module)
    if result["findings"] and module.params["must_fit"]:
        module.fail_json(msg=f"This host's enroot does not do: {'; '.join(result['findings'])}", **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
