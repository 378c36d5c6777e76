# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Search and filter: a table that stands without any script, and the data that the page's script works on. Private."""

from __future__ import annotations

import base64
import hashlib
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.data import PLACE
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import STATUSES, Fleet
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.parts import chip, section, table
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import (
    NONE,
    number,
    plural,
    short,
    shorten,
)

SCRIPT = Path(__file__).with_name("script.js")
MAX_ROWS = 200


def script() -> str:
    return SCRIPT.read_text(encoding="utf-8")


def script_policy() -> str:
    """Return what a policy says to let this one script run, and no other."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return f"script-src 'sha256-{digest}'"


def explore(fleet: Fleet) -> Html | None:
    """Show nodes that were not cleared; with a script, any node by search."""
    if not fleet.nodes:
        return None
    nodes = [node for node in fleet.nodes if node.status != "cleared"]
    nodes.sort(key=lambda node: (PLACE[node.status], -(number(node.about.get("posterior")) or 0.0)))
    body = [_row(node.name, node.leaf, node.status, node.reason, node.about) for node in nodes[:MAX_ROWS]]
    rest = len(nodes) - len(body)
    still = "Every node was cleared." if not nodes else f"{plural(len(nodes), 'node')} not cleared"
    return section(
        "find",
        "Find a node",
        None,
        _controls(fleet),
        el(
            "p",
            still + (f", the first {MAX_ROWS} here." if rest > 0 else ""),
            id="found",
            class_="faint",
            aria_live="polite",
        ),
        el("div", id="detail", tabindex="-1", aria_live="polite"),
        table(["Status", "Node", "Leaf", "Likely bad>", "Reason"], body, "list nodes"),
        el("button", "More", type="button", id="more", hidden="hidden"),
    )


def _controls(fleet: Fleet) -> Html:
    """Return what only a script can serve; without one it stays hidden."""
    hint = "a node, leaf, host, check or reason; several words must all match"
    box = el(
        "input",
        type="search",
        id="query",
        placeholder="Search",
        aria_label=f"Search: {hint}",
        title=hint,
        autocomplete="off",
        spellcheck="false",
    )
    return el(
        "div",
        box,
        el("div", _buttons(fleet), class_="statuses", role="group", aria_label="Status"),
        class_="controls",
        id="controls",
        hidden="hidden",
        role="search",
    )


def _buttons(fleet: Fleet) -> list[Html]:
    counts = {status: fleet.amount(status) for status in STATUSES if fleet.amount(status)}
    return [
        el(
            "button",
            chip(STATUSES[status], f"{short(amount)} {status}"),
            type="button",
            data_status=PLACE[status],
            aria_pressed="false",
        )
        for status, amount in counts.items()
    ]


def _row(name: str, leaf: str, status: str, reason: str, about: dict[str, t.Any]) -> Html:
    sure = number(about.get("posterior"))
    return el(
        "tr",
        el("td", chip(STATUSES[status], status)),
        el("td", el("b", name)),
        el("td", leaf or NONE),
        el("td", f"{100 * sure:.3g}\u00a0%" if sure is not None else NONE, class_="number"),
        el("td", shorten(reason) or "no reason given", title=reason if reason != shorten(reason) else None),
    )
