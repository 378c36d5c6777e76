# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvbandwidth

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nvbandwidth"
H2D, D2H, LOCAL = "host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_local_copy"
BOTH_WAYS = "device_to_device_bidirectional_memcpy_read_ce"


def read(name: str) -> str:
    return (FIXTURES / name).read_text()


def one(name: str) -> nvbandwidth.NvbandwidthRun:
    (run,) = nvbandwidth.parse(read(name)).runs
    return run


def named(run: nvbandwidth.NvbandwidthRun, name: str) -> nvbandwidth.NvbandwidthTest:
    found = run.test(name)
    assert found
    return found


@pytest.mark.parametrize("name", ["text-v0.8-one-gpu.txt", "json-v0.8-one-gpu.json"])
def test_one_gpu_in_text_and_json(name: str) -> None:
    log = nvbandwidth.parse(read(name))
    (run,) = log.runs
    assert (log.ok, run.ok, run.complete, run.version, run.cause) == (True, True, True, "v0.8", None)
    assert [(t.name, t.status, t.unit, t.only, t.sum) for t in run.tests] == [
        (H2D, "passed", "GB/s", 26.14, 26.14),
        (D2H, "passed", "GB/s", 26.31, 26.31),
        (LOCAL, "passed", "GB/s", 1174.92, 1174.92),
    ]
    (gpu,) = run.devices
    assert (gpu.index, gpu.name, gpu.bus_id, gpu.process) == (0, "NVIDIA A100-SXM4-40GB", "00000001:00:00", None)
    assert run.host == gpu.host and run.host in ("gpu-001", "gpu-004")
    json.dumps(dataclasses.asdict(log), allow_nan=False)


def test_versions_and_drivers() -> None:
    run = one("text-v0.8-verbose-perf.txt")
    assert (run.cuda_runtime, run.driver, run.host, len(run.devices)) == ("12080", "570.86.15", "gpu-002", 2)
    run = one("json-v0.5.json")
    assert (run.version, run.cuda_runtime, run.driver, run.devices) == ("v0.5", "12080", "570.86.15", [])
    assert [(gpu.index, gpu.bus_id) for gpu in one("text-v0.4-waived.txt").devices] == [(0, None)]


def test_v0_1_prints_zero_where_there_is_nothing() -> None:
    run = one("text-v0.1.txt")
    pairs = named(run, "device_to_device_memcpy_read_ce")
    assert pairs.matrices == [[[None, 271.1], [271.3, None]]]
    assert pairs.minimum == 271.1
    assert named(run, H2D).matrices == [[[24.51, 24.63]]]
    assert run.ok


def test_v0_1_prints_zero_for_gpus_that_do_not_reach_each_other() -> None:
    text = read("text-v0.1.txt").replace("271.30", "  0.00")
    assert named(nvbandwidth.parse(text).runs[0], "device_to_device_memcpy_read_ce").minimum == 271.1


def test_a_zero_that_a_later_version_prints_is_a_value() -> None:
    text = read("text-v0.5-waived.txt").replace("     24.58\n\n", "      0.00\n\n")
    assert nvbandwidth.parse(text).runs[0].tests[0].only == 0.0


def test_the_printed_minimum_is_not_taken() -> None:
    assert "MIN device_to_device_latency_sm 0.00" in read("text-v0.8-verbose-perf.txt")
    latency = named(one("text-v0.8-verbose-perf.txt"), "device_to_device_latency_sm")
    assert (latency.unit, latency.minimum, latency.sum, latency.status) == ("ns", 739.87, None, "passed")
    assert named(one("json-v0.8.json"), "device_to_device_memcpy_write_ce").minimum == 392.2


def test_perf_formatter_and_verbose_samples() -> None:
    found = named(one("text-v0.8-verbose-perf.txt"), H2D)
    assert (found.status, found.sum, found.matrices, found.only) == ("passed", 109.93, [[[54.92, 55.01]]], None)


