#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_job
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Run a batch job through Slurm once, wait for it and collect how it ended
description:
  - Submits a script with C(sbatch) as the task's user, follows it, and returns state, exit code, nodes and times.
  - >-
    With O(record) the job is idempotent. A job that completed is returned without running again, one that is still
    waiting or running is followed instead of submitted twice, and anything else is submitted.
  - A controller or database that is away while the job runs is waited for until O(timeout).
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: partial, details: "Needs O(record); without it every run submits."}
options:
  name: {description: Name of the job., type: str, required: true}
  state:
    description:
      - V(completed) waits for the job to end and fails unless it ends as COMPLETED with exit code 0.
      - V(submitted) returns as soon as Slurm has the job.
      - V(absent) cancels the recorded job and removes O(record); without O(record), all of the user's jobs of O(name).
    type: str
    choices: [completed, submitted, absent]
    default: completed
  script: {description: "Text of the batch script; starts with V(#!). Needed unless O(state=absent).", type: str}
  args: {description: Arguments of the script., type: list, elements: str, default: []}
  options:
    description:
      - >-
        Long options of C(sbatch); underscores stand for dashes, V(true) for an option without a value.
        Quote times, or YAML reads V(10:00) as 600.
      - Job arrays, C(wrap), and what other options set (C(job_name), C(output), C(chdir)) are refused.
    type: dict
    default: {}
  environment: {description: Variables for C(sbatch) and so for the job., type: dict, default: {}}
  chdir: {description: Working directory of the job., type: path}
  output: {description: "Output file, with C(sbatch)'s patterns such as V(%j).", type: path}
  record:
    description:
      - JSON file on the managed host that remembers the job. Its directory must exist.
      - Another script or any other change to these options makes another job; an earlier one is not cancelled.
    type: path
  timeout: {description: Seconds to wait. A job that takes longer is left running., type: int, default: 3600}
  poll: {description: Seconds between looks; the first looks come sooner., type: float, default: 5}
"""

EXAMPLES = r"""
- name: Train once
  hpcai.gpu_cluster.slurm_job:
    name: train
    script: "{{ lookup('ansible.builtin.file', 'train.sh') }}"
    options: {nodes: 2, ntasks_per_node: 1, time: "00:30:00", exclusive: true}
    chdir: /shared/train
    output: /shared/train/job-%j.out
    record: /shared/train/job.json
  become: true
  become_user: trainer
"""

RETURN = r"""
job:
  description:
    - What Slurm says of the job. Times are local times, C(elapsed) is in seconds, C(nodes) is a list.
    - V(null) in check mode when the job would be submitted, and for O(state=absent).
  returned: always
  type: dict
  sample:
    {job_id: 12, name: train, state: COMPLETED, reason: null, exit_code: 0, signal: 0, nodes: [c1, c2], elapsed: 61,
     submit: "2026-01-05T10:00:00", start: "2026-01-05T10:00:02", end: "2026-01-05T10:01:03",
     output: /shared/train/job-12.out, comment: "hpcai:0123456789abcdef01234567"}
argv: {description: The C(sbatch) arguments., returned: unless O(state=absent), type: list, elements: str}
cancelled: {description: Ids of cancelled jobs., returned: when O(state=absent), type: list, elements: int}
output_tail: {description: Last lines of the job's output., returned: unless O(state=absent), type: str}
"""

import tempfile
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job import Spec, arguments
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job_client import Client, JobTimeoutError, tail
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job_flow import Wish, ensure, remove, report
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError

ARGUMENTS = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["completed", "submitted", "absent"], "default": "completed"},
    "script": {"type": "str"},
    "args": {"type": "list", "elements": "str", "default": []},
    "options": {"type": "dict", "default": {}},
    "environment": {"type": "dict", "default": {}},
    "chdir": {"type": "path"},
    "output": {"type": "path"},
    "record": {"type": "path"},
    "timeout": {"type": "int", "default": 3600},
    "poll": {"type": "float", "default": 5},
}


def main() -> None:
    module = AnsibleModule(
        argument_spec=ARGUMENTS,
        required_if=[("state", "completed", ["script"]), ("state", "submitted", ["script"])],
        supports_check_mode=True,
    )
    environment = {key: str(value) for key, value in module.params["environment"].items()}
    values = {key: module.params[key] for key in Spec._fields}
    spec = Spec(**{**values, "script": values["script"] or "", "environment": environment})
    wish = Wish(module.params["state"], module.params["timeout"], module.params["poll"], module.check_mode)

    def run(argv: list[str]) -> tuple[int, str, str]:
        extra = environment if argv[0] == "sbatch" else {"SLURM_TIME_FORMAT": TIME_FORMAT}
        return module.run_command([module.get_bin_path(argv[0], required=True), *argv[1:]], environ_update=extra)

    def write(text: str, path: str | None) -> str:
        with tempfile.NamedTemporaryFile("w", dir=module.tmpdir, prefix="slurm_job_", delete=False) as handle:
            handle.write(text)
        if path:
            module.atomic_move(handle.name, path)
        return path or handle.name

    try:
        if wish.poll <= 0:
            raise SlurmError(f"poll must be more than 0 seconds, not {wish.poll:g}")
        if not wish.dry and spec.record and not Path(spec.record).parent.is_dir():
            raise SlurmError(f"the directory of record {spec.record} does not exist")
        if wish.state == "absent":
            changed, cancelled = remove(Client(run), spec, wish)
            module.exit_json(changed=changed, cancelled=cancelled, job=None)
        changed, job = ensure(Client(run), spec, wish, write)
    except JobTimeoutError as exc:
        ending = tail(exc.job.output) if exc.job else ""
        found: dict[str, t.Any] = {"job": exc.job.as_dict(), "output_tail": ending} if exc.job else {}
        last = report(exc.job, ending) if exc.job else ""
        module.fail_json(msg=f"Job {spec.name} was left as it is: {exc} {last}", **found)
    except (SlurmError, OSError) as exc:
        module.fail_json(msg=f"Job {spec.name}: {exc}")

    ending = tail(job.output) if job else ""
    result: dict[str, t.Any] = {
        "changed": changed,
        "job": job and job.as_dict(),
        "argv": arguments(spec),
        "output_tail": ending,
    }
    if job and job.final and job.state != "COMPLETED":
        module.fail_json(msg=report(job, ending), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
