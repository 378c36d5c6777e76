# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module slurm_proof with a scontrol that prints captured nodes in states of the test, and an srun that answers."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from module_process import Machine
from stand_in import answer, stand_in

FIXTURES = Path(__file__).parents[2] / "fixtures/slurm"


class Module(Machine):
    module = "slurm_proof"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        stand_in(self.bin / "scontrol", "scontrol_proof.sh")
        (self.bin / "partitions").write_text((FIXTURES / "scontrol-partitions-24.11.txt").read_text())

    def nodes(self, file: str = "nodes.json", **states: str) -> None:
        """Have the captured nodes in these states, others than named idle."""
        found = json.loads((FIXTURES / "scontrol-nodes-24.11.json").read_text())["nodes"]
        for node in found:
            node["state"], node["reason"] = states.get(node["name"], "IDLE").split("+"), ""
        (self.bin / file).write_text(json.dumps({"nodes": found}))

    def srun(self, lines: str = "", error: str = "", status: int = 0) -> None:
        answer(self.bin / "srun", lines, err=f"{error}\n", status=status, calls=self.bin / "asked")

    def asked(self) -> list[str]:
        file = self.bin / "asked"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def module(tmp_path: Path) -> Module:
    made = Module(tmp_path)
    made.nodes()
    made.srun("1 c2\n0 c1\n")
    return made


def test_a_job_on_two_nodes_is_the_proof(module: Module) -> None:
    found = module(mpi="pmix", job_name="hpcai-configure")
    assert (found["changed"], found["hosts"]) == (False, ["c1", "c2"])
    (asked,) = module.asked()
    assert asked.startswith(
        "--nodes=2 --ntasks-per-node=1 --time=1 --immediate=60 --job-name=hpcai-configure --mpi=pmix"
    )


def test_a_node_that_comes_is_waited_for(module: Module) -> None:
    module.nodes("later.json")
    module.nodes(c1="DOWN+NOT_RESPONDING")
    assert module()["hosts"] == ["c1", "c2"]


def test_a_node_that_stays_away_is_named_and_no_job_is_run(module: Module) -> None:
    module.nodes(c2="DOWN+NOT_RESPONDING")
    message = module(timeout=0)["msg"]
    assert message.startswith(
        "Slurm waits for nodes: c2 is DOWN+NOT_RESPONDING. Look there with 'systemctl status slurmd"
    )
    assert not module.asked()


def test_a_controller_that_does_not_answer_is_no_broken_node(module: Module) -> None:
    (module.bin / "nodes.json").unlink()
    message = module(timeout=0)["msg"]
    assert message.startswith("Cannot read the Slurm cluster: ")
    assert "Unable to contact slurm controller" in message


def test_nodes_that_jobs_keep_busy_need_no_other_proof(module: Module) -> None:
    module.nodes(c1="ALLOCATED", c2="ALLOCATED", c3="ALLOCATED")
    assert module()["hosts"] == []
    assert not module.asked()


@pytest.mark.parametrize(
    "srun, says",
    [
        ({"status": 1, "error": "srun: error: Unable to allocate resources: Invalid account"}, "Invalid account"),
        ({"lines": "0 c1\n"}, "A job on 2 of the nodes was answered by 1. "),
        ({"lines": "none c1\nnone c2\n"}, "PMIx told the 2 tasks of a job the ranks none, none"),
        ({"lines": "0 c1\n0 c2\n"}, "the ranks 0, 0"),
    ],
)
def test_what_the_job_says_is_told(module: Module, srun: dict[str, t.Any], says: str) -> None:
    module.srun(**srun)
    found = module(mpi="pmix")
    assert found["failed"]
    assert says in found["msg"]
    assert "srun --nodes=2" in found["msg"]


def test_without_pmix_nobody_tells_a_rank(module: Module) -> None:
    module.srun("none c1\nnone c2\n")
    assert module()["hosts"] == ["c1", "c2"]
