# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet in the order in which it is shown: nodes by leaf, what became of each, what was measured. Private."""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.columns import (
    ABSENT,
    CODES,
    NO_RESULT,
    Column,
    Columns,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Row, mapping, natural, rows
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import readable
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import VERDICTS

# The worst first; each is shown as the verdict beside it.
STATUSES = {"drained": "fail", "untested": "error", "watched": "warn", "cleared": "pass"}
_BY_VERDICT = {verdict: status for status, verdict in STATUSES.items()}


@dataclasses.dataclass(frozen=True)
class Node:
    """One node of the fleet and what became of it."""

    name: str
    leaf: str
    status: str
    reason: str
    about: Row


@dataclasses.dataclass(frozen=True)
class Series:
    """A column in the fleet's order; None where nothing was measured."""

    column: Column
    values: list[float | None]
    devices: list[str]


@dataclasses.dataclass(frozen=True)
class Fleet:
    """The certificate and the columns, put into one order."""

    nodes: list[Node]
    verdicts: dict[str, bytes]
    series: list[Series]
    notes: dict[str, dict[int, tuple[int, str, str]]]
    certificate: Row
    curves: dict[tuple[str, str], dict[float, list[float | None]]]
    records: int = 0
    between: int = 0

    def amount(self, status: str) -> int:
        """Return how many nodes have a status."""
        return sum(node.status == status for node in self.nodes)

    @property
    def leaves(self) -> list[tuple[str, int, int]]:
        """Return (leaf, first node, how many)."""
        spans: list[tuple[str, int, int]] = []
        for index, node in enumerate(self.nodes):
            if spans and spans[-1][0] == node.leaf:
                spans[-1] = (node.leaf, spans[-1][1], spans[-1][2] + 1)
            else:
                spans.append((node.leaf, index, 1))
        return spans

    @property
    def places(self) -> dict[str, int]:
        """Return the index of each node."""
        return {node.name: index for index, node in enumerate(self.nodes)}


def fleet(certificate: Row, columns: Columns) -> Fleet:
    """Put a certificate and columns together; either may know nodes that the other does not."""
    verdicts = {str(name): mapping(about) for name, about in mapping(certificate.get("nodes")).items()}
    untested = {str(row.get("node")): str(row.get("reason") or "") for row in rows(certificate.get("untested"))}
    names = {**dict.fromkeys(verdicts), **dict.fromkeys(untested), **dict.fromkeys(columns.nodes)}
    nodes = [_node(name, verdicts.get(name), untested, columns) for name in names]
    nodes.sort(key=lambda node: (natural(node.leaf), natural(node.name)))
    order = [columns.nodes.get(node.name, -1) for node in nodes]
    back = {old: new for new, old in enumerate(order) if old >= 0}
    notes: dict[str, dict[int, tuple[int, str, str]]] = {}
    for (check, old), note in columns.notes.items():
        notes.setdefault(check, {})[back[old]] = note
    return Fleet(
        nodes,
        {check: _codes(codes, order) for check, codes in columns.verdicts.items()},
        [_series(column, order) for column in columns.metrics.values()],
        notes,
        certificate,
        {
            key: {
                size: [_finite(_at(column, old, math.nan)) for old in order] for size, column in sorted(curve.items())
            }
            for key, curve in columns.curves.items()
        },
        columns.records,
        columns.between,
    )


def _node(name: str, about: Row | None, untested: dict[str, str], columns: Columns) -> Node:
    known = mapping(about)
    status = str(known.get("status") or ("untested" if name in untested else ""))
    reason = readable(known.get("reason") or untested.get(name))
    if status not in STATUSES:
        status = _judge(columns, columns.nodes.get(name, -1)) if about is None else "untested"
    return Node(name, str(known.get("leaf") or ""), status, reason, known)


def _codes(codes: bytearray, order: list[int]) -> bytes:
    return bytes(_at(codes, old, NO_RESULT) if old >= 0 else ABSENT for old in order)


def _judge(columns: Columns, index: int) -> str:
    """A node that no certificate speaks of is shown by its worst check; without a pass it is untested."""
    codes_of_node = {_at(codes, index, NO_RESULT) for codes in columns.verdicts.values()}
    worst = next((verdict for verdict in ("fail", "error", "warn", "pass") if CODES[verdict] in codes_of_node), "error")
    return _BY_VERDICT[worst]


def _series(column: Column, order: list[int]) -> Series:
    values = [_finite(_at(column.values, old, math.nan)) for old in order]
    return Series(column, values, [column.devices.get(old, "") for old in order])


def _at(column: t.Sequence[t.Any], index: int, filler: t.Any) -> t.Any:
    return column[index] if 0 <= index < len(column) else filler


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value


def word(code: int) -> str:
    """Return a verdict's name."""
    return VERDICTS[code] if code < NO_RESULT else "no result" if code == NO_RESULT else "untested"
