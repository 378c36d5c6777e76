# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What certify says of broken nodes: the right verdict, the right device, and nothing bad of the other node."""

from __future__ import annotations

import typing as t

from conftest import GpuLab, Json, one

GOOD = {"pass", "unjudged", "skipped"}


# A driver that hangs costs every check that asks it all of its time.
QUICK = {"certification_checks": ["gpu"], "certification_stages": ["reach", "local"]}


def certify(lab: GpuLab, **variables: t.Any) -> tuple[list[Json], str]:
    status, output, run = lab.certify(**variables)
    assert status != 0, "a broken node was certified"
    return lab.records(run), output


def bad(records: list[Json], name: str | None) -> set[str]:
    return {record["check"] for record in records if record["node"] == name and record["verdict"] not in GOOD}


def test_missing_gpu_on_one_node(sound: GpuLab) -> None:
    sound.damage("c1", missing_gpu=[3])
    records, output = certify(sound)

    missing = one(records, "c1", "gpu_count")
    assert (missing["verdict"], missing["class"], missing["scope"]) == ("fail", "hardware", {"gpu": [3]})
    assert "00000004:00:00.0" in missing["reason"]
    assert "c1 is not certified: to be drained: " in output
    assert bad(records, "c2") == set()
    nodes = sound.certificate()["nodes"]
    assert (nodes["c1"]["status"], nodes["c1"]["class"]) == ("drained", "hardware")
    # Nothing is wrong with it, and nobody is left to prove its way to the fabric.
    assert (nodes["c2"]["status"], nodes["c2"]["class"]) == ("untested", "infra")
    assert "partner" in nodes["c2"]["reason"]
    assert "Cannot certify" not in output, "a finding became an option that makes no sense"


def test_slow_gpu_and_wrong_results(sound: GpuLab) -> None:
    sound.damage("c1", wrong_results=["all_reduce"])
    sound.damage("c2", slow_gpu={"5": 0.6})
    records, output = certify(sound)

    slow = one(records, "c2", "gpu_bandwidth")
    assert (slow["verdict"], slow["class"], slow["scope"]) == ("fail", "hardware", {"gpu": [5]}), slow["reason"]
    wrong = one(records, "c1", "nccl_tests", collective="all_reduce")
    assert (wrong["verdict"], wrong["class"]) == ("fail", "hardware"), wrong["reason"]
    assert "wrong" in wrong["reason"]
    for name in ("c1", "c2"):
        assert f"{name} is not certified: to be drained: " in output


def test_hanging_nvidia_smi_is_no_fault_of_the_hardware(sound: GpuLab) -> None:
    sound.damage("c2", hung=["nvidia-smi"])
    records, output = certify(sound, **QUICK)
    hung = one(records, "c2", "gpu_count")
    assert (hung["verdict"], hung["class"]) == ("error", "infra")
    assert "did not end within" in hung["reason"] or "not finished within" in hung["reason"]
    assert "c2 is not certified: untested: " in output
    assert "c1 is not certified" not in output
    assert sound.certificate()["nodes"]["c2"]["class"] == "infra"


def test_repaired_nodes_are_certified_again(lab: GpuLab) -> None:
    status, output, run = lab.certify()
    assert status == 0, output[-3000:]
    assert {record["verdict"] for record in lab.records(run)} <= GOOD
