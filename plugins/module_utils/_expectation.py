# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One expectation: what it may say, which measurements it is about, what it makes of a value. No I/O, private.

``{check, metric, op, value, unit, source}`` are needed. ``nodes`` or ``min_nodes`` limit it to runs over so many nodes,
``verdict: warn`` makes a miss a warning, every other key (collective, size, path) is a label that the metric must have.
"""

from __future__ import annotations

import math
import typing as t

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
    missing = sorted(key for key in _NEEDED if expectation.get(key) is None)
    if missing:
        raise CheckError(f"expectation {dict(expectation)!r} lacks {', '.join(missing)}")
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


def compare(item: Json, expectation: t.Mapping[str, t.Any]) -> Json:
    """Return the metric with what the expectation makes of it; without a value that is an error."""
    if item["unit"] != expectation["unit"]:
        raise CheckError(f"{item['name']} is measured in {item['unit']}, its expectation is in {expectation['unit']}")
    limit, value = expectation["value"], finite(item["value"])
    if value is None:
        verdict = "error"
    else:
        verdict = "pass" if _COMPARE[expectation["op"]](value, limit) else miss_verdict(expectation)
    return {
        **item,
        "expected": f"{expectation['op']} {limit}",
        "source": expectation["source"],
        "ratio": None if value is None or limit == 0 else value / limit,
        "verdict": verdict,
    }
