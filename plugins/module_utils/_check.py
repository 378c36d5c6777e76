# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check records and how they are judged: no I/O, no AnsibleModule, private.

A check measures; a profile expects; this file compares the two and nothing else does. What was not measured is an
error of the infrastructure, what nobody expects stays unjudged: neither is ever a pass.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import (
    CheckError,
    Json,
    applies,
    compare,
    finite,
    labels,
    validate_expectation,
)

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
        wanted = labels(expectation)
        hits = [
            index
            for index, item in enumerate(judged)
            if item["name"] == expectation["metric"] and all(item.get(key) == want for key, want in wanted.items())
        ]
        for index in hits:
            judged[index] = _worse(judged[index], compare(judged[index], expectation))
        if not hits:
            judged.append(compare(metric(expectation["metric"], None, expectation["unit"], **wanted), expectation))
    return judged


def _own_labels(item: t.Mapping[str, t.Any]) -> Json:
    return {key: value for key, value in item.items() if key not in _METRIC_KEYS}


def _worse(one: Json, other: Json) -> Json:
    """Two expectations may meet in one metric; keep the one that it misses, of two alike the later."""
    order = (*_WORST_FIRST, "unjudged")
    return one if order.index(one["verdict"]) < order.index(other["verdict"]) else other


def overall(metrics: t.Sequence[Json]) -> str:
    """Return the verdict of a record from the verdicts of its metrics."""
    seen = {m["verdict"] for m in metrics}
    if not metrics or (not seen - {"unjudged"} and all(m["value"] is None for m in metrics)):
        return "error"
    return next((verdict for verdict in _WORST_FIRST if verdict in seen), "unjudged")


def explain(metrics: t.Sequence[Json]) -> str:
    """Name every metric that missed what is expected of it, or is missing."""
    parts = []
    for item in metrics:
        if item["verdict"] not in ("fail", "error", "warn"):
            continue
        label = " ".join(f"{key}={value}" for key, value in _own_labels(item).items())
        value = "not measured" if item["value"] is None else f"{item['value']:g} {item['unit']}"
        parts.append(f"{item['name']}{f' ({label})' if label else ''}: {value}, expected {item['expected']}")
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
