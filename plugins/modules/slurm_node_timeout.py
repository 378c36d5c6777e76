#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node_timeout
short_description: Let slurmctld be patient with nodes while their slurmd is exchanged
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Slurm's upgrade guide asks for a longer C(SlurmdTimeout) during an upgrade, for nodes that are silent longer than
    that are marked down and lose their jobs.
  - The line in slurm.conf says what it was before, so a later run, or role slurm, sets it back.
  - Runs C(scontrol reconfigure) where slurmctld answers. Run it before packages change, as since Slurm 23.11 this also
    replaces the running program by the one on the disk.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  state: {description: What to do., type: str, choices: [raised, restored], required: true}
  seconds: {description: The least that it shall be., type: int, default: 3600}
  path: {description: The file., type: path, default: /etc/slurm/slurm.conf}
"""
EXAMPLES = r"""
- name: Let nodes be silent for an hour
  hpcai.gpu_cluster.slurm_node_timeout:
    state: raised
"""
RETURN = r"""
reconfigured: {description: Whether slurmctld was told., type: bool, returned: success, sample: true}
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.state import raised, restored


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["raised", "restored"], "required": True},
            "seconds": {"type": "int", "default": 3600},
            "path": {"type": "path", "default": "/etc/slurm/slurm.conf"},
        },
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    before = path.read_text(encoding="utf-8")
    if module.params["state"] == "raised":
        after, written = raised(before, module.params["seconds"], path.stat().st_mtime), 0.0
    else:
        after, written = restored(before)
    told = False
    if before != after and not module.check_mode:
        replace(path, after.encode(), "root", 0o644)
        if written:  # the content is that of then: no reason to read it again
            os.utime(path, (written, written))
        code, dummy, said = module.run_command(["scontrol", "reconfigure"])
        told = code == 0
        if not told and module.params["state"] == "restored":
            module.warn(f"{path} is as before, and slurmctld was not told; run scontrol reconfigure: {said.strip()}")
    header = {"before_header": str(path), "after_header": str(path)}
    diff = {**header, "before": before, "after": after}
    module.exit_json(changed=before != after, reconfigured=told, diff=diff)


if __name__ == "__main__":
    main()
