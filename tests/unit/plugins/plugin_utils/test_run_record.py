# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
import types
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._run_file import RecordError, load, merge, store
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_record import Recorder, run_name, timestamp
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_results import (
    failure_text,
    is_rescued,
    pick,
    plain,
)

CHECK = {"check": "munge", "verdict": "pass", "node": "c1", "scope": {}}
CENSORED = {"censored": "the output has been hidden", "changed": True}


def recorder() -> Recorder:
    made = Recorder("r1")
    made.enter("configure", 1000.0)
    return made


@pytest.mark.parametrize(
    "value, expected",
    [
        (float("nan"), None),
        (float("inf"), None),
        ({1: (1, 2)}, {"1": [1, 2]}),
        (Path("x"), "x"),
        (True, True),
        ([None, 1.5], [None, 1.5]),
    ],
)
def test_plain(value: object, expected: object) -> None:
    assert plain(value) == expected


@pytest.mark.parametrize(
    "result, checks, training",
    [
        ({"check": CHECK}, 1, 0),
        ({"checks": [CHECK, CHECK]}, 2, 0),
        ({"results": [{"check": CHECK}, {"checks": [CHECK]}]}, 2, 0),
        ({"training": {"state": "COMPLETED", "loss": [1.0]}}, 0, 1),
        ({"check": "a string of another module"}, 0, 0),
        ({"check": {"verdict": "pass"}}, 0, 0),
        ({"training": ["x"]}, 0, 0),
        ({"check": CHECK, "_ansible_no_log": True}, 0, 0),
        ({**CENSORED, "results": [{"check": CHECK}]}, 0, 0),
        ({"results": [{**CENSORED, "check": CHECK}]}, 0, 0),
        ({}, 0, 0),
    ],
)
def test_pick_takes_the_named_keys_of_results_that_may_be_shown(result: dict, checks: int, training: int) -> None:
    found = pick(result)
    assert (len(found.checks), len(found.training)) == (checks, training)


def test_pick_leaves_unknown_keys_behind() -> None:
    found = pick({"check": {**CHECK, "password": "x"}, "training": {"state": "FAILED", "token": "x"}, "stdout": "x"})
    assert "x" not in json.dumps([found.checks, found.training])


def test_facts_are_taken_from_gathering_only() -> None:
    result = {"ansible_facts": {"ansible_distribution": "Debian", "ansible_env": {"TOKEN": "x"}}}
    assert pick(result).facts == {}
    assert pick(result, gathered=True).facts == {"os": "Debian"}


@pytest.mark.parametrize(
    "result, text",
    [
        ({"msg": "it  broke\nbadly"}, "it broke badly"),
        ({"results": [{"msg": "fine"}, {"failed": True, "msg": "second"}]}, "second"),
        ({"msg": "secret", "_ansible_no_log": True}, "the task failed; its result is hidden (no_log)"),
        (CENSORED, "the task failed; its result is hidden (no_log)"),
        ({}, "the task failed without a message"),
        ({"msg": ["Nothing was changed.", "cluster_name is bad"]}, "Nothing was changed. cluster_name is bad"),
    ],
)
def test_failure_text(result: dict, text: str) -> None:
    assert failure_text(result) == text


def test_failure_text_is_short() -> None:
    assert len(failure_text({"msg": "x" * 5000})) == 600


def test_consecutive_plays_of_a_stage_are_one_stage() -> None:
    made = recorder()
    made.enter("configure", 1010.0)
    made.enter("certify", 1020.0)
    made.leave(1050.0)
    assert [(s["stage"], s["seconds"], s["state"]) for s in made.document["stages"]] == [
        ("configure", 20.0, "done"),
        ("certify", 30.0, "done"),
    ]


def test_plays_without_a_stage_are_not_recorded() -> None:
    made = recorder()
    made.enter(None, 1010.0)
    made.result("c1", {"changed": True, "check": CHECK})
    assert made.document["stages"][0]["changes"] == {}
    assert made.document["checks"] == []


def test_results_are_counted_by_host() -> None:
    made = recorder()
    made.task()
    made.result("c1", {"changed": True})
    made.result("c1", {"changed": True, "check": CHECK})
    made.failure("c2", {"msg": "no route"}, "Say hello")
    made.leave(1001.0)
    stage = made.document["stages"][0]
    assert stage["changes"] == {"c1": 2}
    assert stage["hosts"] == ["c1", "c2"]
    assert stage["failures"] == {"c2": "Say hello: no route"}
    assert stage["verdicts"] == {"pass": 1}
    assert stage["state"] == "failed"


def test_hosts_that_recovered_are_forgiven() -> None:
    made = recorder()
    made.failure("c2", {"msg": "no route"}, "Say hello")
    made.leave(1001.0)
    made.forgive(["c2"])
    assert made.document["stages"][0]["state"] == "done"


def test_a_skipped_stage_says_why_unless_it_did_something() -> None:
    made = recorder()
    made.skip("no host")
    assert made.document["stages"][0]["skipped"] == "no host"
    made.enter("certify", 1001.0)
    made.task()
    made.skip("no host")
    assert made.document["stages"][1]["skipped"] is None


