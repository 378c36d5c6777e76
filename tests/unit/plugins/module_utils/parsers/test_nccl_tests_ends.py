# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How runs of nccl-tests end that went wrong."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_table import NcclTestsRun

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nccl_tests"
GOOD = sorted(
    path.name for path in FIXTURES.glob("authored-*.txt") if path.stem not in ("authored-wrong", "authored-too-slow")
)


def said_by(name: str) -> str:
    return (FIXTURES / name).read_text()


def parse_captured(name: str) -> Log[NcclTestsRun]:
    """Read what came through one pipe: stdout, then stderr, as a batch system would write them."""
    error = FIXTURES / f"captured-{name}.stderr.txt"
    output = FIXTURES / f"captured-{name}.txt"
    return nccl_tests.parse("".join(path.read_text() for path in (output, error) if path.exists()))


NO_DRIVER = "Test CUDA failure util.cu:674 'CUDA driver version is insufficient for CUDA runtime version'"
CAPTURED = {
    "help": ("USAGE: all_reduce_perf", "config", 0),
    "bad-option": ("invalid option '?'", "config", 0),
    "mpirun-bad-option": ("invalid option '?'", "config", 0),
    "bad-sizes": ("invalid sizes for 'minbytes' and 'maxbytes': 1073741824 > 8", "config", 0),
    "no-driver": (f"gpu001: {NO_DRIVER}", "software", 1),
    "no-driver-json": (f"gpu001: {NO_DRIVER}", "software", 1),
    "no-driver-mpirun": (f"gpu001: {NO_DRIVER}", "software", 1),
    "no-driver-mpirun-tagged": (f"gpu001: {NO_DRIVER}", "software", 1),
    "no-driver-mpirun-without-mpi": (f"gpu001: {NO_DRIVER}", "software", 2),
    "json-unwritable": (f"gpu001: {NO_DRIVER}", "software", 1),
    "mpirun-no-slots": ("There are not enough slots available in the system to satisfy the 64", "config", 0),
    "mpirun-no-program": (
        "mpirun was unable to launch the specified application as it could not access", "infra", 0,
    ),
    "mpirun-as-root": ("mpirun has detected an attempt to run as root.", "config", 0),
    "mpirun-killed": (
        "mpirun noticed that process rank 1 with PID 0 on node gpu001 exited on signal 9 (Killed).", "software", 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name, expected", CAPTURED.items(), ids=CAPTURED)
def test_captured(name: str, expected: tuple[str, str, int]) -> None:
    log = parse_captured(name)
    assert (log.ok, log.cause, len(log.runs)) == (False, Cause(*expected[:2]), expected[2])
    assert not any(run.ok or run.rows or run.complete for run in log.runs)


def test_every_captured_file_is_used() -> None:
    names = {path.name.partition(".")[0][len("captured-") :] for path in FIXTURES.glob("captured-*.txt")}
    assert {name for name in names if not name.startswith("h200-")} == set(CAPTURED)  # those are in test_on_an_h200.py


HEAD = said_by("authored-cputime.txt").partition("    16777216 ")[0]
LEAD = "    16777216       4194304     float     sum      -1"
REST = "    90.02  186.36  326.14       0    91.43  183.49  321.11       0\n"
PEER = "'remote process exited or there was a network error / '"
LATE = "slurmstepd: error: *** STEP 7.0 ON ndv5-0001 CANCELLED AT 2026-03-14T09:26:53 DUE TO TIME LIMIT ***"
SUMMARY = """\
--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
mpirun detected that one or more processes exited with non-zero status, thus causing
  Process name: [[36414,1],10]
  Exit code:    3
"""
TRACE = " .. ndv5-0001 pid 21000: Test failure common.cu:401\n .. ndv5-0001 pid 21000: Test failure common.cu:588\n"


@pytest.mark.parametrize(
    "end, text, kind",
    [
        (
            f"n: Test CUDA failure common.cu:310 'out of memory'\n{TRACE}{SUMMARY}",
            "n: Test CUDA failure common.cu:310 'out of memory'",
            "config",
        ),
        (
            f"n7: Test NCCL failure common.cu:310 {PEER}\nn2: Test NCCL failure x.cu:3 'internal error / '\n{TRACE}",
            "n2: Test NCCL failure x.cu:3 'internal error / '",
            "software",
        ),
        (f"n7: Test NCCL failure common.cu:310 {PEER}\n{TRACE}",
         f"n7: Test NCCL failure common.cu:310 {PEER}", "fabric"),
        (
            "\nn2:7:9 [2] net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.5<4> with status=12\n"
            f"n7: Test NCCL failure common.cu:310 {PEER}\n{TRACE}{SUMMARY}",
            "n2:7:9 [2] net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.5<4> with status=12",
            "fabric",
        ),
        ("n7: Test timeout (60s) common.cu:523\n" + TRACE, "n7: Test timeout (60s) common.cu:523", "infra"),
        (f"{LATE}\nsrun: error: n7: tasks 0-7: Terminated\n", LATE, "infra"),
        (
            "n1:1:1 [0] x.cc:1 NCCL WARN Missed heartbeat\nsrun: error: n7: task 3: Exited with exit code 3\n",
            "n1:1:1 [0] x.cc:1 NCCL WARN Missed heartbeat",
            "software",
        ),
        ("\n[n7:2] *** Process received signal ***\n[n7:2] Signal: Segmentation fault (11)\n" + SUMMARY,
         "[n7:2] Signal: Segmentation fault (11)", "software"),
        ("", None, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("glued", [LEAD, LEAD + REST[:33], ""], ids=["first columns", "out of place", "between rows"])
def test_in_the_middle_of_the_table(end: str, text: str | None, kind: str | None, glued: str) -> None:
    """Rows before the failure are data; a row that it broke into has what was measured of it."""
    (run,) = nccl_tests.parse(HEAD + glued + end).runs
    assert run.cause == (Cause(text, kind) if text and kind else None)
    assert (run.complete, run.ok, run.ranks) == (False, False, 8)
    assert [row.size for row in run.rows[:4]] == [1 << power for power in range(20, 24)]
    measured = [row for row in run.rows[4:] if row.size == 1 << 24]
    # At the very end of a log the last number may lack digits, so it does not count.
    assert len(measured) == len(run.rows) - 4 == (1 if glued.endswith("0") and end else 0)


@pytest.mark.parametrize(
    "end, text, kind",
    [
        ("", None, None),  # a hang leaves the devices only
        ("Invalid number of GPUs: 8 requested but only 7 were found.\n" + TRACE,
         "Invalid number of GPUs: 8 requested but only 7 were found.", "hardware"),
        ("n7: Test NCCL failure common.cu:958 'unhandled system error (run with NCCL_DEBUG=INFO for details) / x'\n",
         "n7: Test NCCL failure common.cu:958 'unhandled system error (run with NCCL_DEBUG=INFO for details) / x'",
         "fabric"),
        ("/opt/nccl-tests/all_reduce_perf did not end within 60 s",
         "/opt/nccl-tests/all_reduce_perf did not end within 60 s", "infra"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["authored-cputime.txt", "authored-2.13-alltoall.txt", "authored-2.0-all_reduce.txt"])
def test_before_the_table(name: str, end: str, text: str | None, kind: str | None) -> None:
    lines = said_by(name).splitlines(keepends=True)
    devices = [number for number, line in enumerate(lines) if "Rank" in line]
    (run,) = nccl_tests.parse("".join(lines[: devices[-1] + 1]) + end).runs
    assert (run.ok, run.complete, run.rows, run.peak_busbw, run.largest) == (False, False, [], None, None)
    assert run.cause == (Cause(text, kind) if text and kind else None)
    assert run.ranks == len(devices)


OLD = "NCCL failure common.cu:77 'unhandled system error'\n"


def test_version_1() -> None:
    lines = said_by("authored-1.0-all_reduce.txt").splitlines(keepends=True)
    for text, kind in ((OLD, "fabric"), ("Cuda failure common.cu:77 'out of memory'\n", "config")):
        (run,) = nccl_tests.parse("".join(lines[:16]) + text).runs
        assert (run.cause, len(run.rows), run.complete) == (Cause(text.strip(), kind), 2, False)


@pytest.mark.parametrize(
    "text, kind",
    [
        ("nRanks 6 is not a power of 2, skipping", "config"),
        ("NCCL 2.7 or later is needed for alltoall. This test was compiled with 2.4.", "software"),
    ],
)
def test_nothing_was_measured(text: str, kind: str) -> None:
    lines = [line for line in said_by("authored-2.13-alltoall.txt").splitlines() if not line.lstrip()[:1].isdigit()]
    lines.insert(-4, text)
    log = nccl_tests.parse([line.replace("33.7587", "-nan") for line in lines])
    assert (log.ok, log.cause, log.runs[0].average_busbw) == (False, Cause(text, kind), None)
    quiet = nccl_tests.parse([line for line in lines if line != text])
    assert (quiet.ok, quiet.cause, quiet.runs[0].complete) == (False, None, True)


@pytest.mark.parametrize("said", ["", "\n\n", "srun: job 7 queued and waiting for resources\n", "# Using devices\n"])
def test_nothing_at_all(said: str) -> None:
    log = nccl_tests.parse(said)
    assert (log.ok, log.runs, log.cause) == (False, [], None)


def test_a_failure_before_the_first_run() -> None:
    said = "10.0.0.4: Test CUDA failure common.cu:310 'out of memory'"
    assert nccl_tests.parse(said) == Log([], Cause(said, "config"))


def test_a_program_that_does_not_load() -> None:
    said = "all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open shared object file"
    assert nccl_tests.parse(f"{said}\n{said}\n{SUMMARY}") == Log([], Cause(said, "software"))


@pytest.mark.parametrize("name", GOOD)
def test_a_cut_log_is_never_ok(name: str) -> None:
    """Unless what is missing has no meaning; and whatever was read is what the whole log says."""
    said = said_by(name)
    whole = nccl_tests.parse(said)
    for end in [*range(0, len(said) - 700, 13), *range(max(0, len(said) - 700), len(said))]:
        log = nccl_tests.parse(said[:end])
        if log.ok:
            assert [dataclasses.replace(run, notes=[]) for run in log.runs] == [
                dataclasses.replace(run, notes=[]) for run in whole.runs
            ], end
            continue
        for row, other in zip(log.runs[0].rows if log.runs else [], whole.runs[0].rows):
            assert row in (other, dataclasses.replace(other, in_place=None)), end


@pytest.mark.parametrize("name", GOOD)
def test_a_row_that_is_lost_halfway_is_noticed(name: str) -> None:
    lines = said_by(name).splitlines()
    number = next(number for number, line in enumerate(lines) if line.lstrip()[:1].isdigit())
    lines[number] = lines[number][: lines[number].index(".")]
    (run,) = nccl_tests.parse(lines).runs
    assert (run.complete, run.ok) == (False, False)


def test_the_list_of_devices_is_cut_off() -> None:
    """A process has 2048 bytes for the devices of its ranks."""
    said = said_by("authored-128-ranks.txt").replace("nGpus 1 ", "nGpus 32 ").splitlines()
    kept = [line for line in said if not line.startswith("#  Rank") or int(line.split()[2]) % 32 < 23]
    kept = [line[:40] + "..." if "Rank 118 " in line or "Rank 22 " in line else line for line in kept]
    (run,) = nccl_tests.parse(kept).runs
    assert (run.ranks, len(run.devices), run.ok) == (128, 4 * 23 - 2, True)
    assert run.notes == ["the list of devices is cut off"]


def test_lines_of_devices_are_lost() -> None:
    said = [line for line in said_by("authored-128-ranks.txt").splitlines() if "Rank  5" not in line]
    (run,) = nccl_tests.parse(said).runs
    assert (run.ranks, len(run.devices)) == (128, 127)


def alone(ranks: int) -> list[list[str]]:
    """What a program that was built without MPI prints when mpirun starts it several times."""
    said = said_by("authored-one-rank.txt")
    return [said.replace("21000", str(21000 + rank)).splitlines() for rank in range(ranks)]


def test_tables_of_processes_one_behind_the_other() -> None:
    """Nothing is wrong with any of them: whoever asked for eight ranks has to notice."""
    log = nccl_tests.parse([line for lines in alone(8) for line in lines])
    assert [run.ranks for run in log.runs] == [1] * 8
    assert log.ok


def test_tables_of_processes_line_by_line() -> None:
    log = nccl_tests.parse([line for lines in zip(*alone(8)) for line in lines])
    assert {run.ranks for run in log.runs} == {1}
    said = "8 tables are mixed, of processes that do not know of each other: is the program built without MPI?"
    assert (log.ok, log.cause) == (False, Cause(said, "config"))


def test_two_processes_are_rank_0() -> None:
    lines = said_by("authored-one-rank.txt").splitlines()
    number = next(number for number, line in enumerate(lines) if "Rank" in line)
    for other in (lines[number].replace("21000", "21007"), lines[number].replace("ndv4-0001", "ndv4-0002")):
        (run,) = nccl_tests.parse([*lines[:number], other, *lines[number:]]).runs
        said = "2 tables are mixed, of processes that do not know of each other: is the program built without MPI?"
        assert (run.ranks, run.complete, run.ok, run.cause) == (1, True, False, Cause(said, "config"))
    assert nccl_tests.parse([*lines[:number], lines[number], *lines[number:]]).ok  # a line that is there twice


def test_a_second_footer_belongs_to_a_second_table() -> None:
    lines = said_by("authored-one-rank.txt").splitlines()
    (run,) = nccl_tests.parse([*lines, *lines[-3:]]).runs
    assert (run.ok, run.average_busbw, run.cause is not None) == (False, None, True)


@pytest.mark.parametrize("seed", range(40))
def test_tables_of_processes_in_any_order(seed: int) -> None:
    """Each keeps its own order; the lines of several meet at random, or in blocks, cut wherever a buffer ended."""
    chance = random.Random(seed)
    count = chance.choice([2, 4, 8])
    processes = alone(count)
    if seed % 2:
        size = chance.choice([100, 511, 1024])
        texts = ["".join(f"{line}\n" for line in lines) for lines in processes]
        processes = [[text[begin : begin + size] for begin in range(0, len(text), size)] for text in texts]
    ends = "" if seed % 2 else "\n"
    mixed = ""
    while any(processes):
        queue = chance.choice([lines for lines in processes if lines])
        mixed += queue.pop(0) + ends
    log = nccl_tests.parse(mixed)
    assert {run.ranks for run in log.runs} <= {1, None}
    assert not log.ok or [run.ranks for run in log.runs] == [1] * count
