# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The prolog that all nodes of CycleCloud share: it runs what a node has, and nothing on a node that has nothing."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest
import yaml
from stand_in import stand_in

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/cyclecloud_hooks"


class SharedHook:
    """The program of the shared directory, and a node's own directory of programs."""

    def __init__(self, directory: Path) -> None:
        self.own, self.log = directory / "the node's own", directory / "log"
        environment = jinja2.Environment(autoescape=False, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
        environment.filters.update(comment="# {}".format, quote=shlex.quote)
        text = environment.from_string((ROLE / "templates/hook.j2").read_text())
        self.program = directory / "50-hpcai-node"
        self.program.write_text(
            text.render(ansible_managed="managed", __cyclecloud_hooks_program={"programs": str(self.own)})
        )

    def add(self, name: str, status: int = 0, mode: int = 0o755) -> None:
        self.own.mkdir(exist_ok=True)
        stand_in(self.own / name, "job_program.sh", log=self.log, status=status).chmod(mode)

    def run(self) -> int:
        return subprocess.run(["sh", self.program], env={"SLURM_JOB_ID": "7"}, check=False).returncode

    @property
    def ran(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def hook(tmp_path: Path) -> SharedHook:
    return SharedHook(tmp_path)


def test_a_node_that_lacks_the_programs_starts_its_jobs(hook: SharedHook) -> None:
    assert hook.run() == 0
    hook.own.mkdir()
    assert hook.run() == 0


def test_a_node_s_own_programs_run_in_order_with_the_job_s_environment(hook: SharedHook) -> None:
    hook.add("50-hpcai-gpu-clocks")
    hook.add("10-hpcai-health")
    hook.add("README", mode=0o644)
    assert (hook.run(), hook.ran) == (0, ["10-hpcai-health 7", "50-hpcai-gpu-clocks 7"])


def test_the_status_of_the_first_that_fails_is_slurm_s_to_judge(hook: SharedHook) -> None:
    hook.add("10-hpcai-health", status=3)
    hook.add("50-hpcai-gpu-clocks")
    assert (hook.run(), hook.ran) == (3, ["10-hpcai-health 7"])


def test_shellcheck_finds_nothing(hook: SharedHook) -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck")
    done = subprocess.run(["shellcheck", "-s", "sh", hook.program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "inventory", ["inventories/azure_ndv4", "inventories/azure_ndv5", "site_template/inventories/azure"]
)
def test_no_node_of_an_azure_inventory_writes_into_the_directory_of_all(inventory: str) -> None:
    given = yaml.safe_load((ROOT / f"{inventory}/group_vars/all.yml").read_text())
    role = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    for kind in ("prolog", "epilog"):
        own = role[f"cyclecloud_hooks_node_{kind}_dir"]
        assert own != role[f"cyclecloud_hooks_shared_{kind}_dir"]
        assert given[f"job_hooks_{kind}_dir"] == own
