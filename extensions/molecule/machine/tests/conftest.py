# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One machine with eight NVMe disks: the two roles on it, its boot program by hand, its power switch and its disks."""

from __future__ import annotations

import json
import os
import re
import typing as t
from pathlib import Path

import machine_lab
import pytest

SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(machine_lab.ROOT / ".build/molecule-machine")))
MOUNT = "/mnt/resource_nvme"
MODULE = "nvme_scratch : scratch | On the local disks create and mount scratch"
RECORD = "/run/hpcai/nvme_scratch.json"
ERASE = "partx -d {0} 2> /dev/null; wipefs -qaf {0}; blkdiscard -fz {0}"
KERNEL = "dmesg | grep -E 'nvme|pciehp' | tail -n 40"
VALUES = (
    "/proc/sys/vm/zone_reclaim_mode",
    "/proc/sys/net/ipv4/neigh/default/gc_thresh3",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/module/sunrpc/parameters/tcp_max_slot_table_entries",
)
TUNED = ["1", "16384", "always [madvise] never", "128"]
# Files by content, directories by name; not what apt, dpkg and systemd write by themselves. /var/lib/hpcai itself is
# everybody's: who finds it empty removes it, who needs it makes it.
FILES = (
    "{ find /etc /opt /var/lib/hpcai -type f ! -name machine-id ! -name '*.cache' -exec sha256sum {} +;"
    " find /etc /opt /var/lib/hpcai -mindepth 1 -type d -o -type l; } 2> /dev/null"
)
SERVICE = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
Json = t.Dict[str, t.Any]


class Node(machine_lab.Node):
    """The machine as root sees it, and what the roles leave in it."""

    def write(self, path: str, text: str) -> None:
        self.root(f"mkdir -p $(dirname {path}) && cat > {path}", data=text)

    def values(self) -> list[str]:
        return self.root(f"modprobe sunrpc; cat {' '.join(VALUES)}").splitlines()

    def state(self) -> tuple[list[str], list[str], str, str]:
        """All that has to be back when the node is no longer tuned."""
        files = sorted(self.run(FILES)[1].splitlines())
        service = self.run("systemctl is-enabled nvidia-fabricmanager")[1]
        return files, self.values(), self.root("apt-mark showhold"), service

    def device(self, disk: str) -> str:
        return self.devices()[disk]

    def boot_program(self) -> Json:
        """Do what the unit does at boot; return its record, which its status agrees with."""
        rc, text = self.run(f"hpcai-scratch boot >/dev/null; rc=$?; cat {RECORD}; exit $rc")
        record: Json = json.loads(text)
        assert rc == (1 if record["verdict"] in ("fail", "error") else 0), text
        return record

    def record(self) -> Json:
        return t.cast(Json, json.loads(self.run("hpcai-scratch status")[1]))

    def digests(self, *disks: str) -> dict[str, str]:
        """What is on disks (all by default)."""
        self.root("sync")
        return {disk: self.machine.digest(disk) for disk in disks or self.disks}

    def down(self) -> None:
        """Unmount scratch and stop every array, once udev has nothing left to do that would assemble one again."""
        self.run(f"umount {MOUNT}; udevadm settle; mdadm --stop --scan; udevadm settle")

    def erase(self, *disks: str) -> None:
        """Make disks that nobody uses blank."""
        devices = self.devices()
        gone = [disk for disk in disks if disk not in devices]
        assert not gone, f"{gone} gone, and the kernel says: {self.run(KERNEL)[1]}"
        self.root("; ".join([*(ERASE.format(devices[disk]) for disk in disks), "udevadm settle"]))

    def erase_all(self) -> None:
        self.down()
        self.erase(*self.disks)


class Lab(machine_lab.Ansible):
    """The playbooks of this scenario, and the module of the scratch alone."""

    def __init__(self, node: str) -> None:
        super().__init__(SCENARIO, STATE)
        self.node = node

    def _converge(self, role: str, *options: str) -> tuple[int, str, dict[str, int]]:
        """Run a role; return its status, what it printed, and the recap of the node."""
        rc, text = self.run("ansible-playbook", *options, str(SCENARIO / f"{role}.yml"))
        return rc, text, machine_lab.recap(text, self.node)

    def scratch(self, *options: str) -> tuple[int, str, dict[str, int]]:
        return self._converge("scratch", *options)

    def tuning(self, *options: str, **inputs: t.Any) -> tuple[int, str, dict[str, int]]:
        return self._converge("tuning", "--extra-vars", json.dumps(inputs), *options)

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


def settled(text: str) -> str:
    """Tasks and diffs of a run, without what tells check mode from a real run."""
    return text[text.index("TASK [") : text.index("PLAY RECAP")]


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab("c1")


@pytest.fixture(scope="session")
def node() -> Node:
    return Node(STATE, "c1")


@pytest.fixture(scope="session")
def before(node: Node) -> tuple[t.Any, ...]:
    """The node before it is tuned, with a service that stands for fabric manager and an administrator's settings."""
    node.write("/etc/systemd/system/nvidia-fabricmanager.service", SERVICE)
    node.write("/etc/nccl.conf", "NCCL_DEBUG=INFO\n")
    node.root("systemctl daemon-reload; mkdir -p /opt/azurehpc; apt-mark hold libc6")
    return node.state()
