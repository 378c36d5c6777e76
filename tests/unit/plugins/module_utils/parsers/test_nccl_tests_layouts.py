# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every layout that nccl-tests ever had; see the README of the fixtures."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests, text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_table import (
    NcclTestsDevice,
    NcclTestsRow,
    NcclTestsRun,
    Timing,
)

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nccl_tests"


def log_of(name: str) -> Log[NcclTestsRun]:
    with text.opened(FIXTURES / name) as file:
        return nccl_tests.parse(file)


def run_of(name: str) -> NcclTestsRun:
    (run,) = log_of(name).runs
    return run


class Expected(t.NamedTuple):
    name: str
    layout: str
    program: str | None
    versions: tuple[str | None, str | None]
    ranks: int
    nodes: int
    rows: int
    average: float
    peak: float


ALL_REDUCE, ALL_GATHER = "all_reduce_perf", "all_gather_perf"
LAYOUTS = [
    Expected("1.0-all_reduce", "1.0", None, (None, "1.3"), 8, 1, 8, 48.834, 59.57),
    Expected("1.0-broadcast", "1.0", None, (None, "1.3"), 4, 1, 5, 15.2222, 17.41),
    Expected("1.0-reduce", "1.0", None, (None, "1.3"), 4, 1, 3, 14.0221, 15.98),
    Expected("2.0-all_reduce", "2.0", None, (None, None), 8, 1, 28, 43.0988, 128.0),
    Expected("2.9-alltoall", "2.0", None, (None, None), 8, 1, 14, 47.6841, 107.94),
    Expected("2.11-all_gather", "2.0", None, (None, None), 8, 1, 22, 23.9514, 112.68),
    Expected("2.11-broadcast", "2.0", None, (None, None), 4, 1, 14, 100.162, 125.39),
    Expected("2.11-reduce", "2.0", None, (None, None), 4, 1, 14, 100.162, 125.39),
    Expected("2.13-all_reduce", "2.13", None, (None, None), 16, 2, 31, 71.8888, 187.75),
    Expected("2.13-alltoall", "2.13", None, (None, None), 16, 2, 11, 33.7587, 44.91),
    Expected("2.13-hypercube", "2.13", None, (None, None), 8, 1, 7, 80.3526, 136.86),
    Expected("2.15-reduce_scatter", "2.13", None, (None, None), 16, 2, 25, 56.4213, 179.48),
    Expected("2.16.7-broadcast", "2.13", "broadcast_perf", (None, None), 8, 1, 11, 159.965, 229.54),
    Expected("2.17.6-timestamps", "2.13", ALL_REDUCE, ("2.17.6", "2.27.3"), 8, 1, 15, 367.314, 478.86),
    Expected("2.18.2-sendrecv", "2.13", "sendrecv_perf", ("2.18.2", "2.27.3"), 8, 1, 19, 122.87, 353.23),
    Expected("2.19.2-per-iteration", "2.13", ALL_REDUCE, ("2.19.2", "2.27.3"), 8, 1, 7, 244.761, 425.56),
    Expected("iterations-column", "2.13", ALL_GATHER, ("2.17.6+a1b2c3d", "2.27.3"), 8, 1, 7, 156.757, 301.37),
    Expected("cputime", "2.13", ALL_REDUCE, ("2.17.6", "2.27.3"), 8, 1, 5, 180.437, 326.14),
    Expected("two-types", "2.13", ALL_REDUCE, ("2.17.6", "2.27.3"), 8, 1, 6, 108.907, 173.63),
    Expected("128-ranks", "2.13", ALL_REDUCE, ("2.17.6", "2.27.3"), 128, 16, 4, 383.724, 386.96),
    Expected("one-rank", "2.13", None, (None, None), 1, 1, 7, 0.0, 0.0),
]


@pytest.mark.parametrize("expected", LAYOUTS, ids=lambda expected: expected.name)
def test_frame(expected: Expected) -> None:
    log = log_of(f"authored-{expected.name}.txt")
    (run,) = log.runs
    assert (log.ok, run.ok, run.complete, run.cause, run.out_of_bounds) == (True, True, True, None, 0)
    assert run.layout == expected.layout
    assert run.program == expected.program
    assert run.collective == (expected.program and expected.program[: -len("_perf")])
    assert (run.version, run.nccl_version) == expected.versions
    assert (run.ranks, run.nodes, len(run.devices)) == (expected.ranks, expected.nodes, expected.ranks)
    assert (len(run.rows), run.average_busbw, run.peak_busbw) == (expected.rows, expected.average, expected.peak)
    json.dumps(dataclasses.asdict(log), allow_nan=False)


