# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks that nobody listed, and the JSON of nccl-tests."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import json_text, nccl_tests
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_table import (
    NcclTestsDevice,
    NcclTestsRow,
    Timing,
    collective,
    ranks_of_rows,
)

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nccl_tests"


def row(algbw: float, busbw: float | None) -> NcclTestsRow:
    """Return a row as nccl-tests would round it."""
    return NcclTestsRow(8, 2, "float", None, None, Timing(1.0, algbw, busbw, 0, None), None)


def printed(factor: float, speeds: t.Sequence[float]) -> list[NcclTestsRow]:
    return [row(round(speed, 2), round(speed * factor, 2)) for speed in speeds]


SWEEP = [0.01, 0.31, 2.222, 17.777, 61.4444, 95.5555, 140.1, 188.8888]


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 16, 32, 64, 72])
@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "reduce_scatter", "alltoall", None])
def test_ranks_are_read_from_the_bandwidths(name: str | None, ranks: int) -> None:
    factor = (ranks - 1) / ranks * (2 if name in ("all_reduce", None) else 1)
    # Two ranks of all_reduce look like a broadcast among any number.
    expected = None if name is None and ranks == 2 else ranks
    assert ranks_of_rows(printed(factor, SWEEP), name) == expected


@pytest.mark.parametrize(
    "rows, name, ranks",
    [
        ([row(194.04, 382.69)], "all_reduce", 72),  # 1.972
        ([row(100.0, 87.5)], None, 8),
        ([row(1303.8, 2281.7)], "all_reduce", 8),  # one decimal
        ([row(291905.0, 510834.0)], "all_reduce", 8),  # none
        ([row(15.5, 29.06)], "all_reduce", 16),
        ([row(1000.4, 0.0)], "all_reduce", 1),
        ([row(1000.4, 0.0)], None, 1),
        ([row(20.0, 20.0)], "broadcast", None),
        ([row(20.0, 20.0)], "sendrecv", None),
        ([row(20.0, 20.0)], None, None),
        ([row(9.58, 8.98)], "alltoall", 16),
        ([row(2.0, 3.94)], "all_reduce", None),  # too coarse: 58 to 84
        ([row(0.02, 0.03)], "all_reduce", None),
        ([row(100.0, 199.9)], "all_reduce", None),  # about two thousand
        ([row(100.0, 87.5), row(100.0, 175.0)], None, None),  # rows that do not belong together
        ([row(100.0, 230.0)], "all_reduce", None),
        ([row(100.0, None)], "all_reduce", None),
        ([], "all_reduce", None),
    ],
)
def test_ranks_that_bandwidths_do_not_tell(rows: list[NcclTestsRow], name: str | None, ranks: int | None) -> None:
    assert ranks_of_rows(rows, name) == ranks


def test_a_log_without_devices() -> None:
    lines = (FIXTURES / "authored-2.13-all_reduce.txt").read_text().splitlines()
    (run,) = nccl_tests.parse([line for line in lines if "Rank" not in line]).runs
    assert (run.ranks, run.nodes, run.devices, run.ok) == (16, None, [], True)


@pytest.mark.parametrize(
    "program, name",
    [
        ("all_reduce_perf", "all_reduce"),
        ("/opt/nccl-tests/build/alltoall_perf_mpi", "alltoall"),
        ("xhpl", None),
        ("_perf", None),
        (None, None),
    ],
)
def test_collective(program: str | None, name: str | None) -> None:
    assert collective(program) == name


def said_by(name: str) -> str:
    return (FIXTURES / name).read_text()


def test_json() -> None:
    log = nccl_tests.parse_json(said_by("authored-mpi.json"))
    (run,) = log.runs
    assert (log.ok, run.ok, run.complete, run.cause, run.notes) == (True, True, True, None, [])
    assert (run.program, run.collective, run.layout) == ("all_reduce_perf", "all_reduce", "json")
    assert (run.version, run.nccl_version, run.ranks, run.nodes) == (None, "2.27.3", 16, 2)
    assert (run.validated, run.correct, run.out_of_bounds, run.average_busbw) == (True, True, 0, 71.858777)
    assert run.devices[9] == NcclTestsDevice(9, 0, 21701, "ndv4-0002", 1, "0002:00:00", "NVIDIA A100-SXM4-40GB")
    assert (len(run.rows), run.rows[0].root, run.rows[0].redop) == (31, None, "sum")
    assert run.rows[-1].size == 1 << 33
    assert run.peak_busbw == pytest.approx(187.289391)


