# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What other programs, ranks and terminals write between and into the lines of nccl-tests."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_table import NcclTestsRun

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nccl_tests"
GOOD = sorted(
    path.name for path in FIXTURES.glob("authored-*.txt") if path.stem not in ("authored-wrong", "authored-too-slow")
)
INFO = (
    "ndv4-0001:21000:21044 [0] NCCL INFO Channel 00/08 :    0   1   2   3   4   5   6   7 8 float sum -1 1.0 2.0 3.0 0"
)
WARN = "\nndv4-0001:21000:21044 [3] misc/socket.cc:50 NCCL WARN Accept failed Success"
STAMPED = (
    "[2026-03-14 09:26:53] ndv4-0001:21000:21044 [3] graph/xml.h:77 NCCL WARN Attribute busid of node nic not found"
)
NUMERIC = "10.0.0.4:21000:21044 [0] NCCL INFO comm 0x55d0 rank 0 nranks 16 cudaDev 0 busId 100000 - Init COMPLETE"
SSH = "Warning: Permanently added 'ndv4-0002' (ED25519) to the list of known hosts."
FILES = "12 34 files are open"
COUNTS = "12 34 56 78 counts"
GLUED = {"info": INFO, "warn": WARN, "stamped": STAMPED, "numeric": NUMERIC, "ssh": SSH}
GLUED["all"] = "\n".join([INFO, WARN, NUMERIC, FILES, COUNTS] * 3)
BETWEEN = {**GLUED, "files": FILES, "counts": COUNTS}


def said_by(name: str) -> list[str]:
    return (FIXTURES / name).read_text().splitlines()


def run_of(lines: t.Iterable[str]) -> NcclTestsRun:
    (run,) = nccl_tests.parse("\n".join(lines) + "\n").runs
    return run


def is_row(line: str) -> bool:
    return line.lstrip()[:1].isdigit()


def writes(line: str, header: str) -> list[str]:
    """Cut a row where nccl-tests flushes: before each of the two measurements, and where the line ends."""
    starts = [match.start() - 2 for match in re.finditer(r" +(?:cpu)?time(?=\s)", header)]
    starts = [header.index("time", start + 1) + 4 - 9 for start in starts]
    cuts = [0, *starts, len(line)]
    return [line[begin:end] for begin, end in zip(cuts, cuts[1:])]


def broken_up(lines: t.Sequence[str], noise: str, after: t.Collection[int]) -> t.Iterator[str]:
    """Put noise behind some of the writes of each row; what follows goes on with a line of its own."""
    header = [line for line in lines if line.startswith("#") and "time" in line and "algbw" in line][0]  # noqa: RUF015
    for line in lines:
        if not is_row(line):
            yield line
            continue
        parts = writes(line, header)
        yield "".join(
            part + (f"{noise}\n" if number in after and number < len(parts) - 1 else "")
            for number, part in enumerate(parts)
        )


@pytest.mark.parametrize("noise", GLUED.values(), ids=GLUED)
@pytest.mark.parametrize("after", [(0,), (1,), (0, 1)], ids=["first", "middle", "both"])
@pytest.mark.parametrize("name", GOOD)
def test_glued(name: str, noise: str, after: tuple[int, ...]) -> None:
    """A root that a host's number is glued to is not known, nor is a count of wrong values."""
    lines = said_by(name)
    plain, run = run_of(lines), run_of(broken_up(lines, noise, after))
    assert (run.ok, len(run.rows), run.ranks) == (True, len(plain.rows), plain.ranks)
    if noise != NUMERIC:
        assert run == plain
    for row, other in zip(run.rows, plain.rows):
        assert (row.size, row.type, row.redop) == (other.size, other.type, other.redop)
        assert [one.busbw for one in row.timings] == [one.busbw for one in other.timings]
        for one, two in zip(row.timings, other.timings):
            assert (one.wrong, one.deviation) in ((two.wrong, two.deviation), (None, None))


@pytest.mark.parametrize("noise", BETWEEN.values(), ids=BETWEEN)
@pytest.mark.parametrize("name", GOOD)
def test_between_all_lines(name: str, noise: str) -> None:
    lines = said_by(name)
    assert run_of(f"{line}\n{noise}" for line in lines) == run_of(lines)


def open_mpi(line: str, header: str) -> str:
    return "".join(f"[1,0]<stdout>:{part}" for part in (writes(line, header) if is_row(line) else [line]))


def hydra(line: str, header: str) -> str:
    return "".join(f"[0] {part}" for part in (writes(line, header) if is_row(line) else [line]))


TAGGED: dict[str, t.Callable[[str, str], str]] = {
    "Open MPI 4": lambda line, header: f"[1,0]<stdout>:{line}",
    "Open MPI 4, every write": open_mpi,
    "Open MPI 5": lambda line, header: f"[prterun-ndv4-0001-2711@1,0]<stdout>: {line}",
    "srun -l": lambda line, header: f" 0: {line}",
    "srun -l of ten": lambda line, header: f"00: {line}",
    "Intel MPI": lambda line, header: f"[0] {line}",
    "Intel MPI, every write": hydra,
    "terminal": lambda line, header: f"\x1b[0m{line}\x1b[K\r",
    "terminal and srun": lambda line, header: f"\x1b[32m0: \x1b[0m{line}\r\r",
    "indented": lambda line, header: f"\t    {line}   ",
}


@pytest.mark.parametrize("tag", TAGGED)
@pytest.mark.parametrize("name", GOOD)
def test_tags(name: str, tag: str) -> None:
    lines = said_by(name)
    header = [line for line in lines if line.startswith("#") and "time" in line and "algbw" in line][0]  # noqa: RUF015
    assert run_of(TAGGED[tag](line, header) for line in lines) == run_of(lines)


