# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_clocks: what was reached counts, not what was asked for."""

from __future__ import annotations

import typing as t

from conftest import Cluster, Json, findings


def apply(cluster: Cluster, **options: t.Any) -> Json:
    wanted = {"record": str(cluster.directory / "gpu_clocks.json"), "settle": 0.1, **options}
    return cluster.module("gpu_clocks", **wanted)


def now(cluster: Cluster) -> list[str]:
    fields = "--query-gpu=clocks.gr,clocks.applications.gr,persistence_mode"
    return cluster.tool("nvidia-smi", fields, "--format=csv,noheader,nounits").stdout.splitlines()


def test_check_real_check_real(cluster: Cluster) -> None:
    cluster.tool("nvidia-smi", "-pm", "0")
    changed = [apply(cluster, check_mode=mode)["changed"] for mode in (True, False, True, False)]
    assert changed == [True, True, False, False]
    assert now(cluster) == ["1410, 1095, Enabled"] * 8


def test_reset(cluster: Cluster) -> None:
    apply(cluster)
    assert [apply(cluster, state="reset")["changed"] for dummy in range(2)] == [True, False]
    assert now(cluster) == ["210, 1095, Enabled"] * 8


def test_clipped_clock_fails(cluster: Cluster) -> None:
    cluster.damage(clipped_clocks={"3": 1275})
    record = apply(cluster)["check"]
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "config", {"gpu": [3]})
    assert "1275" in record["reason"]
    assert findings(record) == [3]


def test_application_clocks_where_there_are_no_locks(cluster: Cluster) -> None:
    cluster.damage(no_locked_clocks=True)
    result = apply(cluster)
    assert result["check"]["verdict"] == "pass", result["check"]["reason"]
    assert {gpu["method"]["graphics"] for gpu in result["gpus"]} == {"application"}
    assert now(cluster) == ["210, 1410, Enabled"] * 8


def test_hanging_nvidia_smi(cluster: Cluster) -> None:
    cluster.damage(hung=["nvidia-smi"])
    record = apply(cluster, timeout=2)["check"]
    assert (record["verdict"], record["class"]) == ("error", "infra")
