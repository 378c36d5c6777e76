# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a metric lies over the fleet: a histogram with its limit, and the nodes that stand apart by name. Private."""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import RATES, limit
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import CampaignOptions
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import Fleet, Series
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import SIGNS, section
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import plural, quantity, short

WIDTH, HEIGHT, FLOOR, EDGE = 326, 112, 92, 4
BINS = 44
FEWEST = 8
SHOWN = 9
NAMED = 4
# Under this share of the median nobody cares, however narrow the rest is; certification's default.
MATERIAL = CampaignOptions().material


@dataclasses.dataclass(frozen=True)
class Spread:
    """A series summed up; outliers are (node, value), the worst first."""

    series: Series
    values: list[float]
    median: float
    outliers: list[tuple[int, float]]

    def share(self, place: float) -> float:
        """Return the value below which a share of all values lies."""
        return self.values[min(len(self.values) - 1, int(place * len(self.values)))]


def spread(series: Series) -> Spread | None:
    """Sum a series up; a metric with few different values has no shape to show."""
    known = sorted(value for value in series.values if value is not None)
    if len(known) < FEWEST or len(set(known)) < FEWEST:
        return None
    sign = 1 if series.column.low_is_bad else -1
    bounds = limit([sign * value for value in known], MATERIAL)
    if bounds is None:
        return None
    low, wanted = bounds.low, series.column.limit
    if series.column.unit not in RATES:
        low = -math.inf  # only of speed is less than others have a fault by itself
    if wanted is not None:
        low = max(low, sign * wanted)
    apart = [(i, value) for i, value in enumerate(series.values) if value is not None and sign * value < low]
    apart.sort(key=lambda pair: sign * pair[1])
    return Spread(series, known, sign * bounds.median, apart)


def distributions(fleet: Fleet) -> Html | None:
    """Show the metrics, those with outliers first."""
    spreads = [shown for series in fleet.series if (shown := spread(series)) is not None]
    if not spreads:
        return None
    spreads.sort(key=lambda shown: (-bool(shown.outliers), not shown.series.column.expected, -len(shown.outliers)))
    cards = [_card(fleet, shown) for shown in spreads]
    amount = sum(bool(shown.outliers) for shown in spreads)
    note = (
        f"{plural(len(spreads), 'metric')}, {amount} with nodes that stand apart; of a node's devices the worst counts"
    )
    more = el("summary", f"{plural(len(cards) - SHOWN, 'more metric')}")
    return section(
        "spread",
        "Distributions",
        note,
        el("div", cards[:SHOWN], class_="spreads"),
        el("details", more, el("div", cards[SHOWN:], class_="spreads")) if len(cards) > SHOWN else None,
    )


def _card(fleet: Fleet, shown: Spread) -> Html:
    column = shown.series.column
    check = column.check.replace("_", " ").replace(".", " ")
    title = check if column.name.split(" ")[0] in check.split() else f"{check}: {column.name}"
    sign, dummy, dummy = column.expected.rpartition(" ")
    wanted = f" · {SIGNS.get(sign, sign)} {quantity(column.limit, column.unit)}" if column.limit is not None else ""
    tails = f"{short(shown.share(0.05))} to {short(shown.share(0.95))} for nine in ten"
    return el(
        "figure",
        el("figcaption", el("strong", title), el("span", f"{quantity(shown.median, column.unit)}", class_="median")),
        _plot(shown, title),
        el("p", f"{tails}{wanted}", class_="faint", title=column.source or None),
        _named(fleet, shown),
        class_="spread",
    )


def _named(fleet: Fleet, shown: Spread) -> Html | None:
    if not shown.outliers:
        return None
    items = []
    for index, value in shown.outliers[:NAMED]:
        away = f" {100 * (value / shown.median - 1):+.0f} %".replace("-", "\u2212") if shown.median else ""
        device = f" {shown.series.devices[index]}" if shown.series.devices[index] else ""
        text = quantity(value, shown.series.column.unit)
        away = away if abs(value) < 10 * abs(shown.median) else ""
        items.append(
            el("li", el("b", fleet.nodes[index].name), el("span", f"{device.replace('gpu', 'GPU')} {text}{away}"))
        )
    rest = len(shown.outliers) - NAMED
    items.append(el("li", el("span", f"and {rest} more", class_="faint"))) if rest > 0 else None
    return el("ul", items)


def bins(values: t.Sequence[float], low: float, high: float) -> list[int]:
    """Count values into equal bins; what lies beyond the ends is left out."""
    counts = [0] * BINS
    for value in values:
        if low <= value <= high:
            counts[min(BINS - 1, int((value - low) / (high - low) * BINS))] += 1
    return counts


def _bars(counts: list[int]) -> str:
    """Return a path; the square root lets a single node show beside a thousand."""
    step, top = (WIDTH - 2 * EDGE) / BINS, max(counts)
    parts = []
    for index, count in enumerate(counts):
        if count:
            tall = round(max(2.0, (FLOOR - 14) * math.sqrt(count / top)), 1)
            parts.append(f"M{EDGE + index * step:.1f} {FLOOR}v-{tall:g}h{step - 1:.1f}v{tall:g}z")
    return "".join(parts)


def _plot(shown: Spread, title: str) -> Html:
    low, high = _window(shown)
    scale = (WIDTH - 2 * EDGE) / (high - low)

    def place(value: float) -> float:
        return round(EDGE + (min(high, max(low, value)) - low) * scale, 1)

    dots = [el("circle", cx=place(value), cy=FLOOR - 5, r=4, class_="outlier") for dummy, value in shown.outliers[:40]]
    wanted, line = shown.series.column.limit, None
    if wanted is not None and low <= wanted <= high:
        line = el("line", x1=place(wanted), x2=place(wanted), y1=6, y2=FLOOR, class_="limit")
    words = f"{title}: median {short(shown.median)}, {plural(len(shown.outliers), 'outlier')}"
    return el(
        "svg",
        el("title", words),
        el("path", d=_bars(bins(shown.values, low, high)), class_="bars"),
        el("line", x1=EDGE, x2=WIDTH - EDGE, y1=FLOOR + 0.5, y2=FLOOR + 0.5, class_="base"),
        line,
        dots,
        el("text", short(low), x=EDGE, y=FLOOR + 15, class_="tick"),
        el("text", short(high), x=WIDTH - EDGE, y=FLOOR + 15, class_="tick", text_anchor="end"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=words,
    )


def _window(shown: Spread) -> tuple[float, float]:
    """Show what most nodes have and the limit if it is near; what is far beyond is drawn at the edge."""
    body = max(shown.share(0.99) - shown.share(0.01), abs(shown.median) * 0.01, 1e-12)
    low, high = shown.share(0.01) - 0.15 * body, shown.share(0.99) + 0.15 * body
    points = [shown.series.column.limit, *(value for dummy, value in shown.outliers)]
    for value in points:
        if value is not None and abs(value - shown.median) <= max(12 * body, 0.6 * abs(shown.median)):
            low, high = min(low, value - 0.1 * body), max(high, value + 0.1 * body)
    return max(low, 0.0) if shown.values[0] >= 0 else low, high
