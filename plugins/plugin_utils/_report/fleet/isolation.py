# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the bad nodes were found: every round in a sentence, the suspicion of each node over the rounds. Private."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import STATUSES, Fleet
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.rounds import Round, Test, read_rounds
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.suspicion import chart
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import mapping
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import SYMBOLS, chip, section
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import (
    listing,
    number,
    plural,
    short,
    shorten,
)

TITLES = {
    "reach": "Who answers",
    "local": "Every node by itself",
    "pair": "Pairs",
    "confirm": "Suspects with proven partners",
    "retest": "Flagged nodes once more",
    "ladder": "Larger and larger groups",
}
OUTCOMES = {"pass": "passed", "warn": "warned", "fail": "slow or wrong", "error": "without an answer"}
SUSPECT = 0.1
NAMED = 3
MAX_CASES = 60
OPEN_CASES = 8


def isolation(fleet: Fleet) -> Html | None:
    """Tell the rounds and the cases."""
    rounds = read_rounds(fleet.certificate)
    if not rounds:
        return None
    options = mapping(fleet.certificate.get("options"))
    limits = (number(options.get("clear_at")) or 0.004, number(options.get("drain_at")) or 0.95)
    tests = sum(len(round_.tests) for round_ in rounds)
    note = f"{plural(len(rounds), 'round')}, {plural(tests, 'test')}"
    return section(
        "isolation",
        "How the bad nodes were found",
        note,
        el(
            "ol",
            [_round(round_, rounds[i - 1] if i else None, limits[1]) for i, round_ in enumerate(rounds)],
            class_="rounds",
        ),
        chart(rounds, fleet, limits),
        cases(fleet, rounds),
    )


def _round(round_: Round, before: Round | None, drain_at: float) -> Html:
    outcomes, total = round_.outcomes, max(1, len(round_.tests))
    shares = [
        el("i", class_=f"v-{verdict}", style=f"width:{100 * amount / total:.3f}%")
        for verdict, amount in outcomes.items()
        if amount
    ]
    words = ", ".join(f"{short(amount)} {OUTCOMES[verdict]}" for verdict, amount in outcomes.items() if amount)
    number_of = f" {round_.number}" if round_.stage in ("pair", "confirm") and round_.number else ""
    title = TITLES.get(round_.stage, round_.stage or round_.name)
    return el(
        "li",
        el("div", el("strong", f"{title}{number_of}"), el("span", words or "nothing to test", class_="faint")),
        el("div", shares, class_="bar-of", aria_hidden="true"),
        el("p", _suspects(round_, before, drain_at)),
    )


def _suspects(round_: Round, before: Round | None, drain_at: float) -> str:
    """Say what this round added."""
    bad, silent = round_.named("fail"), round_.named("error")
    if round_.stage == "reach":
        return f"No answer from {listing(silent, NAMED)}; left out of what follows." if silent else "All answer."
    if round_.stage in ("local", "retest") and not round_.suspects:
        parts = [f"bad by themselves: {listing(bad, NAMED)}"] if bad else []
        parts += [f"without a result: {listing(silent, NAMED)}"] if silent else []
        return _sentence(parts or ["nothing to object to"])
    if round_.stage == "ladder":
        return "The ladder below shows each size."
    sure = [name for name, p in round_.suspects.items() if p >= drain_at]
    known = before.suspects if before else {}
    new = sorted(name for name in sure if known.get(name, 0.0) < drain_at)
    doubted = sorted(
        (n for n, p in round_.suspects.items() if SUSPECT <= p < drain_at), key=lambda n: -round_.suspects[n]
    )
    parts = []
    if sure:
        parts.append(f"{short(len(sure))} certain enough to drain" + (f", new {listing(new, NAMED)}" if new else ""))
    if doubted:
        most = listing([f"{name} {_percent(round_.suspects[name])}" for name in doubted], 2)
        parts.append(
            f"{short(len(doubted))} under suspicion: {most}" if len(doubted) > 1 else f"under suspicion: {most}"
        )
    return _sentence(parts or ["nobody under suspicion"])


def _sentence(parts: list[str]) -> str:
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _percent(value: float) -> str:
    return (
        f"{100 * value:.0f}\u00a0%"
        if 0.005 <= value <= 0.995
        else f"{100 * value:.2g}\u00a0%"
        if value < 0.5
        else ">\u00a099\u00a0%"
    )


def cases(fleet: Fleet, rounds: list[Round]) -> Html | None:
    """Return, for each node that was not cleared, the tests that speak of it."""
    suspects = [node for node in fleet.nodes if node.status in ("drained", "watched")]
    suspects.sort(key=lambda node: (list(STATUSES).index(node.status), -(number(node.about.get("posterior")) or 0)))
    shown = {node.name for node in suspects[:MAX_CASES]}
    tests: dict[str, list[tuple[Round, Test]]] = {}
    for round_ in rounds:
        for test in round_.tests:
            for name in shown.intersection(test.nodes):
                tests.setdefault(name, []).append((round_, test))
    drawn = [
        _suspect(node.name, node.status, node.reason, tests.get(node.name, []), node.about.get("posterior"))
        for node in suspects[:MAX_CASES]
    ]
    if not drawn:
        return None
    rest = len(suspects) - len(drawn)
    more = el("p", f"{rest} more: hpcai-agent certificate explain tells of each.", class_="faint") if rest > 0 else None
    folded = el(
        "details", el("summary", f"{plural(len(drawn) - OPEN_CASES, 'more node')}"), drawn[OPEN_CASES:], class_="rest"
    )
    return el(
        "div",
        el("h3", "The evidence"),
        drawn[:OPEN_CASES],
        folded if len(drawn) > OPEN_CASES else None,
        more,
        class_="cases",
    )


def _suspect(name: str, status: str, reason: str, tests: list[tuple[Round, Test]], posterior: t.Any) -> Html:
    failed = [test for dummy, test in tests if test.outcome == "fail"]
    sure = number(posterior)
    share = f", {_percent(sure)} certain" if sure is not None else ""
    head = el(
        "summary",
        chip(STATUSES[status], status),
        el("b", name),
        el("span", shorten(reason) or "no reason given"),
        el("span", f"{len(failed)} of {plural(len(tests), 'test')} failed{share}", class_="faint"),
    )
    rest = el("p", reason, class_="faint") if reason != shorten(reason) else None
    return el(
        "details", head, rest, el("ul", [_evidence(name, round_, test) for round_, test in tests], class_="evidence")
    )


def _evidence(name: str, round_: Round, test: Test) -> Html:
    partners = [other for other in test.nodes if other != name]
    with_ = f"with {listing(partners, NAMED)}" if partners else "alone"
    value = f"{short(test.value)}\u00a0{test.unit}" if test.value is not None else ""
    ratio = (
        "" if test.ratio is None or not math.isfinite(test.ratio) else f"{100 * test.ratio:.0f}\u00a0% of the median"
    )
    stage = {"pair": f"pairs {round_.number}", "confirm": f"confirmation {round_.number}"}.get(
        round_.stage, round_.stage
    )
    measured = ", ".join(part for part in (value, ratio) if part)
    symbol = el("span", SYMBOLS[test.outcome], class_=f"v-{test.outcome} toned", title=OUTCOMES[test.outcome])
    return el("li", symbol, el("span", stage, class_="faint"), el("span", with_), el("span", measured, class_="faint"))
