# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules on real GPUs: records are valid, numbers plausible, and nothing is changed."""

from __future__ import annotations

import json
import math
import re
import shutil
import typing as t
from pathlib import Path

import pytest
from conftest import Role
from gpu_machine import Json, Machine

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks


def records(result: Json) -> dict[str, Json]:
    """Return a module's records by check, after a look at whether they are what they should be."""
    assert not result.get("failed"), result
    assert not result.get("changed")
    json.dumps(result, allow_nan=False)
    found = {record["check"]: record for record in result.get("checks") or [result["check"]]}
    model = _checks.record("x", "n", time=0.0, verdict="skipped")
    for name, record in found.items():
        assert set(record) == set(model), name
        assert record["schema"] == _checks.SCHEMA and record["verdict"] in _checks.VERDICTS, record
        assert record["node"] and record["time"] > 1.7e9
        assert (record["class"] in _checks.CLASSES) == (record["verdict"] in ("fail", "warn", "error")), record
        assert record["verdict"] not in ("fail", "error") or record["reason"], record
        assert all(metric["value"] is None or math.isfinite(metric["value"]) for metric in record["metrics"])
    return found


def values(record: Json, name: str) -> dict[t.Any, t.Any]:
    return {metric.get("gpu"): metric["value"] for metric in record["metrics"] if metric["name"] == name}


@pytest.fixture(scope="module")
def info(machine: Machine) -> Json:
    return machine.module("gpu_info", gpus=len(machine.gpus), model=machine.gpus[0]["name"])


def test_gpu_info_sees_what_nvidia_smi_sees(machine: Machine, info: Json) -> None:
    found = records(info)
    assert found["gpu_count"]["metrics"][0]["value"] == len(machine.gpus)
    assert [gpu["name"] for gpu in info["gpus"]] == [gpu["name"] for gpu in machine.gpus]
    assert info["missing"] == []
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", info["driver"]) and re.fullmatch(r"\d+\.\d+", info["cuda"])
    memory = values(found["gpu_model"], "memory")
    for gpu in machine.gpus:
        assert memory[int(gpu["index"])] == pytest.approx(float(gpu["memory.total"]), rel=0.02)
    assert {name: found[name]["verdict"] for name in ("gpu_count", "gpu_model")} == {
        "gpu_count": "pass",
        "gpu_model": found["gpu_model"]["verdict"],
    }
    assert found["gpu_model"]["verdict"] in ("pass", "unjudged")


def test_gpu_info_finds_one_gpu_missing_of_one_more(machine: Machine) -> None:
    found = records(machine.module("gpu_info", gpus=len(machine.gpus) + 1, checks=["gpu_count"]))
    assert found["gpu_count"]["verdict"] == "fail"


def test_gpu_info_refuses_another_model(machine: Machine) -> None:
    found = records(machine.module("gpu_info", gpus=len(machine.gpus), model="No Such GPU", checks=["gpu_model"]))
    assert found["gpu_model"]["verdict"] == "fail"


def test_topology_places_every_gpu(machine: Machine, info: Json) -> None:
    topology, binding = info["topology"], info["binding"]
    assert [gpu["index"] for gpu in topology["gpus"]] == [int(gpu["index"]) for gpu in machine.gpus]
    assert topology["numa"] and all(node["cpus"] for node in topology["numa"][:1])
    devices = Path("/sys/bus/pci/devices")
    for gpu in topology["gpus"]:
        place = next((one for one in devices.iterdir() if one.name.endswith(gpu["bus_id"].lower()[-12:])), None)
        node = int((place / "numa_node").read_text()) if place else -1
        assert gpu["numa_node"] in (node, None, 0) if node < 0 else gpu["numa_node"] == node
    assert len(info["cpu_masks"]) == len(machine.gpus) or binding["reason"]
    assert all(re.fullmatch(r"[1-9a-f][0-9a-f]*", mask) for mask in info["cpu_masks"])


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_gpu_bandwidth_of_every_gpu(role: Role, machine: Machine, mode: str) -> None:
    result = machine.module("gpu_bandwidth", mode=mode, tool="nvbandwidth", path=str(role.bin))
    found = records(result)["gpu_bandwidth"]
    assert found["verdict"] == "unjudged", found["reason"]
    for direction in ("h2d", "d2h", "d2d"):
        got = values(found, direction)
        assert sorted(got) == [int(gpu["index"]) for gpu in machine.gpus]
        assert all(1 < value < 20000 for value in got.values()), (direction, got)
    local, across = values(found, "d2d"), values(found, "h2d")
    assert all(local[gpu] > across[gpu] for gpu in local)
    assert all("nvbandwidth" in " ".join(gpu["argv"]) and not gpu["problem"] for gpu in result["gpus"])


