#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node_timeout
short_description: Raise SlurmdTimeout while slurmd is replaced, and restore it afterwards
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Slurm's upgrade guide recommends a longer C(SlurmdTimeout) during an upgrade, as nodes that are silent for longer
    are marked down and lose their jobs.
  - >-
    The line that it writes to C(slurm.conf) holds the earlier value and the time of the file, from which a later run
    or role P(hpcai.gpu_cluster.slurm#role) restores both.
  - >-
    Runs C(scontrol reconfigure) after a change. Run the module before packages change, because since Slurm 23.11 a
    reconfigure also replaces the running C(slurmctld) by the program on the disk.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - >-
        V(raised) sets C(SlurmdTimeout) to O(seconds). A value that is as high already, or 0 (no limit), stays, as does
        one that an earlier run raised.
      - V(restored) takes back what V(raised) wrote. Nothing happens when it wrote nothing.
    type: str
    choices: [raised, restored]
    required: true
  seconds:
    description:
      - Lowest value of C(SlurmdTimeout) in seconds with O(state=raised).
    type: int
    default: 3600
  path:
    description:
      - The file C(slurm.conf), which must exist. It is written with owner root and mode 0644.
    type: path
    default: /etc/slurm/slurm.conf
notes:
  - Role P(hpcai.gpu_cluster.slurm_upgrade#role) calls this module.
"""
EXAMPLES = r"""
- name: Let nodes be silent for an hour
  hpcai.gpu_cluster.slurm_node_timeout:
    state: raised
  become: true

- name: Let the nodes of a large cluster be silent for four hours
  hpcai.gpu_cluster.slurm_node_timeout:
    state: raised
    seconds: 14400
  become: true

- name: Restore the timeout after the upgrade
  hpcai.gpu_cluster.slurm_node_timeout:
    state: restored
  become: true
"""
RETURN = r"""
reconfigured:
  description:
    - >-
      Whether C(scontrol reconfigure) was run and succeeded. V(false) without a change and in check mode. Where it
      failed, the task warns.
  returned: success
  type: bool
  sample: true
"""

import os
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import replace_owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.state import raised, restored

SPEC = {
    "state": {"type": "str", "choices": ["raised", "restored"], "required": True},
    "seconds": {"type": "int", "default": 3600},
    "path": {"type": "path", "default": "/etc/slurm/slurm.conf"},
}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Raise SlurmdTimeout in slurm.conf or put it back, and have slurmctld read the file."""
    path = Path(module.params["path"])
    before = path.read_text(encoding="utf-8")
    if module.params["state"] == "raised":
        after, written = raised(before, module.params["seconds"], path.stat().st_mtime), 0.0
    else:
        after, written = restored(before)
    reconfigured = False
    if before != after and not module.check_mode:
        replace_owned(path, after.encode(), "root", 0o644)
        if written:  # the content is that of then: no reason to read it again
            os.utime(path, (written, written))
        code, dummy, message = module.run_command(["scontrol", "reconfigure"])
        reconfigured = code == 0
        if not reconfigured:
            module.warn(
                f"{path} has its SlurmdTimeout {module.params['state']}, and slurmctld was not told: "
                f"'scontrol reconfigure' said: {message.strip()}. Where slurmctld runs, run it again; where it does "
                "not, slurmctld reads the file when it starts"
            )
    header = {"before_header": str(path), "after_header": str(path)}
    diff = {**header, "before": before, "after": after}
    return {"changed": before != after, "reconfigured": reconfigured, "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except OSError as exc:
        module.fail_json(msg=f"SlurmdTimeout of {module.params['path']} cannot be {module.params['state']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