@pytest.mark.parametrize("name", ["text-v0.5-waived.txt", "json-v0.5.json"])
def test_a_sum_of_latencies_is_none(name: str) -> None:
    found = named(one(name), "host_device_latency_sm")
    assert (found.unit, found.sum) == ("ns", None)
    assert len(found.values) in (1, 4)


@pytest.mark.parametrize("name", ["text-v0.6-both-ways.txt", "json-v0.8.json"])
def test_both_ways_between_gpus_are_three_matrices(name: str) -> None:
    found = named(one(name), BOTH_WAYS)
    assert [len(matrix) for matrix in found.matrices] == [4, 4, 4]
    assert [matrix[0][1] for matrix in found.matrices] == [258.2, 259.0, 517.1]
    assert (found.status, found.sum, found.minimum) == ("passed", 6211.2, 517.1)
    assert found.description and "Total" in found.description


def test_waived_tests_are_neither_good_nor_bad() -> None:
    old, bare, document = one("text-v0.4-waived.txt"), one("text-v0.5-waived.txt"), one("json-v0.5.json")
    waived = [[t.name for t in run.tests if t.status == "waived"] for run in (old, bare, document)]
    assert waived == [["device_to_device_memcpy_read_ce"], [None], ["device_to_device_memcpy_read_sm"]]
    assert bare.ok and document.ok
    assert not nvbandwidth.parse("nvbandwidth Version: v0.5\n\nWaived: \n").ok


def test_an_unknown_test_ends_with_status_0_and_is_an_error() -> None:
    log = nvbandwidth.parse(read("text-v0.4-waived.txt"))
    assert log.cause and (log.cause.kind, log.ok) == ("config", False)
    assert named(log.runs[0], LOCAL).error == "ERROR: Testcase device_local_copy not found!"
    assert named(log.runs[0], H2D).only == 24.59


def test_several_nodes_with_rank_tags() -> None:
    run = one("text-v0.8-multinode.txt")
    assert [(gpu.process, gpu.host, gpu.index) for gpu in run.devices] == [
        (0, "gb200-1", 0),
        (1, "gb200-1", 1),
        (2, "gb200-2", 0),
        (3, "gb200-2", 1),
    ]
    assert named(run, "multinode_bisect_write_ce").matrices == [[[397.5], [397.2], [396.9], [397.1]]]
    assert named(run, "multinode_device_to_device_memcpy_read_ce").minimum == 397.1
    assert run.ok


@pytest.mark.parametrize(
    "name, kind, cause, status",
    [
        (
            "text-v0.8-data-check.txt",
            "hardware",
            "Invalid value when checking the pattern",
            [(H2D, "passed"), (D2H, "error")],
        ),
        ("text-v0.8-ecc.txt", "hardware", "[CUDA_ERROR_ECC_UNCORRECTABLE]", [(H2D, "error")]),
        (
            "json-v0.8-errors.json",
            "software",
            "device_to_host_memcpy_ce ended with an error",
            [(H2D, "passed"), (D2H, "error"), ("nosuch", "error")],
        ),
        ("captured-no-device-json.txt", "config", "[CUDA_ERROR_NO_DEVICE]", []),
        ("captured-two-selections-json.txt", "config", "You cannot specify both", []),
        ("captured-bad-option.txt", "config", "ERROR: Invalid Arguments", []),
    ],
)
def test_failures(name: str, kind: str, cause: str, status: list[tuple[str, str]]) -> None:
    log = nvbandwidth.parse(read(name))
    (run,) = log.runs
    assert not log.ok and not run.ok
    assert log.cause == run.cause
    assert log.cause and log.cause.kind == kind and log.cause.text.startswith(cause)
    assert [(t.name, t.status) for t in run.tests] == status


@pytest.mark.parametrize("name", ["captured-no-device", "captured-bad-test", "captured-no-libraries"])
def test_captured_failures_on_stderr(name: str) -> None:
    out = FIXTURES / f"{name}.txt"
    log = nvbandwidth.parse((out.read_text() if out.exists() else "") + read(f"{name}.stderr.txt"))
    assert log.cause and log.cause.text and not log.ok


