# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the scenarios on virtual machines share: Ansible on their lab, and root in a machine beside its switches."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from forked import run_module
from patience import patience, wait_for

from ansible_collections.hpcai.gpu_cluster.lab.machine.machine import Machine

ROOT = Path(__file__).resolve().parents[3]


class Ansible:
    """ansible and ansible-playbook on the lab of a scenario, with its inventories and its variables."""

    def __init__(self, scenario: Path, state: Path) -> None:
        own = scenario / "inventory/hosts.yml"
        self.arguments = [
            f"--inventory={ROOT}/lab/inventory",
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

    def run(self, *command: str, seconds: float = 900) -> tuple[int, str]:
        """Run one of the two to its end; returns its status and all that it printed."""
        module = {"ansible": "ansible.cli.adhoc", "ansible-playbook": "ansible.cli.playbook"}[command[0]]
        words, environment = [*self.arguments, *command[1:]], {**os.environ, **self.environment}
        done = run_module(module, *words, cwd=ROOT, env=environment, timeout=patience(seconds))
        return done.returncode, done.stdout + done.stderr

    def playbook(self, name: str, *options: str, seconds: float = 900) -> tuple[int, str]:
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
        self.disks = {disk.name: disk.serial for disk in self.machine.spec.disks}

    def run(self, command: str, timeout: float = 180, data: str | None = None) -> tuple[int, str]:
        """Run a shell command as root; return its status and what it printed."""
        done = self.machine.system.run(command, timeout=patience(timeout), data=data)
        assert done.rc is not None, f"{command}: {done.problem}"
        return done.rc, (done.out + done.err).strip()

    def root(self, command: str, timeout: float = 180, data: str | None = None) -> str:
        """The same for a command that has to succeed."""
        rc, text = self.run(command, timeout, data)
        assert rc == 0, f"{command}: {text}"
        return text

    def devices(self) -> dict[str, str]:
        """The kernel's present names of the disks; one that was pulled out may come back as nvme7n2."""
        listed = self.root("lsblk -dno PATH,SERIAL | grep nvme; true").splitlines()
        found = {serial: path for path, serial in map(str.split, listed)}
        return {disk: found[serial] for disk, serial in self.disks.items() if serial in found}

    def pull(self, disk: str) -> None:
        """Pull a disk out of the running machine, and see that its kernel has noticed."""
        self.machine.remove([disk])
        wait_for(f"{disk} to be gone", lambda: disk not in self.devices())

    def push(self, disk: str) -> None:
        """Push it in again, and see that its kernel and udev have noticed."""
        self.machine.add([disk])
        wait_for(f"{disk} to be there", lambda: disk in self.devices())
        self.root("udevadm settle")

    def reboot(self) -> None:
        """Have the system start anew, and wait until it has."""
        before = self.machine.system.boot_id()
        self.run("systemctl reboot")
        self.machine.wait(patience(300), after=before)

    def switch_off_and_on(self, *, disks: t.Callable[[], object] = lambda: None) -> None:
        """Press its power button, do something to its disks, switch it on, wait until it has booted."""
        self.machine.stop(patience(120))
        self._on(disks)

    def power_cut(self, *, disks: t.Callable[[], object] = lambda: None) -> None:
        """The same, but it learns nothing of it."""
        self.machine.kill()
        self._on(disks)

    def _on(self, disks: t.Callable[[], object]) -> None:
        disks()
        self.machine.start()
        self.machine.wait(patience(300))
