# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of single nodes kept as columns, one record at a time, so that a fleet's fit into little memory. Private."""

from __future__ import annotations

import dataclasses
import functools
import math
import typing as t
from array import array

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import RATES
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Row, is_group, mapping, rows
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import number, size
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import VERDICTS, verdict_of

# A node's verdict in a check is a byte: its place in VERDICTS, or this one where no result arrived.
NO_RESULT = len(VERDICTS)
# A node that answered nothing at all is untested; it is no finding of each single check.
ABSENT = NO_RESULT + 1
CODES = {verdict: code for code, verdict in enumerate(VERDICTS)}
MAX_NOTE = 300
NAN = math.nan
_KNOWN = {"name", "value", "unit", "expected", "source", "ratio", "verdict", "gpu", "nic", "device", "node"}
_DEVICES = ("gpu", "nic", "device")


@dataclasses.dataclass
class Column:
    """One metric of one check: the worst value of each node's devices, and of which device it was."""

    check: str
    name: str
    unit: str
    expected: str
    source: str
    values: array[float] = dataclasses.field(default_factory=lambda: array("d"))
    devices: dict[int, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def low_is_bad(self) -> bool:
        """Say whether smaller values are worse: what is expected says so, or else the unit is a rate."""
        return self.expected.startswith(">") or (not self.expected and self.unit in RATES)

    @property
    def limit(self) -> float | None:
        """Return the number that is expected, if it is one."""
        try:
            return number(float(self.expected.rpartition(" ")[2]))
        except ValueError:
            return None

    def put(self, node: int, value: float, metric: Row) -> None:
        """Keep the worse of two values."""
        _grow(self.values, node, NAN)
        now = self.values[node]
        if math.isnan(now) or (value < now if self.low_is_bad else value > now):
            self.values[node] = value
            for kind in _DEVICES:
                if metric.get(kind) is not None:
                    self.devices[node] = f"{kind} {metric[kind]}"


@dataclasses.dataclass
class Columns:
    """What is known of single nodes: verdicts by check, worst values by metric, reasons, curves."""

    nodes: dict[str, int] = dataclasses.field(default_factory=dict)
    verdicts: dict[str, bytearray] = dataclasses.field(default_factory=dict)
    metrics: dict[tuple[t.Any, ...], Column] = dataclasses.field(default_factory=dict)
    notes: dict[tuple[str, int], tuple[int, str, str]] = dataclasses.field(default_factory=dict)
    curves: dict[tuple[str, str], dict[float, array[float]]] = dataclasses.field(default_factory=dict)
    records: int = 0
    between: int = 0
    emulated: bool = False

    def add(self, record: Row) -> None:
        """Take one record."""
        self.records += 1
        context = mapping(record.get("context"))
        self.emulated |= "emulated" in f"{context.get('version')}{context.get('driver')}"
        name = str(record.get("node"))
        # A name that was seen before is a node's; only then need nobody look closer.
        if (record.get("scope") or name not in self.nodes) and is_group(record):
            self.between += 1
            return
        node = self.nodes.setdefault(name, len(self.nodes))
        check, code = str(record.get("check")), CODES[verdict_of(record)]
        codes = self.verdicts.get(check)
        if codes is None:
            codes = self.verdicts[check] = bytearray()
        _grow(codes, node, NO_RESULT)
        codes[node] = min(codes[node], code)
        if code not in (CODES["pass"], CODES["unjudged"]):
            note = (code, str(record.get("reason") or "no reason given")[:MAX_NOTE], str(record.get("class") or ""))
            self.notes[check, node] = min(note, self.notes.get((check, node), note))
        for metric in rows(record.get("metrics")):
            self._metric(node, check, metric)
        if record.get("samples"):
            self._samples(node, check, record)

    def _metric(self, node: int, check: str, metric: Row) -> None:
        value, expected = number(metric.get("value")), metric.get("expected")
        expectation, unit = "" if expected is None else str(expected), str(metric.get("unit") or "")
        if value is None or (not expectation and (unit not in RATES or "size" in metric)):
            return
        labels = metric.keys() - _KNOWN
        own = [(label, str(metric[label])) for label in sorted(labels)] if labels else ()
        key = (check, str(metric.get("name")), expectation, unit, *own)
        column = self.metrics.get(key)
        if column is None:
            source = str(metric.get("source") or "")
            column = self.metrics[key] = Column(check, _name(check, metric), unit, expectation, source)
        column.put(node, value, metric)

    def _samples(self, node: int, check: str, record: Row) -> None:
        own = str(mapping(record.get("context")).get("collective") or "")
        for sample in rows(record.get("samples")):
            value, at = number(sample.get("busbw")), number(sample.get("size"))
            if value is None or at is None or at <= 0:
                continue
            curve = self.curves.setdefault((check, str(sample.get("collective") or sample.get("op") or own)), {})
            column = curve.get(at)
            if column is None:
                column = curve[at] = array("d")
            _grow(column, node, NAN)
            column[node] = value


def _name(check: str, metric: Row) -> str:
    """Return a metric's name with the labels that the check's own name does not hold."""
    labels = [
        size(label) if name == "size" else str(label)
        for name, label in metric.items()
        if name not in _KNOWN and label is not None and str(label) not in check
    ]
    return " ".join([str(metric.get("name")), *labels]).replace("_", " ")


def _grow(column: t.Any, node: int, filler: float) -> None:
    missing = node + 1 - len(column)
    if missing > 0:
        column.extend([filler] * missing)