@pytest.mark.parametrize("name", ["captured-help.txt", "captured-list.txt"])
def test_help_and_list_measure_nothing(name: str) -> None:
    log = nvbandwidth.parse(read(name))
    assert (log.ok, [run.tests for run in log.runs]) == (False, [[]])


def test_two_documents_with_text_around() -> None:
    log = nvbandwidth.parse(read("json-v0.8-two-documents.txt"))
    assert [(run.complete, run.ok) for run in log.runs] == [(False, False), (True, True)]
    assert [t.status for t in log.runs[0].tests] == ["passed", "running"]
    assert log.cause and log.cause.text.startswith("[CUDA_ERROR_LAUNCH_FAILED]")
    assert not log.ok


def test_a_document_killed_in_the_middle_keeps_what_was_closed() -> None:
    whole = read("json-v0.8-one-gpu.json")
    cut = whole[: whole.index('"1174.92"')]
    log = nvbandwidth.parse(
        cut + "\nslurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026 DUE TO TIME LIMIT ***\n" + whole
    )
    assert [run.complete for run in log.runs] == [False, True]
    assert [(t.name, t.only) for t in log.runs[0].tests[:2]] == [(H2D, 26.14), (D2H, 26.31)]
    assert log.cause and log.cause.kind == "infra"
    log = nvbandwidth.parse(whole.replace("{\n\t", "{", 1) + whole)
    assert [run.ok for run in log.runs] == [True, True]


def test_a_document_on_one_line_and_with_tags() -> None:
    whole = json.dumps(json.loads(read("json-v0.8-one-gpu.json")))
    assert nvbandwidth.parse(whole).runs[0].tests[0].only == 26.14
    tagged = "".join(f"0: {line}\n" for line in read("json-v0.8-one-gpu.json").splitlines())
    assert nvbandwidth.parse(tagged).ok


@pytest.mark.parametrize("cut", range(1, 20))
@pytest.mark.parametrize("name", ["text-v0.6-both-ways.txt", "text-v0.8-one-gpu.txt", "json-v0.8.json"])
def test_a_run_that_was_cut_off_is_not_complete(name: str, cut: int) -> None:
    text = read(name)
    end = text.rfind("SUM") if name.startswith("text") else text.rindex("}")
    log = nvbandwidth.parse(text[: end * cut // 20])
    for run in log.runs:
        assert not run.complete


@pytest.mark.parametrize("end", ["26.1", "SUM host_to_device_memcpy_ce 26.1", "SUM host_to_device_memcpy_ce 2"])
def test_a_number_that_was_cut_off_is_none(end: str) -> None:
    text = read("text-v0.8-one-gpu.txt")
    (run,) = nvbandwidth.parse(text[: text.index(end) + len(end)]).runs
    assert (run.tests[0].status, run.tests[0].sum, run.complete, run.ok) == ("running", None, False, False)
    assert run.tests[0].values == ([26.14] if "SUM" in end else [])


def test_three_matrices_need_their_total() -> None:
    text = read("text-v0.6-both-ways.txt")
    (run,) = nvbandwidth.parse(text[: text.index("memcpy CE GPU(row) <-> GPU(column) Total")]).runs
    assert (run.tests[0].status, len(run.tests[0].matrices), run.complete) == ("running", 2, False)


def test_runs_one_after_another() -> None:
    log = nvbandwidth.parse(read("text-v0.1.txt") + read("text-v0.8-ecc.txt") + read("text-v0.8-one-gpu.txt"))
    assert [(run.version, run.ok) for run in log.runs] == [("v0.1", True), ("v0.8", False), ("v0.8", True)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}\n",
        '{"nvbandwidth": 3}',
        '{"nvbandwidth": {"testcases": [1, [], {"name": []}]}}',
        '{"nvbandwidth": {"testcases": [{"name": "x", "status": "Passed", "bandwidth_matrix": [3, ["a", {}]]}]}}',
        '{"nvbandwidth": {"version": ' + "[" * 200,
        '{"nvbandwidth"' + '"\\"' * 200,
        "Running x.\n(GB/s)\n 0 1\n 0 a b\nSUM x nan\n",
        "SUM host_to_device_memcpy_ce 26\n",
    ],
)
def test_other_text_is_not_ok_and_does_not_raise(text: str) -> None:
    log = nvbandwidth.parse(text)
    assert not log.ok
    json.dumps(dataclasses.asdict(log), allow_nan=False)


