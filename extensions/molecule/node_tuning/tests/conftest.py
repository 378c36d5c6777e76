# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One virtual machine, the role on it, and all that the role could leave behind."""

from __future__ import annotations

import json
import os
import sys
import typing as t
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "shared"))

import machine_lab

SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(machine_lab.ROOT / ".build/molecule-tuning")))
VALUES = (
    "/proc/sys/vm/zone_reclaim_mode",
    "/proc/sys/net/ipv4/neigh/default/gc_thresh3",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/module/sunrpc/parameters/tcp_max_slot_table_entries",
)
# Files by content, directories by name; not what apt, dpkg and systemd write by themselves.
FILES = (
    "find /etc /opt /var/lib/hpcai -type f ! -name machine-id ! -name '*.cache' -exec sha256sum {} + ;"
    " find /etc /opt /var/lib/hpcai -type d -o -type l"
)


class Node(machine_lab.Node):
    """The machine as root sees it, and what the role leaves in it."""

    def write(self, path: str, text: str) -> None:
        done = self.machine.system.run(f"mkdir -p $(dirname {path}) && cat > {path}", timeout=60, data=text)
        assert done.rc == 0, done.problem

    def values(self) -> list[str]:
        return self.root(f"modprobe sunrpc; cat {' '.join(VALUES)}").splitlines()

    def state(self) -> tuple[list[str], list[str], str, str]:
        """All that absent has to bring back."""
        files = sorted(self.run(FILES)[1].splitlines())
        service = self.run("systemctl is-enabled nvidia-fabricmanager")[1]
        return files, self.values(), self.root("apt-mark showhold"), service


class Lab(machine_lab.Ansible):
    """The playbook of this scenario."""

    def converge(self, *options: str, **inputs: t.Any) -> tuple[int, str, dict[str, int]]:
        """Run the role; return its status, what it printed and the recap."""
        given = ("--extra-vars", json.dumps(inputs), *options)
        rc, text = self.run("ansible-playbook", *given, str(SCENARIO / "converge.yml"))
        return rc, text, machine_lab.recap(text, "c1")


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab(SCENARIO, STATE)


@pytest.fixture(scope="session")
def node() -> Node:
    return Node(STATE, "c1")
