#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_jobs_kept
short_description: Remember the jobs of a cluster, and later prove that none was lost
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - V(recorded) writes the waiting and running jobs to O(record), as they are at this moment. Where Slurm does not
    answer, what an earlier run wrote is kept.
  - V(checked) fails when one of them neither waits nor runs any more, nor ended according to accounting; or when one
    that ran waits again.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: partial, details: Jobs come and go.}
options:
  state: {description: What to do., type: str, choices: [recorded, checked], required: true}
  record: {description: File that remembers the jobs., type: path, default: /var/backups/slurm/jobs.json}
  timeout: {description: Seconds until Slurm and its accounting must know them., type: float, default: 120}
"""
EXAMPLES = r"""
- name: Remember which jobs there are
  hpcai.gpu_cluster.slurm_jobs_kept:
    state: recorded
"""
RETURN = r"""
before: {description: How many jobs were in which state., type: dict, returned: success, sample: {RUNNING: 7}}
now: {description: The same now., type: dict, returned: success, sample: {RUNNING: 6}}
ended: {description: How many ended meanwhile., type: int, returned: success, sample: 1}
"""

import json
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.read import Reader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import jobs

_PAUSE = 2.0


def ask(argv: list[str]) -> tuple[int, str, str]:
    answer = run(argv, 120, environment={"SLURM_TIME_FORMAT": TIME_FORMAT})
    return (1 if answer.rc is None else answer.rc), answer.out, answer.err


def compare(before: list[dict[str, t.Any]], timeout: float) -> dict[str, t.Any]:
    """Ask until nothing is missing or time is up: slurmctld tells accounting of ends with some delay."""
    end = time.monotonic() + timeout
    while True:
        try:
            now = Reader(ask).jobs()
            gone = jobs.missing(before, now)
            numbers = ",".join(map(str, gone))
            text = ask(["sacct", "-X", "-n", "-P", "-j", numbers, "-o", "JobIDRaw,State"])[1] if gone else ""
            wrong = jobs.problems(before, now, jobs.ends(text))
            if not wrong:
                return {"before": jobs.counts(before), "now": jobs.counts(now), "ended": len(gone)}
        except SlurmError as exc:
            wrong = [str(exc)]
        if time.monotonic() > end:
            raise SlurmError("; ".join(wrong))
        time.sleep(_PAUSE)


def record(path: Path, write: bool) -> dict[str, t.Any]:
    """Write the jobs down; a slurmctld that an earlier run has stopped was asked by that run."""
    try:
        found = Reader(ask).jobs()
    except SlurmError:
        if not path.exists():
            raise
        kept = json.loads(path.read_text())
        return {"changed": False, "before": jobs.counts(kept), "now": {}, "ended": 0}
    if write:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(path, (json.dumps(found, indent=1) + "\n").encode(), "root", 0o600)
    return {"changed": True, "before": jobs.counts(found), "now": jobs.counts(found), "ended": 0}


def check(path: Path, timeout: float) -> dict[str, t.Any]:
    return {"changed": False, **compare(json.loads(path.read_text()), timeout)}


def main() -> None:
    spec: dict[str, t.Any] = {
        "state": {"type": "str", "choices": ["recorded", "checked"], "required": True},
        "record": {"type": "path", "default": "/var/backups/slurm/jobs.json"},
        "timeout": {"type": "float", "default": 120},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    path = Path(module.params["record"])
    try:
        if module.params["state"] == "recorded":
            result = record(path, not module.check_mode)
        elif module.check_mode:  # nothing was exchanged
            result = {"changed": False, "before": {}, "now": {}, "ended": 0}
        else:
            result = check(path, module.params["timeout"])
    except (SlurmError, OSError, ValueError) as exc:
        module.fail_json(msg=f"Jobs: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
