# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The outcome of a test from its records, and which values are outliers."""

from __future__ import annotations

import hashlib
import json
import statistics
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import CLASSES, VERDICTS, Json, compare, finite

# The outcome of a test from its check records; records that cannot be believed make it infra. Pure.


RATES = ("GB/s", "Gb/s", "bytes/s", "TFLOP/s", "GFLOP/s", "Gflops", "MHz")  # units in which less is worse
_MAIN = ("busbw", "busbw_peak")
_KNOWN = ("pass", "warn", "unjudged")
SILENT = "silent"  # in the context of a record that stands for a result that never came


class TestOutcome(t.NamedTuple):
    """The outcome of one test: ok, bad, or infra (nothing is known)."""

    kind: str = "infra"
    blame: str | None = "infra"
    reason: str = "nothing came back"
    # Speed is judged by a floor or beside others; what is wrong at any speed (values, counts) is hard.
    hard: bool = False
    judged: bool = False
    partial: bool = False  # of an infra: some of its checks gave a result
    silent: bool = False  # of an infra: nothing at all came from where the test was to run
    warned: str = ""
    value: float | None = None
    unit: str = ""
    expected: str = ""
    numbers: t.Mapping[str, float] = {}
    rails: t.Mapping[str, float] = {}
    nodes: frozenset[str] = frozenset()
    hosts: t.Mapping[str, str] = {}
    installations: t.Mapping[str, str] = {}
    tools: t.Mapping[str, Json] = {}
    begun: float | None = None
    ended: float | None = None
    digest: str = ""


def stamp(test_id: str, records: t.Iterable[Json]) -> list[Json]:
    """Return the records with the test in their context: a certificate can be judged again from them alone."""
    return [{**record, "context": {**(record.get("context") or {}), "test": test_id}} for record in records]


def read(records: t.Sequence[t.Any], reason: str = "") -> TestOutcome:
    """Return the outcome of the records of one test; without records it has the given reason."""
    pairs = sorted((_line(record), n) for n, record in enumerate(records))
    digest = hashlib.sha256("\n".join(line for line, dummy in pairs).encode()).hexdigest()
    ordered = [records[n] for dummy, n in pairs]
    broken = sum(1 for record in ordered if not believable(record))
    if broken or not ordered:
        lost = f"{broken} of {len(ordered)} records cannot be read"
        return TestOutcome(
            reason=reason or (lost if broken else "nothing came back"), silent=not ordered, digest=digest
        )
    return _outcome(ordered)._replace(digest=digest)


