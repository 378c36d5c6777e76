# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_info: every fault is found by its own check, names its own GPU, and spoils no other check."""

from __future__ import annotations

import os
import typing as t

import pytest
from conftest import Cluster, Json, findings

# None of these needs a GPU to be asked: they are about processes and about where the kernel has its devices.
SILENT = {"gpu_pinning", "gpu_topology"}


def look(cluster: Cluster, **options: t.Any) -> Json:
    profile = cluster.profile
    wanted = {"gpus": 8, "model": profile["gpu"]["model"], "topology": profile["topology"]["gpus"], "timeout": 20}
    return cluster.module("gpu_info", **{**wanted, "sysfs": cluster.sysfs, **options})


def checks(result: Json) -> dict[str, Json]:
    return {record["check"]: record for record in result["checks"]}


def test_healthy(cluster: Cluster) -> None:
    result = look(cluster)
    verdicts = {name: record["verdict"] for name, record in checks(result).items()}
    assert verdicts.pop("gpu_pinning") == "skipped"
    assert set(verdicts.values()) == {"pass"}, verdicts
    assert result["missing"] == []
    assert [gpu["numa_node"] for gpu in result["topology"]["gpus"]] == [1, 1, 0, 0, 3, 3, 2, 2]
    assert [gpu["nics"] for gpu in result["topology"]["gpus"]][4] == ["mlx5_ib4"] or result["topology"]["gpus"][4][
        "nics"
    ]


def test_masks_of_the_machine_type(cluster: Cluster) -> None:
    binding = look(cluster)["binding"]
    halves = ["ffffff000000", "ffffff", "ffffff" + "0" * 18, "ffffff" + "0" * 12]
    assert binding["masks"] == [mask for mask in halves for dummy in range(2)]
    assert binding["visible_devices"] == [2, 3, 0, 1, 6, 7, 4, 5]
    assert binding["map_by"] == "ppr:2:numa"


@pytest.mark.parametrize(
    ("faults", "check", "gpu", "verdict"),
    [
        ({"ecc": {"2": 3}}, "gpu_ecc", 2, "fail"),
        ({"throttle": {"3": "0x40"}}, "gpu_throttle", 3, "fail"),
        ({"remap": {"1": "pending"}}, "gpu_remap", 1, "fail"),
        ({"remap": {"7": "failed"}}, "gpu_remap", 7, "fail"),
        ({"reset_required": [4]}, "gpu_count", 4, "fail"),
        ({"pcie_width": {"6": 8}}, "gpu_pcie", 6, "fail"),
        ({"nvlink_down": {"0": [3, 4]}}, "gpu_nvlink", 0, "fail"),
        ({"hot": {"5": 97}}, "gpu_temperature", 5, "warn"),
    ],
)
def test_one_fault(cluster: Cluster, faults: Json, check: str, gpu: int, verdict: str) -> None:
    cluster.damage(**faults)
    found = checks(look(cluster))
    assert (found[check]["verdict"], found[check]["class"]) == (verdict, "hardware"), found[check]["reason"]
    assert found[check]["scope"] == {"gpu": [gpu]}
    # How many there are is one number for all of them.
    assert check == "gpu_count" or findings(found[check]) == [gpu]
    assert {record["verdict"] for name, record in found.items() if name != check} <= {"pass", "skipped"}


def test_idle_is_no_throttling(cluster: Cluster) -> None:
    cluster.damage(throttle={"3": "0x5"})
    assert checks(look(cluster))["gpu_throttle"]["verdict"] == "pass"


@pytest.mark.parametrize("fault", ["missing_gpu", "lost_gpu"])
def test_absent_gpu(cluster: Cluster, fault: str) -> None:
    """One that fell off the bus moves those behind it up; only its place on the bus tells which one it was."""
    cluster.damage(**{fault: [5]})
    result = look(cluster)
    record = checks(result)["gpu_count"]
    assert (record["verdict"], record["class"]) == ("fail", "hardware")
    assert record["scope"] == {"gpu": [5]}
    assert "0000000C:00:00.0" in record["reason"]
    assert [(gpu["index"], gpu["numa_node"]) for gpu in result["missing"]] == [(5, 3)]


def test_hanging_nvidia_smi(cluster: Cluster) -> None:
    cluster.damage(hung=["nvidia-smi"])
    found = checks(look(cluster, timeout=2))
    asked = {name: record for name, record in found.items() if name not in SILENT}
    assert {(record["verdict"], record["class"]) for record in asked.values()} == {("error", "infra")}, asked
    assert all("did not end within 2 s" in record["reason"] for record in asked.values())


@pytest.mark.parametrize(("fault", "words"), [("driver", "couldn't communicate"), ("mismatch", "mismatch")])
def test_no_driver(cluster: Cluster, fault: str, words: str) -> None:
    cluster.damage(failing=fault)
    found = checks(look(cluster))
    assert (found["gpu_count"]["verdict"], found["gpu_count"]["class"]) == ("fail", "software")
    assert words in found["gpu_count"]["reason"]
    assert not {name for name, record in found.items() if record["verdict"] == "pass"} - SILENT


def test_process_on_the_wrong_cpus(cluster: Cluster) -> None:
    cluster.damage(processes=[{"gpu": 0, "pid": os.getpid()}])
    record = checks(look(cluster))["gpu_pinning"]
    assert (record["verdict"], record["class"], record["scope"]) == ("warn", "config", {"gpu": [0]})
    assert str(os.getpid()) in record["reason"]
