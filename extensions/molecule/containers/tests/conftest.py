# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab with containers: what every lab has, registries, and the role enroot run again."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import typing as t
from pathlib import Path

import cluster_lab
import pytest
from cluster_lab import ROOT, eventually, finished, healthy

SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(ROOT / ".build/molecule-containers")))

__all__ = ["Lab", "changed", "done", "eventually", "finished", "healthy"]

SQUASHED = "/shared/images/app.sqsh"
WITH_MPI = "/shared/images/mpi.sqsh"
IMAGE = "ctl:5000#lab/app:1"
CLOSED_IMAGE = "ctl:5001#lab/app:1"
# Unpacking counts as the job's memory.
MEMORY = "--mem=1500"


class Lab(cluster_lab.Lab):
    """One lab, its jobs in containers, and the collection's roles run on it."""

    more = (f"--extra-vars=@{ROOT}/lab/containers.yml",)

    def srun(self, command: str, options: str = "", user: str = "trainer") -> t.Any:
        """Run a step of a shell command and wait for it."""
        quoted = command.replace("'", "'\\''")
        return self.run(f"srun --quiet {MEMORY} {options} sh -c '{quoted}' </dev/null", user)

    def role_play(
        self, play: t.Sequence[t.Mapping[str, t.Any]], *options: str, **variables: t.Any
    ) -> subprocess.Popen[str]:
        """Start a play that is given as data, with the scenario's variables."""
        with tempfile.NamedTemporaryFile("w", dir=STATE, suffix=".yml", delete=False) as file:
            file.write(json.dumps(play))
        return self.start(Path(file.name), *options, **variables)

    def enroot(self, hosts: str = "slurm_compute", **variables: t.Any) -> subprocess.Popen[str]:
        """Start the role enroot with other inputs than the scenario's."""
        play = {"hosts": hosts, "become": True, "gather_facts": False, "roles": ["hpcai.gpu_cluster.enroot"]}
        return self.role_play([play], **variables)


def done(run: subprocess.Popen[str]) -> str:
    """Wait for a playbook that has to end well."""
    status, output = finished(run)
    assert status == 0, output[-3000:]
    return output


def changed(output: str) -> int:
    """Add up what the recap says was changed."""
    assert " changed=" in output, output[-1000:]
    return sum(int(word.partition("=")[2]) for word in output.split() if word.startswith("changed="))


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab(SCENARIO, STATE)
