# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role measure decides: inputs, the machine type, the records of a host."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import record
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _measure
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load

A100 = "NVIDIA A100-SXM4-40GB"
GOOD = {"tests": ["hpl"], "sku": "", "launcher": "local", "nodes": "", "gpus": 0, "paths": ["/scratch"]}
SRUN = {**GOOD, "launcher": "srun", "nodes": "c[1-2]", "gpus": 8}


def gpus(sku: str, name: str, memory: float = 40960.0) -> list[dict[str, t.Any]]:
    """GPUs where the profile of a machine type has them."""
    places = load(sku)["topology"]["gpus"]
    ids = sorted(f"0000{gpu['pci_domain']}:00:00.0".upper() for gpu in places)
    return [
        {"index": index, "bus_id": bus_id, "name": name, "memory_total_mib": memory} for index, bus_id in enumerate(ids)
    ]


@pytest.mark.parametrize(
    ("inputs", "hosts", "words"),
    [
        (GOOD, 3, None),
        (SRUN, 1, None),
        ({**GOOD, "sku": "Standard_ND96asr_v4"}, 1, None),
        ({**GOOD, "sku": "ZZ"}, 1, "known are a2-highgpu-8g, "),
        ({**GOOD, "sku": "DGX-H100"}, 1, "near are dgx_h100, "),
        ({**GOOD, "sku": "../x"}, 1, "has no profile"),
        ({**GOOD, "tests": []}, 1, "measure_tests is empty"),
        ({**GOOD, "paths": ["/scratch", "data"]}, 1, "not data"),
        ({**GOOD, "gpus": -1}, 1, "measure_gpus is -1"),
        ({**GOOD, "nodes": "c1"}, 1, "measure_nodes is for measure_launcher srun"),
        (SRUN, 2, "the play has 2 hosts"),
        ({**SRUN, "nodes": ""}, 1, "needs measure_nodes"),
        ({**SRUN, "gpus": 0}, 1, "needs measure_sku or measure_gpus"),
    ],
)
def test_inputs_that_do_not_fit_are_named(inputs: dict[str, t.Any], hosts: int, words: str | None) -> None:
    found = _measure.problems(inputs, hosts)
    assert (len(found) == 1 and words in found[0]) if words else found == []


@pytest.mark.parametrize(
    ("there", "sku"),
    [
        (gpus("ND96asr_v4", A100), "nd96asr_v4"),
        (gpus("ND96asr_v4", A100)[1:], "nd96asr_v4"),  # one has fallen off the bus
        (gpus("ND96asr_v4", A100)[2:], ""),
        (gpus("ND96asr_v4", "NVIDIA A100-SXM4-80GB"), "nd96amsr_a100_v4"),
        (gpus("ND96isr_H100_v5", "NVIDIA H100 80GB HBM3"), "nd96isr_h100_v5"),
        (gpus("ND96isr_H100_v5", "NVIDIA H200"), "nd96isr_h200_v5"),
        (gpus("ND96asr_v4", "NVIDIA H100 80GB HBM3"), ""),
        # A machine of another maker: the same GPUs, all in one PCI domain.
        ([{"bus_id": f"00000000:{bus:02X}:00.0", "name": A100} for bus in range(8)], ""),
        ([{"bus_id": None, "name": A100}], ""),
        ([], ""),
    ],
)
def test_a_machine_type_is_recognised_by_model_and_place(there: list[dict[str, t.Any]], sku: str) -> None:
    assert _measure.recognised(there) == sku


def test_a_known_machine_is_expected_to_be_whole() -> None:
    found = _measure.machine(gpus("ND96asr_v4", A100)[1:], "", 0, {})
    assert (found["sku"], found["gpus"], found["gpus_expected"], found["ports"]) == ("nd96asr_v4", 8, 8, 8)
    assert (found["collectives"], found["max_size"]) == (["all_reduce", "alltoall"], "8589934592")
    assert found["profile"]["expect"]


@pytest.mark.parametrize(
    ("memory", "size"), [(81559.0, 8 << 30), (24576.0, 4 << 30), (15360.0, 2 << 30), (0.0, 8 << 30)]
)
def test_an_unknown_machine_expects_nothing_and_its_sizes_fit(memory: float, size: int) -> None:
    found = _measure.machine([{"bus_id": "00000000:41:00.0", "name": "GPU", "memory_total_mib": memory}], "", 0, {})
    assert (found["sku"], found["gpus"], found["gpus_expected"], found["max_size"]) == ("", 1, 0, str(size))
    assert found["profile"]["expect"] == []


