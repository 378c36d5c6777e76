# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small pieces that several sections share. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Child, Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Row, mapping
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import NONE, quantity
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import count

SYMBOLS = {"pass": "✓", "fail": "✕", "warn": "▲", "error": "!", "unjudged": "?", "skipped": NONE}
SIGNS = {">=": "≥", "<=": "≤", "==": "", "": "≥"}
WORDS = {"unjudged": "not judged"}


def chip(verdict: str, text: str | None = None, **attributes: t.Any) -> Html:
    """Return a verdict as colour, symbol and word."""
    word = WORDS.get(verdict, verdict) if text is None else text
    symbol = el("span", SYMBOLS.get(verdict, "?"), class_="symbol", aria_hidden="true")
    return el("span", symbol, word, class_=f"chip v-{verdict}", **attributes)


def counts(records: t.Iterable[Row]) -> list[Html]:
    """Return one chip per verdict with its number."""
    return [chip(verdict, f"{number} {WORDS.get(verdict, verdict)}") for verdict, number in count(records).items()]


def section(name: str, title: str, note: Child, *children: Child) -> Html:
    """Return a card with a heading."""
    head = el("div", el("h2", title), el("p", note, class_="note") if note else None, class_="head")
    return el("section", head, *children, id=name, class_="card")


def table(columns: t.Sequence[str], body: t.Iterable[Child], name: str = "list") -> Html:
    """Return a table that scrolls sideways where the window is narrow; a column that ends in > holds numbers."""
    heads = [el("th", c.rstrip(">"), scope="col", class_="number" if c.endswith(">") else None) for c in columns]
    inner = el("table", el("thead", el("tr", heads)), el("tbody", body), class_=name)
    return scroll(inner, columns[0].rstrip(">"))


def scroll(inner: Html, label: str) -> Html:
    """Let something wide scroll sideways, by keyboard too."""
    return el("div", inner, class_="scroll", tabindex="0", role="group", aria_label=label)


def tile(label: str, value: Child, note: Child = None, verdict: str | None = None) -> Html:
    """Return one number that matters."""
    return el(
        "div",
        el("div", label, class_="tile-label"),
        el("div", value, class_="tile-value"),
        el("div", note, class_="tile-note") if note else None,
        class_=f"tile v-{verdict}" if verdict else "tile",
    )


def metric_name(metric: Row, collective: t.Any = None) -> str:
    """Return a metric's name with the labels that tell it from its siblings in a check."""
    known = {"name", "value", "unit", "expected", "source", "ratio", "verdict"}
    labels = [
        quantity(value, "bytes") if key == "size" else str(value)
        for key, value in metric.items()
        if key not in known and value not in (None, collective)
    ]
    return " ".join([str(metric.get("name")).replace("_", " "), *(f"({label})" for label in labels)])


def expected(metric: Row) -> str | None:
    """Return what was expected, with the unit; None where nothing was."""
    wanted = metric.get("expected")
    if wanted is None:
        return None
    sign, dummy, limit = str(wanted).rpartition(" ")
    try:
        text = quantity(float(limit), metric.get("unit"))
    except ValueError:
        return str(wanted)
    return f"{SIGNS.get(sign, sign)} {text}".strip()


def tool(check: Row) -> str:
    """Return the tool of a check with its version, where known."""
    context = mapping(check.get("context"))
    return " ".join(str(context[key]) for key in ("tool", "version") if context.get(key))
