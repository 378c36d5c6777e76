# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import math
import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    CheckError,
    explain,
    finite,
    judge,
    metric,
    overall,
    record,
    validate_expectation,
    validate_seconds,
)

FLOOR = {"check": "c", "metric": "busbw", "op": ">=", "value": 10, "unit": "GB/s", "source": "measured"}


def judged(value: t.Any, *expectations: dict[str, t.Any], **labels: t.Any) -> list[dict[str, t.Any]]:
    return judge("c", [metric("busbw", value, "GB/s", **labels)], expectations, nodes=2)


@pytest.mark.parametrize(
    "value, want",
    [(1, 1), (0.5, 0.5), (math.inf, None), (math.nan, None), (None, None), ("1", None), (True, None)],
)
def test_finite(value: t.Any, want: t.Any) -> None:
    assert finite(value) == want


@pytest.mark.parametrize(
    "value, change, verdict, ratio",
    [
        (10, {}, "pass", 1.0),
        (9.99, {}, "fail", 0.999),
        (None, {}, "error", None),
        (math.nan, {}, "error", None),
        (9, {"op": "<="}, "pass", 0.9),
        (11, {"op": "<"}, "fail", 1.1),
        (11, {"op": ">"}, "pass", 1.1),
        (0, {"op": "==", "value": 0}, "pass", None),
        (1, {"op": "==", "value": 0}, "fail", None),
    ],
)
def test_judge_compares(value: t.Any, change: dict[str, t.Any], verdict: str, ratio: float | None) -> None:
    (item,) = judged(value, {**FLOOR, **change})
    assert (item["verdict"], item["source"]) == (verdict, "measured")
    assert item["ratio"] == (None if ratio is None else pytest.approx(ratio))


@pytest.mark.parametrize("change", [{"check": "other"}, {"nodes": 3}, {"collective": "all_to_all"}])
def test_judge_leaves_what_the_expectation_is_not_about(change: dict[str, t.Any]) -> None:
    (item,) = judged(1, {**FLOOR, **change}, collective="all_reduce")
    assert (item["verdict"], item["expected"]) == ("unjudged", None)


def test_judge_picks_by_label() -> None:
    metrics = [metric("busbw", value, "GB/s", collective="all_reduce", size=size) for value, size in ((1, 8), (20, 64))]
    got = judge("c", metrics, [{**FLOOR, "collective": "all_reduce", "size": 64, "nodes": 2}], nodes=2)
    assert [m["verdict"] for m in got] == ["unjudged", "pass"]


def test_what_is_expected_and_was_not_measured_is_an_error() -> None:
    got = judged(20, {**FLOOR, "size": 64}, size=8)
    assert [(m["size"], m["verdict"], m["value"]) for m in got] == [(8, "unjudged", 20), (64, "error", None)]
    assert overall(got) == "error"
    assert explain(got) == "busbw (size=64): not measured, expected >= 10"


def test_the_missed_one_of_two_expectations_counts() -> None:
    for order in (1, -1):
        (item,) = judged(20, *[FLOOR, {**FLOOR, "value": 30}][::order])
        assert (item["verdict"], item["expected"]) == ("fail", ">= 30")


@pytest.mark.parametrize(
    "change, nodes, applies",
    [
        ({"nodes": 2}, 2, True),
        ({"nodes": 2}, 3, False),
        ({"nodes": 2}, None, False),
        ({"min_nodes": 2}, 1, False),
        ({"min_nodes": 2}, 2, True),
        ({"min_nodes": 2}, 200, True),
        ({"min_nodes": 2}, None, False),
        ({"min_nodes": 1}, None, False),
        ({"min_nodes": None, "nodes": None}, None, True),
    ],
)
def test_the_number_of_nodes_decides_what_applies(change: dict[str, t.Any], nodes: int | None, applies: bool) -> None:
    (item,) = judge("c", [metric("busbw", 1, "GB/s")], [{**FLOOR, **change}], nodes=nodes)
    assert item["verdict"] == ("fail" if applies else "unjudged")


@pytest.mark.parametrize(
    "value, verdict, expected", [(230, "pass", None), (200, "fail", ">= 228"), (180, "fail", None)]
)
def test_exact_and_least_nodes_meet_in_one_metric(value: int, verdict: str, expected: str | None) -> None:
    """The floor that is missed stays, whichever of the two comes first."""
    least, exact = {**FLOOR, "min_nodes": 1, "value": 185}, {**FLOOR, "nodes": 1, "value": 228}
    for order in ((least, exact), (exact, least)):
        (item,) = judge("c", [metric("busbw", value, "GB/s")], order, nodes=1)
        assert item["verdict"] == verdict
        assert expected is None or item["expected"] == expected