ECC = {"volatile_uncorrected": 0, "aggregate_uncorrected": 0}
REPAIRS = {"remapped_uncorrectable": 0, "remap_pending": False, "remap_failed": False}


@pytest.mark.parametrize(
    ("gpus", "checks"),
    [
        ([{"ecc": ECC, "repairs": REPAIRS, "throttle_mask": 0, "temperature_c": 40.0}] * 2, set(_measure._FAULTS)),
        ([{"ecc": ECC, "repairs": {**REPAIRS, "remap_failed": None}}], {"gpu_ecc"}),
        ([{"ecc": ECC}, {"ecc": {**ECC, "volatile_uncorrected": None}}], set()),
        ([{"ecc": None, "temperature_c": 40.0}], {"gpu_temperature"}),
        ([], set()),
    ],
)
def test_of_an_unknown_machine_only_faults_of_every_gpu_are_expected(gpus: list[t.Any], checks: set[str]) -> None:
    found = _measure.machine(gpus, "", 0, {})["profile"]["expect"]
    assert {limit["check"] for limit in found} == checks
    assert all(limit["source"] for limit in found)
    assert _measure.machine(gpus, "generic", 0, {})["profile"]["expect"] == []


@pytest.mark.parametrize(
    ("there", "sku", "overrides", "words"),
    [
        (["NVIDIA H100 80GB HBM3"], "", {}, ["hgx_h100", "measure_sku=<yours>"]),
        (["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"], "", {}, ["no profile has such GPUs", "draft_profile"]),
        (["Rage XL"], "", {}, ["Rage XL: ", "draft_profile.yml"]),
        (["NVIDIA H100 80GB HBM3"], "dgx_h100", {}, []),
        (["NVIDIA H100 80GB HBM3"], "", {"expect": load("dgx_h100")["expect"]}, []),
        ([], "", {}, []),
        ([None], "", {}, []),
    ],
)
def test_who_named_no_machine_type_is_told_which_have_such_gpus(
    there: list[str | None], sku: str, overrides: dict[str, t.Any], words: list[str]
) -> None:
    found = _measure.machine([{"bus_id": None, "name": name} for name in there], sku, 0, overrides)["unjudged"]
    assert bool(found) == bool(words)
    assert all(word in found for word in words), found


@pytest.mark.parametrize(
    ("values", "text"),
    [([81559.0], "81559 MiB"), ([15.344, 25.9], "15.34 to 25.9 MiB"), ([0.0], "0 MiB"), ([1304.26], "1304 MiB")],
)
def test_numbers_are_written_plainly(values: list[float], text: str) -> None:
    metrics = [{"name": "memory", "value": value, "unit": "MiB"} for value in values]
    (line,) = _measure.lines([{"check": "gpu_model", "node": "c1", "verdict": "pass", "metrics": metrics}])
    assert line == f"c1 gpu_model: pass; memory {text}"


def test_a_site_and_a_number_of_gpus_come_before_the_profile() -> None:
    site = {"nccl": {"tests": {"collectives": ["all_gather"]}}}
    found = _measure.machine([], "ND96asr_v4", 4, site)
    assert (found["gpus"], found["gpus_expected"], found["collectives"]) == (4, 4, ["all_gather"])
    assert found["gpu_memory_mib"] == 40536


def missing(program: str, given: str | None = None) -> dict[str, t.Any]:
    with pytest.raises(_launch.NotFound) as caught:
        _launch.find(program, given, which=lambda _name: None, exists=lambda _path: False)
    return {"reason": str(caught.value), "context": {"missing": caught.value.missing}}