def old(time: float, algbw: float, busbw: float, deviation: float | None = None) -> Timing:
    return Timing(time, algbw, busbw, None, deviation)


def new(time: float, algbw: float, busbw: float, wrong: float | None = None) -> Timing:
    return Timing(time, algbw, busbw, wrong, None)


ROWS = {
    "1.0-all_reduce": NcclTestsRow(
        1 << 27, 1 << 25, "float", "sum", None, old(3954, 33.94, 59.40, 1e-6), old(3943, 34.04, 59.57, 1e-6)
    ),
    "1.0-broadcast": NcclTestsRow(1 << 24, 1 << 22, "float", None, 0, old(964, 17.41, 17.41, 0), None),
    "1.0-reduce": NcclTestsRow(
        1 << 22, 1 << 20, "float", "sum", 0, old(264, 15.91, 15.91, 0), old(262, 15.98, 15.98, 0)
    ),
    "2.0-all_reduce": NcclTestsRow(
        1 << 30, 1 << 28, "float", "sum", None, old(14680, 73.14, 128.0, 4e-7), old(14715, 72.97, 127.7, 4e-7)
    ),
    "2.9-alltoall": NcclTestsRow(
        1 << 28, 1 << 23, "float", None, None, old(2176.8, 123.32, 107.9, 0), old(2176.0, 123.36, 107.94, 1)
    ),
    "2.11-all_gather": NcclTestsRow(
        1 << 26, 1 << 21, "float", None, None, old(521.1, 128.77, 112.68, 0), old(527.4, 127.24, 111.33, 0)
    ),
    "2.11-broadcast": NcclTestsRow(
        1 << 33, 1 << 31, "float", None, 0, old(68865, 124.74, 124.74, 0), old(68545, 125.32, 125.32, 0)
    ),
    "2.11-reduce": NcclTestsRow(
        1 << 33, 1 << 31, "float", "sum", 0, old(68865, 124.74, 124.74), old(68545, 125.32, 125.32)
    ),
    "2.13-all_reduce": NcclTestsRow(
        1 << 33, 1 << 31, "float", "sum", None, new(85982, 99.9, 187.32, 0), new(86183, 99.67, 186.88, 0)
    ),
    "2.13-alltoall": NcclTestsRow(
        1 << 30, 1 << 24, "float", None, None, new(22512, 47.7, 44.72, 0), new(22415, 47.9, 44.91)
    ),
    "2.13-hypercube": NcclTestsRow(
        1 << 26, 1 << 21, "float", None, None, new(429.1, 156.41, 136.86, 0), new(433.0, 154.97, 135.6, 0)
    ),
    "2.16.7-broadcast": NcclTestsRow(
        1 << 30, 1 << 28, "float", None, 0, new(4685.3, 229.17, 229.17, 0), new(4677.7, 229.54, 229.54, 0)
    ),
    "2.17.6-timestamps": NcclTestsRow(
        1 << 34, 1 << 32, "float", "sum", None, new(62931.8, 272.99, 477.74, 0), new(62925.9, 273.02, 477.78, 0)
    ),
    "2.18.2-sendrecv": NcclTestsRow(
        1 << 28, 1 << 26, "float", None, None, new(760.38, 353.03, 353.03, 0), new(759.93, 353.23, 353.23)
    ),
    "2.19.2-per-iteration": NcclTestsRow(
        1 << 26, 1 << 24, "float", "sum", None, new(276.41, 242.79, 424.88, 0), new(275.97, 243.18, 425.56, 0)
    ),
    "iterations-column": NcclTestsRow(
        1 << 26, 1 << 21, "float", None, None, new(194.84, 344.43, 301.37, 0), new(195.72, 342.88, 300.02, 0)
    ),
    "cputime": NcclTestsRow(
        1 << 24, 1 << 22, "float", "sum", None, new(90.02, 186.36, 326.14, 0), new(91.43, 183.49, 321.11, 0)
    ),
    "one-rank": NcclTestsRow(
        1 << 26, 1 << 24, "float", "sum", None, new(48.6, 1380.71, 0, 0), new(48.37, 1387.35, 0, 0)
    ),
}


@pytest.mark.parametrize("name, row", ROWS.items(), ids=ROWS)
def test_last_row(name: str, row: NcclTestsRow) -> None:
    assert run_of(f"authored-{name}.txt").rows[-1] == row


