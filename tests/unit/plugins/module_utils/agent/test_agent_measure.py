# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's own measurement between GPUs, and how it runs what the modules measure."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import check, checks_measure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import BootedHost, Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import module
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage import bandwidth

Json = t.Dict[str, t.Any]
FLOOR = {"check": "gpu_p2p", "metric": "read", "op": ">=", "value": 235, "unit": "GB/s", "source": "s"}
ARGV = ["/opt/nvbandwidth", "-t", checks_measure.TEST]


def context(gpus: int = 4, expect: t.Sequence[Json] = (FLOOR,), **more: t.Any) -> Context:
    profile = {"profile": "p", "gpu": {"count": gpus}, "expect": list(expect), **more.pop("profile", {})}
    found = check.check({"schema": 1, "node": "n1", "profile": profile, **more})
    return Context(found, "full", host=BootedHost("b", "host-7"))


def output(cells: t.Mapping[tuple[int, int], str], gpus: int = 4) -> str:
    """Write what nvbandwidth v0.8 prints of a machine in which every copy makes 260 GB/s, except for these."""
    lines = ["nvbandwidth Version: v0.8", "", "CUDA Runtime Version: 12040", "Driver Version: 550.90.07", "", "gpu-003"]
    lines += [f"Device {index}: NVIDIA A100-SXM4-40GB (0000000{index}:00:00)" for index in range(gpus)]
    lines += ["", f"Running {checks_measure.TEST}.", "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)"]
    lines.append("".join(f"{index:>10}" for index in range(gpus)))
    for row in range(gpus):
        values = [cells.get((row, peer), "N/A" if row == peer else "260.00") for peer in range(gpus)]
        lines.append(f"{row:>2}" + "".join(f"{value:>10}" for value in values))
    note = "NOTE: The reported results may not reflect the full capabilities of the platform."
    return "\n".join([*lines, "", f"SUM {checks_measure.TEST} 3120.00", "", note, ""])


def judged(text: str, err: str = "", rc: int | None = 0, **more: t.Any) -> Json:
    return checks_measure.judged(Outcome(rc, text, err, 2.0), ARGV, context(**more))


def test_every_pair_is_measured_in_both_ways() -> None:
    one = judged(output({}))
    assert (one["verdict"], one["class"], len(one["metrics"])) == ("pass", None, 12)
    assert (one["node"], one["context"]["physical_host"], one["context"]["argv"]) == ("n1", "host-7", ARGV)


def test_the_gpu_that_all_slow_pairs_have_in_common_is_named() -> None:
    slow = {cell: "120.00" for peer in (0, 1, 3) for cell in ((2, peer), (peer, 2))}
    one = judged(output(slow))
    assert (one["verdict"], one["class"], one["scope"]) == ("fail", "hardware", {"gpu": [2]})
    assert "read (gpu=2 peer=0): 120 GB/s, expected >= 235" in one["reason"]


def test_of_one_slow_pair_both_are_named() -> None:
    assert judged(output({(0, 3): "234.99"}))["scope"] == {"gpu": [0, 3]}


@pytest.mark.parametrize(
    ("text", "err", "rc", "told"),
    [
        ("", "", 0, "no result"),
        (output({}, gpus=3), "", 0, "3 of 4 GPUs"),
        (output({}), "nvbandwidth did not end within 100 s", None, "did not end within 100 s"),
        (output({}), "boom", 1, "boom"),
        (output({}).partition(" 2")[0], "", 0, ""),
        (f"ERROR: Testcase {checks_measure.TEST} not found!\n", "", 0, "not found"),
        (output({(0, 1): "N/A"}), "", 0, "not measured"),
    ],
)
def test_what_was_not_measured_is_an_error(text: str, err: str, rc: int | None, told: str) -> None:
    one = judged(text, err, rc)
    assert (one["verdict"], one["class"]) == ("error", "infra"), one["reason"]
    assert told in one["reason"]


def test_data_that_arrives_changed_is_a_fault_of_the_hardware() -> None:
    spoiled = " Invalid value when checking the pattern at 0x7f3b2a000000\n Current offset : 1048576 \n"
    one = judged(output({}).partition("0         1")[0] + spoiled, "", 1)
    assert (one["verdict"], one["class"]) == ("fail", "hardware")


def test_pairs_that_do_not_reach_each_other_are_no_finding_where_nothing_is_expected() -> None:
    assert judged(output({(0, 2): "N/A", (2, 0): "N/A"}), expect=())["verdict"] == "unjudged"


@pytest.mark.parametrize("gpus", [0, 1])
def test_one_gpu_has_no_peer(gpus: int) -> None:
    assert [one["verdict"] for one in checks_measure.p2p(context(gpus, ()))] == ["skipped"]


