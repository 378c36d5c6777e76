# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab that is upgraded: what the default scenario's tests can do, and cutting an upgrade off."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[4]
SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(ROOT / ".build/molecule-upgrade")))
LAB = yaml.safe_load((SCENARIO / "vars/lab.yml").read_text())

# By its path: the file beside this one has the same name.
_SPEC = importlib.util.spec_from_file_location("default_lab", SCENARIO.parent / "default/tests/conftest.py")
assert _SPEC is not None and _SPEC.loader is not None
default_lab = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(default_lab)
eventually = default_lab.eventually


class UpgradeLab(default_lab.Lab):  # type: ignore[misc]
    """One lab, and what is done to it."""

    def start(self, playbook: str, *options: str, **variables: t.Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                "ansible-playbook",
                f"--inventory={ROOT}/inventories/lab",
                f"--inventory={STATE}/hosts.yml",
                f"--extra-vars=@{SCENARIO}/vars/lab.yml",
                f"--extra-vars=lab_state_dir={STATE}",
                f"--extra-vars={json.dumps(variables)}",
                *options,
                str(ROOT / "playbooks" / playbook),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_FORCE_COLOR": "false",  # molecule wants colours
                "HPCAI_REPORT_DIR": str(STATE / "report"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def play(self, playbook: str, *options: str, **variables: t.Any) -> tuple[int, str]:
        """Run a playbook to its end; returns status and output."""
        run = self.start(playbook, *options, **variables)
        output = run.communicate(timeout=600)[0]
        return run.returncode, output

    def cut_off(self, name: str, program: str, **variables: t.Any) -> None:
        """Upgrade until a program runs on a node, then kill the upgrade, and what it does on that node, at once."""
        run = self.start("upgrade_slurm.yml", **variables)
        node = f"hpcai-{LAB['lab_name']}-{name}"
        end = time.monotonic() + 300
        while subprocess.run(
            ["podman", "exec", node, "pgrep", "-x", program], capture_output=True, check=False
        ).returncode:
            assert run.poll() is None and time.monotonic() < end, f"{program} was not seen on {name}"
            time.sleep(0.05)
        os.killpg(run.pid, signal.SIGKILL)
        subprocess.run(["podman", "exec", node, "pkill", "-KILL", "-x", "apt-get|dpkg|dpkg-deb|python3"], check=False)
        run.communicate()

    def unreachable(self, name: str, yes: bool) -> None:
        """Keep Ansible out of a node, or let it in again; Slurm notices nothing."""
        words = "systemctl stop ssh.socket ssh; pkill sshd || true" if yes else "systemctl start ssh"
        subprocess.run(["podman", "exec", f"hpcai-{LAB['lab_name']}-{name}", "sh", "-c", words], check=True)

    def running(self) -> dict[str, str]:
        """Which process is each daemon."""
        places = (("ctl", "slurmctld"), ("ctl", "slurmdbd"), ("c1", "slurmd"), ("c2", "slurmd"))
        show = "systemctl show --value --property=MainPID"
        return {f"{host} {unit}": self.root(f"{show} {unit}", host).strip() for host, unit in places}


def recap(output: str) -> dict[str, dict[str, int]]:
    """The last lines of Ansible: what became of each host."""
    rows = re.findall(r"^(\S+)\s+: (ok=.*)$", output, re.MULTILINE)
    return {host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)} for host, counts in rows}


@pytest.fixture(scope="session")
def lab() -> UpgradeLab:
    return UpgradeLab()
