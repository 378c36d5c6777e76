# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import time
import typing as t
from pathlib import Path

import pytest
import yaml
from patience import patience, wait_for
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import bandwidth
from ansible_collections.hpcai.gpu_cluster.plugins.modules import infiniband_bandwidth
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules import module_process
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import Result, documented, running

LIMIT = {
    "check": "infiniband_bandwidth",
    "metric": "bandwidth",
    "op": ">=",
    "value": 180,
    "unit": "Gb/s",
    "source": "profile",
}


class Machine(module_process.Machine):
    """Two InfiniBand ports and one of Ethernet, perftest and srun."""

    module = "infiniband_bandwidth"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sysfs, self.log = folder / "sys", folder / "log"
        self.environment = {"SLURM_PROCID": "1"}
        stand_in(self.bin / "ib_write_bw", "ib_write_bw.py")
        stand_in(self.bin / "srun", "srun_here.py")
        for nic, layer in {"mlx5_an0": "Ethernet", "mlx5_ib0": "InfiniBand", "mlx5_ib1": "InfiniBand"}.items():
            port = self.sysfs / "class/infiniband" / nic / "ports/1"
            port.mkdir(parents=True)
            (port / "link_layer").write_text(f"{layer}\n")
            (port / "state").write_text("4: ACTIVE\n")
            (port.parents[1] / "device").mkdir()
            (port.parents[1] / "device/numa_node").write_text("0\n")
        node = self.sysfs / "devices/system/node/node0"
        node.mkdir(parents=True)
        self.cpu = min(os.sched_getaffinity(0))
        (node / "cpulist").write_text(f"{self.cpu},4000\n")

    def __call__(self, check_mode: bool = False, fault: str = "", **params: t.Any) -> Result:
        variables = {**({"FAKE_FAULT": fault} if fault else {}), **params.pop("environment", {})}
        sent = {"sysfs": str(self.sysfs), "duration": 3, "environment": variables, **params}
        return super().__call__(check_mode, **sent)

    @property
    def starts(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []

    @property
    def alive(self) -> list[str]:
        return [start[0] for start in self.starts if running(int(start[0]))]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_documentation_and_spec_agree() -> None:
    assert documented(infiniband_bandwidth) == {**_launch.SPEC, **bandwidth.SPEC}
    assert {"checks", "results", "argv", "environment"} == set(yaml.safe_load(infiniband_bandwidth.RETURN))


def test_loopback_of_every_infiniband_port(machine: Machine) -> None:
    got = machine(expect=[LIMIT], name="gpu-001", run="r")
    (check,) = got["checks"]
    assert (check["verdict"], check["node"], check["run"], got["changed"]) == ("pass", "gpu-001", "r", False)
    assert [(m["nic"], m["value"]) for m in check["metrics"]] == [("mlx5_ib0", 196.58), ("mlx5_ib1", 196.58)]
    assert [(row["partner"], row["numa_node"], row["rc"]) for row in got["results"]] == [
        ("mlx5_ib0", "0", 0),
        ("mlx5_ib1", "0", 0),
    ]
    assert got["results"][0]["argv"][-1] == "localhost"
    assert {start[1] for start in machine.starts} == {"server", "client"}
    assert machine.alive == []
    assert "of the caller" not in json.dumps(got)


def test_the_next_port_is_the_other_end(machine: Machine) -> None:
    got = machine(partner="next")
    assert [(row["nic"], row["partner"]) for row in got["results"]] == [
        ("mlx5_ib0", "mlx5_ib1"),
        ("mlx5_ib1", "mlx5_ib0"),
    ]
    assert [start[3] for start in machine.starts if start[1] == "server"] == ["mlx5_ib1", "mlx5_ib0"]


@pytest.mark.parametrize("nodes", [1, 2])
def test_through_srun(machine: Machine, nodes: int) -> None:
    got = machine(launcher="srun", nodes=nodes, expect=[LIMIT])
    (check,) = got["checks"]
    assert (check["verdict"], check["reason"]) == ("pass", "")
    assert [m["nic"] for m in check["metrics"]] == ["mlx5_ib0", "mlx5_ib1"]
    assert (check["node"] is None, "pair" in check["scope"]) == (nodes == 2, nodes == 2)
    assert got["argv"][0] == str(machine.bin / "srun")
    assert {"--cpu-bind=none", f"--ntasks={nodes}", "--ntasks-per-node=1"} <= set(got["argv"])
    ports = {start[start.index("-p") + 1] for start in machine.starts}
    assert len(ports) == 2
    assert machine.alive == []


def test_gpu_memory(machine: Machine) -> None:
    got = machine(
        use_cuda=True, topology={"gpus": [{"index": 6, "nics": ["mlx5_ib0"]}, {"index": 7, "nics": ["mlx5_ib1"]}]}
    )
    assert [row["argv"][-2] for row in got["results"]] == ["--use_cuda=6", "--use_cuda=7"]
    assert got["environment"] == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    "fault, verdict, says",
    [
        ("ethernet", "error", "mlx5_ib0: ib_write_bw used Ethernet, not InfiniBand"),
        ("broken:mlx5_ib1", "fail", "mlx5_ib1: Completion with error at client"),
        ("slow:mlx5_ib1", "fail", "bandwidth (nic=mlx5_ib1 test=ib_write_bw): 20 Gb/s"),
        ("no_server:mlx5_ib0", "error", "server: Couldn't allocate MR"),
    ],
)
def test_faults(machine: Machine, fault: str, verdict: str, says: str) -> None:
    (check,) = machine(fault=fault, expect=[LIMIT])["checks"]
    assert check["verdict"] == verdict
    assert says in check["reason"]
    assert [m["nic"] for m in check["metrics"]] == ["mlx5_ib0", "mlx5_ib1"]
    assert machine.alive == []


