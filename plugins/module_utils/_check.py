# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check records and how they are judged: no I/O, no AnsibleModule, private.

A check measures; a profile expects; this file compares the two and nothing else does. What was not measured is an
error of the infrastructure, what nobody expects stays unjudged: neither is ever a pass.
"""

from __future__ import annotations

import math
import typing as t

SCHEMA = 1
VERDICTS = ("pass", "warn", "fail", "unjudged", "skipped", "error")
CLASSES = ("hardware", "fabric", "config", "software", "infra")

Json = t.Dict[str, t.Any]

_COMPARE: dict[str, t.Callable[[float, float], bool]] = {
    ">=": lambda value, limit: value >= limit,
    "<=": lambda value, limit: value <= limit,
    ">": lambda value, limit: value > limit,
    "<": lambda value, limit: value < limit,
    "==": lambda value, limit: value == limit,
}
_EXPECTATION_KEYS = {"check", "metric", "nodes", "op", "value", "unit", "source"}
_METRIC_KEYS = {"name", "value", "unit", "expected", "source", "ratio", "verdict"}
# One metric below its floor is a finding whatever else is missing; a hole in the measurement outranks every pass.
_WORST_FIRST = ("fail", "error", "warn", "pass")


class CheckError(ValueError):
    """An expectation or a record is malformed; the text is fit for the user."""


def finite(value: t.Any) -> float | None:
    """Return the number, or None for whatever is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def metric(name: str, value: t.Any, unit: str, **labels: t.Any) -> Json:
    """Return an unjudged metric; labels (collective, size, path) say which of several it is."""
    clash = _METRIC_KEYS & set(labels)
    if clash:
        raise CheckError(f"metric {name}: {', '.join(sorted(clash))} cannot be a label")
    blank: Json = {"name": name, "value": finite(value), "unit": unit, "expected": None, "source": None}
    return {**blank, "ratio": None, "verdict": "unjudged", **labels}


def validate_expectation(expectation: t.Mapping[str, t.Any]) -> None:
    """Refuse an expectation that could not be compared with anything."""
    missing = sorted({"check", "metric", "op", "value", "unit", "source"} - set(expectation))
    if missing:
        raise CheckError(f"expectation {dict(expectation)!r} lacks {', '.join(missing)}")
    if expectation["op"] not in _COMPARE:
        raise CheckError(f"expectation op is {expectation['op']!r}, accepted are {', '.join(_COMPARE)}")
    if finite(expectation["value"]) is None:
        raise CheckError(f"expectation value is {expectation['value']!r}, a finite number is needed")


def _labels(expectation: t.Mapping[str, t.Any]) -> Json:
    return {key: value for key, value in expectation.items() if key not in _EXPECTATION_KEYS and value is not None}


def _applies(expectation: t.Mapping[str, t.Any], check: str, metrics: t.Sequence[Json], nodes: int | None) -> bool:
    """An expectation for another collective or node count says nothing about this record."""
    wanted = expectation.get("nodes")
    if expectation["check"] != check or (wanted is not None and wanted != nodes):
        return False
    collective = expectation.get("collective")
    return collective is None or any(m.get("collective") == collective for m in metrics)


def _compare(item: Json, expectation: t.Mapping[str, t.Any]) -> Json:
    if item["unit"] != expectation["unit"]:
        raise CheckError(f"{item['name']} is measured in {item['unit']}, its expectation is in {expectation['unit']}")
    limit, value = expectation["value"], finite(item["value"])
    verdict = "error" if value is None else "pass" if _COMPARE[expectation["op"]](value, limit) else "fail"
    return {
        **item,
        "expected": f"{expectation['op']} {limit}",
        "source": expectation["source"],
        "ratio": None if value is None or limit == 0 else value / limit,
        "verdict": verdict,
    }


def judge(
    check: str,
    metrics: t.Sequence[Json],
    expectations: t.Sequence[t.Mapping[str, t.Any]],
    nodes: int | None = None,
) -> list[Json]:
    """Return the metrics with verdicts; a metric that is expected but was not measured is added as an error."""
    judged = [metric(m["name"], m["value"], m["unit"], **_own_labels(m)) for m in metrics]
    for expectation in expectations:
        validate_expectation(expectation)
        if not _applies(expectation, check, metrics, nodes):
            continue
        labels = _labels(expectation)
        hits = [
            index
            for index, item in enumerate(judged)
            if item["name"] == expectation["metric"] and all(item.get(key) == want for key, want in labels.items())
        ]
        for index in hits:
            judged[index] = _worse(judged[index], _compare(judged[index], expectation))
        if not hits:
            judged.append(_compare(metric(expectation["metric"], None, expectation["unit"], **labels), expectation))
    return judged


def _own_labels(item: t.Mapping[str, t.Any]) -> Json:
    return {key: value for key, value in item.items() if key not in _METRIC_KEYS}


def _worse(one: Json, other: Json) -> Json:
    """Two expectations may meet in one metric; keep the one that it misses."""
    order = (*_WORST_FIRST, "unjudged")
    return one if order.index(one["verdict"]) < order.index(other["verdict"]) else other


def overall(metrics: t.Sequence[Json]) -> str:
    """Return the verdict of a record from the verdicts of its metrics."""
    seen = {m["verdict"] for m in metrics}
    if not metrics or (not seen - {"unjudged"} and all(m["value"] is None for m in metrics)):
        return "error"
    return next((verdict for verdict in _WORST_FIRST if verdict in seen), "unjudged")


def explain(metrics: t.Sequence[Json]) -> str:
    """Name every metric that failed or is missing."""
    parts = []
    for item in metrics:
        if item["verdict"] not in ("fail", "error"):
            continue
        labels = " ".join(f"{key}={value}" for key, value in _own_labels(item).items())
        value = "not measured" if item["value"] is None else f"{item['value']:g} {item['unit']}"
        parts.append(f"{item['name']}{f' ({labels})' if labels else ''}: {value}, expected {item['expected']}")
    return "; ".join(parts)


def record(
    check: str,
    node: str | None,
    *,
    time: float,
    verdict: str | None = None,
    metrics: t.Sequence[Json] = (),
    blame: str = "hardware",
    reason: str = "",
    **rest: t.Any,
) -> Json:
    """Return a complete record; without a verdict the (judged) metrics decide, and a fail is blamed as told."""
    unknown = sorted(set(rest) - {"run", "seconds", "scope", "samples", "evidence", "context"})
    decided = verdict or overall(metrics)
    if unknown or decided not in VERDICTS or blame not in CLASSES:
        raise CheckError(f"check record {check}: verdict {decided}, class {blame}, unknown keys {unknown}")
    return {
        "schema": SCHEMA,
        "run": rest.get("run"),
        "node": node,
        "check": check,
        "time": time,
        "seconds": finite(rest.get("seconds")),
        "verdict": decided,
        "class": {"error": "infra", "fail": blame, "warn": blame}.get(decided),
        "reason": reason or explain(metrics) or _default_reason(decided),
        "scope": rest.get("scope") or {},
        "metrics": [{**m, "value": finite(m["value"]), "ratio": finite(m["ratio"])} for m in metrics],
        "samples": rest.get("samples") or [],
        "evidence": rest.get("evidence") or "",
        "context": rest.get("context") or {},
    }


def _default_reason(verdict: str) -> str:
    return {"unjudged": "nothing is expected of it", "error": "nothing was measured"}.get(verdict, "")
