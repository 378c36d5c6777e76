# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bandwidth over message size of a whole fleet: the median, where nine in ten lie, and the slowest by name. Private."""

from __future__ import annotations

import statistics
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import Fleet
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import scroll, section
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.plot import Limit, Line, chart
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import listing, plural, short, size

SLOWEST = 4
FEWEST = 3
# What lies so far under the median at the largest size is worth a line of its own.
APART = 0.97
Curve = t.Dict[float, t.List[t.Optional[float]]]


def curves(fleet: Fleet) -> Html | None:
    """Draw one plot per collective."""
    plots = [plot for key, curve in fleet.curves.items() if (plot := _plot(fleet, key, curve))]
    note = "inside each node; the band holds nine in ten nodes"
    return section("curves", "Collectives", note, plots) if plots else None


def _plot(fleet: Fleet, key: tuple[str, str], curve: Curve) -> Html | None:
    known = {at: sorted(v for v in values if v is not None) for at, values in curve.items()}
    sizes = [at for at, values in known.items() if len(values) >= FEWEST]
    if len(sizes) < 2:
        return None  # one size makes no curve; it is among the distributions
    check, collective = key
    lines = [_middle(known, sizes)]
    slow = slowest(curve, sizes)
    for index in slow[:SLOWEST]:
        points = [(at, value) for at in sizes if (value := curve[at][index]) is not None]
        name = fleet.nodes[index].name
        lines.append(Line(name, points, [f"{name}, {size(at)}: {short(value)} GB/s" for at, value in points]))
    title = f"{collective or check.replace('_', ' ')} over message size"
    below = listing([fleet.nodes[index].name for index in slow], SLOWEST)
    which = (
        f"{plural(len(known[sizes[-1]]), 'node')}, {below} below 97 % of the median"
        if slow
        else plural(len(known[sizes[-1]]), "node")
    )
    plot = chart(
        lines, _limits(fleet, check, collective), title=title, x="message size", y="bus bandwidth, GB/s", sizes=True
    )
    return el("figure", el("figcaption", el("strong", title), f" · {which}"), scroll(plot, title))


def _middle(known: dict[float, list[float]], sizes: list[float]) -> Line:
    middle = [(at, statistics.median(known[at])) for at in sizes]
    low = [(at, known[at][int(0.05 * len(known[at]))]) for at in sizes]
    high = [(at, known[at][min(len(known[at]) - 1, int(0.95 * len(known[at])))]) for at in sizes]
    words = [f"median, {size(at)}: {short(value)} GB/s" for at, value in middle]
    return Line("median", middle, words, band=[*low, *reversed(high)])


def slowest(curve: Curve, sizes: list[float]) -> list[int]:
    """Return nodes that stay behind at the largest size, the slowest first."""
    last = curve[sizes[-1]]
    middle = statistics.median(value for value in last if value is not None)
    behind = [(value, index) for index, value in enumerate(last) if value is not None and value < APART * middle]
    return [index for dummy, index in sorted(behind)]


def _limits(fleet: Fleet, check: str, collective: str) -> list[Limit]:
    limits = []
    for series in fleet.series:
        column = series.column
        if column.check == check and column.unit == "GB/s" and column.limit is not None and "busbw" in column.name:
            words = f"{column.name} of {collective}: {column.expected} GB/s expected ({column.source})"
            limits.append(Limit(column.limit, None, words, 0))
    return limits[:1]