@pytest.mark.parametrize("launcher, nodes", [("local", 1), ("srun", 2)])
def test_a_hanging_test_is_ended_with_its_server(machine: Machine, launcher: str, nodes: int) -> None:
    begin = time.monotonic()
    (check,) = machine(fault="hang", launcher=launcher, nodes=nodes, timeout=4, expect=[LIMIT])["checks"]
    assert (check["verdict"], check["class"]) == ("error", "infra")
    assert [(m["nic"], m["value"]) for m in check["metrics"]] == [("mlx5_ib0", None), ("mlx5_ib1", None)]
    assert "did not end within 4 s" in check["reason"]
    assert time.monotonic() - begin < patience(40)
    assert len(machine.starts) >= 2
    # Killed is not gone yet on a busy machine; who was forgotten hangs for ten minutes.
    wait_for("the last of them to be gone", lambda: not machine.alive, 60)


def test_a_named_port_of_another_link_layer_is_refused(machine: Machine) -> None:
    (check,) = machine(devices=["mlx5_an0", "mlx5_ib7"])["checks"]
    assert (check["verdict"], machine.starts) == ("error", [])
    assert check["reason"] == "mlx5_an0: link layer is Ethernet, not InfiniBand; mlx5_ib7 is not there"


def test_roce_is_measured_when_it_is_meant(machine: Machine) -> None:
    got = machine(link_layer="Ethernet", fault="ethernet", arguments=["-x", "3"])
    assert [(row["nic"], row["bandwidth"]) for row in got["results"]] == [("mlx5_an0", 196.58)]


def test_one_node_refuses_and_the_other_does_not_wait(machine: Machine) -> None:
    begin = time.monotonic()
    (check,) = machine(launcher="srun", nodes=2, devices=["mlx5_an0", "mlx5_ib0"], expect=[LIMIT])["checks"]
    assert [m["value"] for m in check["metrics"]] == [None, 196.58]
    assert time.monotonic() - begin < patience(25)


def test_without_the_program(machine: Machine) -> None:
    (check,) = machine(path="/nowhere", devices=["mlx5_ib0"])["checks"]
    assert (check["verdict"], check["class"]) == ("error", "infra")
    assert check["reason"] == "mlx5_ib0: /nowhere/ib_write_bw is not installed (package perftest)"
    assert check["context"]["missing"] == ["/nowhere/ib_write_bw"]


@pytest.mark.parametrize(
    "params, verdict, reason",
    [
        ({"check_mode": True}, "skipped", "check mode"),
        ({"sysfs": "/nowhere"}, "skipped", "no InfiniBand"),
        ({"fault": "busy", "launcher": "srun"}, "skipped", "nodes are busy"),
        ({"launcher": "srun", "launcher_path": "/nowhere/srun"}, "error", "/nowhere/srun"),
    ],
)
def test_nothing_to_measure(machine: Machine, params: dict[str, t.Any], verdict: str, reason: str) -> None:
    (check,) = machine(**params)["checks"]
    assert check["verdict"] == verdict
    assert reason in check["reason"]
    assert machine.starts == []


def test_options_that_make_no_sense_fail_the_module(machine: Machine) -> None:
    got = machine(arguments=["-b"])
    assert got["failed"]
    assert got["msg"].startswith("Cannot measure InfiniBand: arguments -b")
