# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _profiles
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profile_draft import DraftError, draft

FIXTURES = Path(__file__).parents[2] / "fixtures/report"
GIB = 1 << 30
DAY = 1_795_000_000.0  # 2026-11-18
Record = t.Dict[str, t.Any]


def entry(check: str, metrics: list[t.Any], node: str = "n1", **about: t.Any) -> Record:
    context = {"tool": "tool", "version": "1.2"}
    given = {"time": DAY, "run": "r1", "context": context, **about}
    run = given.pop("run")
    return {**record(check, node, metrics=metrics, **given), "run": run}


def records(node: str = "n1", copy: float = 55.5, gpus: int = 8, **about: t.Any) -> list[Record]:
    names = [{"gpu": gpu, "name": "NVIDIA H100 80GB HBM3"} for gpu in range(gpus)]
    copies = [metric("h2d", copy + gpu, "GB/s", gpu=gpu) for gpu in range(gpus)]
    sizes = [metric("busbw", 40.0 * size, "GB/s", collective="all_reduce", size=size * GIB) for size in (1, 8)]
    return [
        entry("gpu_count", [metric("gpus", gpus, "GPUs")], node, **about),
        entry("gpu_model", [metric("memory", 81559, "MiB", gpu=0)], node, samples=names, **about),
        entry("gpu_remap", [metric("remap_pending", 0, "flags", gpu=0)], node, **about),
        entry("gpu_bandwidth", copies, node, **about),
        entry("nccl_tests", [*sizes, metric("wrong", 0, "checks", collective="all_reduce")], node, **about),
        entry("storage_bandwidth", [metric("read", 9.0, "GB/s", path="/s")], node, **about),
        entry("hpl", [], node, verdict="skipped", reason="not there", **about),
    ]


def limits(text: str) -> dict[tuple[str, str], Record]:
    return {(one["check"], one["metric"]): one for one in yaml.safe_load(text)["expect"]}


def test_a_draft_is_a_profile_of_the_site(tmp_path: Path) -> None:
    text = draft(records(), "ours")
    (tmp_path / "ours.yml").write_text(text, encoding="utf-8")
    found = _profiles.load("ours", site=tmp_path)
    assert (found["known"], found["gpu"]) == (
        True,
        {"model": "H100 80GB HBM3", "count": 8, "memory_mib": 81559},
    )
    assert {one["check"] for one in found["expect"]} >= {"gpu_ecc", "gpu_remap", "gpu_bandwidth"}, (
        "those of the bases, too"
    )


def test_what_was_measured_on_an_h100_is_drafted_as_it_was_there() -> None:
    """The records of measure.yml on a machine with one H100, and the profile that certified it afterwards."""
    measured = json.loads((FIXTURES / "captured-h100-measure.json").read_text(encoding="utf-8"))
    assert draft(measured, "ours") == (FIXTURES / "captured-h100-draft.yml").read_text(encoding="utf-8")


def test_counts_are_as_they_are_and_speeds_have_a_margin() -> None:
    found = limits(draft(records(), "ours", margin=10))
    assert (found["gpu_count", "gpus"]["op"], found["gpu_count", "gpus"]["value"]) == ("==", 8)
    assert (found["gpu_model", "memory"]["op"], found["gpu_model", "memory"]["value"]) == (">=", 81559)
    copy = found["gpu_bandwidth", "h2d"]
    assert (copy["op"], copy["value"]) == (">=", 49.9), "55.5 less 10 %, downwards"
    assert copy["source"] == "measured here on 2026-11-18, n1 (tool 1.2): 55.5 GB/s, less 10 %"
    nccl = found["nccl_tests", "busbw"]
    assert (nccl["collective"], nccl["size"], nccl["nodes"], nccl["value"]) == ("all_reduce", 8 * GIB, 1, 288)
    assert found["storage_bandwidth", "read"]["verdict"] == "warn"
    assert ("nccl_tests", "wrong") not in found and ("gpu_remap", "remap_pending") not in found, "the bases have them"


def test_the_slowest_of_several_nodes_counts_and_groups_are_limits_for_their_size() -> None:
    together = entry(
        "nccl_tests",
        [metric("busbw", 190.0, "GB/s", collective="all_reduce", size=8 * GIB)],
        "",
        scope={"group": ["n1", "n2"]},
    )
    text = draft([*records("n1", 55.5), *records("n2", 50.0), together], "ours", margin=0)
    found = yaml.safe_load(text)["expect"]
    assert limits(text)["gpu_bandwidth", "h2d"]["value"] == 50
    assert sorted((one["nodes"], one["value"]) for one in found if one["check"] == "nccl_tests") == [(1, 320), (2, 190)]
    assert (
        limits(draft([*records("n1", 55.5), *records("n2", 50.0)], "ours", ["n1"], margin=0))["gpu_bandwidth", "h2d"][
            "value"
        ]
        == 55.5
    )


def test_the_base_is_that_which_was_asked_for() -> None:
    assert yaml.safe_load(draft(records(), "ours", base=["hgx_h100"]))["base"] == ["hgx_h100"]
    assert yaml.safe_load(draft(records(), "ours"))["base"] == ["_nvidia", "_row_remapping"]


def test_what_was_mended_since_counts_no_longer() -> None:
    bad = entry("gpu_ecc", [], verdict="fail", blame="hardware", reason="ECC", time=DAY - 1, run="r0")
    assert "measured here" in draft([bad, *records()], "ours")


@pytest.mark.parametrize(
    ("given", "hosts", "margin", "words"),
    [
        ([], [], 5, "no value that a limit could come from"),
        (records(), ["n7"], 5, "no record of n7; there are records of n1"),
        (records(), [], 100, "the margin is 100 %"),
        (
            [*records(), entry("gpu_ecc", [], verdict="fail", blame="hardware", reason="ECC")],
            [],
            5,
            r"nodes at fault: n1 gpu_ecc: fail \(ECC\)",
        ),
        ([*records("n1"), *records("n2", gpus=7)], [], 5, "gpu_count gpus is 7, 8; sound nodes"),
    ],
)
def test_what_nothing_is_drafted_from(given: list[Record], hosts: list[str], margin: float, words: str) -> None:
    with pytest.raises(DraftError, match=words):
        draft(given, "ours", hosts, margin=margin)


@pytest.mark.parametrize("name", ["n1:\nnccl: {environment: {LD_PRELOAD: /tmp/x.so}} #", "n1\u2028", "n1\r"])
def test_a_node_s_name_is_no_line_of_the_file(name: str) -> None:
    """Records come from nodes, and what a profile says is the environment of jobs on all of them."""
    with pytest.raises(ValueError, match=r"node\[0\]"):
        draft(records(name), "ours")
