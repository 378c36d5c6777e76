# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sections about the run as a whole: header, numbers, findings, what was not tested. Private."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import (
    Row,
    Run,
    mapping,
    matrix,
    rows,
    strings,
    subject,
    title,
    untested,
    where,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import SYMBOLS, chip, section, table, tile
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import (
    NONE,
    duration,
    listing,
    number,
    plural,
    short,
    when,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import UNTESTED, count, verdict_of

MAX_FINDINGS = 50
EMULATED = (
    "A rehearsal: tools that call themselves emulated answered in this run. Their numbers show what a report says, "
    "not what any machine does."
)
VERDICT_TITLE = {
    "pass": "Passed",
    "fail": "Failed",
    "warn": "Passed with warnings",
    "error": "Incomplete",
    "unjudged": "Not judged",
    "skipped": "Skipped",
}


def header(record: Row, run: Run, links: list[tuple[str, str]]) -> Html:
    """Show the cluster, the verdict, when and how long."""
    facts = [
        ("Started", when(run.start)),
        ("Took", duration(run.seconds)),
        ("Machine type", record.get("sku")),
        ("Run", run.name),
    ]
    badge = el(
        "div",
        el("span", SYMBOLS[run.verdict], class_="seal", aria_hidden="true"),
        el("div", el("strong", _title(run)), el("span", run.headline)),
        class_=f"verdict v-{run.verdict}",
        role="status",
    )
    return el(
        "header",
        el(
            "div",
            el("div", el("p", "GPU cluster report", class_="eyebrow"), el("h1", subject(record))),
            badge,
            class_="title",
        ),
        el("p", EMULATED, class_="notice") if run.emulated else None,
        el("dl", [el("div", el("dt", key), el("dd", value)) for key, value in facts if value], class_="facts"),
        el("nav", [el("a", title, href=f"#{part}") for part, title in links], aria_label="Sections"),
    )


def _title(run: Run) -> str:
    """What nobody judges takes nothing from what passed, and adds nothing to it."""
    if run.verdict == "unjudged" and count(run.checks).get("pass"):
        return "Passed where judged"
    return VERDICT_TITLE[run.verdict]


def tiles(run: Run) -> Html:
    """Show the few numbers that matter."""
    measured = [check for check in run.checks if verdict_of(check) not in UNTESTED]
    passed, missing = count(measured).get("pass", 0), len(untested(run))
    hosts = {host for stage in run.stages for host in strings(stage.get("hosts")) if stage.get("stage") != "lab_up"}
    nodes = matrix(run).nodes
    changes = sum(int(number(n) or 0) for stage in run.stages for n in mapping(stage.get("changes")).values())
    boxes = [
        tile("Nodes", short(len(nodes or hosts)), listing(nodes or sorted(hosts), 4)),
        tile("Checks passed", [short(passed), el("small", f" / {len(measured)}")], f"{missing} not tested"),
    ]
    peaks = [
        (row.get("busbw"), row.get("collective") or row.get("op"))
        for check in run.checks
        for row in rows(check.get("samples"))
    ]
    best = max(((number(value) or 0.0, str(op)) for value, op in peaks if number(value)), default=None)
    if best:
        boxes.append(tile("Peak bus bandwidth", [short(best[0]), el("small", " GB/s")], best[1]))
    speed = next((number(job.get("samples_per_second")) for job in reversed(run.training)), None)
    if speed is not None:
        ranks = len(rows(run.training[-1].get("ranks")))
        boxes.append(tile("Training", [short(speed), el("small", " samples/s")], plural(ranks, "rank")))
    boxes.append(tile("Changes", short(changes), "already as wanted" if not changes else "to reach the wanted state"))
    return el("div", boxes, class_="tiles")


def findings(run: Run) -> Html | None:
    """Show what was measured and is not as it should be, the worst first."""
    bad = [check for check in run.checks if verdict_of(check) in ("fail", "warn")]
    if not bad:
        return None
    body = [
        el(
            "tr",
            el("td", chip(verdict_of(check))),
            el("td", el("b", where(check))),
            el("td", title(check)),
            el("td", check.get("reason") or "no reason given"),
            el("td", check.get("class") or NONE, class_="faint"),
        )
        for check in sorted(bad, key=verdict_of)[:MAX_FINDINGS]
    ]
    rest = len(bad) - len(body)
    note = f"the first {MAX_FINDINGS}, {rest} more in the table of nodes" if rest else None
    return section("findings", "Findings", note, table(["Verdict", "Where", "Check", "What is wrong", "Kind"], body))


def not_tested(run: Run) -> Html | None:
    """Show what was planned and not measured, and why."""
    missing = untested(run)
    measured = sum(verdict_of(check) not in UNTESTED for check in run.checks)
    if not missing:
        return None
    body = [
        el("tr", el("td", chip(verdict)), el("td", el("b", what)), el("td", place), el("td", reason))
        for what, place, verdict, reason in missing
    ]
    note = f"{measured + len(missing)} planned = {measured} measured + {len(missing)} not tested"
    return section("untested", "Not tested", note, table(["Verdict", "What", "Where", "Why"], body))