def _line(record: t.Any) -> str:
    try:
        return json.dumps(record, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        return "not JSON"


def _outcome(records: t.Sequence[Json]) -> TestOutcome:
    """Return the outcome of believable records: one fail decides, then one missing result; no metric is one, too."""
    about = _about(records)
    bad = [r for r in records if r["verdict"] == "fail" and r["class"] != "infra"]
    lost = [r for r in records if r["verdict"] == "error" or (r["verdict"] == "fail" and r["class"] == "infra")]
    known = [r for r in records if r["verdict"] in _KNOWN]
    if bad:
        blame = min((r["class"] for r in bad), key=CLASSES.index)
        return about._replace(kind="bad", blame=blame, reason=_reasons(bad), hard=any(map(_hard, bad)), judged=True)
    if lost or not known:
        reason = _reasons(lost or records) or "nothing was measured"
        silent = all(r["context"].get(SILENT) is True for r in records)
        return about._replace(kind="infra", blame="infra", reason=reason, partial=bool(known), silent=silent)
    judged = any(r["verdict"] != "unjudged" for r in known)
    warned = _reasons([r for r in known if r["verdict"] == "warn"])
    return about._replace(kind="ok", blame=None, reason="", judged=judged, warned=warned)


def believable(record: t.Any) -> bool:
    """Say whether this has the shape of a check record."""
    if not isinstance(record, dict) or not isinstance(record.get("check"), str):
        return False
    if record.get("verdict") not in VERDICTS:
        return False
    shapes = {"metrics": list, "scope": dict, "context": dict, "reason": str}
    if any(not isinstance(record.get(name), shape) for name, shape in shapes.items()):
        return False
    if record["verdict"] in ("fail", "warn", "error") and record.get("class") not in CLASSES:
        return False
    node = record.get("node", 0)
    return (node is None or isinstance(node, str)) and _consistent(record)


def _consistent(record: Json) -> bool:
    """Say whether all metrics have their shape, and none in a pass missed its limit or lacks a value."""
    texts = ("name", "unit", "verdict")
    for metric in record["metrics"]:
        if not isinstance(metric, dict) or not all(isinstance(metric.get(name), str) for name in texts):
            return False
        if record["verdict"] in ("pass", "unjudged") and metric["verdict"] not in ("pass", "unjudged"):
            return False
        if metric["verdict"] == "pass" and not _met(metric):
            return False
    return True


def _met(metric: Json) -> bool:
    """Say whether a metric that passed has a value, and meets its own limit."""
    if finite(metric.get("value")) is None or not isinstance(metric.get("expected"), str):
        return finite(metric.get("value")) is not None and metric.get("expected") is None
    op, dummy, limit = metric["expected"].partition(" ")
    try:
        expectation = {"op": op, "value": float(limit), "unit": metric["unit"], "source": ""}
        return compare(metric, expectation)["verdict"] == "pass"
    except (KeyError, ValueError):
        return False


def _hard(record: Json) -> bool:
    """Say whether a record is bad at any speed: it has no metrics, or one that is no rate missed its limit."""
    missed = [metric for metric in record["metrics"] if metric["verdict"] in ("fail", "warn")]
    return not missed or any(metric["unit"] not in RATES for metric in missed)


def _reasons(records: t.Sequence[Json]) -> str:
    parts = [f"{r['check']}: {r['reason'] or r['verdict']}" for r in records]
    return "; ".join(dict.fromkeys(parts))[:500]


def _about(records: t.Sequence[Json]) -> TestOutcome:
    """Return an outcome with all but the verdict: values, units, hosts, tools and times."""
    main = _main([r for r in records if r["scope"].get("rail") is None])
    times = [(time, finite(r.get("seconds")) or 0.0) for r in records for time in [finite(r.get("time"))] if time]
    rails: dict[str, list[Json]] = {}
    for record in records:
        if record["scope"].get("rail") is not None:
            rails.setdefault(_text(record["scope"]["rail"]), []).append(record)
    speeds = {rail: finite(_main(measured).get("value")) for rail, measured in rails.items()}
    return TestOutcome(
        value=finite(main.get("value")),
        unit=main.get("unit", ""),
        expected=_text(main.get("expected")),
        numbers=_numbers(records),
        rails={rail: value for rail, value in speeds.items() if value is not None},
        nodes=frozenset(r["node"] for r in records if r["node"]),
        hosts=_by_node(records, "physical_host"),
        installations=_by_node(records, "installation"),
        tools=_tools(records),
        begun=min((time for time, dummy in times), default=None),
        ended=max((time + seconds for time, seconds in times), default=None),
    )


def _by_node(records: t.Sequence[Json], key: str) -> dict[str, str]:
    """Return what the nodes say of themselves."""
    return {r["node"]: text for r in records if r["node"] and (text := _text(r["context"].get(key)))}


def _text(value: t.Any) -> str:
    return str(value)[:200] if isinstance(value, (str, int, float)) else ""


def _main(records: t.Sequence[Json]) -> Json:
    """Return the metric by which a collective is compared with others: busbw of the largest size."""
    rates = [metric for r in records for metric in r["metrics"] if metric["unit"] in RATES]
    rates = [metric for metric in rates if finite(metric.get("value")) is not None]
    named = [metric for metric in rates if metric["name"] in _MAIN] or rates
    return max(named, key=lambda metric: (metric["name"] == "busbw", finite(metric.get("size")) or 0), default={})


def _numbers(records: t.Sequence[Json]) -> dict[str, float]:
    """Return the rates by name and label; the lowest of several alike (GPUs of one node)."""
    numbers: dict[str, float] = {}
    for record in records:
        for metric in record["metrics"]:
            value = finite(metric.get("value"))
            if value is not None and metric["unit"] in RATES:
                name = key(record["check"], {**metric, "metric": metric["name"]})
                numbers[name] = min(value, numbers.get(name, value))
    return numbers


def key(check: str, item: t.Mapping[str, t.Any]) -> str:
    """Return the name under which a metric is compared between nodes; an expectation about it has the same."""
    labels = "".join(f" {name}={_text(item[name])}" for name in ("collective", "size") if item.get(name) is not None)
    return f"{check} {item['metric']}{labels} [{item['unit']}]"


def _tools(records: t.Sequence[Json]) -> dict[str, Json]:
    tools = {}
    for record in records:
        context = record["context"]
        if isinstance(context.get("tool"), str):
            tools[context["tool"]] = {name: _text(context.get(name)) or None for name in ("version", "sha256")}
    return tools


# Which values of a fleet lie too far under the rest. Pure.


LEAST = 5  # values; of fewer the spread says nothing
_CHANCE = 0.05
_FEW = 6.0  # so many values double the distance; fits normal noise from 5 values to 128 (4,000 draws of each)
_MAD = 1.4826  # standard deviations of a normal distribution in one median absolute deviation


class Limit(t.NamedTuple):
    """The middle of a fleet and the value under which one lies outside."""

    median: float
    low: float


def limit(values: t.Sequence[float], material: float, tries: int = 0) -> Limit | None:
    """Return the limit of these values, or nothing when they are too few to be compared.

    ``tries`` is how many values will be held against it, if that is more than there are now.
    """
    if len(values) < LEAST:
        return None
    median = statistics.median(values)
    spread = _MAD * statistics.median(abs(value - median) for value in values)
    far = statistics.NormalDist().inv_cdf(1 - _CHANCE / max(tries, len(values))) * (1 + _FEW / len(values)) * spread
    return Limit(median, median - max(far, material * abs(median)))


def below(values: t.Mapping[str, float], material: float) -> dict[str, Limit]:
    """Return the names whose value lies outside, with the limit."""
    bound = limit(list(values.values()), material)
    return {name: bound for name, value in values.items() if bound and value < bound.low}
