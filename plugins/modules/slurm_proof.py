#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait until Slurm can use its nodes, and run a command on two of them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_proof
short_description: Prove that a user's job reaches the nodes of a Slurm cluster
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Waits until Slurm can use every node, and fails with the names, states and reasons of those that it cannot. Nodes
    that somebody drained and nodes that power saving has switched off do not count.
  - Then runs one command as a job step on two idle nodes of the default partition, or on the one that it has. Where
    jobs keep these nodes busy, the jobs prove the cluster better, and none is run.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: none
  diff_mode:
    support: none
  idempotent:
    support: full
    details:
      - It runs a job each time, and changes nothing.
options:
  timeout:
    description:
      - Seconds to wait for the nodes.
    type: int
    default: 60
  mpi:
    description:
      - Value of C(srun --mpi). With V(pmix) each task has to be told its rank by PMIx, as MPI programs are.
    type: str
    default: none
  job_name:
    description:
      - Name of the job in accounting.
    type: str
    default: hpcai-proof
notes:
  - Run it as the user whose jobs it shall stand for.
  - The job ends after a minute at most, and is given up where it does not start within one.
seealso:
  - module: hpcai.gpu_cluster.slurm_info
  - module: hpcai.gpu_cluster.slurm_job
"""
EXAMPLES = r"""
- name: Prove that jobs of trainer reach the nodes
  hpcai.gpu_cluster.slurm_proof:
  become: true
  become_user: trainer

- name: Prove it with PMIx, by which MPI programs are started
  hpcai.gpu_cluster.slurm_proof:
    mpi: pmix
  become: true
  become_user: trainer

- name: Give nodes that boot ten minutes
  hpcai.gpu_cluster.slurm_proof:
    timeout: 600
  become: true
  become_user: trainer
"""
RETURN = r"""
hosts:
  description:
    - Host names of the nodes on which the command ran, as they told them. Empty where jobs keep the nodes busy.
  type: list
  elements: str
  returned: success
  sample: [c1, c2]
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import SlurmReader, SlurmService, service
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError

SPEC = {
    "timeout": {"type": "int", "default": 60},
    "mpi": {"type": "str", "default": "none"},
    "job_name": {"type": "str", "default": "hpcai-proof"},
}


POLL = 0.5  # seconds between two looks at most; slurmctld has other things to do
SOON = 0.1  # seconds before the second one
PROGRAM = 'echo "${PMIX_RANK-none} $(hostname)"'


class ProofError(Exception):
    """The cluster does not work; the text is fit for the user."""


def settled(module: AnsibleModule) -> SlurmService:
    """Wait until Slurm can use its nodes; return on how many of them it can be proved."""
    module.run_command_environ_update = {"SLURM_TIME_FORMAT": TIME_FORMAT}

    def run(argv: list[str]) -> tuple[int, str, str]:
        return module.run_command([module.get_bin_path(argv[0], required=True), *argv[1:]])

    reader, end, pause = SlurmReader(run), time.monotonic() + module.params["timeout"], SOON
    while True:
        try:
            seen, unread = service(reader.nodes(), reader.partitions()), ""
        except SlurmError as exc:
            seen, unread = None, str(exc)
        if seen and seen.settled:
            return seen
        if time.monotonic() > end:
            break
        time.sleep(pause)
        pause = min(1.5 * pause, POLL)
    if seen is None:
        raise ProofError(f"Cannot read the Slurm cluster: {unread}")
    raise ProofError(
        f"Slurm waits for nodes: {'; '.join(seen.broken)}. Look there with 'systemctl status slurmd munge' and 'tail "
        "/var/log/slurm/slurmd.log', or drain them with a reason to go on without."
    )


def prove(module: AnsibleModule, nodes: int) -> list[str]:
    """Run the command on so many nodes; return their names."""
    mpi = module.params["mpi"]
    argv = [module.get_bin_path("srun", required=True), f"--nodes={nodes}", "--ntasks-per-node=1", "--time=1"]
    argv += ["--immediate=60", f"--job-name={module.params['job_name']}", f"--mpi={mpi}", "sh", "-c", PROGRAM]
    rc, out, err = module.run_command(argv, cwd="/")
    evidence = f"{' '.join(argv)} ended with {rc}: {err.strip() or out.strip() or 'it printed nothing'}"
    if rc:
        raise ProofError(f"A job on {nodes} of the nodes fails, though Slurm can use them. {evidence}")
    answers = sorted({line.strip() for line in out.splitlines()})
    if len(answers) != nodes:
        raise ProofError(f"A job on {nodes} of the nodes was answered by {len(answers)}. {evidence}")
    ranks, hosts = zip(*(answer.partition(" ")[::2] for answer in answers))
    if mpi == "pmix" and sorted(ranks) != [str(rank) for rank in range(nodes)]:
        raise ProofError(
            f"PMIx told the {nodes} tasks of a job the ranks {', '.join(ranks)}, so that an MPI program would run as "
            f"{nodes} programs of one task. {evidence}"
        )
    return list(hosts)


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Prove the cluster on as many nodes as it has to offer."""
    nodes = settled(module).proof
    return {"hosts": prove(module, nodes) if nodes else []}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC)
    try:
        result = perform(module)
    except ProofError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