@pytest.mark.parametrize("value, verdict", [(25, "pass"), (21, "pass"), (20.5, "warn"), (20, "fail"), (None, "error")])
def test_a_pair_of_floors_warns_before_it_fails(value: float | None, verdict: str) -> None:
    pair = [{**FLOOR, "op": ">", "value": 20}, {**FLOOR, "value": 21, "verdict": "warn"}]
    for order in (pair, pair[::-1]):
        got = judged(value, *order)
        assert ([m["verdict"] for m in got], overall(got)) == ([verdict], verdict)


def test_a_warning_says_what_it_is_about() -> None:
    got = record("c", "n", time=1.0, metrics=judged(9, {**FLOOR, "verdict": "warn"}, gpu=3), blame="fabric")
    assert (got["verdict"], got["class"], got["reason"]) == ("warn", "fabric", "busbw (gpu=3): 9 GB/s, expected >= 10")


def test_old_records_can_be_judged_again() -> None:
    old = record("c", "n", time=1.0, metrics=judged(20, {**FLOOR, "value": 30}))
    again = judge("c", old["metrics"], [FLOOR])
    assert (old["verdict"], overall(again)) == ("fail", "pass")


@pytest.mark.parametrize(
    "change",
    [
        {"op": "~"},
        {"value": None},
        {"value": math.nan},
        {"value": "10"},
        {"unit": None},
        {"verdict": "pass"},
        {"nodes": 0},
        {"nodes": "2"},
        {"min_nodes": True},
        {"min_nodes": 1.5},
        {"nodes": 2, "min_nodes": 2},
        {"size": "8G"},
    ],
)
def test_a_malformed_expectation_is_refused(change: dict[str, t.Any]) -> None:
    with pytest.raises(CheckError):
        validate_expectation({**FLOOR, **change})
    with pytest.raises(CheckError, match="lacks source"):
        validate_expectation({k: v for k, v in FLOOR.items() if k != "source"})


def test_another_unit_is_refused() -> None:
    with pytest.raises(CheckError, match="GB/s"):
        judged(20, {**FLOOR, "unit": "Gb/s"})


@pytest.mark.parametrize(
    "verdicts, want",
    [
        ([], "error"),
        (["unjudged"], "unjudged"),
        (["unjudged", "pass"], "pass"),
        (["pass", "warn"], "warn"),
        (["pass", "error", "warn"], "error"),
        (["error", "fail"], "fail"),
    ],
)
def test_overall(verdicts: list[str], want: str) -> None:
    assert overall([{**metric("m", 1, "s"), "verdict": verdict} for verdict in verdicts]) == want


def test_unjudged_without_any_number_is_an_error() -> None:
    assert overall([metric("m", None, "s")]) == "error"


@pytest.mark.parametrize(
    "verdict, blamed",
    [("pass", None), ("unjudged", None), ("skipped", None), ("fail", "fabric"), ("warn", "fabric"), ("error", "infra")],
)
def test_record_blames(verdict: str, blamed: str | None) -> None:
    assert record("c", "n", time=1.0, verdict=verdict, blame="fabric")["class"] == blamed


def test_record_has_exactly_the_agreed_keys_and_is_json() -> None:
    got = record("c", "n", time=1.0, metrics=judged(math.inf, FLOOR), seconds=math.nan)
    assert " ".join(got) == (
        "schema run node check time seconds verdict class reason scope metrics samples evidence context"
    )
    assert " ".join(got["metrics"][0]) == "name value unit expected source ratio verdict"
    assert "NaN" not in json.dumps(got, allow_nan=False)


@pytest.mark.parametrize("wrong", [{"verdict": "ok"}, {"blame": "gremlins"}, {"colour": "red"}])
def test_record_refuses_words_that_nobody_knows(wrong: dict[str, t.Any]) -> None:
    with pytest.raises(CheckError):
        record("c", "n", **{"time": 1.0, "verdict": "pass", **wrong})


def test_labels_cannot_hide_a_metric_key() -> None:
    with pytest.raises(CheckError):
        metric("m", 1, "s", verdict="pass")


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.inf, math.nan])
def test_a_time_limit_that_is_none_is_refused(seconds: float) -> None:
    validate_seconds("settle", 0.0, least=0)
    with pytest.raises(CheckError, match=r"timeout is .* finite number of seconds"):
        validate_seconds("timeout", seconds)
