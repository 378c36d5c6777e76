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
  - Creates, changes and deletes reservations whose names start with C(hpcai-). It never touches any other.
  - >-
    A node that is resumed inside a reservation runs only the jobs of O(users), so that it can be tested before it is
    given back.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  name:
    description:
      - >-
        Name of the reservation. It must start with C(hpcai-), followed by a letter or digit and up to 100 letters,
        digits, dots, dashes and underscores.
    type: str
    required: true
  state:
    description:
      - >-
        V(present) creates the reservation, or updates it when O(nodes), O(users) or O(flags) differ, when it is
        shorter than O(minutes), or when it is not active.
      - V(absent) deletes it. Nothing happens when there is none.
    type: str
    choices: [present, absent]
    default: present
  nodes:
    description:
      - The nodes, as a hostlist expression such as V(c[3-4]). An update replaces the nodes of the reservation.
      - Required for O(state=present).
    type: str
  users:
    description:
      - Names of the users whose jobs may run in the reservation. At least one is needed.
    type: list
    elements: str
    default: [root]
  flags:
    description:
      - >-
        Flags of Slurm, in any case, out of V(ANY_NODES), V(DAILY), V(FLEX), V(IGNORE_JOBS), V(MAGNETIC), V(MAINT),
        V(NO_HOLD_JOBS_AFTER), V(OVERLAP), V(STATIC_ALLOC) and V(WEEKLY). Any other is refused.
      - >-
        With V(MAINT) and V(IGNORE_JOBS) the reservation begins at once, although jobs still run on its nodes; these
        jobs go on.
    type: list
    elements: str
    default: [MAINT, IGNORE_JOBS]
  minutes:
    description:
      - >-
        Duration in minutes, from 1 to 527040 (366 days), so that a reservation which nobody deletes ends by itself.
      - A longer value prolongs a reservation that is active. A shorter one leaves its end as it is, since an
        administrator may have prolonged it. Delete it to end it sooner.
    type: int
    default: 240
  share:
    description:
      - Whether the reservation may take nodes that another active reservation holds.
      - By default the task fails and names that reservation. Slurm itself then also needs V(OVERLAP) or V(MAINT) in
        O(flags).
    type: bool
    default: false
notes:
  - Needs Slurm operator rights, usually root or the Slurm user on the controller.
  - A job enters the reservation by C(sbatch --reservation=NAME).
seealso:
  - module: hpcai.gpu_cluster.slurm_node
  - module: hpcai.gpu_cluster.slurm_job
"""
EXAMPLES = r"""
- name: Reserve two nodes for their repair
  hpcai.gpu_cluster.slurm_reservation:
    name: hpcai-repair
    nodes: c[3-4]
    users: [root, trainer]
  become: true

- name: Run a test job inside the reservation
  hpcai.gpu_cluster.slurm_job:
    name: acceptance
    script: "{{ lookup('ansible.builtin.file', 'acceptance.sh') }}"
    options:
      reservation: hpcai-repair
      nodes: 2
      exclusive: true
  become: true
  become_user: trainer

- name: Reserve a rack for a day, although another reservation holds some of its nodes
  hpcai.gpu_cluster.slurm_reservation:
    name: hpcai-rack7
    nodes: r7n[01-18]
    minutes: 1440
    share: true
  become: true

- name: Give the nodes back
  hpcai.gpu_cluster.slurm_reservation:
    name: hpcai-repair
    state: absent
  become: true
"""
RETURN = r"""
reservation:
  description:
    - The reservation after the change, or as it would be in check mode. Empty when there is none.
  returned: always
  type: dict
  contains:
    name:
      description:
        - Name of the reservation.
      returned: when there is one
      type: str
      sample: hpcai-repair
    nodes:
      description:
        - Names of its nodes, sorted.
      returned: when there is one
      type: list
      elements: str
      sample: [c3, c4]
    users:
      description:
        - Users whose jobs may run in it, sorted.
      returned: when there is one
      type: list
      elements: str
      sample: [root, trainer]
    flags:
      description:
        - Its flags, sorted, without C(SPEC_NODES), which Slurm adds.
      returned: when there is one
      type: list
      elements: str
      sample: [IGNORE_JOBS, MAINT]
    active:
      description:
        - Whether it has begun and has not ended.
      returned: when there is one
      type: bool
      sample: true
    start:
      description:
        - Start in local time.
      returned: when there is one, but not in check mode when it would be created
      type: str
      sample: "2026-01-05T10:00:00"
    end:
      description:
        - End in local time.
      returned: when there is one, but not in check mode when it would be created or prolonged
      type: str
      sample: "2026-01-05T14:00:00"
    minutes:
      description:
        - Time from its start to its end in minutes, null where it has no end.
      returned: when there is one
      type: int
      sample: 240
command:
  description:
    - The C(scontrol) command that was run, or would be in check mode. Empty when nothing was to be changed.
  returned: always
  type: list
  elements: str
  sample:
    - scontrol
    - create
    - reservation
    - reservationname=hpcai-repair
    - nodes=c[3-4]
    - users=root,trainer
    - flags=IGNORE_JOBS,MAINT
    - duration=240
    - starttime=now
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import perform
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError

SPEC = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "nodes": {"type": "str"},
    "users": {"type": "list", "elements": "str", "default": ["root"]},
    "flags": {"type": "list", "elements": "str", "default": ["MAINT", "IGNORE_JOBS"]},
    "minutes": {"type": "int", "default": 240},
    "share": {"type": "bool", "default": False},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, required_if=[("state", "present", ["nodes"])], supports_check_mode=True)

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
