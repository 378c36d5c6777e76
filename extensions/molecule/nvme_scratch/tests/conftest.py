# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with eight NVMe disks: the role on it, its boot program by hand, its power switch and its disks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(ROOT / ".build/molecule-scratch")))
sys.path.insert(0, str(ROOT / ".build/collections"))

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.machine import Machine  # noqa: E402

MOUNT = "/mnt/resource_nvme"
MODULE = "nvme_scratch : Present | Have scratch now"
ERASE = "partx -d {0} 2> /dev/null; wipefs -qaf {0}; blkdiscard -fz {0}"
Json = t.Dict[str, t.Any]


class Node:
    """One machine of the lab."""

    def __init__(self, name: str) -> None:
        self.name, self.machine = name, Machine(STATE, name)
        self.disks = {disk.name: disk.serial for disk in self.machine.spec.disks}

    def run(self, command: str, timeout: float = 180) -> tuple[int, str]:
        """Run a shell command as root; return its status and what it printed."""
        done = self.machine.system.run(command, timeout=timeout)
        assert done.rc is not None, f"{command}: {done.problem}"
        return done.rc, done.out + done.err

    def root(self, command: str, timeout: float = 180) -> str:
        rc, text = self.run(command, timeout)
        assert rc == 0, f"{command}: {text}"
        return text.strip()

    def devices(self) -> dict[str, str]:
        """The kernel's present names of the disks; one that was pulled out may come back as nvme7n2."""
        listed = dict(reversed(line.split()) for line in self.root("lsblk -dno PATH,SERIAL | grep nvme").splitlines())
        return {disk: listed[serial] for disk, serial in self.disks.items() if serial in listed}

    def device(self, disk: str) -> str:
        return self.devices()[disk]

    def boot_program(self) -> tuple[int, Json]:
        """Do what the unit does at boot; return its status and its record."""
        rc, text = self.run("hpcai-scratch boot")
        record = json.loads(self.run("hpcai-scratch status")[1])
        assert rc == (1 if record["verdict"] in ("fail", "error") else 0), text
        return rc, record

    def record(self) -> Json:
        return t.cast(Json, json.loads(self.run("hpcai-scratch status")[1]))

    def restart(self, *, disks: t.Callable[[], object] = lambda: None) -> None:
        """Switch it off, do something to its disks, switch it on, wait until it has booted."""
        self.machine.stop()
        disks()
        self.machine.start()
        self.machine.wait(300)

    def reboot(self) -> None:
        before = self.machine.system.boot_id()
        self.run("systemctl reboot")
        self.machine.wait(300, after=before)

    def digest(self, disk: str) -> str:
        self.root("sync")
        return self.machine.digest(disk)

    def down(self) -> None:
        """Unmount scratch and stop every array."""
        self.run(f"umount {MOUNT}; mdadm --stop --scan; udevadm settle")

    def erase(self, disk: str) -> str:
        """Make a disk that nobody uses blank, and return its present name."""
        device = self.device(disk)
        self.root(f"{ERASE.format(device)}; udevadm settle")
        return device

    def erase_all(self) -> None:
        self.down()
        self.root("; ".join([*map(ERASE.format, self.devices().values()), "udevadm settle"]))


class Lab:
    """The playbook of this scenario, and the module alone."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.inventory = [
            f"--inventory={ROOT}/inventories/lab",
            f"--inventory={STATE}/hosts.yml",
            f"--extra-vars=@{SCENARIO}/vars/lab.yml",
            f"--extra-vars=lab_state_dir={STATE}",
        ]

    def converge(self, *options: str) -> tuple[int, str, dict[str, int]]:
        """Run the role; return its status, what it printed, and the recap of the node."""
        rc, text = self._ansible("ansible-playbook", *options, str(SCENARIO / "converge.yml"))
        recap = re.search(rf"^{self.node} +: (.*)$", text, re.MULTILINE)
        assert recap, text[-4000:]
        return rc, text, {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", recap.group(1))}

    def module(self, *options: str, **arguments: t.Any) -> Json:
        """Run the module alone with the node's settings; return its result."""
        given = {"models": ["QEMU NVMe Ctrl"], "count": 8, "directories": [{"path": "tmp"}], **arguments}
        name = "hpcai.gpu_cluster.nvme_scratch"
        _rc, text = self._ansible("ansible", self.node, "-m", name, "-a", json.dumps(given), *options)
        return result(text, "")

    def _ansible(self, *command: str) -> tuple[int, str]:
        done = subprocess.run(
            [command[0], *self.inventory, *command[1:]],
            cwd=ROOT,
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_FORCE_COLOR": "0",
            },
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def result(text: str, task: str) -> Json:
    """The result of a task (with -vvv) or of a module run alone."""
    begin = text.index(task)
    begin = re.compile(r"=> ?(?=\{)").search(text, begin).end()  # type: ignore[union-attr]
    return t.cast(Json, json.JSONDecoder().raw_decode(text[begin:])[0])


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab("c1")


@pytest.fixture(scope="session")
def node() -> Node:
    return Node("c1")
