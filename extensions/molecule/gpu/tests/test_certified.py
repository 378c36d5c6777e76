# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the converged lab shows: nodes that behave as their machine type, certified, and all of it in the report."""

from __future__ import annotations

import pytest
from cluster_lab import ROOT
from conftest import STATE, GpuLab, one, some

LAST = 8589934592
NODES = ("c1", "c2")


def test_tools_are_where_the_gpus_are(lab: GpuLab) -> None:
    for name in NODES:
        assert lab.root("nvidia-smi -L | grep -c A100-SXM4-40GB", name) == "8"
    ctl = lab.host("ctl")
    assert ctl.run("command -v nvidia-smi").rc != 0
    assert ctl.run("command -v all_reduce_perf").rc == 0


def test_a_job_sees_its_own_gpus_only(lab: GpuLab) -> None:
    result = lab.run(
        "srun --gpus=2 sh -c 'nvidia-smi -L | wc -l; nvbandwidth -t host_to_device_memcpy_ce | grep -c Device'"
    )
    assert result.stdout.split() == ["2", "2"], result.stderr


def test_ranks_find_each_other_through_pmix(lab: GpuLab) -> None:
    result = lab.run("srun -N2 --ntasks-per-node=8 --gpus-per-node=8 --mpi=pmix all_reduce_perf -b 8G -e 8G")
    assert result.rc == 0, result.stderr
    assert result.stdout.count("#  Rank ") == 16


def test_certificate_holds_every_node(lab: GpuLab) -> None:
    certificate = lab.certificate()
    assert certificate["planned"] == certificate["reached"] == len(NODES)
    assert {node["status"] for node in certificate["nodes"].values()} <= {"cleared", "watched"}
    assert certificate["findings"] == []


@pytest.mark.parametrize("name", NODES)
def test_every_node_tests_itself(lab: GpuLab, name: str) -> None:
    records = [record for record in lab.records() if record["node"] == name]
    assert {record["verdict"] for record in records} <= {"pass", "unjudged", "skipped"}
    for check in ("gpu_count", "gpu_model", "gpu_nvlink", "gpu_topology", "gpu_bandwidth", "infiniband_ports"):
        assert one(records, name, check)["verdict"] == "pass"


@pytest.mark.parametrize("name", NODES)
def test_bandwidth_of_every_gpu(lab: GpuLab, name: str) -> None:
    metrics = one(lab.records(), name, "gpu_bandwidth")["metrics"]
    for direction in ("h2d", "d2h"):
        values = {item["gpu"]: item["value"] for item in metrics if item["name"] == direction}
        assert sorted(values) == list(range(8))
        assert all(24 < value < 27 for value in values.values()), values


@pytest.mark.parametrize(("name", "floor"), [("c1", 228), ("c2", 228), (None, 185)])
def test_collectives(lab: GpuLab, name: str | None, floor: int) -> None:
    record = some(lab.records(), name, "nccl_tests", collective="all_reduce")[0]
    assert record["verdict"] == "pass", record["reason"]
    busbw = {item["size"]: item["value"] for item in record["metrics"] if item["name"] == "busbw"}
    assert floor <= busbw[LAST] <= 1.1 * floor
    assert all(item["value"] == 0 for item in record["metrics"] if item["name"] == "wrong")


def test_pairs_are_measured_through_the_fabric_alone(lab: GpuLab) -> None:
    pair = some(lab.records(), None, "nccl_pair")[0]
    assert pair["scope"] == {"group": list(NODES)}
    assert [item["value"] for item in pair["metrics"] if item["name"] == "wrong"] == [0]


def test_wiring(lab: GpuLab) -> None:
    samples = one(lab.records(), "c1", "gpu_topology")["samples"]
    assert [sample["numa_node"] for sample in samples] == [1, 1, 0, 0, 3, 3, 2, 2]
    assert [sample["cpus"] for sample in samples][:3] == ["24-47", "24-47", "0-23"]
    assert "mlx5_ib4" in samples[4]["nics"]


def test_report_shows_gpus_curve_and_wiring() -> None:
    html = (STATE / "report/report.html").read_text()
    for words in ("ND96asr_v4", "gpu_bandwidth", "all_reduce", "0000000B:00:00.0", "mlx5_ib7"):
        assert words in html, words


def test_a_second_lab_up_changes_nothing(lab: GpuLab) -> None:
    status, output = lab.play(ROOT / "lab/up.yml")
    assert status == 0, output[-3000:]
    assert "changed=0" in output, output[-3000:]
