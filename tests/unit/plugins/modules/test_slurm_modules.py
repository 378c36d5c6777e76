# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from pathlib import Path
from types import ModuleType

import pytest
from ansible.module_utils import basic

from ansible_collections.hpcai.gpu_cluster.plugins.modules import slurm_info, slurm_job, slurm_node

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"
JOB = (FIXTURES / "scontrol-jobs-24.11.txt").read_text(encoding="utf-8").splitlines()[0]
PARTITIONS = (FIXTURES / "scontrol-partitions-24.11.txt").read_text(encoding="utf-8")
REASON = "hpcai:munge:key differs from a=b"  # of the captured c3
SCRIPT = {"name": "ok job|x", "script": "#!/bin/sh\ntrue\n"}

Result = t.Dict[str, t.Any]


class Slurm:
    """A controller of the captured nodes that carries out ``scontrol update``, and one job."""

    def __init__(self) -> None:
        self.nodes = json.loads((FIXTURES / "scontrol-nodes-24.11.json").read_text(encoding="utf-8"))["nodes"]
        self.job, self.updates, self.environment = JOB, t.cast("list[list[str]]", []), t.cast("dict[str, str]", {})
        self.warnings: list[str] = []
        self.meanwhile: t.Callable[[], None] = lambda: None

    def node(self, name: str) -> Result:
        return next(node for node in self.nodes if node["name"] == name)

    def __call__(self, argv: list[str], environ_update: dict[str, str] | None = None) -> tuple[int, str, str]:
        line = " ".join(argv)
        if line.startswith("scontrol update"):
            return self.update(argv)
        if argv[0] == "sbatch":
            self.environment = environ_update or {}
        answers = {
            "scontrol --version": "slurm 24.11.5",
            "scontrol ping": "Slurmctld(primary) at ctl is UP",
            "scontrol show nodes --json": json.dumps({"nodes": self.nodes}),
            "scontrol show partition -a -o": PARTITIONS,
            "scontrol show job -o 1": self.job,
        }
        self.meanwhile()
        return 0, answers.get(line, "1"), ""

    def update(self, argv: list[str]) -> tuple[int, str, str]:
        values = dict(word.split("=", 1) for word in argv[2:])
        self.updates.append(argv)
        node = self.node(values["nodename"])
        node["state"] = [node["state"][0]] + (["DRAIN"] if values["state"] == "drain" else [])
        node["reason"] = values.get("reason", "")
        return 0, "", ""


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    found = Slurm()
    monkeypatch.setattr(basic.AnsibleModule, "get_bin_path", lambda dummy, name, required: name)
    monkeypatch.setattr(basic.AnsibleModule, "warn", lambda dummy, text: found.warnings.append(text))
    monkeypatch.setattr(basic.AnsibleModule, "run_command", lambda dummy, *args, **kwargs: found(*args, **kwargs))
    return found


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> t.Callable[..., Result]:
    def run(module: ModuleType, check: bool = False, **params: t.Any) -> Result:
        sent = {"ANSIBLE_MODULE_ARGS": {**params, "_ansible_check_mode": check}}
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps(sent).encode())
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)  # since ansible-core 2.19
        with pytest.raises(SystemExit):
            module.main()
        return json.loads(capsys.readouterr().out)

    return run


Call = t.Callable[..., Result]


def test_info(slurm: Slurm, call: Call) -> None:
    found = call(slurm_info)
    assert (found["changed"], found["version"], found["controllers"][0]["up"]) == (False, "24.11.5", True)
    assert [node["name"] for node in found["nodes"]] == ["c1", "c2", "c3", "far1"]
    assert [partition["name"] for partition in found["partitions"]] == ["main", "debug"]
    assert [node["name"] for node in call(slurm_info, gather=["nodes"], nodes="c[2-3]")["nodes"]] == ["c2", "c3"]
    assert slurm.updates == []


@pytest.mark.parametrize(("nodes", "said"), [("c[1-9]", "does not know c[4-9]"), ("c[1", "without"), ("c1 c1,x", "x")])
def test_info_refuses_nodes_that_are_not_there(slurm: Slurm, call: Call, nodes: str, said: str) -> None:
    found = call(slurm_info, nodes=nodes)
    assert found["failed"]
    assert said in found["msg"]