def test_gpu_bandwidth_is_judged_per_gpu(role: Role, machine: Machine) -> None:
    limit = {
        "check": "gpu_bandwidth",
        "metric": "h2d",
        "op": ">=",
        "value": 10000,
        "unit": "GB/s",
        "source": "impossible",
    }
    result = machine.module("gpu_bandwidth", directions=["h2d"], tool="nvbandwidth", path=str(role.bin), expect=[limit])
    found = records(result)["gpu_bandwidth"]
    assert (found["verdict"], found["class"]) == ("fail", "hardware")
    assert found["scope"] == {"gpu": [int(gpu["index"]) for gpu in machine.gpus]}


def test_nccl_tests_with_all_gpus_of_one_process(role: Role, machine: Machine) -> None:
    count = len(machine.gpus)
    result = machine.module(
        "nccl_tests", collectives=["all_reduce", "alltoall"], path=str(role.bin), gpus_per_rank=count, max_size="128M"
    )
    found = records(result)["nccl_tests"]
    if count == 1:
        assert found["verdict"] == "skipped"
        return
    assert found["verdict"] == "unjudged", found["reason"]
    assert result["correct"]["all_reduce"] is True
    assert len(result["ranks"]) == count
    assert result["peak"]["all_reduce"] > 1


def test_nccl_tests_with_one_rank_per_gpu(role: Role, machine: Machine) -> None:
    count = len(machine.gpus)
    if count < 2 or not (role.bin / "all_reduce_perf_mpi").exists() or not shutil.which("mpirun"):
        pytest.skip("needs two GPUs, mpirun on PATH and nccl-tests built with MPI")
    options = {"launcher": "mpirun", "ranks_per_node": count, "path": str(role.bin), "max_size": "128M"}
    result = machine.module("nccl_tests", **options)
    found = records(result)["nccl_tests"]
    assert found["verdict"] == "unjudged", found["reason"]
    assert sorted(rank["rank"] for rank in result["ranks"]) == list(range(count))


def test_gpu_clocks_in_check_mode_tells_and_changes_nothing(machine: Machine) -> None:
    before = machine.settings()
    result = machine.module("gpu_clocks", check_mode=True, record=str(machine.scratch / "clocks.json"))
    assert not result.get("failed"), result
    assert machine.settings() == before
    assert not (machine.scratch / "clocks.json").exists()
    found = records({**result, "changed": False})["gpu_clocks"]
    assert sorted({metric.get("gpu") for metric in found["metrics"]}) == [int(gpu["index"]) for gpu in machine.gpus]


def test_infiniband_info_counts_what_the_kernel_has(machine: Machine) -> None:
    layers = Path("/sys/class/infiniband").glob("*/ports/*/link_layer")
    count = sum(layer.read_text().strip() == "InfiniBand" for layer in layers)
    result = machine.module("infiniband_info", ports=count)
    found = records(result)["infiniband_ports"]
    assert len(result["ports"]) == count
    assert found["verdict"] == "skipped" if count == 0 else found["verdict"] in ("pass", "unjudged", "fail")


@pytest.mark.skipif(not shutil.which("dcgmi"), reason="this machine has no DCGM")
def test_dcgm_is_read_as_this_version_prints_it(machine: Machine) -> None:
    """Skipped where no host engine runs; what this release prints is understood in any case."""
    for module in ("dcgm_health", "dcgm_diag"):
        record = records(machine.module(module))[module]
        assert "no JSON of a result" not in record["reason"] and "none of Pass" not in record["reason"], record
        assert record["verdict"] != "pass" or record["evidence"] == ""
