# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab of virtual machines: what every lab has, and the power switches."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import machine_lab
import pytest
import testinfra
import yaml
from cluster_lab import Lab
from machine_lab import Machine
from patience import patience, wait_for

SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(machine_lab.ROOT / ".build/molecule-vm")))

PASSWORD: str = yaml.safe_load((SCENARIO / "inventory/hosts.yml").read_text())["all"]["vars"]["lab_cifs_password"]


def eventually(question: t.Callable[[], t.Any], what: str, seconds: float = 240) -> t.Any:
    """Ask until the answer is true; a machine that cannot be reached has not answered."""

    def ask() -> t.Any:
        try:
            return question()
        except RuntimeError as exc:  # testinfra: SSH itself failed
            said.append(str(exc))
            return None

    said: list[str] = []
    try:
        return wait_for(what, ask, seconds, pause=1)
    except AssertionError as exc:
        raise AssertionError(f"{exc}; {said[-1] if said else 'SSH always answered'}") from None


class VmLab(Lab):
    """One lab of two machines, their switches, and Ansible."""

    ansible = machine_lab.Ansible(SCENARIO, STATE)

    def machine(self, name: str) -> Machine:
        return Machine(STATE, name)

    def host(self, name: str) -> t.Any:
        return testinfra.get_host(
            f"ssh://root@{self.addresses[name]}:{self.machine(name).spec.port}",
            ssh_identity_file=str(STATE / "ssh_key"),
            # By the connection that all share; to an emulated machine a new one costs a second.
            ssh_extra_args=f"-o UserKnownHostsFile={STATE / 'known_hosts'} -o BatchMode=yes -o ConnectTimeout=60"
            f" -o ControlPath={self.machine(name).system.control}",
        )

    def works(self) -> bool:
        """Whether a user's job gets through."""
        limits = f"timeout {patience(60):.0f} srun --immediate={patience(30):.0f}"
        return bool(self.run(f"{limits} -N1 hostname").stdout == "c1\n")

    def node(self, name: str) -> machine_lab.Node:
        return machine_lab.Node(STATE, name)

    def waits(self, job: str) -> bool:
        """Whether the scheduler has looked at a job and left it in the queue."""
        state, dummy, reason = self.run(f"squeue -h -j {job} -o '%T|%r'").stdout.strip().partition("|")
        return state == "PENDING" and reason not in ("", "None")


@pytest.fixture(scope="session")
def lab() -> VmLab:
    return VmLab(SCENARIO, STATE)