def answers(monkeypatch: pytest.MonkeyPatch, module: t.Any, answer: Json) -> list[Json]:
    asked: list[Json] = []

    def perform(params: Json, *dummy: t.Any) -> Json:
        asked.append(params)
        return answer

    monkeypatch.setattr(module, "perform", perform)
    return asked


NCCL_FLOORS = [
    {"check": name, "metric": "busbw", "collective": "all_reduce", "size": size, "op": ">=", "value": value}
    | {"unit": "GB/s", "source": "s", **more}
    for name, size, value, more in (
        ("nccl_tests", 1 << 33, 228, {"nodes": 1}),
        ("nccl_tests", 1 << 33, 185, {"min_nodes": 2}),
        ("nccl_loopback", 1 << 30, 18, {"nodes": 1}),
    )
]


def test_limits_of_the_loopback_are_not_those_of_nvlink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are nccl-tests; a limit of 228 GB/s for adapters would drain every sound node."""
    one = record("nccl_tests", "n1", time=1.0, verdict="pass")
    asked = answers(monkeypatch, run, {"checks": [one]})
    about = context(8, NCCL_FLOORS, profile={"infiniband": {"count": 8}, "nccl": {"environment": {"A": "b"}}})
    found = [*checks_measure.nccl(about), *checks_measure.nccl_loopback(about)]
    assert [record["check"] for record in found] == ["nccl_tests", "nccl_loopback"]
    assert [[limit["value"] for limit in params["expect"]] for params in asked] == [[228], [18]]
    assert [params["max_size"] for params in asked] == [str(1 << 33), str(1 << 30)]
    assert asked[0]["environment"] == {"A": "b"}
    assert asked[1]["environment"] == {
        "A": "b",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_NVLS_ENABLE": "0",
    }
    assert [params["infiniband"] for params in asked] == [False, True]
    assert asked[0]["gpus_per_rank"] == 8


@pytest.mark.parametrize("name", ["nccl_loopback", "infiniband_bandwidth", "storage_bandwidth", "scratch", "hpl"])
def test_what_a_machine_does_not_have_is_skipped_with_a_reason(name: str) -> None:
    found = getattr(checks_measure, name)(context(0, ()))
    assert [one["verdict"] for one in found] == ["skipped"]
    assert found[0]["reason"]


@pytest.mark.parametrize(
    ("verdict", "source", "commands"),
    [
        ("fail", "none", []),
        ("pass", "none", [["mount", "/dev/md/scratch"]]),
        ("pass", "fallback", []),
        ("skipped", "none", []),
    ],
)
def test_the_disk_of_the_system_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, verdict: str, source: str, commands: list[list[str]]
) -> None:
    """Scratch that is not mounted is a directory there; the limits of a machine type are not about its speed."""
    asked = answers(monkeypatch, bandwidth, {"checks": []})
    one = record("nvme_scratch", "n1", time=1.0, verdict=verdict, reason="why")
    answers(monkeypatch, module, {"check": one, "commands": commands, "source": source, "path": "/scratch"})
    (found,) = checks_measure.storage_bandwidth(context(8, (), scratch={"mount": "/scratch"}))
    assert (asked, found["check"], found["verdict"]) == ([], "storage_bandwidth", "skipped")
    assert found["reason"]


def test_scratch_is_measured_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, bandwidth, {"checks": []})
    there = record("nvme_scratch", "n1", time=1.0, verdict="pass")
    answers(monkeypatch, module, {"check": there, "commands": [], "source": "array", "path": "/scratch"})
    limits = [{**FLOOR, "check": "storage_bandwidth", "path": path} for path in ("/scratch", "/shared")]
    checks_measure.storage_bandwidth(context(8, limits, scratch={"mount": "/scratch"}))
    assert (asked[0]["paths"], [one["path"] for one in asked[0]["expect"]]) == (["/scratch"], ["/scratch"])


@pytest.mark.parametrize(
    ("verdict", "changed", "want"),
    [("pass", False, "pass"), ("pass", True, "fail"), ("fail", True, "fail"), ("error", False, "error")],
)
def test_scratch_that_would_be_changed_is_not_as_it_should_be(
    monkeypatch: pytest.MonkeyPatch, verdict: str, changed: bool, want: str
) -> None:
    one = record("nvme_scratch", "n1", time=1.0, verdict=verdict, reason="why")
    asked = answers(monkeypatch, module, {"check": one, "changed": changed, "commands": [["mount", "/dev/md/scratch"]]})
    (found,) = checks_measure.scratch(context(8, (), scratch={"count": 8, "wait": 600}))
    assert found["verdict"] == want
    assert verdict != "pass" or not changed or "mount /dev/md/scratch" in found["reason"]
    assert (asked[0]["count"], asked[0]["wait"], asked[0]["node"]) == (8, 0.0, "n1")
