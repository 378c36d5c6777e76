# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The running lab of a scenario as its tests see it: hosts by SSH, commands as users, playbooks."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
import time
import typing as t
from pathlib import Path

import pytest
import testinfra
import yaml
from forked import run_module
from patience import patience, pause_after

ROOT = Path(__file__).resolve().parents[3]


class Lab:
    """One lab: its hosts, and what is done to them.

    ``scenario`` is the folder with ``vars/lab.yml``, ``state`` the lab's own under ``.build``.
    """

    # Inventories and files of variables beside the lab's own.
    more: tuple[str, ...] = ()

    def __init__(self, scenario: Path, state: Path) -> None:
        self.scenario, self.state = scenario, state
        self.name: str = yaml.safe_load((scenario / "vars/lab.yml").read_text())["lab_name"]
        self.environment: dict[str, str] = {}  # of playbooks, beside what all have
        self.addresses: dict[str, str] = {}
        # A socket's path has an end, and that of a state directory may be long.
        self.connections = tempfile.TemporaryDirectory(prefix="hpcai-ssh-")
        self._collect(yaml.safe_load((state / "hosts.yml").read_text()))

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
            ssh_identity_file=str(self.state / "ssh_key"),
            # Commands share a connection: a new one for each question of `eventually` is most of what asking costs.
            controlpath=self._connection(name),
            # A busy machine may take long to answer; that is not what these tests are about.
            ssh_extra_args=f"-o UserKnownHostsFile={self.state / 'known_hosts'} -o BatchMode=yes"
            f" -o ConnectTimeout={patience(60):.0f} -o ServerAliveInterval={patience(20):.0f}",
        )

    def _connection(self, name: str) -> str:
        return f"{self.connections.name}/{name}"

    def hang_up(self, name: str) -> None:
        """End the shared connection to a node that is about to go, and would not say so."""
        argv = ["ssh", "-O", "exit", "-o", f"ControlPath={self._connection(name)}", self.addresses[name]]
        subprocess.run(argv, capture_output=True, check=False)

    def run(self, command: str, user: str = "trainer", host: str = "ctl") -> t.Any:
        """Run a shell command as an ordinary user (default) on a node."""
        return self.host(host).run(f"runuser -u {user} -- sh -c {shlex.quote('cd; ' + command)}")

    def root(self, command: str, host: str = "ctl") -> str:
        """Run a shell command as root and return what it printed; it has to end with 0."""
        return str(self.host(host).check_output(command))

    def submit(self, command: str, options: str = "") -> str:
        """Queue a job and return its id."""
        result = self.run(f"sbatch --parsable --output=/dev/null {options} --wrap {shlex.quote(command)}")
        assert result.rc == 0, result.stderr
        return str(result.stdout.strip().split(";")[0])

    def account(self, job: str, field: str) -> str:
        """Return one accounting field of a job's allocation; empty for the moment that slurmdbd has not heard of it."""
        return str(self.run(f"sacct -X -n -P -j {job} -o {field}").stdout.strip())

    def runs(self, job: str, seconds: float = 60) -> None:
        """Wait until a job runs, as accounting says."""
        eventually(lambda: self.account(job, "State") == "RUNNING", seconds, f"job {job} RUNNING")

    def done(self, job: str, seconds: float = 90) -> None:
        """Wait until a job has ended well, as accounting says."""
        eventually(lambda: self.account(job, "State") == "COMPLETED", seconds, f"job {job} COMPLETED")

    def container(self, name: str) -> str:
        """Return podman's name of a node."""
        return f"hpcai-{self.name}-{name}"

    def podman(self, action: str, name: str) -> None:
        """Have podman do something to a node, such as kill it."""
        self.hang_up(name)
        subprocess.run(["podman", action, self.container(name)], check=True, capture_output=True)

    def inventories(self) -> list[str]:
        return [f"{ROOT}/lab/inventory", f"{self.state}/hosts.yml"]

    def start(self, playbook: str | Path, *options: str, **variables: t.Any) -> subprocess.Popen[str]:
        """Start one of the collection's playbooks (or a file) on this lab, with variables."""
        return subprocess.Popen(
            ["ansible-playbook", *self._words(playbook, options, variables)],
            cwd=ROOT,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _words(self, playbook: str | Path, options: t.Sequence[str], variables: t.Mapping[str, t.Any]) -> list[str]:
        return [
            *(f"--inventory={place}" for place in self.inventories()),
            *self.more,
            f"--extra-vars=@{self.scenario}/vars/lab.yml",
            f"--extra-vars=lab_state_dir={self.state}",
            f"--extra-vars={json.dumps(variables)}",
            *options,
            str(ROOT / "playbooks" / playbook),
        ]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_FORCE_COLOR": "0",  # molecule wants colours, and the recap is read here
            "HPCAI_REPORT_DIR": str(self.state / "report"),
            **self.environment,
        }

    def play(self, playbook: str | Path, *options: str, **variables: t.Any) -> tuple[int, str]:
        """Run a playbook to its end; returns its status and what it printed."""
        words = self._words(playbook, options, variables)
        done = run_module("ansible.cli.playbook", *words, cwd=ROOT, env=self._environment(), timeout=patience(600))
        return done.returncode, done.stdout + done.stderr

    def apply(self, playbook: str | Path, *options: str, **variables: t.Any) -> str:
        """Run a playbook that has to end well; returns what it printed."""
        status, output = self.play(playbook, *options, **variables)
        assert status == 0, output[-3000:]
        return output


def finished(run: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a playbook; return its status and what it printed."""
    output = run.communicate(timeout=patience(600))[0]
    return run.returncode, output


def recap(output: str) -> dict[str, dict[str, int]]:
    """Read the last lines of Ansible: what became of each host."""
    rows = re.findall(r"^(\S+)\s+: (ok=.*)$", output, re.MULTILINE)
    return {host: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", counts)} for host, counts in rows}


def eventually(question: t.Callable[[], t.Any], seconds: float = 90, what: str = "") -> t.Any:
    """Ask until the answer is true; fail with the last answer when time is up."""
    limit = patience(seconds)
    begin = time.monotonic()
    while True:
        trouble = ""
        try:
            answer = question()
        except RuntimeError as exc:  # testinfra: SSH itself failed; the question was not answered
            answer, trouble = None, f"; the last time there was no answer: {exc}"
        if answer:
            return answer
        waited = time.monotonic() - begin
        assert waited < limit, f"not within {limit:.0f} s: {what or question}{trouble}"
        time.sleep(pause_after(waited))


@pytest.fixture
def healthy(lab: Lab) -> t.Iterator[Lab]:
    """The lab, idle before the test and required to be idle again after it without help."""

    def idle() -> bool:
        states = lab.run("sinfo -h -N -o '%T'").stdout.split()
        return len(states) == len(lab.compute) and set(states) == {"idle"}

    eventually(idle, 240, "all nodes idle before the test")
    yield lab
    eventually(idle, 360, "all nodes idle again after the test")