def test_another_rank_breaks_into_a_row() -> None:
    lines = said_by("authored-2.13-all_reduce.txt")
    header = next(line for line in lines if "algbw" in line)
    broken = []
    for line in lines:
        if not is_row(line):
            broken.append(f"[1,0]<stdout>:{line}")
            continue
        first, second, third = writes(line, header)
        broken.append(f"[1,0]<stdout>:{first}[1,9]<stderr>:ndv4-0002:2:4 [1] NCCL INFO Channel 00 : 9[1] -> 10[2]")
        broken.append(f"[1,0]<stdout>:{second}{third}")
    assert run_of(broken) == run_of(lines)


def test_several_runs() -> None:
    names = [*GOOD, "authored-wrong.txt", GOOD[3]]
    lines = [line for name in names for line in [*said_by(name), INFO, "srun: job 7 queued", ""]]
    log = nccl_tests.parse(lines)
    assert log.runs == [nccl_tests.parse(said_by(name)).runs[0] for name in names]
    assert (log.ok, log.cause) == (False, log.runs[-2].cause)


def test_a_run_that_was_killed_and_its_repetition() -> None:
    """Both with and without lines that announce the start."""
    for name in ("authored-2.13-alltoall.txt", "authored-cputime.txt", "authored-1.0-reduce.txt"):
        lines = said_by(name)
        first_row = next(number for number, line in enumerate(lines) if is_row(line))
        for end in (first_row, first_row + 2, len(lines) - 4):
            log = nccl_tests.parse([*lines[:end], *lines])
            assert [run.ok for run in log.runs] == [False, True], (name, end)
            assert log.runs[1].rows == run_of(lines).rows


def test_tables_without_the_lines_before_them() -> None:
    """Somebody kept the tables only; the first of them breaks off."""
    lines = said_by("authored-cputime.txt")
    table = lines[lines.index("#", 5) + 1 :]
    log = nccl_tests.parse([*table[:5], *table])
    assert [(len(run.rows), run.complete) for run in log.runs] == [(2, False), (5, True)]


def test_what_stands_before_the_first_run() -> None:
    """Shells of remote hosts complain about their profiles; a launcher that fails leaves a run out."""
    lines = said_by("authored-cputime.txt")
    shell = "bash: line 1: module: command not found"
    assert nccl_tests.parse([shell, *lines]).ok
    assert nccl_tests.parse([shell, *lines[:-5]]).cause == Cause(shell, "infra")
    slots = "There are not enough slots available in the system to satisfy the 64"
    log = nccl_tests.parse([slots, *lines])
    assert (log.ok, log.cause, log.runs[0].ok) == (False, Cause(slots, "config"), True)


def test_a_command_that_is_echoed_is_no_row() -> None:
    assert nccl_tests.parse("8 8 float\n12 34 half 5\n1 2 float sum -1 1.0 2.0\n").runs == []


EVENT = "ndv4-0001:21000:21044 [3] transport/net_ib.cc:103 NCCL WARN NET/IB : mlx5_ib3:1 Got async event : {}"


@pytest.mark.parametrize("event", ["GID table change", "client reregistration", "port active", "port error"])
@pytest.mark.parametrize("name", GOOD)
def test_events_of_adapters_are_notes_of_a_run_that_ends_well(name: str, event: str) -> None:
    text = said_by(name)
    begin = next(index for index, line in enumerate(text) if is_row(line))
    log = nccl_tests.parse("\n".join([*text[:begin], EVENT.format(event), *text[begin:]]) + "\n")
    assert (log.ok, log.cause) == (True, None)
    assert EVENT.format(event) in [note for run in log.runs for note in run.notes]


def test_a_port_that_went_down_is_the_cause_of_a_run_that_does_not_end() -> None:
    text = said_by("authored-2.13-all_reduce.txt")
    begin = next(index for index, line in enumerate(text) if is_row(line))
    log = nccl_tests.parse("\n".join([*text[:begin], EVENT.format("port error")]) + "\n")
    assert log.cause == Cause(EVENT.format("port error"), "fabric")
    assert nccl_tests.parse("\n".join([*text[:begin], EVENT.format("SM change")]) + "\n").cause is None


# What getFloatStr prints from 1000 on: one decimal, none, and one digit with its exponent.
@pytest.mark.parametrize(
    "cell, rate",
    [
        (" 9999.9", 9999.9),
        ("  10000", 1e4),
        ("  99999", 99999.0),
        (" 100000", 1e5),
        ("  1e+06", 1e6),
        ("  3e+12", 3e12),
    ],
)
def test_rates_have_fewer_digits_the_higher_they_are(cell: str, rate: float) -> None:
    text = "\n".join(said_by("authored-one-rank.txt")) + "\n"
    log = nccl_tests.parse(text.replace(" 1380.71", cell))
    row = log.runs[0].rows[-1]
    assert log.ok
    assert row.out_of_place is not None
    assert (len(log.runs[0].rows), row.out_of_place.algbw, row.out_of_place.busbw) == (7, rate, 0)


@pytest.mark.parametrize(
    "good, bad",
    [
        ("1380.71", "    138"),
        ("1380.71", "#######"),
        ("1387.35", "1387,35"),
        ("16777216  ", "16777x16  "),
        ("float     sum      -1    48.60  1380.71", "float9    sum      -1    48.60      138"),
        ("     sum      -1    48.60  1380.71    0.00      0    48.37  1387.35    0.00      0", ""),
    ],
)
def test_a_row_that_cannot_be_read_is_missed(good: str, bad: str) -> None:
    text = "\n".join(said_by("authored-one-rank.txt")) + "\n"
    assert good in text
    log = nccl_tests.parse(text.replace(good, bad))
    assert (log.ok, log.runs[0].complete) == (False, False)