@pytest.mark.parametrize(
    ("check", "parts", "verdict", "words"),
    [
        ("gpu_bandwidth", missing("nvbandwidth"), "skipped", "measure_build_tools"),
        ("nccl_tests", missing("all_reduce_perf"), "skipped", "measure_build_tools"),
        ("hpl", missing("xhpl"), "skipped", "put xhpl or hpl.sh"),
        ("dcgm_diag", missing("dcgmi"), "skipped", "nvidia-dcgm"),
        ("dcgm_health", missing("dcgmi"), "skipped", "install DCGM"),
        ("storage_bandwidth", missing("fio"), "skipped", "package fio"),
        ("infiniband_bandwidth", {"reason": "mlx5_0", "context": {"missing": ["ib_write_bw"]}}, "skipped", "install"),
        ("gpu_bandwidth", missing("nvbandwidth", "/opt/none"), "error", "cannot be run"),
        ("gpu_bandwidth", {"reason": "did not end within 120 s"}, "error", "did not end"),
        # The words of a tool, or of somebody who has them in a file name, mean nothing.
        ("storage_bandwidth", {"reason": "fio: x was not found in y"}, "error", "was not found in y"),
        ("gpu_count", missing("nvidia-smi"), "error", "was not found"),  # GPUs without a driver are no missing tool
    ],
)
def test_what_is_missing_is_skipped_with_the_way_to_get_it(
    check: str, parts: dict[str, t.Any], verdict: str, words: str
) -> None:
    result = {"checks": [record(check, "c1", time=1.0, verdict="error", **parts)]}
    (found,) = _measure.records([result], [], ["c1"])
    assert (found["verdict"], found["class"]) == (verdict, "infra" if verdict == "error" else None)
    assert words in found["reason"]


def test_results_of_loops_count_and_skipped_tasks_do_not() -> None:
    done = record("hpl", "c1", time=1.0, verdict="pass")
    loop = {"results": [{"checks": [done]}, {"skipped": True, "changed": False}]}
    assert _measure.records([{}, {"skipped": True}, loop], [], []) == [done]


@pytest.mark.parametrize(
    ("launcher", "stopped", "verdict", "words"),
    [
        ("local", "", "skipped", "measure_paths"),
        ("srun", "", "skipped", "SSH"),
        ("local", "Measure HPL: no", "error", "Measure HPL: no"),
    ],
)
def test_what_was_asked_for_has_a_record_of_every_node(launcher: str, stopped: str, verdict: str, words: str) -> None:
    found = _measure.records([], ["storage_bandwidth"], ["c1", "c2"], launcher, stopped)
    assert [(one["node"], one["verdict"]) for one in found] == [("c1", verdict), ("c2", verdict)]
    assert all(words in one["reason"] for one in found)


def test_infiniband_and_dcgm_stand_for_two_checks_each() -> None:
    found = _measure.records([], ["infiniband", "dcgm"], ["c1"])
    assert [one["check"] for one in found] == [
        "infiniband_ports",
        "infiniband_bandwidth",
        "dcgm_health",
        "dcgm_diag",
    ]


def test_the_health_watches_of_dcgm_are_asked_on_the_node_and_its_diagnostics_run_through_slurm() -> None:
    reasons = {one["check"]: one["reason"] for one in _measure.records([], ["dcgm"], ["c1"], "srun")}
    assert "SSH" in reasons["dcgm_health"] and "no GPU" in reasons["dcgm_diag"]


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ({"__measure_stopped": "Measure HPL: no", "__measure_ping": {"ping": "pong"}}, "Measure HPL: no"),
        ({"__measure_stopped": "", "__measure_ping": {"ping": "pong"}}, "the connection was lost"),
        ({"__measure_ping": {"unreachable": True, "msg": "ssh:\n refused"}}, "not reached: ssh: refused"),
        ({"__measure_ping": {"msg": "MODULE FAILURE", "module_stderr": "no python"}}, "not reached: no python"),
        ({"__measure_ping": {"rc": 127, "msg": "x"}}, "not reached: x; ansible_python_interpreter names a Python"),
        ({}, "not reached: no answer"),
    ],
)
def test_why_a_host_was_not_measured(host: dict[str, t.Any], words: str) -> None:
    assert _measure.failures([host])[0].startswith(words)


def test_a_line_has_the_numbers_of_a_record() -> None:
    metrics = [{"name": "h2d", "value": value, "unit": "GB/s"} for value in (25.91, None, 12.4)]
    one = {"node": "c1", "check": "gpu_bandwidth", "verdict": "fail", "metrics": metrics, "reason": "slow"}
    assert _measure.lines([one]) == ["c1 gpu_bandwidth: fail; h2d 12.4 to 25.91 GB/s; slow"]
    sizes = [{"name": "busbw", "value": 1.0, "unit": "GB/s"}, {"name": "busbw_peak", "value": 188.71, "unit": "GB/s"}]
    group = {"node": None, "check": "nccl_tests", "verdict": "pass", "metrics": sizes, "reason": ""}
    group.update(scope={"group": ["c1", "c2"]}, context={"collective": "all_reduce"})
    assert _measure.lines([group]) == ["c[1-2] nccl_tests all_reduce: pass; busbw_peak 188.7 GB/s"]
    assert _measure.bad([one, group], ["fail"]) == _measure.lines([one])
