# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ladder: collectives over larger and larger groups, each against what is expected at its size. Private."""

from __future__ import annotations

import math

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import Fleet
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Row, rows
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import chip, section
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import listing, number, plural, quantity
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import VERDICTS, verdict_of


def ladder(fleet: Fleet) -> Html | None:
    """Show each collective's rungs as bars."""
    by_collective: dict[str, list[Row]] = {}
    for row in rows(fleet.certificate.get("ladder")):
        by_collective.setdefault(str(row.get("collective") or "collective"), []).append(row)
    if not by_collective:
        return None
    groups = [
        _group(name, sorted(rungs, key=lambda row: number(row.get("nodes")) or 0))
        for name, rungs in by_collective.items()
    ]
    return section(
        "ladder",
        "Ladder",
        "bus bandwidth of ever larger groups; the dashed line is expected",
        el("div", groups, class_="rungs"),
    )


def _group(name: str, rungs: list[Row]) -> Html:
    """Draw a bar per size; of several groups of one size the slowest."""
    limits = [limit for row in rungs if (limit := _limit(row)) is not None]
    top = max([number(row.get("value")) or 0.0 for row in rungs] + limits + [1e-9]) * 1.04
    sizes: dict[int, list[Row]] = {}
    for row in rungs:
        sizes.setdefault(int(number(row.get("nodes")) or 0), []).append(row)
    bars = [_rung(size, sorted(rows_, key=_rank), top) for size, rows_ in sizes.items()]
    return el("div", el("h3", name.replace("_", " ")), bars)


def _rank(row: Row) -> tuple[int, float]:
    value = number(row.get("value"))
    return VERDICTS.index(verdict_of(row)), math.inf if value is None else value


def _limit(row: Row) -> float | None:
    wanted = row.get("expected")
    try:
        return number(float(str(wanted).rpartition(" ")[2])) if wanted is not None else None
    except ValueError:
        return None


def _rung(size: int, groups: list[Row], top: float) -> Html:
    row = groups[0]
    verdict, value, limit = verdict_of(row), number(row.get("value")), _limit(row)
    mark = el("i", class_="limit", style=f"left:{100 * limit / top:.2f}%") if limit is not None else None
    bad = [str(group.get("hostlist")) for group in groups if verdict_of(group) in ("fail", "error", "warn")]
    wanted = f"expected {row.get('expected')}" if limit is not None else "nothing expected"
    width = f"width:{100 * (value or 0.0) / top:.2f}%"
    return el(
        "div",
        el("span", plural(size, "node"), class_="rung-name"),
        el("div", el("i", class_=f"bar v-{verdict}", style=width), mark, class_="track"),
        el("b", quantity(value, row.get("unit")), class_="number"),
        chip(verdict, None if verdict != "pass" else "", title=wanted, aria_label=f"{verdict}, {wanted}"),
        el("p", _sentence(groups, bad), class_="faint") if len(groups) > 1 or bad else None,
        class_="rung",
    )


def _sentence(groups: list[Row], bad: list[str]) -> str:
    if len(groups) == 1:
        return listing(bad, 1)
    how = f"{len(bad)} not as expected: {listing(bad, 2)}" if bad else "all as expected"
    return f"{len(groups)} groups, the slowest shown; {how}"