def test_json_with_less() -> None:
    """CPU time, iterations one by one, not validated, one process with eight GPUs of which it lists one."""
    (run,) = nccl_tests.parse_json(said_by("authored-cputime-per-iteration.json")).runs
    assert (run.ok, run.ranks, len(run.devices), run.validated, run.correct) == (True, 8, 1, False, None)
    assert run.notes == ["the times are those of the CPU"]
    assert run.rows[0] == NcclTestsRow(0, 0, "float", None, None, *[Timing(0.25, 0.0, 0.0, None, None)] * 2)
    (run,) = nccl_tests.parse_json(said_by("authored-in-place.json")).runs
    assert (run.ok, run.complete, run.rows[0].out_of_place) == (True, True, None)
    assert run.rows[0].in_place is not None


def test_json_of_wrong_results() -> None:
    (run,) = nccl_tests.parse_json(said_by("authored-wrong.json")).runs
    assert (run.ok, run.complete, run.correct, run.out_of_bounds) == (False, True, False, 2)
    assert run.cause == Cause("4096 wrong elements at 2097152 bytes", "hardware")
    assert run.notes == ["error: NET/IB : Got completion from peer"]


def edited(name: str, change: t.Callable[[dict[str, t.Any]], None]) -> nccl_tests.NcclTestsRun:
    data = json.loads(said_by(name))
    change(data)
    return nccl_tests.parse_json(json.dumps(data)).runs[0]


def test_json_without_values_but_with_a_verdict() -> None:
    def change(data: dict[str, t.Any]) -> None:
        data["out_of_bounds"] = {"count": 1, "okay": "false"}

    run = edited("authored-mpi.json", change)
    assert (run.correct, run.cause) == (False, Cause("out_of_bounds: 1", "hardware"))

    def slow(data: dict[str, t.Any]) -> None:
        data["average_bus_bandwidth"] = {"bandwidth": 3.2, "okay": "false"}

    assert edited("authored-mpi.json", slow).cause == Cause("average_bus_bandwidth: 3.2 is too low", "hardware")


def test_json_with_a_verdict_alone() -> None:
    def change(data: dict[str, t.Any]) -> None:
        data["out_of_bounds"] = {"count": None, "okay": "false"}

    run = edited("authored-mpi.json", change)
    assert (run.complete, run.correct, run.cause) == (False, None, Cause("out_of_bounds: None", "hardware"))


TIMING = {"time": 1.5, "alg_bw": 2, "bus_bw": 3.5, "nwrong": 0.0}
RESULT = {"size": 8, "count": 2, "type": "float", "redop": "sum", "root": "     0"}
RESULT.update(out_of_place=TIMING, in_place={**TIMING, "bus_bw": True})
DEVICE = {"rank": 0, "group": 0, "pid": 7, "hostname": "a", "device": 0, "device_hex": "0", "device_info": None}


@pytest.mark.parametrize(
    "broken",
    [
        *[None, 5, "x", [], {}],
        *[{**RESULT, key: value} for key in ("size", "count") for value in (None, "8", -1, True, 1 << 64, 1.5)],
        {**RESULT, "type": 5},
        {**RESULT, "out_of_place": None, "in_place": None},
        {**RESULT, "out_of_place": {}, "in_place": 5},
    ],
)
def test_json_with_results_that_cannot_be(broken: t.Any) -> None:
    def change(data: dict[str, t.Any]) -> None:
        data["results"] = [broken, RESULT]

    run = edited("authored-mpi.json", change)
    timings = [Timing(1.5, 2.0, 3.5, 0.0, None), Timing(1.5, 2.0, None, 0.0, None)]
    assert (run.rows, run.complete) == ([NcclTestsRow(8, 2, "float", "sum", 0, *timings)], False)


@pytest.mark.parametrize(
    "broken",
    [None, [], {}, *[{**DEVICE, key: None} for key in ("rank", "device", "hostname")], {**DEVICE, "rank": "1"}],
)
def test_json_with_devices_that_cannot_be(broken: t.Any) -> None:
    def change(data: dict[str, t.Any]) -> None:
        data["config"]["devices"] = [broken, DEVICE]

    run = edited("authored-mpi.json", change)
    assert (run.devices, run.ranks) == ([NcclTestsDevice(0, 0, 7, "a", 0, "0", "")], 1)


