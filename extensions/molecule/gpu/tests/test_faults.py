# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What certify says of broken nodes: the right verdict, the right device, and nothing bad of the other node."""

from __future__ import annotations

from conftest import GpuLab, Json, one

GOOD = {"pass", "unjudged", "skipped"}


def certify(lab: GpuLab) -> tuple[list[Json], str]:
    status, output, run = lab.play("certify.yml")
    assert status != 0, "a broken node was certified"
    return lab.records(run), output


def bad(records: list[Json], name: str | None) -> list[str]:
    return [record["check"] for record in records if record["node"] == name and record["verdict"] not in GOOD]


def test_missing_gpu_and_slow_gpu(sound: GpuLab) -> None:
    sound.damage("c1", missing_gpu=[3])
    sound.damage("c2", slow_gpu={"5": 0.6})
    records, output = certify(sound)

    missing = one(records, "c1", "gpu_count")
    assert (missing["verdict"], missing["class"], missing["scope"]) == ("fail", "hardware", {"gpu": [3]})
    assert "00000004:00:00.0" in missing["reason"]
    assert "c1 is not certified: gpu_count: fail" in output

    slow = one(records, "c2", "gpu_bandwidth")
    assert (slow["verdict"], slow["class"], slow["scope"]) == ("fail", "hardware", {"gpu": [5]}), slow["reason"]
    # It holds back its neighbours as well; nothing else is wrong with the node.
    assert set(bad(records, "c2")) == {"gpu_bandwidth", "nccl_tests"}
    assert "c2 is not certified: gpu_bandwidth: fail: h2d (gpu=5)" in output
    assert "Cannot run" not in output, "a finding became an option that makes no sense"


def test_wrong_results_and_hanging_nvidia_smi(sound: GpuLab) -> None:
    sound.damage("c1", wrong_results=["all_reduce"])
    sound.damage("c2", hung=["nvidia-smi"])
    records, output = certify(sound)

    wrong = one(records, "c1", "nccl_tests", collective="all_reduce")
    assert (wrong["verdict"], wrong["class"]) == ("fail", "hardware"), wrong["reason"]
    assert "wrong" in wrong["reason"]
    assert bad(records, "c1") == ["nccl_tests"]

    hung = one(records, "c2", "gpu_count")
    assert (hung["verdict"], hung["class"]) == ("error", "infra")
    assert "did not end within" in hung["reason"]
    assert "c2 is not certified: gpu_count: error" in output


def test_repaired_nodes_are_certified_again(lab: GpuLab) -> None:
    status, output, run = lab.play("certify.yml")
    assert status == 0, output[-3000:]
    assert {record["verdict"] for record in lab.records(run)} <= GOOD
