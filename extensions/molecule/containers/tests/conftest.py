# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab with containers: what the default scenario's tests can do, registries, and the role enroot run again."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import tempfile
import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[4]
SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(ROOT / ".build/molecule-containers")))

# By its path: the file beside this one has the same name.
_SPEC = importlib.util.spec_from_file_location("default_lab", SCENARIO.parent / "default/tests/conftest.py")
assert _SPEC is not None and _SPEC.loader is not None
default_lab = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(default_lab)
default_lab.LAB["lab_name"] = yaml.safe_load((SCENARIO / "vars/lab.yml").read_text())["lab_name"]
eventually = default_lab.eventually
healthy = default_lab.healthy

SQUASHED = "/shared/images/app.sqsh"
IMAGE = "ctl:5000#lab/app:1"
CLOSED_IMAGE = "ctl:5001#lab/app:1"
# Unpacking counts as the job's memory.
MEMORY = "--mem=1500"


class Lab(default_lab.Lab):  # type: ignore[misc]
    """One lab, its jobs in containers, and the collection's roles run on it."""

    def srun(self, command: str, options: str = "", user: str = "trainer") -> t.Any:
        """Run a step of a shell command and wait for it."""
        quoted = command.replace("'", "'\\''")
        return self.run(f"srun --quiet {MEMORY} {options} sh -c '{quoted}' </dev/null", user)

    def start(self, play: t.Sequence[t.Mapping[str, t.Any]], *args: str) -> subprocess.Popen[str]:
        """Start a play that is given as data, with the scenario's variables."""
        with tempfile.NamedTemporaryFile("w", suffix=".yml", delete=False) as file:
            file.write(json.dumps(play))
        return subprocess.Popen(
            [
                "ansible-playbook",
                f"--inventory={ROOT}/inventories/lab",
                f"--inventory={STATE}/hosts.yml",
                f"--extra-vars=@{ROOT}/inventories/lab_containers.yml",
                f"--extra-vars=@{SCENARIO}/vars/lab.yml",
                f"--extra-vars=lab_state_dir={STATE}",
                *args,
                file.name,
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "ANSIBLE_FORCE_COLOR": "0",  # molecule wants colours, and the recap is read here
                "HPCAI_REPORT_DIR": str(STATE / "report"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def enroot(self, hosts: str = "slurm_compute", **variables: t.Any) -> subprocess.Popen[str]:
        """Start the role enroot with other inputs than the scenario's."""
        play = {"hosts": hosts, "become": True, "gather_facts": False, "roles": ["hpcai.gpu_cluster.enroot"]}
        return self.start([play], "--extra-vars", json.dumps(variables))


def finished(run: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a playbook; return its status and what it printed."""
    output = run.communicate(timeout=300)[0]
    return run.returncode, output


def done(run: subprocess.Popen[str]) -> str:
    """Wait for a playbook that has to end well."""
    status, output = finished(run)
    assert status == 0, output[-3000:]
    return output


def changed(output: str) -> int:
    """Add up what the recap says was changed."""
    assert " changed=" in output, output[-1000:]
    return sum(int(word.partition("=")[2]) for word in output.split() if word.startswith("changed="))


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab()
