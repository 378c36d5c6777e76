# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_bandwidth: each GPU by itself, from its own NUMA node, with either tool."""

from __future__ import annotations

import typing as t

import pytest
from conftest import Cluster, Json, findings

TOOLS = ("nvbandwidth", "bandwidthTest")


def measure(cluster: Cluster, **options: t.Any) -> Json:
    return cluster.checks("gpu_bandwidth", **{"gpus": 8, "sysfs": cluster.sysfs, **options})["gpu_bandwidth"]


def values(record: Json, name: str) -> list[float]:
    return [one["value"] for one in record["metrics"] if one["name"] == name]


@pytest.fixture(params=TOOLS)
def tool(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    if request.param == "bandwidthTest":
        cluster.add("bandwidthTest")
    return str(request.param)


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_healthy(cluster: Cluster, tool: str, mode: str) -> None:
    """The emulated bandwidthTest copies slowly where it is not bound, so a pass proves the binding."""
    record = measure(cluster, mode=mode)
    assert (record["verdict"], record["reason"]) == ("pass", "")
    assert tool in str(record["context"])
    for name in ("h2d", "d2h"):
        assert len(values(record, name)) == 8
        assert all(24 < value < 27 for value in values(record, name)), values(record, name)


def test_unbound_is_slow(cluster: Cluster) -> None:
    cluster.add("bandwidthTest")
    record = measure(cluster, bind=False)
    assert record["verdict"] == "fail"
    assert findings(record) == [0, 1, 4, 5, 6, 7]


def test_one_slow_gpu(cluster: Cluster, tool: str) -> None:
    cluster.damage(slow_gpu={"5": 0.6})
    record = measure(cluster)
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "hardware", {"gpu": [5]})
    assert findings(record) == [5]


def test_narrow_link(cluster: Cluster) -> None:
    cluster.damage(pcie_width={"2": 8})
    record = measure(cluster)
    assert (record["verdict"], findings(record)) == ("fail", [2])


def test_missing_gpu_is_never_a_pass(cluster: Cluster, tool: str) -> None:
    cluster.damage(missing_gpu=[5])
    record = measure(cluster)
    assert record["verdict"] in ("fail", "error")
    assert sorted(value is None for value in values(record, "h2d")) == [False] * 7 + [True]


def test_memory_error(cluster: Cluster) -> None:
    cluster.add("bandwidthTest")
    cluster.damage(ecc={"3": 1})
    record = measure(cluster)
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "hardware", {"gpu": [3]})
    assert "ECC" in record["reason"]


def test_hang_ends_in_time(cluster: Cluster) -> None:
    cluster.damage(hung=["nvbandwidth"])
    record = measure(cluster, timeout=1, mode="parallel")
    assert (record["verdict"], record["class"]) == ("error", "infra")
    assert findings(record) == list(range(8))


def test_through_slurm(cluster: Cluster) -> None:
    topology = cluster.module("gpu_info", gpus=8, sysfs=cluster.sysfs)["topology"]
    cluster.damage("c2", slow_gpu={"1": 0.5})
    for host, verdict in (("c1", "pass"), ("c2", "fail")):
        record = measure(cluster, launcher="srun", hosts=[host], topology=topology, name=host)
        assert (record["node"], record["verdict"]) == (host, verdict), record["reason"]
    assert record["scope"] == {"gpu": [1]}