def test_a_stage_for_which_no_host_was_left_is_not_done() -> None:
    made = recorder()
    made.failure("c1", {"msg": "no route"}, "Say hello")
    made.enter("certify", 1001.0)
    made.enter("train", 1002.0)
    made.task()
    made.leave(1003.0)
    assert [stage["skipped"] for stage in made.document["stages"][-2:]] == ["none of its tasks was run", None]


def test_a_cluster_name_that_is_still_a_template_is_no_name() -> None:
    made = recorder()
    made.cluster("{{ other }}", "lab")
    assert (made.document["cluster"], made.document["sku"]) == (None, "lab")


def task(uuid: str, parent: object = None, **more: object) -> types.SimpleNamespace:
    return types.SimpleNamespace(_uuid=uuid, _parent=parent, **more)


def test_is_rescued_tells_main_part_from_rescue_part() -> None:
    outer = task("outer", block=[task("inner")], rescue=[task("cure")])
    inner = task("inner", outer, block=[task("leaf")], rescue=[])
    assert is_rescued(task("leaf", inner))
    assert not is_rescued(task("cure", outer))
    assert not is_rescued(task("alone"))


def stage(run: str, name: str = "configure", start: str = "t0", **more: object) -> dict:
    return {"run": run, "stage": name, "start": start, **more}


def test_merge_replaces_own_entries_and_keeps_others() -> None:
    old = {"cluster": "lab", "stages": [stage("a"), stage("b", seconds=1)], "checks": [{"run": "b", **CHECK}]}
    own = {"stages": [stage("b", seconds=2)], "checks": [{"run": "b", **CHECK, "verdict": "fail"}]}
    merged = merge(old, own, keep=5)
    assert merged["cluster"] == "lab"
    assert [(s["run"], s.get("seconds")) for s in merged["stages"]] == [("a", None), ("b", 2)]
    assert [c["verdict"] for c in merged["checks"]] == ["fail"]


def test_merge_keeps_two_collectives_apart() -> None:
    own = {"stages": [stage("b")]}
    own["checks"] = [{"run": "b", "check": "x", "context": {"collective": c}} for c in ("all_reduce", "all_to_all")]
    assert len(merge({}, own, keep=5)["checks"]) == 2


def test_merge_forgets_the_oldest_runs() -> None:
    old = {"stages": [stage(f"r{i}", start=str(i)) for i in range(5)], "checks": [{"run": "r0", **CHECK}]}
    merged = merge(old, {"stages": [stage("new")]}, keep=2)
    assert [s["run"] for s in merged["stages"]] == ["r4", "new"]
    assert merged["checks"] == []


def test_store_then_load(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.json"
    store(path, {"stages": [stage("a")]}, keep=3)
    store(path, {"stages": [stage("b")]}, keep=3)
    assert [s["run"] for s in load(path)["stages"]] == ["a", "b"]
    assert sorted(p.name for p in path.parent.iterdir()) == [".run.json.lock", "run.json"]


def test_another_cluster_begins_a_record_of_its_own_and_the_first_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    store(path, {"cluster": "a/b", "stages": [stage("1")], "nodes": {"c1": {}}}, keep=3)
    store(path, {"stages": [stage("2")]}, keep=3)  # a run that does not know its cluster yet
    store(path, {"cluster": "lab", "stages": [stage("2"), stage("2", "stack")], "nodes": {"n1": {}}}, keep=3)
    here = load(path)
    assert (here["cluster"], [row["run"] for row in here["stages"]], [*here["nodes"]]) == ("lab", ["2", "2"], ["n1"])
    assert load(path, "lab") == here and load(path, "unknown") == load(path, "a_b") == {}
    there = load(path, "a/b")
    assert (there["cluster"], [row["run"] for row in there["stages"]], [*there["nodes"]]) == ("a/b", ["1"], ["c1"])
    store(path, {"cluster": "a/b", "stages": [stage("3")]}, keep=3)
    assert [row["run"] for row in load(path)["stages"]] == ["1", "3"]
    assert load(path, "lab") == here
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        ".run.json.lock",
        "run-a%2Fb.json",
        "run-lab.json",
        "run.json",
    ]


def test_a_run_of_another_cluster_with_the_same_name_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    store(path, {"cluster": "a", "stages": [stage("41", start="t0")]}, keep=3)
    document = load(path)
    path.write_text(json.dumps({**document, "stages": [*document["stages"], "no row"], "checks": "no rows"}))
    store(path, {"cluster": "b", "stages": [stage("41", start="t1")]}, keep=3)
    assert [row["start"] for row in load(path, "a")["stages"]] == ["t0"]
    assert [row["start"] for row in load(path, "b")["stages"]] == ["t1"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99}'])
def test_a_strange_file_is_never_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(RecordError):
        store(path, {"stages": [stage("a")]}, keep=3)
    assert path.read_text() == text


def write_for_ever(path: Path) -> None:
    number = 0
    while True:
        number += 1
        store(path, {"stages": [stage("a", start=str(number), padding="x" * 20000)]}, keep=3)


def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    process = multiprocessing.get_context("fork").Process(target=write_for_ever, args=(path,))
    process.start()
    while not path.exists():
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    assert load(path)["stages"]
    store(path, {"stages": [stage("b")]}, keep=3)  # the lock died with its holder
    assert load(path)["stages"][-1]["run"] == "b"


def test_names_sort_by_time() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00Z"
    assert run_name(0) == "19700101T000000Z" < run_name(90000)
