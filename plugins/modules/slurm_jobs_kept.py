#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_jobs_kept
short_description: Record the jobs of a cluster, and later prove that none was lost
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Role P(hpcai.gpu_cluster.slurm_upgrade#role) calls it before and after it upgrades a running Slurm.
  - >-
    A job counts as lost when Slurm lists it neither as queued nor as running and accounting has no end for it, when it
    ended as C(NODE_FAIL) or C(BOOT_FAIL), or when it ran before and is queued again. A job that a user cancelled has
    ended like any other.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: O(state=checked) compares nothing in check mode, because nothing was upgraded.
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: O(state=recorded) writes the jobs of the moment at every run.
options:
  state:
    description:
      - >-
        V(recorded) writes the queued and running jobs to O(record). While C(slurmctld) does not answer, a record of an
        earlier run is kept as it is; without one the task fails.
      - V(checked) compares the jobs with O(record) and fails when one was lost.
    type: str
    choices: [recorded, checked]
    required: true
  record:
    description:
      - JSON file of the jobs, readable by root only. Its directory is made when missing.
    type: path
    default: /var/backups/slurm/jobs.json
  timeout:
    description:
      - >-
        Seconds for which O(state=checked) queries again before it fails, as C(slurmctld) passes the ends of jobs on to
        accounting with a delay.
    type: float
    default: 120
notes:
  - Needs root, C(squeue), and for jobs that ended C(sacct).
"""
EXAMPLES = r"""
- name: Record the jobs before the upgrade
  hpcai.gpu_cluster.slurm_jobs_kept:
    state: recorded
  become: true

- name: Prove after the upgrade that no job was lost
  hpcai.gpu_cluster.slurm_jobs_kept:
    state: checked
  become: true
  register: kept

- name: Compare with a record elsewhere, waiting up to ten minutes for accounting
  hpcai.gpu_cluster.slurm_jobs_kept:
    state: checked
    record: /shared/slurm/jobs.json
    timeout: 600
  become: true
"""
RETURN = r"""
before:
  description:
    - Number of recorded jobs by state. Empty with O(state=checked) in check mode.
  returned: success
  type: dict
  sample:
    PENDING: 2
    RUNNING: 7
now:
  description:
    - >-
      Number of queued and running jobs by state. Empty when C(slurmctld) did not answer, and with O(state=checked) in
      check mode.
  returned: success
  type: dict
  sample:
    RUNNING: 6
ended:
  description:
    - Number of recorded jobs that have ended since. 0 with O(state=recorded).
  returned: success
  type: int
  sample: 1
"""

import json
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import replace_owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import SlurmReader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import plan

SPEC = {
    "state": {"type": "str", "choices": ["recorded", "checked"], "required": True},
    "record": {"type": "path", "default": "/var/backups/slurm/jobs.json"},
    "timeout": {"type": "float", "default": 120},
}


_PAUSE = 2.0


def ask(argv: list[str]) -> tuple[int, str, str]:
    """Return exit status, output and messages of a command of Slurm's; one that could not end has status 1."""
    answer = run(argv, 120, environment={"SLURM_TIME_FORMAT": TIME_FORMAT})
    return (1 if answer.rc is None else answer.rc), answer.out, answer.err


def compare(before: list[dict[str, t.Any]], timeout: float) -> dict[str, t.Any]:
    """Ask until nothing is missing or time is up: slurmctld tells accounting of ends with some delay."""
    end = time.monotonic() + timeout
    while True:
        try:
            now = SlurmReader(ask).jobs()
            gone = plan.missing(before, now)
            numbers = ",".join(map(str, gone))
            text = ask(["sacct", "-X", "-n", "-P", "-j", numbers, "-o", "JobIDRaw,State"])[1] if gone else ""
            wrong = plan.problems(before, now, plan.ends(text))
            if not wrong:
                return {"before": plan.counts(before), "now": plan.counts(now), "ended": len(gone)}
        except SlurmError as exc:
            wrong = [str(exc)]
        if time.monotonic() > end:
            raise SlurmError("; ".join(wrong))
        time.sleep(_PAUSE)


def record(path: Path, write: bool) -> dict[str, t.Any]:
    """Write the jobs down; a slurmctld that an earlier run has stopped was asked by that run."""
    try:
        jobs = SlurmReader(ask).jobs()
    except SlurmError:
        if not path.exists():
            raise
        kept = json.loads(path.read_text())
        return {"changed": False, "before": plan.counts(kept), "now": {}, "ended": 0}
    if write:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_owned(path, (json.dumps(jobs, indent=1) + "\n").encode(), "root", 0o600)
    return {"changed": True, "before": plan.counts(jobs), "now": plan.counts(jobs), "ended": 0}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Write down the jobs that there are, or say whether all of them are there still."""
    path = Path(params["record"])
    if params["state"] == "recorded":
        return record(path, not check_mode)
    if check_mode:  # nothing was exchanged
        return {"changed": False, "before": {}, "now": {}, "ended": 0}
    return {"changed": False, **compare(json.loads(path.read_text()), params["timeout"])}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (SlurmError, OSError, ValueError) as exc:
        module.fail_json(msg=f"Jobs: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
