# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import bandwidth_test

FIXTURES = Path(__file__).parents[3] / "fixtures" / "bandwidth_test"
A100 = "NVIDIA A100-SXM4-40GB"


def read(name: str) -> str:
    return (FIXTURES / name).read_text()


def one(text: str) -> bandwidth_test.BandwidthTestRun:
    (run,) = bandwidth_test.parse(text).runs
    return run


def test_quick_mode() -> None:
    log = bandwidth_test.parse(read("quick-12.8.txt"))
    (run,) = log.runs
    assert (log.ok, log.cause, run.complete, run.ok, run.result) == (True, None, True, True, "PASS")
    assert (run.device, run.device_name, run.devices, run.mode, run.fallback) == (0, A100, 1, "quick", None)
    assert [(b.direction, b.memory, b.write_combined, b.devices) for b in run.blocks] == [
        ("h2d", "pinned", False, 1),
        ("d2h", "pinned", False, 1),
        ("d2d", None, False, 1),
    ]
    assert [run.bandwidth(name) for name in ("h2d", "d2h", "d2d")] == [24.6, 26.2, 1142.7]
    assert json.loads(json.dumps(dataclasses.asdict(log)))["runs"][0]["blocks"][0]["rows"] == [
        {"size": 32000000, "bandwidth": 24.6, "printed": 24.6, "unit": "GB/s"}
    ]


def test_shmoo_gives_the_largest_size_and_the_maximum() -> None:
    run = one(read("shmoo.txt"))
    assert run.mode == "shmoo"
    assert [len(block.rows) for block in run.blocks] == [81, 81]
    assert [block.rows[0].size for block in run.blocks] == [1000, 1000]
    largest = run.blocks[1].largest
    assert largest and (largest.size, largest.bandwidth, run.blocks[1].maximum) == (68000000, 1149.0, 1846.2)


def test_range_of_pageable_memory_is_not_mistaken_for_pinned() -> None:
    run = one(read("pageable-range.txt"))
    assert (run.mode, run.device) == ("range", 2)
    assert [row.size for row in run.blocks[0].rows] == [1000000, 5000000, 9000000, 13000000]
    assert run.bandwidth("h2d") is None
    assert run.bandwidth("h2d", "pageable") == 9.2


def test_write_combined_notice_is_glued_to_the_column_header() -> None:
    run = one(read("write-combined.txt"))
    assert [(b.write_combined, b.maximum) for b in run.blocks] == [(True, 25.3), (True, 26.2)]


def test_csv() -> None:
    run = one(read("csv-shmoo.txt"))
    assert [(b.direction, b.memory, b.write_combined, len(b.rows)) for b in run.blocks] == [
        ("h2d", "pinned", True, 3),
        ("d2h", "pageable", False, 3),
        ("d2d", None, False, 3),
    ]
    assert [row.size for row in run.blocks[0].rows] == [60000000, 64000000, 68000000]
    assert (run.ok, run.bandwidth("d2d")) == (True, 1145.0)


def test_csv_of_several_gpus_is_a_sum_too() -> None:
    line = (
        "bandwidthTest-H2D-Pinned, Bandwidth = 193.4 GB/s, Time = 0.00033 s, Size = 64000000 bytes, NumDevsUsed = 8\n"
    )
    run = one(line + "Result = PASS\n")
    assert (run.devices, run.bandwidth("h2d")) == (8, None)


def test_old_versions_print_megabytes() -> None:
    run = one(read("before-10.1.txt"))
    row = run.blocks[0].largest
    assert row and (row.size, row.printed, row.unit, row.bandwidth) == (33554432, 11738.2, "MB/s", 11.7382)


def test_a_sum_over_gpus_is_never_one_gpus_bandwidth() -> None:
    run = one(read("all-devices.txt"))
    assert (run.devices, run.device, run.blocks[0].devices, run.blocks[0].maximum) == (8, None, 8, 193.4)
    assert [run.bandwidth(name) for name in ("h2d", "d2h", "d2d")] == [None] * 3


def test_an_invalid_device_shows_as_fallback_to_gpu_0() -> None:
    log = bandwidth_test.parse(read("invalid-device.txt"))
    assert (log.ok, log.runs[0].fallback, log.runs[0].device, log.runs[0].result) == (False, 9, 0, "PASS")
    assert log.cause and log.cause.kind == "config" and "Invalid GPU number 9" in log.cause.text


@pytest.mark.parametrize("name", ["concatenated.txt", "tagged"])
def test_runs_in_one_log_are_kept_apart_by_device(name: str) -> None:
    text = read("concatenated.txt")
    if name == "tagged":
        text = "".join(f"[1,0]<stdout>:{line}\r\n" for line in text.splitlines())
    log = bandwidth_test.parse(text)
    assert log.ok
    assert [run.device for run in log.runs] == list(range(8))
    assert [run.bandwidth("h2d") for run in log.runs][4:6] == [24.5, 11.9]


def test_a_complete_log_twice_is_two_runs() -> None:
    log = bandwidth_test.parse(read("quick-12.8.txt") + read("invalid-device.txt") + read("all-devices.txt"))
    assert [(run.device, run.fallback, run.devices) for run in log.runs] == [(0, None, 1), (0, 9, 1), (None, None, 8)]


