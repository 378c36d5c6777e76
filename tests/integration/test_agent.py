# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node agent as the file that nodes have, on an emulated machine: what it finds, and what Slurm makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from conftest import NODES, Cluster, Json
from patience import patience
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._zipapp import build, put

GPU = {"gpu_count", "gpu_model", "gpu_ecc", "gpu_remap", "gpu_pcie", "gpu_nvlink", "gpu_throttle", "gpu_temperature"}
LOCAL = ("latches", "gpu_devices", "infiniband_ports")
MEASURED = {"gpu_bandwidth", "gpu_p2p", "nccl_tests", "nccl_loopback", "infiniband_bandwidth", "hpl"}


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "hpcai-agent.pyz"
    put(build(), path)
    return path


class Agent:
    def __init__(self, cluster: Cluster, program: Path) -> None:
        self.cluster, self.program, self.seconds = cluster, program, 0.0
        self.config = cluster.directory / "agent.json"
        self.profile = cluster.profile
        self.write()

    def write(self, **more: t.Any) -> None:
        bin_ = self.cluster.directory / "bin"
        known = {"schema": 1, "node": NODES[0], "profile": self.profile, "sysfs": self.cluster.sysfs}
        known.update(spool=str(self.cluster.directory / "spool"), tools={"hpl": str(bin_ / "xhpl")})
        self.config.write_text(json.dumps({**known, **more}))

    def suite(self, name: str, *checks: str) -> tuple[int, dict[str, Json]]:
        """Run a suite and return its exit status and the records by check."""
        words = [word for check in checks for word in ("--check", check)]
        argv = [sys.executable, "-IS", str(self.program), "suite", name, "--json", "--config", str(self.config), *words]
        start = time.monotonic()
        done = subprocess.run(
            argv,
            env=self.cluster.environment,
            capture_output=True,
            text=True,
            timeout=patience(300),
            check=False,
            cwd="/",
        )
        self.seconds = time.monotonic() - start
        assert not done.stderr, done.stderr
        return done.returncode, {one["check"]: one for one in map(json.loads, done.stdout.splitlines())}


@pytest.fixture
def agent(cluster: Cluster, program: Path) -> Agent:
    return Agent(cluster, program)


def told(records: t.Mapping[str, Json]) -> str:
    return "\n".join(f"{name} {one['verdict']} {one['class']} {one['reason']}" for name, one in records.items())


def test_a_healthy_machine_passes_every_measurement(agent: Agent) -> None:
    status, records = agent.suite("full", "gpu", "infiniband_ports", *sorted(MEASURED))
    assert status == 0
    assert {name for name, one in records.items() if one["verdict"] == "pass"} >= GPU | MEASURED, told(records)
    assert {one["node"] for one in records.values()} == {NODES[0]}
    assert len(records["gpu_p2p"]["metrics"]) == 56


@pytest.mark.parametrize(
    ("faults", "check", "scope"),
    [
        ({"ecc": {"2": 3}}, "gpu_ecc", {"gpu": [2]}),
        ({"remap": {"7": "failed"}}, "gpu_remap", {"gpu": [7]}),
        ({"pcie_width": {"6": 8}}, "gpu_pcie", {"gpu": [6]}),
        ({"throttle": {"3": "0x40"}}, "gpu_throttle", {"gpu": [3]}),
        ({"missing_gpu": [5]}, "gpu_count", {"gpu": [5]}),
    ],
)
def test_a_fault_takes_the_node_from_its_jobs(agent: Agent, faults: Json, check: str, scope: Json) -> None:
    agent.cluster.damage(**faults)
    status, records = agent.suite("epilog", "gpu", "gpu_devices")
    assert (status, records[check]["verdict"], records[check]["class"]) == (1, "fail", "hardware"), told(records)
    assert records[check]["scope"] == scope
    assert agent.suite("periodic", "gpu")[0] == 0


def test_a_gpu_that_left_the_bus_is_found_by_the_prolog_without_its_driver(agent: Agent) -> None:
    status, records = agent.suite("prolog", *LOCAL)
    assert status == 0, told(records)
    agent.cluster.damage(missing_gpu=[5], hung=["nvidia-smi"])
    status, records = agent.suite("prolog", *LOCAL)
    assert (status, records["gpu_devices"]["verdict"]) == (1, "fail"), told(records)
    assert agent.seconds < patience(60)
    assert "7 GPUs, expected >= 8" in records["gpu_devices"]["reason"]


def test_a_driver_that_hangs_is_an_error_of_every_check_that_asks_it(agent: Agent) -> None:
    agent.cluster.damage(hung=["nvidia-smi"])
    status, records = agent.suite("epilog", "gpu")
    assert status == 0
    assert {(records[name]["verdict"], records[name]["class"]) for name in GPU} == {("error", "infra")}, told(records)
    assert agent.seconds < patience(60)


def test_seven_gpus_never_become_the_normal_state(agent: Agent) -> None:
    """What is expected comes from the machine type; templates that learn it from the node call this healthy."""
    agent.cluster.damage(missing_gpu=[0])
    for _again in range(3):
        assert agent.suite("boot", "gpu")[0] == 1


def test_a_machine_type_nobody_knows_is_unjudged_and_never_passes(agent: Agent) -> None:
    agent.write(profile={"profile": "generic"})
    _status, records = agent.suite("periodic", "gpu")
    assert {one["verdict"] for one in records.values()} <= {"unjudged", "skipped", "error"}, told(records)
    assert records["gpu_count"]["verdict"] == "unjudged"


@pytest.mark.parametrize(
    ("faults", "check"),
    [
        ({"pcie_width": {"2": 8}}, "gpu_bandwidth"),
        ({"slow_gpu": {"2": 0.6}}, "gpu_p2p"),
        ({"ib_slow": {"mlx5_ib3": 0.4}}, "infiniband_bandwidth"),
        ({"slow_gpu": {"2": 0.6}}, "hpl"),
        ({"slow_gpu": {"2": 0.6}}, "nccl_tests"),
    ],
)
def test_a_slow_part_is_measured(agent: Agent, faults: Json, check: str) -> None:
    agent.cluster.damage(**faults)
    records = agent.suite("full", check)[1]
    assert records[check]["verdict"] == "fail" and records[check]["class"] in ("hardware", "fabric"), told(records)


@pytest.mark.parametrize("name", sorted(MEASURED - {"infiniband_bandwidth"}))
def test_a_tool_that_is_not_there_is_an_error(agent: Agent, name: str) -> None:
    tools = {"nvbandwidth": "/nowhere/a", "nccl": "/nowhere/b", "hpl": "/nowhere/c/xhpl"}
    agent.write(tools=tools)
    records = agent.suite("full", name)[1]
    assert (records[name]["verdict"], records[name]["class"]) == ("error", "infra"), told(records)


def test_hpl_is_told_where_its_ranks_belong(agent: Agent) -> None:
    script = stand_in(agent.cluster.directory / "hpl.sh", "hpl_sh.sh")
    agent.write(tools={"hpl": str(script)})
    record = agent.suite("full", "hpl")[1]["hpl"]
    assert record["verdict"] == "pass", record["reason"]
    argv = record["context"]["argv"]
    assert argv[argv.index("--gpu-affinity") + 1] == "0:1:2:3:4:5:6:7"
    assert argv[argv.index("--cpu-affinity") + 1] == "24-35:36-47:0-11:12-23:72-83:84-95:48-59:60-71"
    assert argv[argv.index("--mem-affinity") + 1] == "1:1:0:0:3:3:2:2"
