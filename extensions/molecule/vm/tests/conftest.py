# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab of virtual machines: what the default scenario's tests can do, and the power switches."""

from __future__ import annotations

import importlib.util
import os
import sys
import typing as t
from pathlib import Path

import pytest
import testinfra
import yaml

sys.path.insert(0, str(Path(__file__).parents[2] / "shared"))

import machine_lab
from machine_lab import Machine

SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(machine_lab.ROOT / ".build/molecule-vm")))

# By its path: the file beside this one has the same name.
_SPEC = importlib.util.spec_from_file_location("default_lab", SCENARIO.parent / "default/tests/conftest.py")
assert _SPEC is not None and _SPEC.loader is not None
default_lab = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(default_lab)
eventually = default_lab.eventually
PASSWORD: str = yaml.safe_load((SCENARIO / "inventory/hosts.yml").read_text())["all"]["vars"]["lab_cifs_password"]


class VmLab(default_lab.Lab):  # type: ignore[misc]
    """One lab of two machines, their switches, and Ansible."""

    ansible = machine_lab.Ansible(SCENARIO, STATE)

    def machine(self, name: str) -> Machine:
        return Machine(STATE, name)

    def host(self, name: str) -> t.Any:
        return testinfra.get_host(
            f"ssh://root@{self.addresses[name]}:{self.machine(name).spec.port}",
            ssh_identity_file=str(STATE / "ssh_key"),
            ssh_extra_args=f"-o UserKnownHostsFile={STATE / 'known_hosts'} -o BatchMode=yes -o ConnectTimeout=60",
        )

    def works(self) -> bool:
        """Whether a user's job gets through."""
        return bool(self.run("timeout 20 srun --immediate=10 -N1 hostname").stdout == "c1\n")


@pytest.fixture(scope="session")
def lab() -> VmLab:
    return VmLab()
