# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The top of a certified fleet's page: the certificate in one sentence, in numbers, and its findings. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import Fleet
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Row, mapping, rows, strings
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import SYMBOLS, section, tile
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import (
    NONE,
    duration,
    listing,
    number,
    plural,
    quantity,
    readable,
    short,
    when,
)

KINDS = {
    "population": ("fail", "The whole fleet"),
    "common_cause": ("fail", "A common cause"),
    "fabric": ("warn", "The fabric"),
    "outlier": ("warn", "Outliers"),
}
ORDER = list(KINDS)
MAX_FINDINGS = 5
NAMED = 6


def verdict(fleet: Fleet) -> str:
    """A certificate that cleared nobody, or that found the fleet itself wrong, certifies nothing."""
    kinds = {str(row.get("kind")) for row in rows(fleet.certificate.get("findings"))}
    if "population" in kinds or not fleet.amount("cleared"):
        return "fail"
    return "pass" if fleet.amount("cleared") == len(fleet.nodes) else "warn"


def headline(fleet: Fleet) -> str:
    """Say what became of the nodes that were not cleared."""
    parts = [f"{short(fleet.amount(s))} {s}" for s in ("drained", "watched", "untested") if fleet.amount(s)]
    total = plural(len(fleet.nodes), "node")
    return f"{', '.join(parts)} of {total}" if parts else f"all {total} cleared"


def header(fleet: Fleet, links: t.Sequence[tuple[str, str]], notices: t.Sequence[str] = ()) -> Html:
    """Show the cluster, what is certified, when and how long it took."""
    certificate, status = fleet.certificate, verdict(fleet)
    titles = {"pass": "Certified", "warn": "Certified with exceptions", "fail": "Not certified"}
    facts = [
        ("Ended", when(certificate.get("time"))),
        ("Took", duration(certificate.get("seconds"))),
        ("Profile", certificate.get("profile")),
        ("Run", certificate.get("run")),
    ]
    seal = el("span", SYMBOLS[status], class_="seal", aria_hidden="true")
    words = el("div", el("strong", titles[status]), el("span", headline(fleet)))
    name = el(
        "div",
        el("p", "Certificate of a GPU cluster", class_="eyebrow"),
        el("h1", certificate.get("cluster") or "cluster"),
    )
    return el(
        "header",
        el("div", name, el("div", seal, words, class_=f"verdict v-{status}", role="status"), class_="title"),
        [el("p", notice, class_="notice") for notice in notices],
        el(
            "dl",
            [el("div", el("dt", key), el("dd", value)) for key, value in facts if value not in (None, "", NONE)],
            class_="facts",
        ),
        el("nav", [el("a", title, href=f"#{target}") for target, title in links], aria_label="Sections"),
    )


def tiles(fleet: Fleet) -> Html:
    """Show what became of the nodes; planned = reached + untested."""
    certificate, total = fleet.certificate, len(fleet.nodes)
    planned = int(number(certificate.get("planned")) or total)
    untested = fleet.amount("untested")
    sums = f"{short(planned)} planned = {short(planned - untested)} reached + {short(untested)} untested"
    missed = mapping(certificate.get("miss_bound"))
    chance = number(missed.get("probability"))
    boxes = [
        tile("Cleared", [short(fleet.amount("cleared")), el("small", f" / {short(total)}")], sums),
        tile("Drained", short(fleet.amount("drained")), _classes(fleet), "fail" if fleet.amount("drained") else None),
        tile("Watched", short(fleet.amount("watched")), "neither proven good nor bad"),
        tile("Untested", short(untested), _why(fleet)),
    ]
    if chance is not None:
        boxes.append(tile("Missed at most", [f"{100 * chance:.2g}", el("small", " %")], "chance per node"))
    return el("div", el("div", boxes, class_="tiles"), _bound(missed))


def _bound(missed: Row) -> Html | None:
    return el("p", str(missed["text"]), class_="bound") if missed.get("text") else None


def _classes(fleet: Fleet) -> str:
    kinds = [str(node.about.get("class") or "unknown") for node in fleet.nodes if node.status == "drained"]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "no node"


def _why(fleet: Fleet) -> str:
    reasons = [node.reason.partition(":")[0] or "no reason given" for node in fleet.nodes if node.status == "untested"]
    return listing(list(dict.fromkeys(reasons)), 1) or "every node answered"


def findings(fleet: Fleet) -> Html | None:
    """Show what was found of more than one node."""
    texts = rows(fleet.certificate.get("findings"))
    if not texts:
        return None
    texts.sort(key=lambda row: ORDER.index(str(row.get("kind"))) if row.get("kind") in ORDER else len(ORDER))
    drawn = [_finding(row) for row in texts]
    more = el("summary", plural(len(drawn) - MAX_FINDINGS, "more finding"))
    return section(
        "findings",
        "Findings",
        None,
        el("div", drawn[:MAX_FINDINGS], class_="findings"),
        el("details", more, el("div", drawn[MAX_FINDINGS:], class_="findings")) if len(drawn) > MAX_FINDINGS else None,
    )


def _finding(row: Row) -> Html:
    colour, title = KINDS.get(str(row.get("kind")), ("warn", str(row.get("kind") or "finding").replace("_", " ")))
    value, wanted = number(row.get("value")), row.get("expected")
    metric = str(row.get("metric") or "").replace("_", " ")
    known = value is not None and number(wanted) is not None
    numbers = f"{metric}: {quantity(value, row.get('unit'))}, expected {short(wanted)}" if metric and known else ""
    nodes, suspects = strings(row.get("nodes")), strings(row.get("suspects"))
    who = [el("span", "suspected: ", el("b", listing(suspects, NAMED)))] if suspects else []
    who += [el("span", listing(nodes, NAMED))] if nodes and nodes != suspects else []
    return el(
        "div",
        el("span", SYMBOLS[colour], class_="seal", aria_hidden="true"),
        el(
            "div",
            el("p", el("strong", title), " ", readable(row.get("text")) or "no text"),
            el("p", el("span", numbers) if numbers else None, who, class_="faint"),
        ),
        class_=f"finding v-{colour}",
    )
