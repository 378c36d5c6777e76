# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import hpl

FIXTURES = Path(__file__).parents[3] / "fixtures" / "hpl"
RESIDUAL = "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)="
SUMMARY = """Finished      {0} tests with the following results:
              {1} tests completed and passed residual checks,
              {2} tests completed and failed residual checks,
              {3} tests skipped because of illegal input values.
"""
ROW = "WR11C2R4       29184   192     2     2              20.39              8.1261e+02\n"
GOOD = ROW + RESIDUAL + "        0.0020152 ...... PASSED\n" + SUMMARY.format(1, 1, 0, 0)


def read(name: str) -> str:
    return (FIXTURES / name).read_text()


def one(text: str) -> hpl.HplRun:
    (run,) = hpl.parse(text).runs
    return run


def counts(run: hpl.HplRun) -> tuple[int | None, ...]:
    return run.tests, run.passed, run.failed, run.skipped


def test_netlib() -> None:
    log = hpl.parse(read("captured-passed.txt"))
    (run,) = log.runs
    assert (log.ok, log.cause, run.complete, run.program, run.version) == (True, None, True, "HPLinpack", "2.3")
    assert [(row.variant, row.n, row.nb, row.p, row.q) for row in run.rows] == [
        ("WR11C2R4", n, nb, 1, 2) for n in (2000, 3000) for nb in (64, 128)
    ]
    assert run.rows[2].gflops == 79.998 and run.best == run.rows[2]
    assert run.rows[0].gflops_per_gpu is None
    assert counts(run) == (4, 4, 0, 0)
    assert [residual.passed for residual in run.residuals] == [True] * 4
    assert run.residual_failures == 0
    json.dumps(dataclasses.asdict(log), allow_nan=False)


def test_nvidia_prints_the_speed_per_gpu() -> None:
    log = hpl.parse(read("nvidia.txt"))
    (run,) = log.runs
    assert log.ok and len(run.rows) == 1
    row = run.rows[0]
    assert (row.variant, row.n, row.nb, row.p, row.q, row.seconds) == ("WC0", 264192, 1024, 4, 2, 107.91)
    assert (row.gflops, row.gflops_per_gpu, row.gflops_factorization, row.mixed) == (113900.0, 14240.0, None, False)


@pytest.mark.parametrize(
    "line", ["WC0 264192 1024 4 2 41.16 2.987e+05 (3.734e+04)", "WC03R2R2 9 1 8 4 73.3 1e6 ( 3.1e+04 )"]
)
def test_brackets_with_and_without_blanks(line: str) -> None:
    assert one(line).rows[0].gflops_per_gpu in (37340.0, 31000.0)


def test_ptrans_of_hpcc_has_rows_and_a_summary_of_its_own() -> None:
    text = read("captured-hpcc.txt")
    assert "WALL" in text and "5 tests completed and passed" in text
    run = one(text)
    assert [row.variant for row in run.rows] == ["WR11C2R4"]
    assert (run.ok, counts(run)) == (True, (1, 1, 0, 0))
    assert one(text.replace("5 tests completed and passed", "3 tests completed and failed")).ok


@pytest.mark.parametrize(
    "name, rows",
    [
        ("hpl-ai.txt", [(176000, 116500.0, None)]),
        ("hpl-ai-refinement.txt", [(44000, 10920.0, 14940.0), (288000, 464100.0, 689400.0)]),
        ("hpl-mxp.txt", [(258048, 431120.0, 2486100.0)]),
    ],
)
def test_mixed_precision_reports_the_speed_with_refinement(name: str, rows: list[tuple[int, float, float]]) -> None:
    log = hpl.parse(read(name))
    (run,) = log.runs
    assert [(row.n, row.gflops, row.gflops_factorization) for row in run.rows] == rows
    assert all(row.mixed for row in run.rows)
    assert (log.ok, run.complete, run.residual_failures) == (True, True, 0)


def test_mxp_has_no_summary_and_ends_with_its_second_mark() -> None:
    run = one(read("hpl-mxp.txt"))
    assert (run.program, counts(run), run.rows[0].gflops_per_gpu) == ("HPL-MxP", (None,) * 4, 53890.0)
    text = read("hpl-mxp.txt")
    assert not one(text[: text.rindex("******  HPL".replace("  ", " "))]).complete
    assert [run.ok for run in hpl.parse(text + text).runs] == [True, True]


@pytest.mark.parametrize(
    "name, failures, value", [("captured-failed.txt", 1, 0.0059925831), ("nvidia-failed.txt", 1, None)]
)
def test_failed_residuals_do_not_change_the_exit_status(name: str, failures: int, value: float | None) -> None:
    log = hpl.parse(read(name))
    (run,) = log.runs
    assert (log.ok, run.complete, run.failed, run.residual_failures) == (False, True, 1, failures)
    assert run.residuals == [hpl.Residual(value, False)]
    assert log.cause and log.cause.kind == "hardware" and log.cause.text.endswith("FAILED")


