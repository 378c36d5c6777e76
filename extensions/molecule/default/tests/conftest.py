# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The running lab as the tests see it: hosts by SSH, commands as users, playbooks as a person starts them."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
import testinfra
import yaml

ROOT = Path(__file__).resolve().parents[4]
STATE = Path(os.environ.get("LAB_STATE", ROOT / ".build/molecule"))
LAB = yaml.safe_load((Path(__file__).parents[1] / "vars/lab.yml").read_text())


class Lab:
    """One lab: its hosts, and what is done to them."""

    def __init__(self) -> None:
        inventory = yaml.safe_load((STATE / "hosts.yml").read_text())
        self.addresses: dict[str, str] = {}
        self._collect(inventory)

    def _collect(self, tree: dict[str, t.Any]) -> None:
        for group in tree.values():
            for name, variables in ((group or {}).get("hosts") or {}).items():
                if variables and "ansible_host" in variables:
                    self.addresses[name] = variables["ansible_host"]
            self._collect((group or {}).get("children") or {})

    @property
    def compute(self) -> list[str]:
        return sorted(name for name in self.addresses if name != "ctl")

    def host(self, name: str) -> t.Any:
        return testinfra.get_host(
            f"ssh://root@{self.addresses[name]}",
            ssh_identity_file=str(STATE / "ssh_key"),
            # A busy machine may take long to answer a new connection; that is not what these tests are about.
            ssh_extra_args=f"-o UserKnownHostsFile={STATE / 'known_hosts'} -o BatchMode=yes -o ConnectTimeout=60",
        )

    def run(self, command: str, user: str = "trainer", host: str = "ctl") -> t.Any:
        """Run a shell command as an ordinary user (default) on a node."""
        return self.host(host).run(f"runuser -u {user} -- sh -c {shlex.quote('cd; ' + command)}")

    def root(self, command: str, host: str = "ctl") -> str:
        return self.host(host).check_output(command)

    def submit(self, command: str, options: str = "") -> str:
        """Queue a job and return its id."""
        result = self.run(f"sbatch --parsable --output=/dev/null {options} --wrap {shlex.quote(command)}")
        assert result.rc == 0, result.stderr
        return result.stdout.strip().split(";")[0]

    def account(self, job: str, field: str) -> str:
        """One accounting field of a job's allocation."""
        return self.run(f"sacct -X -n -P -j {job} -o {field}").stdout.strip()

    def podman(self, action: str, name: str) -> None:
        subprocess.run(["podman", action, f"hpcai-{LAB['lab_name']}-{name}"], check=True, capture_output=True)

    def playbook(self, name: str, *args: str, **kwargs: t.Any) -> subprocess.Popen[str]:
        """Start one of the collection's playbooks on this lab."""
        return subprocess.Popen(
            [
                "ansible-playbook",
                f"--inventory={ROOT}/inventories/lab",
                f"--inventory={STATE}/hosts.yml",
                f"--extra-vars=@{ROOT}/extensions/molecule/default/vars/lab.yml",
                f"--extra-vars=lab_state_dir={STATE}",
                *args,
                str(ROOT / "playbooks" / name),
            ],
            cwd=ROOT,
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "HPCAI_REPORT_DIR": str(STATE / "report")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **kwargs,
        )


def eventually(question: t.Callable[[], t.Any], seconds: float = 90, what: str = "") -> t.Any:
    """Ask until the answer is true; fail with the last answer when time is up."""
    end = time.monotonic() + seconds
    while True:
        trouble = ""
        try:
            answer = question()
        except RuntimeError as exc:  # testinfra: SSH itself failed; the question was not answered
            answer, trouble = None, f"; the last time there was no answer: {exc}"
        if answer:
            return answer
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what or question}{trouble}"
        time.sleep(1)


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab()


@pytest.fixture
def healthy(lab: Lab) -> t.Iterator[Lab]:
    """The lab, idle before the test and required to be idle again after it without help."""

    def idle() -> bool:
        states = lab.run("sinfo -h -N -o '%T'").stdout.split()
        return len(states) == len(lab.compute) and set(states) == {"idle"}

    eventually(idle, 120, "all nodes idle before the test")
    yield lab
    eventually(idle, 180, "all nodes idle again after the test")
