# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import socket
import time
import typing as t
from pathlib import Path

import pytest
from patience import patience
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import request
from ansible_collections.hpcai.gpu_cluster.plugins.modules import nccl_tests
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules import module_process
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import Result, documented

LIMIT = {"check": "nccl_tests", "metric": "busbw", "op": ">=", "value": 150, "unit": "GB/s", "source": "test"}
ALL_REDUCE = {**LIMIT, "collective": "all_reduce", "size": 2**30}
# Both sizes that tell something, without the thirty between.
SIZES = {"min_size": "1K", "max_size": "1G", "factor": 1024}
SRUN = {"launcher": "srun", "hosts": ["gpu-001", "gpu-002"], "ranks_per_node": 8, "infiniband": True}


class Machine(module_process.Machine):
    """A PATH with stand-ins for mpirun, srun and the tests."""

    module = "nccl_tests"
    prepare = (  # this machine may have the real ones
        "from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import run;"
        " run.PLACES = ('/nowhere/build',)"
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.logs = folder / "logs"
        for name in ("srun", "mpirun"):
            stand_in(self.bin / name, "nccl_launcher.py")
        for name in ("all_reduce_perf", "alltoall_perf"):
            stand_in(self.bin / name, "nccl_perf.py")

    def __call__(self, check_mode: bool = False, fault: str = "", **params: t.Any) -> Result:
        variables = {**({"FAKE_FAULT": fault} if fault else {}), **params.pop("environment", {})}
        return super().__call__(check_mode, **{**SIZES, **params, "environment": variables})


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def verdicts(found: Result) -> list[tuple[str, str | None]]:
    return [(check["verdict"], check["class"]) for check in found["checks"]]


def test_here(machine: Machine) -> None:
    found = machine(gpus_per_rank=8, expect=[ALL_REDUCE], name="gpu-001", profile="p", run="r", arguments=["-o", "sum"])
    check = found["checks"][0]
    assert verdicts(found) == [("pass", None)], check["reason"]
    assert (check["node"], check["run"], check["scope"], check["context"]["profile"]) == ("gpu-001", "r", {}, "p")
    assert found["changed"] is False
    assert " ".join(found["argv"]["all_reduce"]) == (
        f"{machine.bin}/all_reduce_perf -b 1K -e 1G -f 1024 -n 20 -w 5 -g 8 -d float -c 1 -o sum"
    )
    assert found["environment"] == {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}
    assert [row["size"] for row in found["rows"]] == [1024, 2**20, 2**30]
    assert found["rows"][-1]["in_place"]["busbw"] > 150
    assert [rank["rank"] for rank in found["ranks"]] == list(range(8))
    assert found["correct"] == {"all_reduce": True}
    assert found["peak"]["all_reduce"] > 150 > found["average"]["all_reduce"]
    assert found["runs"][0]["version"] == check["context"]["version"] == "2.17.6"
    assert check["context"]["nccl_version"] == "2.27.3"


@pytest.mark.parametrize(
    ("params", "node"),
    [
        ({"launcher": "mpirun"}, socket.gethostname().partition(".")[0]),
        ({"launcher": "mpirun", "hosts": ["gpu-003"]}, "gpu-003"),
        ({"launcher": "srun"}, "n0"),
        ({"launcher": "srun", "name": "mine"}, "mine"),
    ],
)
def test_node_of_the_record(machine: Machine, params: Result, node: str) -> None:
    found = machine(**params, ranks_per_node=2, expect=[{**ALL_REDUCE, "value": 100}])
    assert verdicts(found) == [("pass", None)], found["checks"][0]["reason"]
    assert (found["checks"][0]["node"], found["checks"][0]["scope"]) == (node, {})


def test_srun_and_several_collectives(machine: Machine) -> None:
    found = machine(**SRUN, collectives=["all_reduce", "alltoall"], expect=[ALL_REDUCE], log=str(machine.logs))
    assert verdicts(found) == [("pass", None), ("unjudged", None)], [check["reason"] for check in found["checks"]]
    assert found["nodes"] == ["gpu-001", "gpu-002"]
    assert len(found["ranks"]) == 16
    assert found["checks"][0]["node"] is None
    assert found["checks"][0]["scope"] == {"group": ["gpu-001", "gpu-002"]}
    assert found["checks"][0]["context"]["network"] == "InfiniBand"
    assert found["argv"]["alltoall"][0] == f"{machine.bin}/srun"
    assert f"{machine.bin}/alltoall_perf" in found["argv"]["alltoall"]
    assert "Using network IB" in (machine.logs / "alltoall.log").read_text(encoding="utf-8")


def test_mpirun_hands_on_the_variables(machine: Machine) -> None:
    asked = {"launcher": "mpirun", "hosts": ["a", "b"], "ranks_per_node": 8, "infiniband": True}
    found = machine(**asked, expect=[ALL_REDUCE])
    assert verdicts(found) == [("pass", None)], found["checks"][0]["reason"]
    # Without -x FAKE_FAULT the ranks would know nothing of it.
    found = machine(**asked, expect=[ALL_REDUCE], fault="wrong")
    assert verdicts(found) == [("fail", "hardware")]
    assert "-x FAKE_FAULT" in " ".join(found["argv"]["all_reduce"])


@pytest.mark.parametrize(
    ("params", "fault", "verdict", "reason"),
    [
        (SRUN, "no_mpi", ("error", "infra"), "each process measured alone"),
        ({**SRUN, "launcher_options": {"mpi": "none"}}, "", ("error", "infra"), "does not know this launcher"),
        (SRUN, "one_node", ("error", "infra"), "2 nodes were asked for, the ranks ran on gpu-001"),
        (SRUN, "less", ("error", "infra"), "3 of 5 sizes"),
        (SRUN, "cut", ("error", "infra"), "without its footer"),
        (SRUN, "unchecked", ("error", "infra"), "no count of wrong values"),
        (SRUN, "status", ("error", "infra"), "exit status 9"),
        (SRUN, "wrong", ("fail", "hardware"), "wrong values"),
        (SRUN, "socket", ("fail", "fabric"), "NCCL used Socket through eth0 on gpu-001, gpu-002 instead of InfiniBand"),
        (SRUN, "roce", ("fail", "fabric"), "NCCL used RoCE"),
        (SRUN, "quiet", ("error", "infra"), "nobody knows whether NCCL used InfiniBand"),
        (SRUN, "busy", ("skipped", None), "Requested nodes are busy"),
        ({**SRUN, "check": False}, "", ("unjudged", None), "not checked for wrong values"),
        ({**SRUN, "arguments": ["-q", "4"]}, "", ("error", "infra"), "invalid option"),
        ({**SRUN, "path": "/nowhere"}, "", ("error", "infra"), "/nowhere/all_reduce_perf"),
        ({**SRUN, "launcher_path": "/nowhere/srun"}, "", ("error", "infra"), "/nowhere/srun"),
        ({"gpus_per_rank": 8, "collectives": ["gather"]}, "", ("error", "infra"), "the role gpu_test_tools builds it"),
        ({}, "", ("skipped", None), "one rank has nobody"),
        ({"min_nodes": 2, "gpus_per_rank": 8}, "", ("skipped", None), "fewer than 2 nodes are fit and idle"),
        ({"min_nodes": 2, "busy": ["n1", "n2"]}, "", ("skipped", None), "idle; busy with jobs: n[1-2]"),
    ],
)
def test_lies(machine: Machine, params: Result, fault: str, verdict: t.Any, reason: str) -> None:
    sizes = {"factor": 32} if fault == "less" else {}
    found = machine(fault=fault, expect=[ALL_REDUCE], **params, **sizes)
    assert verdicts(found) == [verdict]
    assert reason in found["checks"][0]["reason"]


def test_a_hang_ends(machine: Machine) -> None:
    begin = time.monotonic()
    found = machine(fault="hang", gpus_per_rank=8, timeout=1, expect=[LIMIT])
    assert verdicts(found) == [("error", "infra")]
    assert "did not end within 1 s" in found["checks"][0]["reason"]
    assert time.monotonic() - begin < patience(30)


@pytest.mark.parametrize("launcher", [{}, {"launcher": "mpirun", "hosts": ["gpu-001", "gpu-002"]}])
def test_gpus_in_use_are_not_measured(machine: Machine, launcher: Result) -> None:
    stand_in(machine.bin / "nvidia-smi", "nvidia_smi_user.sh")
    asked = {**launcher, "gpus_per_rank": 8, "expect": [{**LIMIT, "value": 10**6}]}
    found = machine(**asked)
    assert verdicts(found) == [("skipped", None)]
    assert "in use: GPU 1 of " in found["checks"][0]["reason"]
    assert found["argv"] == {}
    found = machine(**asked, visible_devices=[0])
    assert verdicts(found) == [("fail", "fabric" if launcher else "hardware")]
    found = machine(**asked, share_gpus=True)
    assert verdicts(found) == [("unjudged", None)]
    assert found["checks"][0]["reason"].startswith("no limit applies; in use: GPU 1 of ")
    assert found["checks"][0]["context"]["gpus_in_use"][0]["uuid"] == "GPU-bb"


def test_wrong_values_are_wrong_whoever_else_is_there(machine: Machine) -> None:
    stand_in(machine.bin / "nvidia-smi", "nvidia_smi_user.sh")
    found = machine(gpus_per_rank=8, share_gpus=True, fault="wrong")
    assert verdicts(found) == [("fail", "hardware")]
    assert "wrong values" in found["checks"][0]["reason"] and "in use" in found["checks"][0]["reason"]


def test_nothing_runs_without_need(machine: Machine) -> None:
    found = machine(check_mode=True, **SRUN, log=str(machine.logs))
    assert verdicts(found) == [("skipped", None)]
    assert (found["checks"][0]["reason"], found["argv"], machine.logs.exists()) == ("check mode", {}, False)
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        assert machine(gpus_per_rank=8)["checks"][0]["reason"] == "no GPU"


def test_an_old_log_is_not_a_result(machine: Machine) -> None:
    asked = {"gpus_per_rank": 8, "expect": [ALL_REDUCE], "log": str(machine.logs)}
    assert verdicts(machine(**asked)) == [("pass", None)]
    answer(machine.bin / "all_reduce_perf")
    found = machine(**asked)
    assert verdicts(found) == [("error", "infra")]
    assert (found["rows"], found["peak"]) == ([], {"all_reduce": None})


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"max_size": "8GB"}, "not a number of bytes"),
        ({"hosts": ["a"]}, "launcher local does not take hosts"),
        ({"gpus_per_rank": 8, "expect": [{**LIMIT, "unit": "GiB/s"}]}, "busbw is in GB/s"),
        ({"gpus_per_rank": 8, "expect": [LIMIT], "log": "/proc/no"}, "cannot be written"),
    ],
)
def test_options_that_make_no_sense(machine: Machine, params: Result, said: str) -> None:
    found = machine(**params)
    assert found["failed"]
    assert found["msg"].startswith("Cannot run nccl-tests: ")
    assert said in found["msg"]


def test_documentation_is_the_spec() -> None:
    assert documented(nccl_tests) == {**_launch.SPEC, **request.SPEC}
