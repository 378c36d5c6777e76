# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import html
import re
import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, judge, metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report import gpus
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Run
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.page import page

FLOOR: Json = {"check": "gpu_bandwidth", "metric": "h2d", "op": ">", "value": 20, "unit": "GB/s", "source": "a paper"}
NUMA = [1, 1, 0, 0]


def bandwidth(node: str, values: t.Sequence[float | None], version: str = "v0.8") -> Json:
    metrics = [metric("h2d", value, "GB/s", gpu=index) for index, value in enumerate(values)]
    metrics += [metric("d2h", 25.5, "GB/s", gpu=index) for index in range(len(values))]
    judged = judge("gpu_bandwidth", metrics, [FLOOR])
    return record("gpu_bandwidth", node, time=1.0, metrics=judged, run="r", context={"version": version})


def topology(node: str, numa: t.Sequence[int | None], link: str = "NV12") -> Json:
    samples = [
        {
            "gpu": index,
            "numa_node": place,
            "cpus": f"{place}-{place}",
            "nics": [f"mlx5_ib{index}"],
            "links": {"mlx5_ib0": "SYS", **{f"GPU{other}": link for other in range(len(numa)) if other != index}},
        }
        for index, place in enumerate(numa)
    ]
    return record("gpu_topology", node, time=1.0, verdict="pass", samples=samples, run="r")


def collective(node: str, busbw: float, size: int = 8 << 30) -> Json:
    rows = [{"collective": "all_reduce", "size": 1 << power, "busbw": busbw / 2**power} for power in (3, 33)]
    metrics = [metric("busbw", busbw, "GB/s", collective="all_reduce", size=size)]
    floor = {**FLOOR, "check": "nccl_tests", "metric": "busbw", "collective": "all_reduce", "size": size, "value": 200}
    return record("nccl_tests", node, time=1.0, metrics=judge("nccl_tests", metrics, [floor]), samples=rows, run="r")


def drawn(*checks: Json) -> str:
    return str(gpus.gpus(Run("r", [], list(checks), [])) or "")


def words(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def test_without_gpus_there_is_no_section() -> None:
    assert drawn(record("munge", "c1", time=1.0, verdict="pass", run="r")) == ""


def test_each_gpu_has_its_bandwidth_and_its_verdict() -> None:
    said = words(drawn(bandwidth("c1", [24.5, 9.87, None])))
    assert "✓ 24.5 / 25.5" in said
    assert "✕ 9.87 / 25.5" in said
    assert "! \u2013 / 25.5" in said
    assert "H2D > 20 GB/s" in said


def test_a_gpu_that_one_node_lacks_is_no_result() -> None:
    assert "no result" in words(drawn(bandwidth("c1", [24.5, 24.5]), bandwidth("c2", [24.5])))


def test_nodes_that_are_wired_alike_share_a_drawing_in_the_worst_colour() -> None:
    page_of = drawn(
        topology("c1", NUMA), topology("c2", NUMA), bandwidth("c1", [24.0] * 4), bandwidth("c2", [24, 24, 2, 24])
    )
    assert page_of.count('class="plot wiring"') == 1
    assert "c1, c2 alike" in page_of and "NV12 between all 4 GPUs" in page_of
    assert "✕ GPU 2" in page_of and "✕ GPU 1" not in page_of


def test_another_wiring_has_a_drawing_of_its_own() -> None:
    page_of = drawn(topology("c1", NUMA), topology("c2", [0, 0, 1, 1]), bandwidth("c1", [24.0] * 4))
    assert page_of.count('class="plot wiring"') == 2


@pytest.mark.parametrize("numa", [[None, None], [0]])
def test_a_wiring_may_be_unknown_or_of_one_gpu(numa: list[int | None]) -> None:
    assert "Wiring" in drawn(topology("c1", numa), bandwidth("c1", [24.0]))


def test_collectives_inside_nodes_show_the_slowest_of_many() -> None:
    many = [collective(f"c{index}", 230 - index) for index in range(9)]
    said = words(drawn(bandwidth("c1", [24.0]), *many))
    assert "the 6 slowest of 9 nodes" in said
    assert "busbw (8 GiB) of all_reduce: > 200 GB/s expected (a paper)" in said


def test_of_many_nodes_those_with_findings_are_shown() -> None:
    checks = [bandwidth(f"c{index}", [24.0]) for index in range(gpus.MAX_NODES + 5)]
    checks.append(bandwidth("z1", [1.0]))
    page_of = drawn(*checks)
    assert '<th scope="row">z1</th>' in page_of
    assert "6 more nodes without a finding" in page_of


@pytest.mark.parametrize("version, said", [("v0.8-emulated", True), ("v0.8", False)])
def test_emulated_tools_are_called_so(version: str, said: bool) -> None:
    whole = page({"checks": [bandwidth("c1", [24.0], version)]})
    assert ("A rehearsal: tools that call themselves emulated" in whole) is said


def test_what_nobody_judges_is_no_pass_and_no_failure() -> None:
    plain = record("memory", "c1", time=1.0, metrics=[metric("total", 1, "bytes")], run="r")
    assert "Passed where judged" in page({"checks": [bandwidth("c1", [24.0]), plain]})
    assert "Passed where judged" not in page({"checks": [plain]})
    assert "Passed where judged" not in page({"checks": [bandwidth("c1", [24.0])]})


def pairs(bad: set[int]) -> Run:
    metrics = [
        {
            "name": "read",
            "value": 1.0,
            "unit": "GB/s",
            "gpu": a,
            "peer": b,
            "verdict": "fail" if {a, b} & bad else "pass",
        }
        for a in range(8)
        for b in range(8)
        if a != b
    ]
    return Run("a", [], [{"node": "c1", "check": "gpu_p2p", "metrics": metrics}], [])


def test_of_a_slow_pair_the_gpu_is_blamed_that_is_slow_with_most() -> None:
    found = gpus.devices(pairs({5}))
    assert [gpu for (dummy, gpu), device in found.items() if device.verdict == "fail"] == [5]
    assert {device.verdict for device in gpus.devices(pairs(set())).values()} == {"pass"}


def test_checks_of_one_collective_have_plots_of_their_own_and_the_last_measurement_counts() -> None:
    def check(name: str, busbw: float) -> dict:
        return {"node": "c1", "check": name, "samples": [{"collective": "all_reduce", "size": 8, "busbw": busbw}]}

    drawn = "".join(
        gpus._curves(
            Run("a", [], [check("nccl_tests", 3.25), check("nccl_tests", 4.5), check("nccl_loopback", 1.5)], [])
        )
    )
    assert "all_reduce inside a node" in drawn and "all_reduce, nccl loopback" in drawn
    assert all(value in drawn for value in ("4.5\u00a0GB/s", "1.5\u00a0GB/s")) and "3.25" not in drawn