@pytest.mark.parametrize(
    ("params", "changed", "left"),
    [
        ({"name": "c1", "state": "drained", "reason": "hpcai:nccl:slow"}, True, []),
        ({"name": "c[1-2]", "state": "drained", "reason": "hpcai:nccl:slow"}, True, ["c2"]),
        ({"name": "c3", "state": "drained", "reason": REASON}, False, []),
        ({"name": "c[1-3]", "state": "resumed"}, True, ["c2"]),
        ({"name": "c[1-3]", "state": "resumed", "reason": "hpcai:nccl:"}, False, ["c2"]),
    ],
)
def test_node_check_real_check_real(slurm: Slurm, call: Call, params: Result, changed: bool, left: list[str]) -> None:
    before = json.dumps(slurm.nodes)
    check = call(slurm_node, check=True, **params)
    assert json.dumps(slurm.nodes) == before
    real, *again = call(slurm_node, **params), call(slurm_node, check=True, **params), call(slurm_node, **params)
    assert (check["changed"], real["changed"]) == (changed, changed)
    assert (check["commands"], check["diff"], check["left_alone"]) == (
        real["commands"],
        real["diff"],
        real["left_alone"],
    )
    assert [node["name"] for node in real["left_alone"]] == left
    assert [found["changed"] for found in again] == [False, False]
    assert slurm.node("c2")["reason"] == "ops: cable swap"
    assert slurm.updates == real["commands"]


def test_node_is_read_again_before_the_change(slurm: Slurm, call: Call) -> None:
    """A person drains c1 while the module looks."""
    looks: list[None] = []

    def drain() -> None:
        looks.append(None)
        slurm.node("c1").update({"state": ["MIXED", "DRAIN"], "reason": "ops: mine"} if len(looks) == 2 else {})

    slurm.meanwhile = drain
    found = call(slurm_node, name="c1", state="drained", reason="hpcai:nccl:slow")
    assert (found["changed"], slurm.updates, found["left_alone"][0]["reason"]) == (False, [], "ops: mine")


def test_node_warns_of_a_note_that_keeps_a_node_in_service(slurm: Slurm, call: Call) -> None:
    slurm.node("c1")["reason"] = "watch the fan"
    found = call(slurm_node, name="c1", state="drained", reason="hpcai:nccl:slow")
    assert (found["changed"], slurm.updates) == (False, [])
    assert "c1 still take jobs" in " ".join(slurm.warnings)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"name": "c1", "state": "drained"}, "reason"),
        ({"name": "c1", "state": "drained", "reason": "broken"}, "hpcai:<check>"),
        ({"name": "c9", "state": "resumed"}, "does not know c9"),
    ],
)
def test_node_refuses(slurm: Slurm, call: Call, params: Result, said: str) -> None:
    found = call(slurm_node, **params)
    assert found["failed"]
    assert said in found["msg"]
    assert slurm.updates == []


def test_job_check_real_check_real(slurm: Slurm, call: Call, tmp_path: Path) -> None:
    params = {
        **SCRIPT,
        "record": str(tmp_path / "job.json"),
        "poll": 0.01,
        "environment": {"NCCL_DEBUG": "INFO", "N": 2},
    }
    found = [call(slurm_job, check=check, **params) for check in (True, False, True, False)]
    assert [result["changed"] for result in found] == [True, True, False, False]
    assert (found[0]["job"], found[1]["job"]["state"], found[3]["job"]["job_id"]) == (None, "COMPLETED", 1)
    assert slurm.environment == {"NCCL_DEBUG": "INFO", "N": "2"}
    absent = [call(slurm_job, name="ok job|x", state="absent", record=params["record"]) for dummy in range(2)]
    assert [(result["changed"], result["cancelled"]) for result in absent] == [(True, []), (False, [])]


def test_job_that_failed_fails_the_task_with_its_facts(slurm: Slurm, call: Call) -> None:
    slurm.job = JOB.replace("JobState=COMPLETED", "JobState=FAILED").replace("ExitCode=0:0", "ExitCode=3:0")
    found = call(slurm_job, **SCRIPT)
    assert (found["failed"], found["changed"], found["job"]["exit_code"]) == (True, True, 3)
    assert "is FAILED on c1, exit code 3" in found["msg"]


def test_job_that_takes_too_long_is_left_running(slurm: Slurm, call: Call) -> None:
    slurm.job = JOB.replace("JobState=COMPLETED", "JobState=RUNNING")
    found = call(slurm_job, **SCRIPT, timeout=0)
    assert (found["failed"], found["job"]["state"]) == (True, "RUNNING")
    assert "left as it is: not done after 0 s" in found["msg"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"script": None}, "script"),
        ({"poll": 0}, "poll must be more than 0"),
        ({"record": "/nowhere/at/all/job.json"}, "/nowhere/at/all/job.json does not exist"),
        ({"options": {"array": "1-4"}}, "cannot be set here"),
    ],
)
def test_job_refuses(slurm: Slurm, call: Call, change: Result, said: str) -> None:
    found = call(slurm_job, **{**SCRIPT, **change})
    assert found["failed"]
    assert said in found["msg"]
