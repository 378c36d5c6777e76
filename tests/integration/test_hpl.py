# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpl: speed and residuals, and an exit status that says nothing."""

from __future__ import annotations

import typing as t

from conftest import Cluster, Json


def measure(cluster: Cluster, **options: t.Any) -> Json:
    wanted = {"launcher": "mpirun", "ranks_per_node": 8, "gpu_memory_mib": 40536, "directory": str(cluster.directory)}
    return cluster.checks("hpl", **{**wanted, **options})["hpl"]


def tflops(record: Json) -> float:
    return next(one["value"] for one in record["metrics"] if one["name"] == "tflops")


def test_healthy(cluster: Cluster) -> None:
    record = measure(cluster)
    assert (record["verdict"], record["reason"]) == ("pass", "")
    assert 95 <= tflops(record) <= 105


def test_one_slow_gpu_slows_all(cluster: Cluster) -> None:
    cluster.damage(slow_gpu={"2": 0.8})
    record = measure(cluster)
    assert (record["verdict"], record["class"]) == ("fail", "hardware")
    assert 70 < tflops(record) < 82


def test_wrong_solution_fails_whatever_its_speed(cluster: Cluster) -> None:
    cluster.damage(hpl_failed=True)
    record = measure(cluster)
    assert (record["verdict"], record["class"]) == ("fail", "hardware")
    assert tflops(record) > 95
    assert "residual" in record["reason"]


def test_build_without_mpi(cluster: Cluster) -> None:
    cluster.damage(no_mpi=True)
    record = measure(cluster)
    assert (record["verdict"], record["class"]) == ("error", "infra")


def test_hang_ends_in_time(cluster: Cluster) -> None:
    cluster.damage(hung=["xhpl"])
    record = measure(cluster, timeout=2)
    assert (record["verdict"], record["class"]) == ("error", "infra")
    assert "2 s" in record["reason"]