def test_numbers_that_are_none() -> None:
    text = read("json-v0.8-one-gpu.json").replace('"26.14"', '"nan"').replace("26.31\n", "NaN\n")
    run = nvbandwidth.parse(text).runs[0]
    assert [(t.only, t.sum) for t in run.tests] == [(None, 26.14), (26.31, None), (1174.92, 1174.92)]


def test_lines_of_other_programs_in_a_table_are_ignored() -> None:
    lines = read("text-v0.6-both-ways.txt").splitlines()
    noise = "gpu001:77:77 [0] NCCL INFO Channel 00/02 : 0 1 2 3\nssh: warning\n"
    assert nvbandwidth.parse(noise.join(f"{line}\n" for line in lines)).runs == [one("text-v0.6-both-ways.txt")]


# v0.6 and later say at their end that they came to it; before, only an error can tell.
@pytest.mark.parametrize("name", ["text-v0.6-both-ways.txt", "text-v0.8-one-gpu.txt", "text-v0.8-verbose-perf.txt"])
def test_a_run_that_died_between_two_tests_is_not_complete(name: str) -> None:
    text = read(name)
    assert nvbandwidth.parse(text).ok
    log = nvbandwidth.parse(text[: text.index("NOTE: The reported")])
    assert ({test.status for test in log.runs[0].tests}, log.runs[0].complete, log.ok) == ({"passed"}, False, False)


@pytest.mark.parametrize(
    "line",
    [
        "[CUDA_ERROR_ILLEGAL_ADDRESS] an illegal memory access was encountered in expression cuCtxSynchronize() in x",
        "[cudaErrorECCUncorrectable] uncorrectable ECC error encountered in expression x",
        "NVML_ERROR: [GPU is lost] in expression nvmlDeviceGetHandleByIndex(0, &device) in x",
        "ASSERT in expression loopCount < LOOP in x",
    ],
)
@pytest.mark.parametrize("running", ["", "Running device_to_host_memcpy_ce.\n"])
@pytest.mark.parametrize("name", ["text-v0.1.txt", "text-v0.8-one-gpu.txt"])
def test_a_run_that_died_in_a_later_test_is_not_complete(name: str, running: str, line: str) -> None:
    text = read(name).partition("NOTE: The reported")[0]
    log = nvbandwidth.parse(f"{text}{running}{line}\n")
    assert (log.runs[0].complete, log.runs[0].ok, log.ok, log.cause and log.cause.text) == (False, False, False, line)
    assert log.runs[0].tests[0].status == "passed"


def test_a_document_that_tells_of_an_error_is_of_a_program_that_ended_with_it() -> None:
    document = json.loads(read("json-v0.8-one-gpu.json"))
    document["nvbandwidth"]["error"] = "[CUDA_ERROR_UNKNOWN] unknown error in expression x"
    log = nvbandwidth.parse(json.dumps(document, indent=1))
    assert (log.ok, log.runs[0].complete) == (False, False)


@pytest.mark.parametrize("bad", [" 1       N/A    ######", " 1", " 1    739.8       N/A", ""])
def test_a_row_that_cannot_be_read_is_missed(bad: str) -> None:
    text = read("text-v0.8-verbose-perf.txt").replace(" 1    739.87       N/A", f"{bad}\n 2    739.87       N/A")
    log = nvbandwidth.parse(text)
    assert (log.ok, log.runs[0].complete) == (False, False)
