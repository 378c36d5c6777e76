# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check records and a certificate as Prometheus text, fit for a node exporter's text file collector. Private.

Sums are always there; a series of its own has only what did not pass, so that a sound fleet of thousands makes few.
With ``values`` every judged metric has one too: nodes times metrics.
"""

from __future__ import annotations

import math
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import VERDICTS, verdict_of

Row = t.Mapping[str, t.Any]
STATUSES = ("cleared", "watched", "drained", "untested")
_FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]")
_KNOWN = ("name", "value", "unit", "expected", "source", "ratio", "verdict")
HELP = {
    "hpcai_checks": "Check records by check and verdict.",
    "hpcai_check_finding": "A check that did not pass: 1, with its verdict and class.",
    "hpcai_check_value": "A judged metric; its unit is a label.",
    "hpcai_check_time_seconds": "When the latest record was made.",
    "hpcai_certificate_nodes": "Nodes of the latest certificate by status.",
    "hpcai_certificate_node": "A node that was not cleared: 1, with its status.",
    "hpcai_certificate_posterior": "How likely a node that was not cleared is bad.",
    "hpcai_certificate_miss_probability": "Chance that a fault was missed, per node.",
    "hpcai_certificate_time_seconds": "When the latest certificate was made.",
    "hpcai_certificate_duration_seconds": "How long the certification took.",
}


class Prometheus:
    """An exposition grown record by record."""

    def __init__(self, values: bool = False) -> None:
        self.values = values
        self._counts: dict[tuple[str, str], int] = {}
        self._findings: dict[str, None] = {}
        self._measured: dict[str, str] = {}
        self._latest = 0.0

    def add(self, record: Row) -> None:
        """Take one record."""
        verdict, check, node = verdict_of(record), str(record.get("check")), str(record.get("node") or "")
        self._counts[check, verdict] = self._counts.get((check, verdict), 0) + 1
        self._latest = max(self._latest, _number(record.get("time")) or 0.0)
        if verdict in ("fail", "error", "warn"):
            about = {"node": node, "check": check, "verdict": verdict, "class": str(record.get("class") or "")}
            self._findings[_sample("hpcai_check_finding", about, 1)] = None
        if self.values:
            self._measured.update(_values(node, check, record))

    def text(self, certificate: Row | None = None) -> t.Iterator[str]:
        """Yield the exposition in pieces, family by family."""
        order = sorted(self._counts, key=lambda key: (key[0], VERDICTS.index(key[1])))
        sums = [_sample("hpcai_checks", {"check": c, "verdict": v}, self._counts[c, v]) for c, v in order]
        time = [_sample("hpcai_check_time_seconds", {}, self._latest)] if self._latest else []
        yield from _family("hpcai_checks", sums)
        yield from _family("hpcai_check_finding", self._findings)
        yield from _family("hpcai_check_value", self._measured.values())
        yield from _family("hpcai_check_time_seconds", time)
        yield from _certificate(certificate or {})


def _values(node: str, check: str, record: Row) -> t.Iterator[tuple[str, str]]:
    """Yield (series, sample): measured again, a series has its latest value and is not there twice."""
    metrics = record.get("metrics")
    for metric in metrics if isinstance(metrics, list) else ():
        value = _number(metric.get("value")) if isinstance(metric, dict) else None
        if value is None or metric.get("expected") is None:
            continue
        extra = {_label(key): str(metric[key]) for key in metric if key not in _KNOWN and metric[key] is not None}
        about = {
            **extra,
            "node": node,
            "check": check,
            "metric": str(metric.get("name")),
            "unit": str(metric.get("unit") or ""),
        }
        sample = _sample("hpcai_check_value", about, value)
        yield sample.rpartition(" ")[0], sample


def _certificate(certificate: Row) -> t.Iterator[str]:
    nodes = certificate.get("nodes")
    if not isinstance(nodes, dict):
        return
    known = {str(name): about for name, about in nodes.items() if isinstance(about, dict)}
    run = {"run": str(certificate.get("run") or ""), "cluster": str(certificate.get("cluster") or "")}
    statuses = [str(about.get("status")) for about in known.values()]
    name = "hpcai_certificate_nodes"
    yield from _family(name, [_sample(name, {**run, "status": status}, statuses.count(status)) for status in STATUSES])
    out = {name: about for name, about in known.items() if about.get("status") != "cleared"}
    name = "hpcai_certificate_node"
    yield from _family(name, [_sample(name, _about(node, about), 1) for node, about in out.items()])
    name = "hpcai_certificate_posterior"
    sure = {node: value for node, about in out.items() if (value := _number(about.get("posterior"))) is not None}
    yield from _family(name, [_sample(name, {"node": node}, value) for node, value in sure.items()])
    missed = certificate.get("miss_bound")
    scalars = {"miss_probability": missed.get("probability") if isinstance(missed, dict) else None}
    scalars.update(time_seconds=certificate.get("time"), duration_seconds=certificate.get("seconds"))
    for key, raw in scalars.items():
        value = _number(raw)
        name = f"hpcai_certificate_{key}"
        yield from _family(name, [_sample(name, run, value)] if value is not None else [])


def _about(node: str, about: Row) -> dict[str, str]:
    keys = {"status": "status", "class": "class", "leaf": "leaf", "physical_host": "physical_host"}
    return {"node": node, **{label: str(about.get(key) or "") for key, label in keys.items()}}


def _family(name: str, samples: t.Iterable[str]) -> t.Iterator[str]:
    listed = list(samples)
    if listed:
        yield f"# HELP {name} {HELP[name]}\n# TYPE {name} gauge\n"
        yield from listed


def _sample(name: str, labels: dict[str, str], value: float) -> str:
    pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {value:.10g}\n" if pairs else f"{name} {value:.10g}\n"


def _escape(text: str) -> str:
    clean = _FORBIDDEN.sub("\ufffd", text)
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _label(name: object) -> str:
    label = re.sub("[^a-zA-Z0-9_]", "_", str(name))
    return label if label[:1].isalpha() else f"label_{label}"


def _number(value: t.Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
