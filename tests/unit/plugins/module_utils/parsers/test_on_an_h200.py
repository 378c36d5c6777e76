# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What programs printed on a real GPU, one H200 in a virtual machine, driver 580.159.04: captured-h200-*."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import (
    bandwidth_test,
    nccl_tests,
    nvbandwidth,
    nvidia_smi,
)

FIXTURES = Path(__file__).parents[3] / "fixtures"


def text(tool: str, name: str) -> str:
    return (FIXTURES / tool / f"captured-h200-{name}").read_text()


# nccl-tests


@pytest.mark.parametrize(
    "collective", ["all_reduce", "all_gather", "alltoall", "broadcast", "reduce_scatter", "sendrecv"]
)
def test_one_rank_has_a_result_and_no_bus_bandwidth_worth_the_name(collective: str) -> None:
    log = nccl_tests.parse(text("nccl_tests", f"{collective}.txt"))
    (run,) = log.runs
    assert (log.ok, log.cause, run.collective, run.ranks, run.nodes) == (True, None, collective, 1, 1)
    assert run.complete and run.correct and len(run.rows) == 13
    assert run.largest.size == 128 << 20
    assert 1600 < run.largest.out_of_place.algbw < 2200  # a copy inside the GPU
    # Of one rank nccl-tests itself computes 0 for what a ring would move, and algbw for the rest.
    assert (run.peak_busbw > 0) == (collective in ("broadcast", "sendrecv"))


def test_numbers_with_exponents_and_five_digits_are_read() -> None:
    (run,) = nccl_tests.parse(text("nccl_tests", "all_reduce.txt")).runs
    assert run.largest.in_place.algbw == 175299
    (run,) = nccl_tests.parse(text("nccl_tests", "reduced.txt")).runs
    assert run.largest.in_place.algbw == 6e7


def test_text_and_json_of_one_run_say_the_same() -> None:
    (written,) = nccl_tests.parse(text("nccl_tests", "json.txt")).runs
    (kept,) = nccl_tests.parse_json(text("nccl_tests", "json.json")).runs
    assert (
        [row.size for row in kept.rows] == [row.size for row in written.rows] == [1 << power for power in range(20, 27)]
    )
    assert kept.largest.out_of_place.algbw == pytest.approx(written.largest.out_of_place.algbw, rel=0.001)


def test_memory_that_does_not_do_makes_the_sizes_less_and_the_size_that_was_measured_is_told() -> None:
    """400 GiB were asked for; the program takes what fits and ends with 0."""
    log = nccl_tests.parse(text("nccl_tests", "reduced.txt"))
    (run,) = log.runs
    assert log.ok and [row.size for row in run.rows] == [48247057064]


@pytest.mark.parametrize(
    ("names", "kind", "words"),
    [
        (["too-many-gpus.txt", "too-many-gpus.stderr.txt"], "hardware", "99 requested but only 1"),
        (["mpirun-too-many-ranks.txt", "mpirun-too-many-ranks.stderr.txt"], "hardware", "2 requested but only 1"),
        (["bad-size.stderr.txt"], "config", "invalid size"),
        (["hidden.txt"], "config", "no CUDA-capable device is detected"),
    ],
)
def test_nccl_tests_says_why_it_did_not_begin(names: list[str], kind: str, words: str) -> None:
    log = nccl_tests.parse("\n".join(text("nccl_tests", name) for name in names))
    assert not log.ok and log.cause
    assert (log.cause.kind, words in log.cause.text) == (kind, True), log.cause


def test_mpirun_adds_nothing() -> None:
    (run,) = nccl_tests.parse(text("nccl_tests", "mpirun.txt")).runs
    assert (run.ranks, run.complete, [row.size for row in run.rows][-1]) == (1, True, 16 << 20)


# nvbandwidth and bandwidthTest


@pytest.mark.parametrize("form", ["copies-text.txt", "copies-verbose.txt", "copies-json.txt"])
def test_copies_are_read_in_every_form(form: str) -> None:
    log = nvbandwidth.parse(text("nvbandwidth", form))
    (run,) = log.runs
    assert (log.ok, run.version, [gpu.name for gpu in run.devices]) == (True, "v0.8", ["NVIDIA H200"])
    found = {test.name: test.only for test in run.tests}
    assert found["host_to_device_memcpy_ce"] == pytest.approx(55.2, abs=0.2)
    assert found["device_local_copy"] == pytest.approx(2092, abs=1)


@pytest.mark.parametrize("form", ["whole.txt", "whole-json.txt"])
def test_tests_between_gpus_are_waived_where_there_is_one(form: str) -> None:
    log = nvbandwidth.parse(text("nvbandwidth", form))
    (run,) = log.runs
    assert log.ok and run.complete, log.cause
    assert sum(test.status == "passed" for test in run.tests) == 18
    latency = run.test("host_device_latency_sm")
    assert latency and latency.unit == "ns" and latency.only == pytest.approx(1191.8, abs=100)


@pytest.mark.parametrize("form", ["unknown-test-text.txt", "unknown-test-json.txt", "hidden.txt"])
def test_an_exit_status_of_0_proves_nothing(form: str) -> None:
    assert not nvbandwidth.parse(text("nvbandwidth", form)).ok


@pytest.mark.parametrize("form", ["text.txt", "csv.txt", "shmoo.txt"])
def test_bandwidth_test_is_read_in_every_form(form: str) -> None:
    log = bandwidth_test.parse(text("bandwidth_test", form))
    (run,) = log.runs
    assert (log.ok, run.device, run.device_name) == (True, 0, "NVIDIA H200")
    assert run.bandwidth("h2d") == pytest.approx(55, abs=0.3)


# nvidia-smi


def test_the_other_forms_of_nvidia_smi() -> None:
    assert nvidia_smi.parse_query(text("nvidia_smi", "query.txt")).ok
    assert nvidia_smi.parse_topo(text("nvidia_smi", "topo.txt")).ok  # its header is underlined
    (run,) = nvidia_smi.parse_csv(text("nvidia_smi", "apps.txt"), ("gpu_uuid", "pid", "process_name")).runs
    assert [row.number("pid") for row in run.rows] == [852]
    (run,) = nvidia_smi.parse_csv(text("nvidia_smi", "remapped-rows.txt")).runs
    assert len(run.rows) == 1
    assert not nvidia_smi.parse_csv(text("nvidia_smi", "bad-field.txt")).ok
    gone = nvidia_smi.parse_xml(text("nvidia_smi", "no-such-gpu.txt"))
    assert not gone.ok and gone.cause and "No devices were found" in gone.cause.text
