# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One virtual machine, the role on it, and all that the role could leave behind."""

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
STATE = Path(os.environ.setdefault("LAB_STATE", str(ROOT / ".build/molecule-tuning")))
sys.path.insert(0, str(ROOT / ".build/collections"))

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.machine import Machine  # noqa: E402

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


class Node:
    """The machine as root sees it."""

    def __init__(self, name: str) -> None:
        self.machine = Machine(STATE, name)

    def run(self, command: str) -> tuple[int, str]:
        done = self.machine.system.run(command, timeout=120)
        assert done.rc is not None, f"{command}: {done.problem}"
        return done.rc, (done.out + done.err).strip()

    def root(self, command: str) -> str:
        rc, text = self.run(command)
        assert rc == 0, f"{command}: {text}"
        return text

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

    def reboot(self) -> None:
        before = self.machine.system.boot_id()
        self.run("systemctl reboot")
        self.machine.wait(300, after=before)


class Lab:
    """The playbook of this scenario."""

    def converge(self, *options: str, **inputs: t.Any) -> tuple[int, str, dict[str, int]]:
        """Run the role; return its status, what it printed and the recap."""
        done = subprocess.run(
            [
                "ansible-playbook",
                f"--inventory={ROOT}/inventories/lab",
                f"--inventory={STATE}/hosts.yml",
                f"--extra-vars=@{SCENARIO}/vars/lab.yml",
                f"--extra-vars={json.dumps({'lab_state_dir': str(STATE), **inputs})}",
                *options,
                str(SCENARIO / "converge.yml"),
            ],
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
        recap = re.search(r"^c1 +: (.*)$", done.stdout, re.MULTILINE)
        assert recap, done.stdout[-3000:] + done.stderr
        return done.returncode, done.stdout, {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", recap.group(1))}


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab()


@pytest.fixture(scope="session")
def node() -> Node:
    return Node("c1")
