# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab of virtual machines: what the default scenario's tests can do, and the power switches."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import testinfra
import yaml

ROOT = Path(__file__).resolve().parents[4]
SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(ROOT / ".build/molecule-vm")))
sys.path.insert(0, str(ROOT / ".build/collections"))

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.machine import Machine  # noqa: E402

# By its path: the file beside this one has the same name.
_SPEC = importlib.util.spec_from_file_location("default_lab", SCENARIO.parent / "default/tests/conftest.py")
assert _SPEC is not None and _SPEC.loader is not None
default_lab = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(default_lab)
eventually = default_lab.eventually
PASSWORD: str = yaml.safe_load((SCENARIO / "inventory/hosts.yml").read_text())["all"]["vars"]["lab_cifs_password"]
ARGUMENTS = [
    f"--inventory={ROOT}/inventories/lab",
    f"--inventory={STATE}/hosts.yml",
    f"--inventory={SCENARIO}/inventory/hosts.yml",
    f"--extra-vars=@{SCENARIO}/vars/lab.yml",
    f"--extra-vars=lab_state_dir={STATE}",
]


class VmLab(default_lab.Lab):  # type: ignore[misc]
    """One lab of two machines, and their switches."""

    def machine(self, name: str) -> Machine:
        return Machine(STATE, name)

    def host(self, name: str) -> t.Any:
        return testinfra.get_host(
            f"ssh://root@{self.addresses[name]}:{self.machine(name).spec.port}",
            ssh_identity_file=str(STATE / "ssh_key"),
            ssh_extra_args=f"-o UserKnownHostsFile={STATE / 'known_hosts'} -o BatchMode=yes -o ConnectTimeout=60",
        )

    def ansible(self, *command: str, seconds: float = 600) -> tuple[int, str]:
        """Run ansible or ansible-playbook on this lab; returns its status and all that it printed."""
        environment = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HPCAI_REPORT_DIR": str(STATE / "report")}
        done = subprocess.run(
            [command[0], *ARGUMENTS, *command[1:]],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def works(self) -> bool:
        """Whether a user's job gets through."""
        return bool(self.run("timeout 20 srun --immediate=10 -N1 hostname").stdout == "c1\n")


@pytest.fixture(scope="session")
def lab() -> VmLab:
    return VmLab()