@pytest.mark.parametrize("name, row", ROWS.items(), ids=ROWS)
def test_rows_without_their_header(name: str, row: NcclTestsRow) -> None:
    """Somebody took the # lines out: the shape of a row tells nearly everything."""
    lines = (FIXTURES / f"authored-{name}.txt").read_text().splitlines()
    bare = [line for line in lines if line.lstrip()[:1].isdigit()]
    (run,) = nccl_tests.parse(bare).runs if name != "1.0-broadcast" else [None]
    if run is None or name.startswith("1.0"):
        return  # milliseconds, and one group of columns where there always are two, are told by the header alone
    assert (run.rows[-1], len(run.rows), run.complete, run.ok) == (row, len(bare), False, False)
    if name != "2.11-reduce":  # not checked, so there is nothing that only an old version prints
        assert run.layout == next(one.layout for one in LAYOUTS if one.name == name)


@pytest.mark.parametrize("name", ROWS)
def test_reflowed_rows(name: str) -> None:
    """Editors and chat programs make one blank of several, and wrap nothing."""
    lines = (FIXTURES / f"authored-{name}.txt").read_text().splitlines()
    (run,) = nccl_tests.parse([" ".join(line.split()) for line in lines]).runs
    assert run == run_of(f"authored-{name}.txt")


def test_devices() -> None:
    devices = run_of("authored-2.13-all_reduce.txt").devices
    assert devices[9] == NcclTestsDevice(9, 0, 21701, "ndv4-0002", 1, "0x0f", "NVIDIA A100-SXM4-40GB")
    devices = run_of("authored-2.0-all_reduce.txt").devices
    assert devices[0] == NcclTestsDevice(0, None, 21000, "nd40-a", 0, "0x07", "Tesla V100-SXM2-32GB")
    assert run_of("authored-1.0-reduce.txt").devices[3] == NcclTestsDevice(
        3, None, None, "dgx1", 3, "0x08", "Tesla P100-SXM2-16GB"
    )
    devices = run_of("authored-128-ranks.txt").devices
    assert devices[127] == NcclTestsDevice(127, 0, 31507, "ndv5-0016", 7, "000e:00:00", "NVIDIA H100 80GB HBM3")


def test_sizes() -> None:
    run = run_of("authored-2.11-all_gather.txt")
    assert [row.size for row in run.rows[:6]] == [0, 0, 0, 0, 0, 1024]
    assert (run.busbw(1 << 26), run.busbw(0), run.busbw(3)) == (112.68, 0.0, None)
    assert run.largest == run.rows[-1]
    run = run_of("authored-two-types.txt")
    assert [row.type for row in run.rows] == ["half"] * 3 + ["float"] * 3
    assert run.busbw(1 << 20) == run.rows[3].timings[0].busbw
    assert run.largest == run.rows[5]


@pytest.mark.parametrize(
    "name, validated, correct",
    [
        ("2.13-all_reduce", True, True),
        ("2.13-alltoall", True, True),
        ("2.9-alltoall", True, True),
        ("2.11-reduce", False, None),
        ("wrong", True, False),
    ],
)
def test_values_are_right_only_if_somebody_looked(name: str, validated: bool, correct: bool | None) -> None:
    run = run_of(f"authored-{name}.txt")
    assert (run.validated, run.correct) == (validated, correct)


def test_wrong_values() -> None:
    run = run_of("authored-wrong.txt")
    said = "Out of bounds values : 3 FAILED, the first: 12 wrong elements at 32768 bytes"
    assert (run.complete, run.ok, run.out_of_bounds, run.cause) == (True, False, 3, Cause(said, "hardware"))
    assert [timing.wrong for timing in run.rows[5].timings] == [12, 2.09715e6]
    assert [timing.wrong for timing in run.rows[9].timings] == [1e6, 0]


def test_wrong_values_without_a_footer() -> None:
    lines = (FIXTURES / "authored-wrong.txt").read_text().splitlines()[:26]
    run = nccl_tests.parse(lines).runs[0]
    assert (run.complete, run.correct, run.cause) == (
        False,
        False,
        Cause("12 wrong elements at 32768 bytes", "hardware"),
    )


def test_the_limit_of_the_environment() -> None:
    run = run_of("authored-too-slow.txt")
    assert (run.complete, run.ok, run.correct) == (True, False, True)
    assert run.cause == Cause("Avg bus bandwidth : 3.19525 FAILED", "hardware")
    kept = (FIXTURES / "authored-too-slow.txt").read_text().replace("3.19525 FAILED", "187 OK")
    assert nccl_tests.parse(kept).ok


