# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything on real GPUs; skipped where there are none. See README.md."""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml
from gpu_machine import COLLECTIONS, ROOT, Machine, look

GPUS, REASON = look()
PREFIX = os.environ.get("GPU_TEST_PREFIX", str(ROOT / ".build/gpu_test_tools"))
PLAYBOOK = """
- hosts: localhost
  connection: local
  gather_facts: false
  roles: [hpcai.gpu_cluster.gpu_test_tools]
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-outputs", metavar="DIR", help="keep what the tools print, for later use as fixtures")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not GPUS and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"no GPU here: {REASON}"))


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    keep = request.config.getoption("--keep-outputs")
    return Machine(GPUS, tmp_path_factory.mktemp("gpu"), Path(keep).resolve() if keep else None)


@pytest.fixture(autouse=True)
def nothing_is_changed(machine: Machine) -> t.Iterator[None]:
    before = machine.settings()
    yield
    assert machine.settings() == before


class Role:
    """The role gpu_test_tools, applied to this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        given = os.environ.get("GPU_TEST_VARS")
        self.variables = {
            "gpu_test_tools_prefix": PREFIX,
            "gpu_test_tools_packages": [],
            "ansible_python_interpreter": sys.executable,
            **(yaml.safe_load(Path(given).read_text()) if given else {}),
        }

    def apply(self, *arguments: str, **variables: t.Any) -> str:
        playbook, extra = self.directory / "play.yml", self.directory / "vars.yml"
        playbook.write_text(PLAYBOOK)
        extra.write_text(yaml.safe_dump({**self.variables, **variables}))
        program = str(Path(sys.executable).parent / "ansible-playbook")
        done = subprocess.run(
            [program, "-i", "localhost,", "-e", f"@{extra}", *arguments, str(playbook)],
            env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_NOCOLOR": "1"},
            cwd=self.directory,
            text=True,
            capture_output=True,
            timeout=3600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def bin(self) -> Path:
        return Path(self.variables["gpu_test_tools_prefix"], "bin")


@pytest.fixture(scope="session")
def role(tmp_path_factory: pytest.TempPathFactory) -> Role:
    """The role after its first run, which builds unless the tools are there from an earlier one."""
    made = Role(tmp_path_factory.mktemp("role"))
    print(made.apply())
    return made
