# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine with eight NVMe disks: the role on it, its boot program by hand, its power switch and its disks."""

from __future__ import annotations

import json
import os
import re
import sys
import typing as t
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "shared"))

import machine_lab

SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(machine_lab.ROOT / ".build/molecule-scratch")))
MOUNT = "/mnt/resource_nvme"
MODULE = "nvme_scratch : Present | Have scratch now"
ERASE = "partx -d {0} 2> /dev/null; wipefs -qaf {0}; blkdiscard -fz {0}"
Json = t.Dict[str, t.Any]


class Node(machine_lab.Node):
    """One machine of the lab, and its disks."""

    def __init__(self, name: str) -> None:
        super().__init__(STATE, name)
        self.disks = {disk.name: disk.serial for disk in self.machine.spec.disks}

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


class Lab(machine_lab.Ansible):
    """The playbook of this scenario, and the module alone."""

    def __init__(self, node: str) -> None:
        super().__init__(SCENARIO, STATE)
        self.node = node

    def converge(self, *options: str) -> tuple[int, str, dict[str, int]]:
        """Run the role; return its status, what it printed, and the recap of the node."""
        rc, text = self.run("ansible-playbook", *options, str(SCENARIO / "converge.yml"))
        return rc, text, machine_lab.recap(text, self.node)

    def module(self, *options: str, **arguments: t.Any) -> Json:
        """Run the module alone with the node's settings; return its result."""
        given = {"models": ["QEMU NVMe Ctrl"], "count": 8, "directories": [{"path": "tmp"}], **arguments}
        name = "hpcai.gpu_cluster.nvme_scratch"
        dummy, text = self.run("ansible", self.node, "-m", name, "-a", json.dumps(given), *options)
        return result(text, "")


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
