# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""infiniband_info and infiniband_bandwidth: ports that are down or slow, on one node and between two."""

from __future__ import annotations

import typing as t

import pytest
from conftest import Cluster, Json, findings

PAIR = {"launcher": "srun", "hosts": ["c1", "c2"], "name": None}


def ports(cluster: Cluster, **options: t.Any) -> Json:
    devices = cluster.profile["infiniband"]["devices"]
    return cluster.module("infiniband_info", **{"sysfs": cluster.sysfs, "ports": 8, "devices": devices, **options})


def measure(cluster: Cluster, **options: t.Any) -> Json:
    wanted = {"sysfs": cluster.sysfs, "duration": 3, "devices": ["mlx5_ib0", "mlx5_ib6"], **options}
    return cluster.checks("infiniband_bandwidth", **wanted)["infiniband_bandwidth"]


def test_ports_up(cluster: Cluster) -> None:
    record = ports(cluster)["checks"][0]
    assert (record["verdict"], record["reason"]) == ("pass", "")
    # The Ethernet adapter beside them is none of them.
    assert len([one for one in record["metrics"] if one["name"] == "rate"]) == 8


def test_port_down(cluster: Cluster) -> None:
    cluster.damage(ib_down=["mlx5_ib3"])
    record = ports(cluster)["checks"][0]
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "fabric", {"nic": ["mlx5_ib3"]})
    assert findings(record, "nic") == ["mlx5_ib3"]
    assert "Polling" in record["reason"]


def test_every_port_by_itself(cluster: Cluster) -> None:
    record = measure(cluster, devices=[])
    assert (record["verdict"], record["reason"]) == ("pass", "")
    values = [one["value"] for one in record["metrics"]]
    assert len(values) == 8
    assert all(195 < value < 198 for value in values)


@pytest.mark.parametrize("test", ["ib_write_bw", "ib_read_bw", "ib_send_bw"])
def test_between_two_nodes(cluster: Cluster, test: str) -> None:
    record = measure(cluster, test=test, **PAIR)
    assert (record["verdict"], record["reason"]) == ("pass", "")


@pytest.mark.parametrize(
    ("node", "fault"),
    [("c1", {"ib_slow": {"mlx5_ib6": 0.5}}), ("c2", {"ib_slow": {"mlx5_ib6": 0.5}}), ("c2", {"ib_down": ["mlx5_ib6"]})],
)
def test_bad_port_of_either_node(cluster: Cluster, node: str, fault: Json) -> None:
    cluster.damage(node, **fault)
    record = measure(cluster, **PAIR)
    assert (record["verdict"], record["class"]) == ("fail", "fabric"), record["reason"]
    assert record["scope"]["nic"] == ["mlx5_ib6"] == findings(record, "nic")


def test_ethernet_never_passes_for_infiniband(cluster: Cluster) -> None:
    record = measure(cluster, devices=["mlx5_an0"])
    assert record["verdict"] == "error"
    assert "Ethernet" in record["reason"]
