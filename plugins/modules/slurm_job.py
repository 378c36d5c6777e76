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
  - >-
    Submits a batch script with C(sbatch) as the user of the task, follows the job, and returns its state, exit code,
    nodes, times and the last lines of its output.
  - >-
    With O(record) the task is idempotent. A recorded job that completed is returned without running again, one that
    is still queued or running is followed instead of being submitted twice, and a job in any other state (failed,
    cancelled, or no longer known to Slurm) is submitted again.
  - >-
    While the job is queued or runs, a C(slurmctld) or C(slurmdbd) that does not answer is polled until O(timeout).
    A job that both of them do not know for 60 seconds counts as lost and the task fails.
  - In check mode nothing is submitted, cancelled or written. A job that would be followed is looked up in Slurm.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: partial
    details: Needs O(record). Without it every run submits a new job.
options:
  name:
    description:
      - Name of the job, as C(squeue) shows it (C(sbatch --job-name)).
    type: str
    required: true
  state:
    description:
      - V(completed) waits for the end of the job and fails unless Slurm's final state is C(COMPLETED).
      - >-
        V(submitted) returns as soon as Slurm knows the job. It still fails when the job has ended by then in another
        state than C(COMPLETED).
      - >-
        V(absent) cancels the job that O(record) names, waits for its end and removes the file. Without O(record) it
        cancels all queued and running jobs of the user that have this O(name).
      - The state is not part of what identifies a job, so a job can be submitted by one task and awaited by another.
    type: str
    choices: [completed, submitted, absent]
    default: completed
  script:
    description:
      - Text of the batch script. It must start with V(#!) and an interpreter.
      - C(#SBATCH) lines are read by C(sbatch) as usual, except that a job array (C(--array)) is refused.
      - Required unless O(state=absent).
    type: str
  args:
    description:
      - Arguments that C(sbatch) passes to the script.
    type: list
    elements: str
    default: []
  options:
    description:
      - >-
        Options of C(sbatch) by their long names, where underscores stand for dashes. V(true) is an option without a
        value, a list is joined by commas, and V(false) or V(null) leaves the option out.
      - Quote times. YAML reads an unquoted V(10:00) as the number 600, which C(sbatch) takes for minutes.
      - >-
        Refused are one-letter names, what other options of this module set (C(job_name), C(chdir), C(output)), and
        C(array), C(clusters), C(parsable), C(quiet), C(test_only), C(wait) and C(wrap).
      - >-
        The module sets C(comment) to a digest of the job, by which a later run finds a job whose O(record) was not
        written in time. With a C(comment) of your own that search finds nothing.
    type: dict
    default: {}
  environment:
    description:
      - >-
        Environment variables for C(sbatch), which by its default (C(--export=ALL)) hands them on to the job. Values
        are turned into text; quote those that YAML would change.
    type: dict
    default: {}
  chdir:
    description:
      - Working directory of the job on its nodes. Without it, it is the directory in which the module runs.
    type: path
  output:
    description:
      - >-
        File for standard output and, unless O(options) says otherwise, standard error of the job. The patterns of
        C(sbatch) are allowed, such as V(%j) for the job ID.
      - Without it Slurm writes C(slurm-%j.out) in the working directory of the job.
      - It should lie on a directory that the managed host sees too, as RV(output_tail) is read there.
    type: path
  record:
    description:
      - JSON file on the managed host that remembers the job. Its directory must exist and the user must be able to
        write to it.
      - >-
        A job is identified by O(name), O(script), O(args), O(options), O(environment), O(chdir), O(output) and the
        path of the record. After a change of any of these a new job is submitted and replaces the record; the earlier
        job is not cancelled.
      - A file that is not such a record is an error. It is not overwritten.
      - The file, its directory and each one above that have to belong to root or the user of the task, and nobody else
        may write to them; above it a directory may be sticky, as C(/tmp) is. Otherwise nothing is submitted, as
        somebody else could say that the job completed, or exchange what it runs.
    type: path
  timeout:
    description:
      - >-
        Seconds to wait for O(state), from submission or, for a recorded job, from the start of the task. Time in the
        queue counts.
      - When the time is over the task fails and the job goes on; with O(record) the next run follows it.
    type: int
    default: 3600
  poll:
    description:
      - >-
        Seconds between two queries of Slurm, more than 0. The first pause is half a second at most, and pauses grow
        to this value.
    type: float
    default: 5
notes:
  - Runs where the commands of Slurm work, usually on a login node or the controller.
  - Accounting (C(slurmdbd)) is needed to learn how a job ended that C(slurmctld) has forgotten (C(MinJobAge)).
seealso:
  - module: hpcai.gpu_cluster.slurm_info
  - module: hpcai.gpu_cluster.training_info
  - name: sbatch
    description: Options and patterns of file names.
    link: https://slurm.schedmd.com/sbatch.html
"""

EXAMPLES = r"""
- name: Train once on two whole nodes and wait for the end
  hpcai.gpu_cluster.slurm_job:
    name: train
    script: "{{ lookup('ansible.builtin.file', 'train.sh') }}"
    args: ["--epochs", "3"]
    options:
      nodes: 2
      ntasks_per_node: 1
      gpus_per_node: 8
      exclusive: true
      time: "00:30:00"
    environment:
      NCCL_DEBUG: INFO
    chdir: /shared/train
    output: /shared/train/job-%j.out
    record: /shared/train/job.json
  become: true
  become_user: trainer
  register: training

- name: Show where the training ran and for how long
  ansible.builtin.debug:
    msg: "Job {{ training.job.job_id }} ran {{ training.job.elapsed }} s on {{ training.job.nodes | join(', ') }}"

- name: Submit a long job and do not wait for it
  hpcai.gpu_cluster.slurm_job:
    name: preprocess
    state: submitted
    script: |
      #!/bin/bash
      srun python3 /shared/preprocess.py
    options:
      partition: cpu
      time: "12:00:00"
    chdir: /shared/preprocess
    record: /shared/preprocess/job.json

- name: Wait for that job, up to twelve hours
  hpcai.gpu_cluster.slurm_job:
    name: preprocess
    state: completed
    script: |
      #!/bin/bash
      srun python3 /shared/preprocess.py
    options:
      partition: cpu
      time: "12:00:00"
    chdir: /shared/preprocess
    record: /shared/preprocess/job.json
    timeout: 43200
    poll: 30

- name: Cancel the recorded job and forget it
  hpcai.gpu_cluster.slurm_job:
    name: preprocess
    state: absent
    record: /shared/preprocess/job.json
"""

RETURN = r"""
job:
  description:
    - The job as Slurm describes it.
    - V(null) in check mode when a job would be submitted, and with O(state=absent).
  returned: success, and when the job did not end as wanted or not in time
  type: dict
  contains:
    job_id:
      description:
        - ID of the job.
      returned: always
      type: int
      sample: 12
    name:
      description:
        - Name of the job.
      returned: always
      type: str
      sample: train
    state:
      description:
        - State of the job in capitals, such as C(PENDING), C(RUNNING), C(COMPLETED), C(FAILED) or C(TIMEOUT).
      returned: always
      type: str
      sample: COMPLETED
    reason:
      description:
        - Slurm's reason for the state, V(null) without one.
      returned: always
      type: str
      sample: Resources
    exit_code:
      description:
        - Exit code of the script, 0 until it ends.
      returned: always
      type: int
      sample: 0
    signal:
      description:
        - Number of the signal that ended the script, 0 without one.
      returned: always
      type: int
      sample: 0
    nodes:
      description:
        - Names of the nodes that the job has or had, empty while it is queued.
      returned: always
      type: list
      elements: str
      sample: [c1, c2]
    elapsed:
      description:
        - Run time in seconds.
      returned: always
      type: int
      sample: 61
    submit:
      description:
        - Time of submission, in the local time of the managed host. Slurm sets it anew when it requeues a job.
      returned: always
      type: str
      sample: "2026-01-05T10:00:00"
    start:
      description:
        - Start in local time, V(null) where Slurm has none yet. For a queued job it is Slurm's estimate.
      returned: always
      type: str
      sample: "2026-01-05T10:00:02"
    end:
      description:
        - >-
          End in local time, V(null) where Slurm has none yet. For a running job it is the time at which its limit
          ends.
      returned: always
      type: str
      sample: "2026-01-05T10:01:03"
    output:
      description:
        - Output file with its patterns filled in, V(null) when only accounting knows the job and no record named it.
      returned: always
      type: str
      sample: /shared/train/job-12.out
    comment:
      description:
        - Comment of the job, V(null) when only accounting knows it.
      returned: always
      type: str
      sample: "hpcai:0123456789abcdef01234567"
argv:
  description:
    - Arguments of C(sbatch) before the script, whether or not it was called.
  returned: unless O(state=absent)
  type: list
  elements: str
  sample: [--parsable, --job-name=train, --chdir=/shared/train, --nodes=2, "--time=00:30:00"]
cancelled:
  description:
    - IDs of the jobs that were cancelled, or would be in check mode. Empty when none was queued or running.
  returned: when O(state=absent)
  type: list
  elements: int
  sample: [12]
output_tail:
  description:
    - >-
      Last 40 lines of the output, at most 16 KiB. Empty when the file is not there or cannot be read on the managed
      host.
  returned: unless O(state=absent)
  type: str
  sample: "epoch 3: loss 0.12"
"""

import tempfile
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job import (
    JobClient,
    JobRequest,
    JobSpec,
    JobTimeoutError,
    arguments,
    ensure,
    remove,
    report,
    tail,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError

SPEC = {
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


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Have the job in the state that is asked for; one that is not done in time is left as it is."""
    params = module.params
    environment = {key: str(value) for key, value in params["environment"].items()}
    values = {key: params[key] for key in JobSpec._fields}
    spec = JobSpec(**{**values, "script": values["script"] or "", "environment": environment})
    request = JobRequest(params["state"], params["timeout"], params["poll"], module.check_mode)

    def run(argv: list[str]) -> tuple[int, str, str]:
        extra = environment if argv[0] == "sbatch" else {"SLURM_TIME_FORMAT": TIME_FORMAT}
        return module.run_command([module.get_bin_path(argv[0], required=True), *argv[1:]], environ_update=extra)

    def write(text: str, path: str | None) -> str:
        with tempfile.NamedTemporaryFile("w", dir=module.tmpdir, prefix="slurm_job_", delete=False) as handle:
            handle.write(text)
        if path:
            module.atomic_move(handle.name, path)
        return path or handle.name

    if request.poll <= 0:
        raise SlurmError(f"poll must be more than 0 seconds, not {request.poll:g}")
    if not request.dry and spec.record and not Path(spec.record).parent.is_dir():
        raise SlurmError(f"the directory of record {spec.record} does not exist")
    if request.state == "absent":
        changed, cancelled = remove(JobClient(run), spec, request)
        return {"changed": changed, "cancelled": cancelled, "job": None}
    changed, job = ensure(JobClient(run), spec, request, write)
    ending = tail(job.output) if job else ""
    result: dict[str, t.Any] = {
        "changed": changed,
        "job": job and job.as_dict(),
        "argv": arguments(spec),
        "output_tail": ending,
    }
    if job and job.final and job.state != "COMPLETED":
        module.fail_json(msg=report(job, ending), **result)
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec=SPEC,
        required_if=[("state", "completed", ["script"]), ("state", "submitted", ["script"])],
        supports_check_mode=True,
    )
    try:
        result = perform(module)
    except JobTimeoutError as exc:
        ending = tail(exc.job.output) if exc.job else ""
        late: dict[str, t.Any] = {"job": exc.job.as_dict(), "output_tail": ending} if exc.job else {}
        last = report(exc.job, ending) if exc.job else ""
        module.fail_json(msg=f"Job {module.params['name']} was left as it is: {exc} {last}", **late)
    except (SlurmError, OSError) as exc:
        module.fail_json(msg=f"Job {module.params['name']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
