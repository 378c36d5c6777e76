# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which ranks a parallel program has, as MPI would tell it: from Open MPI's mpirun, or from srun with PMIx or PMI-2."""

from __future__ import annotations

import os
import re
import typing as t

from emulation.machine import Machine, hostname

# Variable of the rank, of the number of ranks, of the rank on its node.
_SOURCES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMIX_RANK", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("PMI_RANK", "PMI_SIZE", "SLURM_LOCALID"),
)


class Job(t.NamedTuple):
    """One rank among its ranks; ``hosts`` has one entry per rank."""

    rank: int
    local: int
    hosts: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.hosts)

    @property
    def nodes(self) -> int:
        return len(set(self.hosts))


def find(machine: Machine) -> Job:
    """Without MPI, or when nobody started it for MPI, a program is alone, however many of it were started."""
    alone = Job(0, 0, (machine.host,))
    if machine.faults.get("no_mpi"):
        return alone
    for rank, size, local in _SOURCES:
        if rank in os.environ and size in os.environ:
            total = int(os.environ[size])
            return Job(int(os.environ[rank]), int(os.environ.get(local, 0)), tuple(_hosts(total)))
    return alone


def _hosts(total: int) -> list[str]:
    """The host of every rank, filled one node after the other."""
    named = (
        os.environ.get("GPU_TOOLS_HOSTS")
        or os.environ.get("SLURM_STEP_NODELIST")
        or os.environ.get("SLURM_JOB_NODELIST")
    )
    hosts = expand(named) if named else [hostname()]
    each = -(-total // len(hosts))
    return [host for host in hosts for dummy in range(each)][:total]


def expand(text: str) -> list[str]:
    """Write a list of hosts out: c[1-3,7],d9."""
    found = []
    for prefix, ranges in re.findall(r"([^,\[]+)(?:\[([^\]]*)\])?,?", text):
        for part in ranges.split(",") if ranges else [""]:
            first, dash, last = part.partition("-")
            if not dash:
                found.append(prefix + first)
                continue
            found += [f"{prefix}{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return found