def test_a_solution_that_nobody_checked_is_not_ok() -> None:
    summary = "Finished      1 tests with the following results:\n              1 tests completed without checking,\n"
    run = one(ROW + summary + "              0 tests skipped because of illegal input values.\n")
    assert (run.complete, run.ok, run.residual_failures, counts(run)) == (True, False, None, (1, None, None, 0))


def test_skipped_tests_are_not_ok() -> None:
    log = hpl.parse(read("captured-no-memory.txt"))
    assert (log.ok, log.runs[0].complete, log.runs[0].rows, log.runs[0].skipped) == (False, True, [], 1)
    assert log.cause and log.cause.text == ">>> [0,1] Memory allocation failed for A, x and b. Skip. <<<"
    assert not hpl.parse(ROW + SUMMARY.format(2, 1, 0, 1)).ok


@pytest.mark.parametrize(
    "name, text",
    [
        ("captured-no-input.stderr.txt", ">>> cannot open file HPL.dat <<<"),
        ("captured-too-few-processes.stderr.txt", ">>> Need at least 4 processes for these tests <<<"),
    ],
)
def test_the_words_are_on_the_second_line_of_an_error(name: str, text: str) -> None:
    log = hpl.parse(read(name))
    assert (log.runs, log.ok) == ([], False)
    assert log.cause == hpl.Cause(text, "config")


def test_killed_between_row_and_residual() -> None:
    run = one(read("captured-cut.txt"))
    assert (run.complete, run.ok, run.rows[0].gflops, run.residual_failures) == (False, False, 87.394, None)


@pytest.mark.parametrize("cut", range(0, 100, 3))
def test_a_cut_log_is_never_ok(cut: int) -> None:
    text = read("captured-passed.txt")
    log = hpl.parse(text[: text.index("tests skipped") * cut // 100])
    assert not log.ok and not any(run.complete for run in log.runs)


def test_parameter_lists_and_progress_are_no_rows() -> None:
    text = read("captured-passed.txt")
    assert "N      :    2000     3000" in text and "Fraction=" in text
    assert "Prog=" in read("nvidia.txt")
    assert len(one(text).rows) == 4


def test_runs_one_after_another() -> None:
    log = hpl.parse(read("captured-passed.txt") + read("nvidia-failed.txt") + read("hpl-mxp.txt") + GOOD)
    assert [(run.version, run.ok) for run in log.runs] == [("2.3", True), ("24.3.0", False), (None, True), (None, True)]


def test_tags_of_launchers_are_taken_off() -> None:
    text = "".join(f"[1,0]<stdout>:{line}\r\n" for line in read("nvidia.txt").splitlines())
    assert hpl.parse(text).runs == hpl.parse(read("nvidia.txt")).runs


@pytest.mark.parametrize(
    "text",
    [
        "",
        "WALL   500   500  80  80   2   2     0.00 PASSED    1.679  0.00\n",
        "WR11C2R4 1000 80 2 2\n",
        "WR11C2R4 1000 80 2 2 nan -nan\n",
        "Finished    5 tests, with the following results:\n    5 tests completed and passed residual checks.\n",
        SUMMARY.format(1, 1, 0, 0),
        "LU GFLOPS = 1e9\nGFLOPS = 1e9, per GPU = 3\n",
        "WR11C2R4 " + "9" * 30 + " 80 2 2 1 1\n",
    ],
)
def test_other_text_is_not_ok(text: str) -> None:
    log = hpl.parse(text)
    assert not log.ok
    assert all(row.gflops is None for run in log.runs for row in run.rows)
    json.dumps(dataclasses.asdict(log), allow_nan=False)


@pytest.mark.parametrize("value", ["nan", "-nan", "inf", "NaN", "0x1p"])
def test_a_residual_that_is_no_number_has_not_passed(value: str) -> None:
    text = read("nvidia.txt")
    assert "0.000413709218" in text
    log = hpl.parse(text.replace("0.000413709218", value))
    (run,) = log.runs
    assert log.cause is not None
    assert (log.ok, run.residual_failures, log.cause.kind) == (False, 1, "hardware")
    assert log.cause.text.endswith(f"= {value} ...... PASSED")


@pytest.mark.parametrize(
    "good, bad",
    [
        ("107.91       1.139e+05 ( 1.424e+04)", "107.91       nan ( nan)"),
        ("107.91       1.139e+05 ( 1.424e+04)", "107.91"),
        ("264192  1024     4     2       107.91", "264192  10x4     4     2       107.91"),
        (" 0.000413709218 ...... PASSED", " 0.000413709218 ...."),
    ],
)
def test_a_line_that_cannot_be_read_is_missed(good: str, bad: str) -> None:
    text = read("nvidia.txt")
    assert good in text
    log = hpl.parse(text.replace(good, bad))
    assert (log.ok, log.runs[0].complete) == (False, False)