def test_json_without_devices() -> None:
    def change(data: dict[str, t.Any]) -> None:
        data["config"]["devices"] = []

    run = edited("authored-mpi.json", change)
    assert (run.ranks, run.nodes, run.devices) == (16, None, [])


def test_json_of_a_run_that_stopped() -> None:
    log = nccl_tests.parse_json(said_by("captured-no-driver.json"))
    (run,) = log.runs
    assert (log.ok, run.complete, run.rows, run.ranks, run.nccl_version) == (False, False, [], None, "2.32.3")

    def change(data: dict[str, t.Any]) -> None:
        data["results"][-1]["in_place"] = None
        data["errors"] = [None]
        data["out_of_bounds"] = data["average_bus_bandwidth"] = None

    run = edited("authored-mpi.json", change)
    assert (run.ok, run.complete, len(run.rows), run.rows[-1].in_place) == (False, False, 31, None)


@pytest.mark.parametrize("name", ["authored-mpi.json", "authored-cputime-per-iteration.json"])
def test_json_that_breaks_off(name: str) -> None:
    said = said_by(name)
    whole = nccl_tests.parse_json(said).runs[0]
    rows = 0
    for end in [*range(0, len(said), 97), *range(len(said) - 600, len(said))]:
        log = nccl_tests.parse_json(said[:end])
        assert not log.ok
        for run in log.runs:
            for row, other in zip(run.rows, whole.rows):
                assert row in (other, dataclasses.replace(other, in_place=None))
            rows = max(rows, len(run.rows))
    assert rows == len(whole.rows)


@pytest.mark.parametrize("word", ["inf", "-inf", "nan", "-nan", "Infinity", '"nan"'])
def test_json_with_what_is_no_number(word: str) -> None:
    said = said_by("authored-mpi.json").replace("186.725008", word)
    said = said.replace('"bandwidth":71.858777', f'"bandwidth":{word}').replace("result.json", "a:inf b")
    (run,) = nccl_tests.parse_json(said).runs
    assert (run.complete, run.average_busbw, len(run.rows), run.busbw(1 << 33)) == (True, None, 31, None)
    json.dumps(dataclasses.asdict(run), allow_nan=False)


@pytest.mark.parametrize("name", [path.name for path in FIXTURES.glob("*.json")])
def test_the_environment_stays_where_it_is(name: str) -> None:
    log = nccl_tests.parse_json(said_by(name))
    said = repr(log)
    for secret in ("REGISTRY_PASSWORD", "do-not-show", "PATH=", "NCCL_DEBUG"):
        assert secret not in said


@pytest.mark.parametrize(
    "said", ["", "[]", "null", "{", "{}", "nonsense", '{"a": 1}', "[" * 100_000, '{"a":' * 100_000]
)
def test_json_of_something_else(said: str) -> None:
    log = nccl_tests.parse_json(said)
    assert (log.ok, log.runs) == (False, [])


def test_a_file_with_json() -> None:
    with (FIXTURES / "authored-mpi.json").open() as file:
        assert nccl_tests.parse_json(file).ok


@pytest.mark.parametrize(
    "text, data, whole",
    [
        ('{"a": [1, 2.5, "x"]}', {"a": [1, 2.5, "x"]}, True),
        ('noise {"a": {}} {"b": 2}', {"a": {}}, True),
        ('{"a": {"b": 1}, "c": 2', {"a": {"b": 1}}, False),
        ('{"a": [{"b": 1}, {"b": 12', {"a": [{"b": 1}]}, False),
        ('{"a": "}]", "b": [1], "c": "x', {"a": "}]", "b": [1]}, False),
        ('{"a": "\\\\", "b": "\\"}", "c": []', {"a": "\\", "b": '"}', "c": []}, False),
        ('{"a": inf, "b": -nan, "c": "a:inf"}', {"a": None, "b": None, "c": "a:inf"}, True),
        ('{"a": 1e999, "b": 123456789012345678901234567890}', {"a": None, "b": 123456789012345678901234567890.0}, True),
        ('{"a": ' + "9" * 5000 + "}", {"a": None}, True),
        ('{"a": 1]', None, False),
    ],
)
def test_mended(text: str, data: t.Any, whole: bool) -> None:
    assert json_text.read(text) == json_text.Read(data, whole)