def test_notes() -> None:
    assert run_of("authored-2.18.2-sendrecv.txt").notes == [
        "GPU memory usage : Initialization 2.35 GB | User-Allocated 24.0 GB | Collective 0 B | Total 26.4 GB"
    ]
    said = (FIXTURES / "authored-two-types.txt").read_text()
    said = said.replace(
        "# Using devices", "# Using devices\n#\n# Reducing maxBytes to 8589934592 due to memory limitation"
    )
    said = "# Writing JSON output to result.json.0\n" + said.replace(
        "concluded: all_reduce_perf\n", "concluded: all_reduce_perf\n# error: NET/Plugin: no such library\n"
    )
    run = nccl_tests.parse(said).runs[0]
    assert run.ok  # nccl-tests prints what NCCL warned about last, although everything went well
    assert run.notes == [
        "Writing JSON output to result.json.0",
        "Reducing maxBytes to 8589934592 due to memory limitation",
        "error: NET/Plugin: no such library",
    ]


def test_times_of_the_cpu() -> None:
    assert run_of("authored-cputime.txt").notes == ["the times are those of the CPU"]


def test_a_type_that_this_build_does_not_know() -> None:
    """It measures float instead, and says so in a line that nobody reads."""
    said = "invalid type bfloat17, defaulting to float .. \n" + (FIXTURES / "authored-two-types.txt").read_text()
    assert nccl_tests.parse(said).runs[0].notes == ["invalid type bfloat17, defaulting to float .."]


@pytest.mark.parametrize("word", ["inf", "-inf", "nan", "-nan"])
def test_what_is_no_number(word: str) -> None:
    lines = (FIXTURES / "authored-2.13-alltoall.txt").read_text().splitlines()
    first = f"     1048576         16384     float    none      -1     0.00  {word:>6}  {word:>6}      0"
    lines[23] = f"{first}    108.5    9.66    9.06    N/A"
    lines[-2] = f"# Avg bus bandwidth    : {word} "
    run = nccl_tests.parse(lines).runs[0]
    assert run.rows[0] == NcclTestsRow(
        1 << 20, 16384, "float", None, None, new(0, None, None, 0), new(108.5, 9.66, 9.06)
    )
    assert (len(run.rows), run.average_busbw, run.complete) == (11, None, True)
    json.dumps(dataclasses.asdict(run), allow_nan=False)


@pytest.mark.parametrize(
    "line, version",
    [
        ("NCCL version 2.21.5+cuda12.4", "2.21.5"),
        ("NCCL version 2.4.8+cuda10.1", "2.4.8"),
        ("NCCL version 2.14+cuda11.8", "2.14"),
    ],
)
@pytest.mark.parametrize("place", [0, 20])
def test_the_version_that_nccl_prints(line: str, version: str, place: int) -> None:
    lines = (FIXTURES / "authored-2.13-alltoall.txt").read_text().splitlines()
    lines.insert(place, line)
    (run,) = nccl_tests.parse(lines).runs
    assert (run.nccl_version, run.ok) == (version, True)


def test_old_numbers_of_versions() -> None:
    said = (FIXTURES / "authored-cputime.txt").read_text().replace("22703", "2804")
    assert nccl_tests.parse(said).runs[0].nccl_version == "2.8.4"


def test_replayed_traces_are_measured_in_place_only() -> None:
    lines = (FIXTURES / "authored-cputime.txt").read_text().splitlines()
    wide = lines[17].index("31.52")
    for number in range(17, 22):
        lines[number] = lines[number][: wide - 4] + " " * 32 + lines[number][wide + 29 :]
    debug = "ndv5-0001:1:2 [0] NCCL INFO Channel 00/08\n"
    broken = [line[: wide + 28] + debug + line[wide + 28 :] if line in lines[17:22] else line for line in lines]
    for said in (lines, broken):
        (run,) = nccl_tests.parse("\n".join(said) + "\n").runs
        assert (run.complete, len(run.rows)) == (True, 5)
        assert run.rows[0] == NcclTestsRow(1 << 20, 1 << 18, "float", "sum", None, None, new(31.67, 33.11, 57.94, 0))


@pytest.mark.parametrize("old, absurd", [("Rank  3", "Rank 99999999999"), ("Pid  21003", "Pid 210030000000")])
def test_a_device_that_cannot_be(old: str, absurd: str) -> None:
    run = nccl_tests.parse((FIXTURES / "authored-cputime.txt").read_text().replace(old, absurd)).runs[0]
    assert (run.ranks, len(run.devices)) == (8, 7)
