# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the scenarios on virtual machines share: Ansible on their lab, and root in a machine beside its switches."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / ".build/collections"))

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.machine import Machine  # noqa: E402


class Ansible:
    """ansible and ansible-playbook on the lab of a scenario, with its inventories and its variables."""

    def __init__(self, scenario: Path, state: Path) -> None:
        own = scenario / "inventory/hosts.yml"
        self.arguments = [
            f"--inventory={ROOT}/inventories/lab",
            f"--inventory={state}/hosts.yml",
            *([f"--inventory={own}"] if own.exists() else []),
            f"--extra-vars=@{scenario}/vars/lab.yml",
            f"--extra-vars=lab_state_dir={state}",
        ]
        # Molecule wants colours; what tests read has none.
        self.environment = {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORCE_COLOR": "0",
            "HPCAI_REPORT_DIR": str(state / "report"),
        }

    def run(self, *command: str, seconds: float = 600) -> tuple[int, str]:
        """Run one of the two to its end; returns its status and all that it printed."""
        done = subprocess.run(
            [command[0], *self.arguments, *command[1:]],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def playbook(self, name: str, *options: str, seconds: float = 600) -> tuple[int, str]:
        """Run one of the collection's playbooks."""
        return self.run("ansible-playbook", *options, str(ROOT / "playbooks" / name), seconds=seconds)


def recap(text: str, host: str) -> dict[str, int]:
    """The last line of Ansible on a host."""
    found = re.search(rf"^{host} +: (.*)$", text, re.MULTILINE)
    assert found, text[-4000:]
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", found.group(1))}


class Node:
    """One machine of a lab as root sees it."""

    def __init__(self, state: Path, name: str) -> None:
        self.name, self.machine = name, Machine(state, name)

    def run(self, command: str, timeout: float = 180) -> tuple[int, str]:
        """Run a shell command as root; return its status and what it printed."""
        done = self.machine.system.run(command, timeout=timeout)
        assert done.rc is not None, f"{command}: {done.problem}"
        return done.rc, (done.out + done.err).strip()

    def root(self, command: str, timeout: float = 180) -> str:
        """The same for a command that has to succeed."""
        rc, text = self.run(command, timeout)
        assert rc == 0, f"{command}: {text}"
        return text

    def reboot(self) -> None:
        """Have the system start anew, and wait until it has."""
        before = self.machine.system.boot_id()
        self.run("systemctl reboot")
        self.machine.wait(300, after=before)
