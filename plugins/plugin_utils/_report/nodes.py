# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The section about single nodes: the matrix of verdicts and every measurement behind it. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import (
    Matrix,
    Row,
    Run,
    is_group,
    mapping,
    matrix,
    rows,
    title,
    where,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import (
    chip,
    counts,
    expected,
    metric_name,
    section,
    table,
    tool,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import (
    NONE,
    duration,
    listing,
    plural,
    quantity,
    size,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import verdict_of

# So many nodes get a row each; beyond it, nodes without a finding are only named.
FULL_ROWS = 64
# So many checks have room for a word in each cell; with more the symbol has to do.
FULL_COLUMNS = 9
TIP_METRICS = 12
COLUMNS = ["Where", "Check", "Metric", "Value>", "Expected>", "Verdict", "Source or reason"]


def nodes(record: Row, run: Run) -> Html | None:
    """Show nodes by checks."""
    full = matrix(run)
    if not full.nodes:
        return None
    clean = [node for node in full.nodes if full.node_verdict(node) in ("pass", "skipped")]
    folded = clean if len(full.nodes) > FULL_ROWS else []
    shown = [node for node in full.nodes if node not in set(folded)]
    single = [check for check in run.checks if not is_group(check)]
    facts = mapping(record.get("nodes"))
    words = len(full.checks) <= FULL_COLUMNS
    body = [_row(full, node, mapping(facts.get(node)), words) for node in shown]
    heads = [_column(name) for name in full.checks]
    head = el("thead", el("tr", el("th", "Node", scope="col"), heads))
    dense = " dense" if len(full.checks) > FULL_COLUMNS else ""
    grid = el("div", el("table", head, el("tbody", body), class_=f"matrix{dense}"), class_="scroll")
    rest = el("p", f"{plural(len(folded), 'more node')} without a finding: {listing(folded, 400)}") if folded else None
    return section(
        "nodes",
        "Nodes",
        counts(single),
        grid if shown else None,
        rest,
        _measurements([check for check in single if str(check.get("node")) in set(shown)]),
    )


def _column(name: str) -> Html:
    family, dot, rest = name.replace("_", " ").partition(".")
    return el("th", el("span", el("small", family) if dot else None, rest or family), scope="col")


def _row(full: Matrix, node: str, facts: Row, words: bool) -> Html:
    about = [" ".join(str(facts[key]) for key in ("os", "os_version") if facts.get(key))]
    about.append(f"{facts['cores']} cores" if facts.get("cores") else "")
    memory = facts.get("memory_mb")
    about.append(size(memory * 2**20) if isinstance(memory, (int, float)) else "")
    small = el("small", " · ".join(part for part in about if part)) if any(about) else None
    return el("tr", el("th", node, small, scope="row"), [_cell(full, node, check, words) for check in full.checks])


def _cell(full: Matrix, node: str, check: str, words: bool) -> Html:
    records = full.cells.get((node, check), [])
    if not records:
        return el("td", chip("error", "no result" if words else "", title="no result"))
    verdict = full.cell_verdict(node, check)
    times = f" \u00d7{len(records)}" if len(records) > 1 else None
    tip = el(
        "div",
        el("strong", f"{check.replace('_', ' ')} on {node}"),
        [_tip(row) for row in records[:8]],
        class_="tip",
        role="tooltip",
    )
    short = chip(verdict) if words else chip(verdict, "", aria_label=verdict, role="img")
    return el("td", el("div", short, times, tip, class_="cell", tabindex="0"))


def _tip(row: Row) -> list[Html | None]:
    metrics = rows(row.get("metrics"))[:TIP_METRICS]
    lines = [
        el(
            "tr",
            el("td", metric_name(metric)),
            el("td", quantity(metric.get("value"), metric.get("unit")), class_="number"),
            el("td", expected(metric) or "nothing expected", class_="faint"),
            el("td", metric.get("source") or "", class_="faint"),
        )
        for metric in metrics
    ]
    about = [tool(row), duration(row["seconds"]) if row.get("seconds") is not None else ""]
    return [
        el("p", row["reason"]) if row.get("reason") else None,
        el("table", el("tbody", lines)) if lines else None,
        el("p", " · ".join(part for part in about if part), class_="faint") if any(about) else None,
    ]


def measurements(checks: list[Row], wanted: t.Callable[[Row], bool] = bool) -> list[Html]:
    """Return a table row per wanted metric; a check without metrics still has one."""
    body = []
    for check in checks:
        metrics = rows(check.get("metrics")) or [{"name": NONE, "verdict": verdict_of(check)}]
        metrics = [metric for metric in metrics if wanted(metric)]
        for metric in metrics:
            body.append(
                el(
                    "tr",
                    el("td", where(check)),
                    el("td", title(check)),
                    el("td", metric_name(metric, mapping(check.get("context")).get("collective"))),
                    el("td", quantity(metric.get("value"), metric.get("unit")), class_="number"),
                    el("td", expected(metric) or NONE, class_="number"),
                    el("td", _verdict(metric)),
                    el("td", metric.get("source") or check.get("reason") or "", class_="faint"),
                )
            )
    return body


def of_interest(metric: Row) -> bool:
    """Sizes that nobody judges are in a plot; a table need not repeat them."""
    return metric.get("size") is None or metric.get("verdict") != "unjudged"


def _verdict(metric: Row) -> Html:
    """Most metrics are there to be read, not to be judged: they get no chip."""
    verdict = verdict_of(metric)
    return el("span", "not judged", class_="faint") if verdict == "unjudged" else chip(verdict)


def _measurements(checks: list[Row]) -> Html:
    body = measurements(checks, of_interest)
    return el("details", el("summary", f"All {plural(len(body), 'measurement')}"), table(COLUMNS, body))