@pytest.mark.parametrize("cut", range(1, 11))
def test_a_killed_run_is_partial_and_not_ok(cut: int) -> None:
    text = read("quick-12.8.txt")
    log = bandwidth_test.parse(text[: text.index("Result") * cut // 10])
    assert not log.ok
    assert all(not run.complete and not run.ok for run in log.runs)
    assert cut < 10 or log.runs[0].bandwidth("d2h") == 26.2


def test_a_pasted_run_that_was_killed_at_once_does_not_take_the_next_ones_numbers() -> None:
    text = read("concatenated.txt")
    log = bandwidth_test.parse(" Device 7: x\n Quick Mode\n\n" + text[: text.index("Result")] + "Result = PASS\n")
    assert [(run.device, run.complete, run.bandwidth("h2d")) for run in log.runs] == [(7, False, None), (0, True, 24.1)]


def test_a_run_that_printed_no_number_is_not_ok() -> None:
    log = bandwidth_test.parse(read("captured-help.txt"))
    assert (log.ok, log.runs[0].complete, log.runs[0].blocks) == (False, True, [])


@pytest.mark.parametrize(
    "text, kind, cause",
    [
        (
            "Running on...\n\ncudaGetDeviceProperties returned 999\n-> unknown error\n",
            "software",
            "cudaGetDeviceProperties returned 999 -> unknown error",
        ),
        (
            "cudaGetDeviceCount returned 100\n-> no CUDA-capable device is detected\nCUDA error at x.cu:9 code=100",
            "config",
            "cudaGetDeviceCount returned 100 -> no CUDA-capable device is detected",
        ),
        ("!!!!!No devices found!!!!!\nResult = FAIL\n", "config", "!!!!!No devices found!!!!!"),
        (
            'CUDA error at bandwidthTest.cu:730 code=214(cudaErrorECCUncorrectable) "cudaEventRecord(start, 0)" \n',
            "hardware",
            'CUDA error at bandwidthTest.cu:730 code=214(cudaErrorECCUncorrectable) "cudaEventRecord(start, 0)"',
        ),
        ("Invalid mode - valid modes are quick, range, or shmoo\nResult = FAIL\n", "config", "Invalid mode - valid"),
        ("cudaGetDeviceCount returned 35", "software", "cudaGetDeviceCount returned 35"),
        ("Result = FAIL\n", "software", "Result = FAIL"),
        ("bandwidthTest: error while loading shared libraries: libcudart.so.12", "software", "bandwidthTest: error"),
    ],
)
def test_failures(text: str, kind: str, cause: str) -> None:
    log = bandwidth_test.parse("[CUDA Bandwidth Test] - Starting...\n" + text)
    assert not log.ok and not log.runs[0].ok
    assert log.runs[0].cause == log.cause
    assert log.cause and log.cause.kind == kind and log.cause.text.startswith(cause)


@pytest.mark.parametrize("name", ["captured-no-driver.txt", "captured-no-driver-all.txt"])
def test_captured_failures(name: str) -> None:
    log = bandwidth_test.parse(read(name))
    assert log.cause and log.cause.text.endswith("CUDA driver version is insufficient for CUDA runtime version")
    assert (log.ok, log.runs[0].complete) == (False, False)


@pytest.mark.parametrize(
    "value, want", [("26.2", 26.2), ("inf", None), ("nan", None), ("-nan", None), ("1.2.3", None), ("9" * 400, None)]
)
def test_what_is_no_finite_number_becomes_none(value: str, want: float | None) -> None:
    run = one(read("quick-12.8.txt").replace("24.6", value))
    assert run.blocks[0].maximum == want
    assert (run.bandwidth("h2d"), run.bandwidth("d2h")) == (want, 26.2)
    json.dumps(dataclasses.asdict(run), allow_nan=False)


@pytest.mark.parametrize(
    "text", ["", "\n", "Result = PASS", "32000000 26.2", " Host to Host Bandwidth, 1 Device(s)\n1 2"]
)
def test_other_text_has_no_numbers(text: str) -> None:
    log = bandwidth_test.parse(text)
    assert not log.ok and not any(run.blocks for run in log.runs)


def test_noise_in_between_is_ignored() -> None:
    noise = "gpu001:77:77 [0] NCCL INFO Channel 00/02 : 0 1 2 3\nWarning: Permanently added 'x' to the list\n1 2 3\n"
    text = noise.join(line + "\n" for line in read("quick-12.8.txt").splitlines())
    assert bandwidth_test.parse(text).runs == bandwidth_test.parse(read("quick-12.8.txt")).runs


@pytest.mark.parametrize(
    "name, good, bad",
    [
        ("quick-12.8.txt", "32000000\t\t\t24.6", "32000000\t\t\t######"),
        ("quick-12.8.txt", "32000000\t\t\t24.6", "32000000\t\t\t24.6 24.7"),
        ("quick-12.8.txt", "32000000\t\t\t24.6", "32000000\t\t\tnan"),
        ("quick-12.8.txt", "32000000\t\t\t24.6", "32000000"),
        ("csv-shmoo.txt", "25.2 GB/s, Time = 0.00238 s, Size = 60000000", "25.2 GB/s, Time = 0.00238 s, Siz"),
    ],
)
def test_a_row_that_cannot_be_read_is_missed(name: str, good: str, bad: str) -> None:
    text = read(name)
    assert good in text
    assert bandwidth_test.parse(text).ok
    log = bandwidth_test.parse(text.replace(good, bad, 1))
    assert (log.ok, log.runs[0].complete) == (False, False)
