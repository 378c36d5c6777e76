# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Line plots as SVG: axes, lines with markers, limits. Colours come from the page's style sheet. Private."""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el, join
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import short, size

WIDTH, HEIGHT = 1040, 350
LEFT, RIGHT, TOP, BOTTOM = 62, 120, 14, 48
MANY = 150
Point = t.Tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Line:
    """A named series; each point has a text that says it in words. A band is an outline around it."""

    name: str
    points: list[Point]
    words: list[str]
    area: bool = False
    band: list[Point] | None = None


@dataclasses.dataclass(frozen=True)
class Limit:
    """A value that a series must reach: everywhere, or at one place of the x axis."""

    value: float
    at: float | None
    words: str
    series: int


@dataclasses.dataclass(frozen=True)
class Axis:
    """Map values onto pixels, linear or by powers of two."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """Return where on the axis a value is drawn."""
        low, high, value = (math.log2(x) if self.log else x for x in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 2)


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Return round numbers that cover a range: steps of 1, 2, 2.5 or 5 times a power of ten."""
    span = high - low
    if span <= 0:
        return [low]
    raw = span / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 12) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def powers(low: float, high: float, wanted: int = 9) -> list[float]:
    """Return powers of two that cover a range, evenly spaced on a log axis."""
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = max(1, math.ceil((last - first + 1) / wanted))
    return [2.0**power for power in range(first, last + 1, step)]


def thin(points: t.Sequence[t.Any], limit: int = 600) -> list[t.Any]:
    """Keep about so many points, the first and the last among them."""
    if len(points) <= limit:
        return list(points)
    step = (len(points) - 1) / (limit - 1)
    return [points[round(index * step)] for index in range(limit)]


def chart(
    lines: t.Sequence[Line], limits: t.Sequence[Limit], *, title: str, x: str, y: str, sizes: bool, zero: bool = True
) -> Html:
    """Draw lines over a common x axis (sizes: bytes by powers of two)."""
    xs = [point[0] for line in lines for point in line.points]
    ys = [point[1] for line in lines for point in line.points] + [limit.value for limit in limits]
    ymarks = ticks(0 if zero else min(ys), max(ys) * 1.12 or 1.0, 6)
    across = Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, log=sizes)
    up = Axis(0 if zero else min(ys), max(max(ys) * 1.05, ymarks[-1]) or 1.0, HEIGHT - BOTTOM, TOP)
    xmarks = [(mark, size(mark)) for mark in powers(min(xs), max(xs))] if sizes else _whole(min(xs), max(xs))
    return el(
        "svg",
        el("title", title),
        _grid(across, up, xmarks, ymarks),
        el("text", x, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, class_="label", text_anchor="middle"),
        el(
            "text",
            y,
            x=-(TOP + HEIGHT - BOTTOM) / 2,
            y=14,
            class_="label",
            text_anchor="middle",
            transform="rotate(-90)",
        ),
        [_limit(limit, across, up) for limit in limits],
        [_line(line, index, across, up) for index, line in enumerate(lines)],
        _names(lines, up),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=title,
        class_="plot",
    )


def _whole(low: float, high: float) -> list[tuple[float, str]]:
    return [(mark, short(mark)) for mark in ticks(low, high, 6) if mark == int(mark)]


def _grid(across: Axis, up: Axis, xmarks: t.Sequence[tuple[float, str]], ymarks: t.Sequence[float]) -> Html:
    left, right, floor = LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for mark in ymarks:
        place = up.place(mark)
        parts.append(el("line", x1=left, x2=right, y1=place, y2=place, class_="base" if mark == 0 else "grid"))
        parts.append(el("text", short(mark), x=left - 9, y=place + 4, class_="tick", text_anchor="end"))
    for mark, name in xmarks:
        place = across.place(mark)
        parts.append(el("line", x1=place, x2=place, y1=floor, y2=floor + 5, class_="base"))
        parts.append(el("text", name, x=place, y=floor + 19, class_="tick", text_anchor="middle"))
    return el("g", parts)


def _line(line: Line, index: int, across: Axis, up: Axis) -> Html:
    places = [(across.place(x), up.place(y)) for x, y in line.points]
    path = " ".join(f"{'L' if i else 'M'}{x:g} {y:g}" for i, (x, y) in enumerate(places))
    area = f"{path} L{places[-1][0]:g} {up.start:g} L{places[0][0]:g} {up.start:g} Z"
    outline = " ".join(
        f"{'L' if i else 'M'}{across.place(x):g} {up.place(y):g}" for i, (x, y) in enumerate(line.band or [])
    )
    marks = [
        el("g", el("title", words), el("circle", cx=x, cy=y, r=10, class_="hit"), _marker(index, x, y))
        for (x, y), words in zip(places, line.words)
    ]
    if len(marks) > MANY:
        marks = marks[:: math.ceil(len(marks) / MANY)]
    return el(
        "g",
        el("path", d=area, class_="area") if line.area else None,
        el("path", d=f"{outline} Z", class_="area band") if outline else None,
        el("path", d=path, class_="line"),
        marks,
        class_=f"series s{index % 6}{' many' if len(places) > 40 else ''}",
    )


def _marker(index: int, x: float, y: float) -> Html:
    """Series differ in shape too, not in colour alone."""
    shape = index % 3
    if shape == 1:
        return el("rect", x=x - 3.2, y=y - 3.2, width=6.4, height=6.4, class_="dot")
    if shape == 2:
        return el("path", d=f"M{x:g} {y - 4.4:g} l4.2 7.6 h-8.4 Z", class_="dot")
    return el("circle", cx=x, cy=y, r=3.4, class_="dot")


def _limit(limit: Limit, across: Axis, up: Axis) -> Html:
    place = up.place(limit.value)
    middle = None if limit.at is None else across.place(limit.at)
    left = LEFT if middle is None else max(LEFT, middle - 46)
    right = WIDTH - RIGHT if middle is None else min(WIDTH - RIGHT, middle + 46)
    return el(
        "g",
        el("title", limit.words),
        el("line", x1=left, x2=right, y1=place, y2=place, class_="hit"),
        el("line", x1=left, x2=right, y1=place, y2=place, class_="limit"),
        class_=f"series s{limit.series % 6}",
    )


def _names(lines: t.Sequence[Line], up: Axis) -> Html:
    """Write each name at the end of its line, pushed apart where they would overlap."""
    ends = sorted((up.place(line.points[-1][1]) + 4, index) for index, line in enumerate(lines))
    parts, last = [], -math.inf
    for place, index in ends:
        last = max(place, last + 16)
        parts.append(el("text", lines[index].name, x=WIDTH - RIGHT + 12, y=round(last, 2), class_=f"name s{index % 6}"))
    return join(parts)
