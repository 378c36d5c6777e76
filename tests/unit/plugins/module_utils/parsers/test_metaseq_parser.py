# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import metaseq

FIXTURES = Path(__file__).parents[3] / "fixtures/metaseq"


def read(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_text()


def row(updates: int, speed: str = "1000", tag: str = "train_inner") -> str:
    values = f'{{"epoch": 1, "loss": "2.5", "wps": "{speed}", "wpb": "64", "num_updates": "{updates}"}}'
    return f"2026-01-05 10:00:00 | INFO | {tag} | {values}\n"


END = "2026-01-05 10:00:09 | INFO | metaseq.cli.train | done training in 9.5 seconds\n"


def test_benchmark() -> None:
    log = metaseq.parse(read("benchmark-125m"))
    (run,) = log.runs
    assert (log.ok, run.complete, run.seconds, run.torn, len(run.rows)) == (True, True, 148.3, 0, 10)
    assert run.rows[0] == metaseq.MetaseqRow(5, 0, 524288, 12.0)
    assert run.words_per_second == 207000 and run.loss == 11.1


def test_log_of_a_job_that_went_on() -> None:
    log = metaseq.parse(read("resumed"))
    assert [[line.updates for line in run.rows] for run in log.runs] == [[5, 10, 15], [15, 20, 25]]
    assert [run.complete for run in log.runs] == [False, True]
    assert log.runs[1].ok and log.runs[1].words_per_second == 310022.5
    assert not log.ok


def test_loss_that_is_no_number() -> None:
    log = metaseq.parse(read("diverged"))
    assert not log.ok and log.cause is not None and "update 10" in log.cause.text


@pytest.mark.parametrize("text", ["", "noise\n", "| INFO | train_inner | {\n", row(5, tag="train"), END])
def test_no_run(text: str) -> None:
    log = metaseq.parse(text)
    assert log.runs == [] and not log.ok


def test_beginning_and_end_may_be_lost() -> None:
    (run,) = metaseq.parse(row(5) + row(10)).runs
    assert not run.ok and run.words_per_second == 1000
    (run,) = metaseq.parse(row(5) + row(10) + END).runs
    assert run.ok and run.seconds == 9.5


@pytest.mark.parametrize("speed", ["nan", "inf", "-", "", "1e999"])
def test_speed_that_is_no_number(speed: str) -> None:
    (run,) = metaseq.parse(row(5, speed) + END).runs
    assert run.rows[0].words_per_second is None and not run.ok
    (run,) = metaseq.parse(row(5, speed) + row(10) + END).runs
    assert run.words_per_second == 1000


def test_a_torn_row_leaves_the_run_incomplete() -> None:
    """It may have been the interval that stalled, or the loss that was nan."""
    (run,) = metaseq.parse(row(5) + row(10)[:70] + "\n" + row(15) + END).runs
    assert (run.torn, len(run.rows), run.seconds, run.complete, run.ok) == (1, 2, 9.5, False, False)


def test_updates_that_go_back_are_another_run() -> None:
    log = metaseq.parse(row(5) + row(10) + row(5) + row(10) + END)
    assert [len(run.rows) for run in log.runs] == [2, 2]


@pytest.mark.parametrize("said", ["FloatingPointError: Minimum loss scale reached (0.0001)", "CUDA out of memory."])
def test_failures(said: str) -> None:
    log = metaseq.parse(row(5) + f"Traceback\n{said}\n" + row(10) + END)
    assert not log.ok and log.cause is not None and said in log.cause.text
