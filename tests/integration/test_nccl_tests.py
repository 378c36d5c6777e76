# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nccl_tests: what is told of a run, and the lies that it must not believe."""

from __future__ import annotations

import typing as t

import pytest
from conftest import Cluster, Json

LAST = 8589934592
SRUN = {"launcher": "srun", "ranks_per_node": 8, "name": None}
MPIRUN = {"launcher": "mpirun", "ranks_per_node": 8, "name": None}


def measure(cluster: Cluster, **options: t.Any) -> Json:
    wanted = {"min_size": "1G", "max_size": "8G", **options}
    return cluster.checks("nccl_tests", **wanted)["nccl_tests"]


def busbw(record: Json) -> float:
    return next(one["value"] for one in record["metrics"] if one["name"] == "busbw" and one["size"] == LAST)


def test_healthy_node(cluster: Cluster) -> None:
    record = measure(cluster, gpus_per_rank=8)
    assert (record["verdict"], record["reason"]) == ("pass", "")
    assert 228 <= busbw(record) <= 240
    assert "emulated" in str(record["context"])


@pytest.mark.parametrize("launcher", [SRUN, MPIRUN])
def test_healthy_nodes(cluster: Cluster, launcher: Json) -> None:
    result = cluster.module("nccl_tests", hosts=["c1", "c2"], collectives=["all_reduce", "alltoall"], **launcher)
    records = result["checks"]
    assert [record["verdict"] for record in records] == ["pass", "unjudged"], [record["reason"] for record in records]
    assert (len(result["ranks"]), result["nodes"]) == (16, ["c1", "c2"])
    assert 185 <= busbw(records[0]) <= 195
    # Only the adapters carry it, so far less; but whole.
    assert 0 < result["peak"]["alltoall"] < 60


def test_one_slow_gpu_slows_all(cluster: Cluster) -> None:
    cluster.damage("c2", slow_gpu={"5": 0.5})
    record = measure(cluster, hosts=["c1", "c2"], **SRUN)
    assert (record["verdict"], record["class"]) == ("fail", "fabric")
    assert 90 < busbw(record) < 100


def test_wrong_results(cluster: Cluster) -> None:
    cluster.damage("c2", wrong_results=["all_reduce"])
    record = measure(cluster, hosts=["c1", "c2"], **SRUN)
    assert (record["verdict"], record["class"]) == ("fail", "hardware"), record["reason"]
    assert next(one["value"] for one in record["metrics"] if one["name"] == "wrong") > 0


def test_wrong_results_of_another_collective(cluster: Cluster) -> None:
    cluster.damage(wrong_results=["alltoall"])
    records = cluster.module("nccl_tests", gpus_per_rank=8, collectives=["all_reduce", "alltoall"])["checks"]
    assert [record["verdict"] for record in records] == ["pass", "fail"]


def test_missing_gpu(cluster: Cluster) -> None:
    cluster.damage("c2", missing_gpu=[3])
    record = measure(cluster, hosts=["c1", "c2"], **SRUN)
    assert record["verdict"] != "pass"
    assert "8 requested but only 7" in record["reason"]


@pytest.mark.parametrize("launcher", [SRUN, MPIRUN])
def test_build_without_mpi(cluster: Cluster, launcher: Json) -> None:
    cluster.damage("c1", "c2", no_mpi=True)
    record = measure(cluster, hosts=["c1", "c2"], **launcher)
    assert (record["verdict"], record["class"]) == ("error", "infra")
    assert "MPI" in record["reason"], record["reason"]


def test_srun_without_mpi(cluster: Cluster) -> None:
    record = measure(cluster, hosts=["c1", "c2"], **{**SRUN, "launcher_options": {"mpi": "none"}})
    assert (record["verdict"], record["class"]) == ("error", "infra")


def test_sockets_instead_of_infiniband(cluster: Cluster) -> None:
    cluster.damage("c2", socket_network=True)
    record = measure(cluster, hosts=["c1", "c2"], infiniband=True, **SRUN)
    assert (record["verdict"], record["class"]) == ("fail", "fabric")
    assert "Socket" in record["reason"] or "socket" in record["reason"], record["reason"]
    assert busbw(record) < 4


def test_port_down_costs_its_share(cluster: Cluster) -> None:
    cluster.damage("c2", ib_down=["mlx5_ib3"])
    record = measure(cluster, hosts=["c1", "c2"], **SRUN)
    assert (record["verdict"], record["class"]) == ("fail", "fabric")
    assert 160 < busbw(record) < 170


@pytest.mark.parametrize("message", ["unhandled system error", "remote process exited or there was a network error"])
def test_nccl_fails(cluster: Cluster, message: str) -> None:
    cluster.damage(nccl_error=message)
    record = measure(cluster, gpus_per_rank=8)
    assert record["verdict"] != "pass"
    assert message in record["reason"], record["reason"]


def test_hang_ends_in_time(cluster: Cluster) -> None:
    cluster.damage(hung=["all_reduce_perf"])
    record = measure(cluster, gpus_per_rank=8, timeout=2)
    assert (record["verdict"], record["class"]) == ("error", "infra")
    assert "2 s" in record["reason"], record["reason"]


def test_wrong_option_is_no_success(cluster: Cluster) -> None:
    record = measure(cluster, gpus_per_rank=8, arguments=["-Z", "7"])
    assert (record["verdict"], record["class"]) == ("error", "infra")


def test_no_program(cluster: Cluster) -> None:
    record = measure(cluster, gpus_per_rank=8, path="/nonexistent")
    assert (record["verdict"], record["class"]) == ("error", "infra")
    assert "gpu_test_tools" in record["reason"]


def test_check_mode_measures_nothing(cluster: Cluster) -> None:
    assert measure(cluster, gpus_per_rank=8, check_mode=True)["verdict"] == "skipped"
