#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep nodes for ourselves."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_reservation
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Keep Slurm nodes from users' jobs while they are worked on
description:
  - Makes and deletes reservations whose names start with C(hpcai-), and never touches any other.
  - A node that is resumed inside a reservation runs the jobs of its users only, so it can be proved before it is given
    back.
  - Needs Slurm operator rights, usually root or the Slurm user on the controller.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  name: {description: "Its name, which starts with C(hpcai-).", type: str, required: true}
  state: {description: Whether there shall be one., type: str, choices: [present, absent], default: present}
  nodes: {description: "The nodes, as a hostlist expression. Needed for O(state=present).", type: str}
  users: {description: "Whose jobs may enter.", type: list, elements: str, default: [root]}
  flags:
    description: Flags of Slurm. C(MAINT) and C(IGNORE_JOBS) begin at once, below jobs that run there already.
    type: list
    elements: str
    default: [MAINT, IGNORE_JOBS]
  minutes:
    description: How long it lasts at most, counted from when it is made, so that one that is forgotten ends.
    type: int
    default: 240
  share:
    description:
      - Whether nodes may be taken that another active reservation holds. By default that one's plans are respected.
    type: bool
    default: false
"""
EXAMPLES = r"""
- name: Keep two nodes for their repair
  hpcai.gpu_cluster.slurm_reservation:
    name: hpcai-repair
    nodes: c[3-4]
    users: [root, trainer]

- name: Give them back
  hpcai.gpu_cluster.slurm_reservation:
    name: hpcai-repair
    state: absent
"""
RETURN = r"""
reservation:
  description: The reservation after the change (in check mode, as it would be); empty when there is none.
  returned: always
  type: dict
  sample: {name: hpcai-repair, nodes: [c3, c4], users: [root, trainer], flags: [IGNORE_JOBS, MAINT], active: true}
command: {description: What was run or would be in check mode., returned: always, type: list, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.reservation import perform
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError


def main() -> None:
    texts = {"type": "list", "elements": "str"}
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "nodes": {"type": "str"},
            "users": {**texts, "default": ["root"]},
            "flags": {**texts, "default": ["MAINT", "IGNORE_JOBS"]},
            "minutes": {"type": "int", "default": 240},
            "share": {"type": "bool", "default": False},
        },
        required_if=[("state", "present", ["nodes"])],
        supports_check_mode=True,
    )

    def run(argv: list[str]) -> str:
        path = module.get_bin_path(argv[0], required=True)
        rc, out, err = module.run_command([path, *argv[1:]], environ_update={"SLURM_TIME_FORMAT": TIME_FORMAT})
        if rc:
            raise SlurmError(f"{' '.join(argv)} failed: {(err or out).strip()}")
        return out

    try:
        result = perform(module.params, run, module.check_mode)
    except (SlurmError, HostlistError) as exc:
        module.fail_json(msg=f"Reservation {module.params['name']} cannot be {module.params['state']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
