# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs import training

RESULT = {
    "model": "CNN",
    "world_size": 2,
    "ranks": [{"rank": 0, "host": "c1"}, {"rank": 1, "host": "c2"}],
    "loss": [2.0] * 10 + [0.1] * 10,
    "samples_per_second": 1000.0,
    "seconds": 2.0,
}
JOB = {"name": "ddp", "job_id": 7, "state": "COMPLETED", "exit_code": 0, "nodes": ["c1", "c2"]}


def judged(result: dict[str, t.Any], job: dict[str, t.Any] | None = None, ratio: float = 0.5) -> dict[str, t.Any]:
    found = training.describe(training.parse(json.dumps({**RESULT, **result})), {**JOB, **(job or {})})
    return training.check(found, "", training.expectations(ratio, 2), time=1.0)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"world_size": 2, "ranks": [{}], "loss": []}'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(training.TrainingError):
        training.parse(text)


@pytest.mark.parametrize(
    "loss, want",
    [
        ([], None),
        ([1.0], None),
        ([2.0, 1.0], 0.5),
        ([2.0, None, 1.0], None),
        ([0.0, 1.0], None),
        ([4.0] * 20 + [1.0] * 20, 0.25),
    ],
)
def test_loss_ratio(loss: list[float | None], want: float | None) -> None:
    assert training.loss_ratio(loss) == want


def test_it_learned() -> None:
    got = judged({})
    assert (got["verdict"], got["context"]["job_id"], training.learned(got)) == ("pass", 7, True)


@pytest.mark.parametrize(
    "result, job, verdict, reason",
    [
        ({"loss": [2.0, 1.9]}, {}, "fail", "loss_ratio"),
        ({"loss": [2.0, float("nan")]}, {}, "error", "loss_ratio: not measured"),
        ({"ranks": [{"rank": 0, "host": "c1"}, {"rank": 1, "host": "c1"}]}, {}, "fail", "silent_nodes"),
        ({"ranks": [{"rank": 0, "host": "c1"}, {"rank": 0, "host": "c2"}]}, {}, "fail", "missing_ranks"),
        ({}, {"nodes": ["c1", "c2", "c3"]}, "fail", "silent_nodes"),
        ({}, {"nodes": []}, "error", "silent_nodes"),
        ({}, {"state": "FAILED", "exit_code": 1}, "fail", "job 7 ended as FAILED, exit code 1"),
        ({}, {"state": "TIMEOUT"}, "fail", "TIMEOUT"),
    ],
)
def test_what_is_not_a_pass(result: dict[str, t.Any], job: dict[str, t.Any], verdict: str, reason: str) -> None:
    got = judged(result, job)
    assert got["verdict"] == verdict
    assert reason in got["reason"]


def test_a_completed_job_without_a_result_is_an_error() -> None:
    found = training.describe(None, JOB)
    got = training.check(found, "result.json: no such file", [], time=1.0)
    assert (got["verdict"], got["class"], found["loss"], training.learned(got)) == ("error", "infra", [], False)


def test_what_interruptions_cost_is_told_and_can_be_judged() -> None:
    ranks = [{"rank": 0, "host": "c1", "cpus": [0, 1, 2]}, {"rank": 1, "host": "c2"}]
    starts = {"restarts": 2, "resumed_from": 150, "lost_steps": 12}
    result = training.parse(json.dumps({**RESULT, **starts, "ranks": ranks}))
    assert {key: result[key] for key in starts} == starts
    assert result["ranks"] == [{"rank": 0, "host": "c1", "cpus": "0-2"}, {"rank": 1, "host": "c2"}]
    limit = {"check": "training", "metric": "lost_steps", "op": "<=", "value": 10, "unit": "steps", "source": "ours"}
    expected = [*training.expectations(0.5, 2), limit]
    got = training.check(training.describe(result, JOB), "", expected, time=1.0)
    assert got["verdict"] == "fail"
    assert "lost_steps" in got["reason"]


def test_a_result_of_an_older_program_has_no_interruptions() -> None:
    found = training.describe(training.parse(json.dumps(RESULT)), JOB)
    assert (found["restarts"], found["resumed_from"], found["lost_steps"]) == (0, None, 0)
    assert training.describe(None, JOB)["restarts"] == 0


def test_a_training_that_ended_itself_says_why() -> None:
    text = json.dumps({"problem": "the loss of rank 1 on c2 is nan\nat step\u001b[2J 17", "rank": 1})
    with pytest.raises(training.EndedItself) as told:
        training.parse(text)
    assert (str(told.value), told.value.rank) == ("the loss of rank 1 on c2 is nan at step [2J 17", 1)
    found = training.describe(None, {**JOB, "state": "FAILED", "exit_code": 1})
    record = training.check(found, str(told.value), [], time=1.0, why=str(told.value))
    assert record["verdict"] == "fail"
    assert record["reason"] == "job 7 ended as FAILED, exit code 1: the loss of rank 1 on c2 is nan at step [2J 17"


def test_the_last_lines_are_those_of_a_regular_file_and_hold_no_control_characters(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"step {n}\n" for n in range(9999)) + "\n\x1b]0;title\x07 torn")
    assert training.last_lines(str(log), 2) == ["step 9998", " ]0;title  torn"]
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(log)
    for name in ("fifo", "link", "away", "."):
        assert training.last_lines(str(tmp_path / name)) == []
