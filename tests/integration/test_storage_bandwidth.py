# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""storage_bandwidth: fio's numbers, and that nothing of it is left."""

from __future__ import annotations

import typing as t
from pathlib import Path

from conftest import Cluster, Json


def measure(cluster: Cluster, path: Path, **options: t.Any) -> Json:
    wanted = {"paths": [str(path)], "size": "1M", "runtime": 1, **options}
    return cluster.checks("storage_bandwidth", **wanted)["storage_bandwidth"]


def test_healthy(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    record = measure(cluster, tmp_path / "scratch")
    assert record["verdict"] == "pass", record["reason"]
    assert {one["name"] for one in record["metrics"]} >= {"read", "write"}
    assert list((tmp_path / "scratch").iterdir()) == []


def test_slow(cluster: Cluster, tmp_path: Path) -> None:
    cluster.damage(slow_storage=0.5)
    record = measure(cluster, tmp_path)
    assert (record["verdict"], record["class"]) == ("warn", "hardware")


def test_hang_ends_in_time(cluster: Cluster, tmp_path: Path) -> None:
    cluster.damage(hung=["fio"])
    record = measure(cluster, tmp_path, timeout=2)
    assert (record["verdict"], record["class"]) == ("error", "infra")
