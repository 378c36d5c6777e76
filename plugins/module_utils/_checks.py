# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check records: an expectation of a profile or a caller, the value that was measured, and the verdict. No I/O."""

from __future__ import annotations

import math
import typing as t

# One expectation: what it may say, which measurements it is about, what it makes of a value. No I/O.


Json = t.Dict[str, t.Any]

_NEEDED = ("check", "metric", "op", "value", "unit", "source")
# What an expectation says about itself; all the rest are labels of the metric.
_OWN = {*_NEEDED, "nodes", "min_nodes", "verdict"}
_MISSED = ("fail", "warn")
_COMPARE: dict[str, t.Callable[[float, float], bool]] = {
    ">=": lambda value, limit: value >= limit,
    "<=": lambda value, limit: value <= limit,
    ">": lambda value, limit: value > limit,
    "<": lambda value, limit: value < limit,
    "==": lambda value, limit: value == limit,
}


class CheckError(ValueError):
    """An expectation or a record is malformed; the text is fit for the user."""


class NotMeasured(Exception):
    """Nothing was measured: the verdict and the reason of the record, and programs that would have to be installed."""

    def __init__(self, verdict: str, reason: str, missing: t.Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.verdict, self.reason, self.missing = verdict, reason, missing


def finite(value: t.Any) -> float | None:
    """Return the number, or None for whatever is not a finite number, an integer beyond all floats included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def validate_seconds(name: str, value: float, least: float = 0.001) -> None:
    """Refuse a time limit that is none: infinity never ends, and nothing compares with nan."""
    if not math.isfinite(value) or value < least:
        raise CheckError(f"{name} is {value:g}; a finite number of seconds from {least:g} is needed")


def validate_expectation(expectation: t.Mapping[str, t.Any]) -> None:
    """Refuse an expectation that could not be compared with anything, or would silently never apply."""
    missing_keys = sorted(key for key in _NEEDED if expectation.get(key) is None)
    if missing_keys:
        raise CheckError(f"expectation {dict(expectation)!r} lacks {', '.join(missing_keys)}")
    if expectation["op"] not in _COMPARE:
        raise CheckError(f"expectation op is {expectation['op']!r}, accepted are {', '.join(_COMPARE)}")
    if finite(expectation["value"]) is None:
        raise CheckError(f"expectation value is {expectation['value']!r}, a finite number is needed")
    if miss_verdict(expectation) not in _MISSED:
        raise CheckError(f"expectation verdict is {expectation['verdict']!r}, accepted are {', '.join(_MISSED)}")
    for key in ("nodes", "min_nodes", "size"):
        count = expectation.get(key)
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise CheckError(f"expectation {key} is {count!r}, a whole number from 1 is needed")
    if expectation.get("nodes") is not None and expectation.get("min_nodes") is not None:
        raise CheckError("an expectation has either nodes (exactly so many) or min_nodes, not both")


def validate_units(expectations: t.Sequence[t.Mapping[str, t.Any]], check: str, units: t.Mapping[str, str]) -> None:
    """Refuse a limit in another unit; after an hour of measuring it would be too late to say so."""
    for expectation in expectations:
        unit = units.get(expectation["metric"]) if expectation["check"] == check else None
        if unit and unit != expectation["unit"]:
            raise CheckError(f"{expectation['metric']} is in {unit}, its expectation is in {expectation['unit']}")


def miss_verdict(expectation: t.Mapping[str, t.Any]) -> str:
    """Return what a value that misses the expectation is: a fail unless the expectation says warn."""
    return expectation.get("verdict") or "fail"


def labels(expectation: t.Mapping[str, t.Any]) -> Json:
    """Return what a metric must carry for the expectation to be about it."""
    return {key: value for key, value in expectation.items() if key not in _OWN and value is not None}


def applies(expectation: t.Mapping[str, t.Any], check: str, metrics: t.Sequence[Json], nodes: int | None) -> bool:
    """An expectation for another collective or node count says nothing about this record."""
    exact, least = expectation.get("nodes"), expectation.get("min_nodes")
    if expectation["check"] != check or (exact is not None and exact != nodes):
        return False
    if least is not None and (nodes is None or nodes < least):
        return False
    collective = expectation.get("collective")
    return collective is None or any(m.get("collective") == collective for m in metrics)


def compare(entry: Json, expectation: t.Mapping[str, t.Any]) -> Json:
    """Return the metric with what the expectation makes of it; without a value that is an error."""
    if entry["unit"] != expectation["unit"]:
        raise CheckError(f"{entry['name']} is measured in {entry['unit']}, its expectation is in {expectation['unit']}")
    limit, value = expectation["value"], finite(entry["value"])
    if value is None:
        verdict = "error"
    else:
        verdict = "pass" if _COMPARE[expectation["op"]](value, limit) else miss_verdict(expectation)
    return {
        **entry,
        "expected": f"{expectation['op']} {limit}",
        "source": expectation["source"],
        "ratio": None if value is None or limit == 0 else value / limit,
        "verdict": verdict,
    }


# Check records and how they are judged. No I/O.


SCHEMA = 1
VERDICTS = ("pass", "warn", "fail", "unjudged", "skipped", "error")
CLASSES = ("hardware", "fabric", "config", "software", "infra")

_METRIC_KEYS = {"name", "value", "unit", "expected", "source", "ratio", "verdict"}
# One metric below its floor is a finding whatever else is missing; a hole in the measurement outranks every pass.
_WORST_FIRST = ("fail", "error", "warn", "pass")


def metric(name: str, value: t.Any, unit: str, **label: t.Any) -> Json:
    """Return an unjudged metric; labels (collective, size, path) say which of several it is."""
    clash = _METRIC_KEYS & set(label)
    if clash:
        raise CheckError(f"metric {name}: {', '.join(sorted(clash))} cannot be a label")
    blank: Json = {"name": name, "value": finite(value), "unit": unit, "expected": None, "source": None}
    return {**blank, "ratio": None, "verdict": "unjudged", **label}


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
        if not applies(expectation, check, metrics, nodes):
            continue
        wanted_labels = labels(expectation)
        hits = [
            index
            for index, entry in enumerate(judged)
            if entry["name"] == expectation["metric"]
            and all(entry.get(key) == want for key, want in wanted_labels.items())
        ]
        for index in hits:
            judged[index] = _worse(judged[index], compare(judged[index], expectation))
        if not hits:
            judged.append(
                compare(metric(expectation["metric"], None, expectation["unit"], **wanted_labels), expectation)
            )
    return judged


def _own_labels(entry: t.Mapping[str, t.Any]) -> Json:
    return {key: value for key, value in entry.items() if key not in _METRIC_KEYS}


def _worse(first: Json, second: Json) -> Json:
    """Two expectations may meet in one metric; keep the one that it misses, of two alike the later."""
    order = (*_WORST_FIRST, "unjudged")
    return first if order.index(first["verdict"]) < order.index(second["verdict"]) else second


def overall(metrics: t.Sequence[Json]) -> str:
    """Return the verdict of a record from the verdicts of its metrics."""
    verdicts = {m["verdict"] for m in metrics}
    if not metrics or (not verdicts - {"unjudged"} and all(m["value"] is None for m in metrics)):
        return "error"
    return next((verdict for verdict in _WORST_FIRST if verdict in verdicts), "unjudged")


def explain(metrics: t.Sequence[Json]) -> str:
    """Name every metric that missed what is expected of it, or is missing."""
    texts = []
    for entry in metrics:
        if entry["verdict"] not in ("fail", "error", "warn"):
            continue
        label = " ".join(f"{key}={value}" for key, value in _own_labels(entry).items())
        value = "not measured" if entry["value"] is None else f"{entry['value']:g} {entry['unit']}"
        texts.append(f"{entry['name']}{f' ({label})' if label else ''}: {value}, expected {entry['expected']}")
    return "; ".join(texts)


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
    """Return a complete record; without a verdict the (judged) metrics decide, and a fail has the class ``blame``."""
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


# The options of modules that return check records; documented in doc_fragments/measure.py.


Spec = t.Dict[str, t.Dict[str, t.Any]]

SPEC: Spec = {
    "expect": {"type": "list", "elements": "dict", "default": []},
    "profile": {"type": "str"},
    "run": {"type": "str"},
}
NODE: Spec = {"name": {"type": "str"}}
SYSFS: Spec = {"sysfs": {"type": "path", "default": "/sys"}}
