# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The heat map: a strip per check, all nodes along it; what is wrong stays visible among any number. Private."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.columns import ABSENT, CODES, NO_RESULT
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import Fleet
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import chip, section
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import plural, short

# So many marks side by side can still be told apart.
VISIBLE = 420
# The last is drawn on top.
ORDER = ("skipped", "unjudged", "warn", "error", "fail")
BAD = ("fail", "error", "warn")
# So few nodes are told apart by a gap.
FEW = 64
MAX_LABELS = 9


def runs(codes: bytes, wanted: set[int]) -> list[tuple[int, int]]:
    """Return (first, how many) of neighbours that have a wanted code."""
    spans: list[tuple[int, int]] = []
    for index, code in enumerate(codes):
        if code in wanted:
            if spans and sum(spans[-1]) == index:
                spans[-1] = (spans[-1][0], spans[-1][1] + 1)
            else:
                spans.append((index, 1))
    return spans


def strip(codes: bytes) -> Html:
    """Draw one check: a calm ground where it passed, marks where it did not."""
    amount = len(codes)
    least = max(1.0, amount / VISIBLE)
    parts = [el("rect", width=amount, height=10, class_="ground")]
    gaps = "".join(f"M{first} 0h{length}v10h-{length}z" for first, length in runs(codes, {ABSENT}))
    parts.append(el("path", d=gaps, class_="gap") if gaps else Html(""))
    for verdict in ORDER:
        wanted = {CODES[verdict], NO_RESULT} if verdict == "error" else {CODES[verdict]}
        path = "".join(
            f"M{min(first, amount - least):g} 0h{max(least, length):g}v10h-{max(least, length):g}z"
            for first, length in runs(codes, wanted)
        )
        if path:
            parts.append(el("path", d=path, class_=f"mark v-{verdict}"))
    if amount <= FEW:
        parts.append(el("path", d="".join(f"M{index} 0v10" for index in range(1, amount)), class_="between"))
    return el("svg", parts, viewBox=f"0 0 {amount} 10", preserveAspectRatio="none", class_="strip", aria_hidden="true")


def tally(codes: bytes) -> dict[str, int]:
    """Count a check's verdicts, the worst first; no result is an error."""
    counts = {verdict: codes.count(code) for verdict, code in CODES.items()}
    counts["error"] += codes.count(NO_RESULT)
    return {verdict: amount for verdict, amount in counts.items() if amount}


def heat_map(fleet: Fleet) -> Html | None:
    """Show checks by nodes: those with a finding first, the clean ones folded."""
    if not fleet.verdicts:
        return None
    counts = {check: tally(codes) for check, codes in fleet.verdicts.items()}
    bad = [check for check in counts if any(verdict in counts[check] for verdict in BAD)]
    bad.sort(key=lambda check: [-counts[check].get(verdict, 0) for verdict in BAD])
    clean = [check for check in counts if check not in set(bad)]
    note = f"{plural(len(counts), 'check')} on {plural(len(fleet.nodes), 'node')}, {plural(fleet.records, 'record')}"
    note += f", {short(fleet.between)} of them between nodes" if fleet.between else ""
    folded = el("summary", f"{plural(len(clean), 'check')} without a finding on any node")
    return section(
        "heat",
        "Checks by nodes",
        note,
        _table(fleet, bad, counts) if bad else el("p", "No check found anything on any node.", class_="faint"),
        el("details", folded, _table(fleet, clean, counts)) if clean else None,
    )


def _table(fleet: Fleet, checks: list[str], counts: dict[str, dict[str, int]]) -> Html:
    head = el("tr", el("th", "Check", scope="col"), el("th", _axis(fleet), scope="col"), el("th", "Nodes", scope="col"))
    body = [
        el(
            "tr",
            el("th", _name(check), scope="row"),
            el("td", strip(fleet.verdicts[check])),
            el("td", _counts(counts[check])),
            data_check=check,
        )
        for check in checks
    ]
    return el("table", el("thead", head), el("tbody", body), class_="heat")


def _name(check: str) -> str:
    return check.replace("_", " ").replace(".", " · ")


def _counts(counts: dict[str, int]) -> list[Html] | Html:
    wrong = [
        chip(verdict, short(counts[verdict]), title=verdict, aria_label=f"{counts[verdict]} {verdict}")
        for verdict in BAD
        if verdict in counts
    ]
    if wrong:
        return wrong
    words = ", ".join(
        f"{short(amount)} {'not judged' if verdict == 'unjudged' else verdict}" for verdict, amount in counts.items()
    )
    return el("span", words, class_="faint")


def _axis(fleet: Fleet) -> Html:
    """Say where along the strip which leaf begins."""
    total = len(fleet.nodes)
    leaves = fleet.leaves
    marks: list[tuple[str, float]] = [(leaf or "no leaf", first / total) for leaf, first, dummy in leaves]
    if len(leaves) == 1:
        marks = [(node.name, index / total) for index, node in enumerate(fleet.nodes)]
    step = -(-len(marks) // MAX_LABELS)
    spans = [el("span", name, style=f"left:{100 * share:.2f}%") for name, share in marks[::step]]
    return el("span", spans, class_="scale", aria_hidden="true")
