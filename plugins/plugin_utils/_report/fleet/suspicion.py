# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The suspicion of each node over the rounds, on a scale of odds, with the limits to drain and to clear. Private."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import STATUSES, Fleet
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.rounds import Round
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import scroll
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import number, plural

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1040, 300, 62, 190, 14, 30
LOW, HIGH = 0.0005, 0.9995
MARKS = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
MAX_LINES = 200
APART = 15


def _odds(share: float) -> float:
    held = min(HIGH, max(LOW, share))
    return math.log(held / (1 - held))


def height(share: float) -> float:
    """Return where a probability stands."""
    part = (_odds(share) - _odds(LOW)) / (_odds(HIGH) - _odds(LOW))
    return round(HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM), 1)


def chart(rounds: list[Round], fleet: Fleet, limits: tuple[float, float]) -> Html | None:
    """Draw a line per node that ever was under suspicion."""
    steps = [round_ for round_ in rounds if round_.stage in ("pair", "confirm") or round_.suspects]
    lines = paths(steps, {node.name: number(node.about.get("posterior")) for node in fleet.nodes})
    if len(steps) < 2 or not lines:
        return None
    status = {node.name: node.status for node in fleet.nodes}
    across = (WIDTH - LEFT - RIGHT) / (len(steps) - 1)
    drawn, ends = [], []
    for name, points in sorted(lines.items(), key=lambda item: status.get(item[0], "") in ("drained", "watched")):
        verdict = STATUSES.get(status.get(name, ""), "skipped")
        spots = [f"{LEFT + step * across:.1f} {height(share):g}" for step, share in points]
        drawn.append(el("path", el("title", name), d=f"M{' L'.join(spots)}", class_=f"line v-{verdict}"))
        if verdict in ("fail", "warn"):
            ends.append((height(points[-1][1]), name, verdict))
    title = f"Suspicion of {plural(len(lines), 'node')} over {plural(len(steps), 'round')}"
    svg = el(
        "svg",
        el("title", title),
        _scale(steps, across, limits),
        drawn,
        _names(ends),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=title,
        class_="plot suspicion",
    )
    caption = el("figcaption", el("strong", "Suspicion over the rounds"), " · a line per node that ever failed a test")
    return el("figure", caption, scroll(svg, title))


def paths(steps: list[Round], ends: t.Mapping[str, float | None]) -> dict[str, list[tuple[int, float]]]:
    """Return (round, probability) by node: low before it is first suspected, at the end what the certificate says."""
    top: dict[str, float] = {}
    for round_ in steps:
        for name, share in round_.suspects.items():
            top[name] = max(share, top.get(name, 0.0))
    by_name: dict[str, list[tuple[int, float]]] = {}
    for name in sorted(top, key=lambda name: -top[name])[:MAX_LINES]:
        points = [(index, round_.suspects[name]) for index, round_ in enumerate(steps) if name in round_.suspects]
        before = [(points[0][0] - 1, LOW)] if points[0][0] else []
        end = ends.get(name)
        after = [] if points[-1][0] == len(steps) - 1 else [(len(steps) - 1, LOW if end is None else end)]
        by_name[name] = [*before, *points, *after]
    return by_name


def _scale(steps: list[Round], across: float, limits: tuple[float, float]) -> list[t.Any]:
    right = WIDTH - RIGHT
    parts: list[t.Any] = []
    for mark in MARKS:
        level = height(mark)
        parts.append(el("line", x1=LEFT, x2=right, y1=level, y2=level, class_="grid"))
        parts.append(el("text", f"{100 * mark:g} %", x=LEFT - 9, y=level + 4, class_="tick", text_anchor="end"))
    for share, words, verdict in ((limits[1], "drain", "fail"), (limits[0], "clear", "pass")):
        level = height(share)
        parts.append(el("line", x1=LEFT, x2=right, y1=level, y2=level, class_=f"limit v-{verdict}"))
        parts.append(el("text", words, x=LEFT + 6, y=level - 5, class_=f"limit-name v-{verdict}"))
    for index, round_ in enumerate(steps):
        name = {"local": "by itself"}.get(round_.stage, f"{round_.stage} {round_.number or ''}".strip())
        anchor = "start" if not index else "middle"
        parts.append(
            el("text", name, x=round(LEFT + index * across, 1), y=HEIGHT - 8, class_="tick", text_anchor=anchor)
        )
    return parts


def _names(ends: list[tuple[float, str, str]]) -> list[Html]:
    """Name lines at their ends; those that end at the same place share a label."""
    groups: list[list[tuple[float, str, str]]] = []
    for end in sorted(ends):
        if groups and end[0] - groups[-1][0][0] < APART and end[2] == groups[-1][0][2]:
            groups[-1].append(end)
        else:
            groups.append([end])
    parts, last = [], -math.inf
    for group in groups:
        last = max(group[0][0] + 4, last + APART)
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        names = "\n".join(end[1] for end in group)
        text = el("text", el("title", names), f"{group[0][1]}{more}", x=WIDTH - RIGHT + 10, y=round(last, 1))
        parts.append(el("g", text, class_=f"name v-{group[0][2]}"))
    return parts
