# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_summary import artifacts, summary


def stage(name: str, **more: t.Any) -> dict[str, t.Any]:
    plain: dict[str, t.Any] = {"run": "r2", "stage": name, "state": "done", "seconds": 9.0, "changes": {}}
    return {**plain, "failures": {}, "verdicts": {}, "skipped": None, **more}


TRAINING = {
    "run": "r2",
    "job_id": 7,
    "loss": [2.0, 0.01],
    "samples_per_second": 7273.2,
    "ranks": [{"rank": 0, "host": "c1"}, {"rank": 1, "host": "c2"}],
}


def test_one_aligned_line_for_each_stage_of_this_run() -> None:
    record = {
        "cluster": "lab",
        "training": [TRAINING, {**TRAINING, "run": "r1"}],
        "stages": [
            stage("configure", run="r1"),
            stage("provision", skipped="no host of the inventory belongs to it"),
            stage("configure", changes={"c1": 2, "c2": 3}, seconds=61),
            stage(
                "certify", state="failed", failures={"c2": "Refuse: c2 is bad\nmore"}, verdicts={"fail": 1, "pass": 3}
            ),
            stage("train"),
            stage("report", state="running"),
        ],
    }
    assert summary(record, "r2") == [
        "lab, run r2",
        "  provision  skipped      9.0 s       changed=0  no host of the inventory belongs to it",
        "  configure  ok           1 min 01 s  changed=5",
        "  certify    FAILED       9.0 s       changed=0  c2: Refuse: c2 is bad; checks: 1 fail, 3 pass",
        "  train      ok           9.0 s       changed=0  job 7: loss 2 to 0.01, 7273 samples/s, 2 ranks on 2 nodes",
        "  report     ended early  9.0 s       changed=0",
    ]


def test_a_long_failure_is_cut_where_it_is_seen() -> None:
    record = {"stages": [stage("configure", state="failed", failures={"c1": "Refuse: " + "x" * 500})]}
    assert summary(record, "r2")[1].endswith("xxx…")


def test_a_stage_in_several_parts_is_one_line() -> None:
    parts = [
        stage("stack", seconds=1.0),
        stage("train", seconds=1.0, changes={"c1": 1}, verdicts={"pass": 1}),
        stage("stack", seconds=2.0, state="failed", failures={"c2": "Build: no", "c1": "Build: no", "c3": "Fetch: no"}),
        stage("train", seconds=2.0, changes={"c1": 2}, skipped="no host"),
    ]
    assert summary({"stages": parts}, "r2")[1:] == [
        "  stack  FAILED  3.0 s  changed=0  c1, c2: Build: no; c3: Fetch: no",
        "  train  ok      3.0 s  changed=3  checks: 1 pass",
    ]


def test_an_empty_record_has_only_a_title() -> None:
    assert summary({}, "r1") == ["cluster, run r1"]


def test_later_jobs_get_a_few_words_of_each_stage_of_the_latest_run() -> None:
    stages = [
        {"run": "awx-1", "stage": "certify", "state": "done", "verdicts": {"pass": 3}},
        {"run": "awx-2", "stage": "certify", "state": "failed", "verdicts": {"fail": 1, "pass": 2}},
        {"run": "awx-2", "stage": "train", "state": "done", "verdicts": {}},
    ]
    found = artifacts({"stages": stages}, "ctl:/results")
    told = {"run": "awx-2", "state": "failed", "verdict": "fail", "counts": {"fail": 1, "pass": 2}}
    assert found["hpcai_certify"] == {**told, "place": "ctl:/results"}
    assert found["hpcai_train"]["verdict"] == "unjudged"
    assert artifacts({}, "ctl:/results") == {}
