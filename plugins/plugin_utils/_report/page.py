# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page: one file, no network, no script that runs. Private."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report import curves, gpus, nodes, overview, stages
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el, json_block
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Run, runs

# Nothing may be loaded, and nothing that slipped into the page could run.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
TITLES = {
    "stages": "Stages",
    "findings": "Findings",
    "nodes": "Nodes",
    "gpus": "GPUs",
    "fabric": "Between nodes",
    "training": "Training",
    "untested": "Not tested",
    "again": "Run it again",
    "history": "Earlier runs",
}


def page(record: dict[str, t.Any]) -> str:
    """Return the report of a run record (plain JSON types) as an HTML document."""
    found = runs(record)
    run, earlier = (found[0], found[1:]) if found else (Run("none", [], [], []), [])
    parts = {
        "stages": stages.timeline(run) if run.stages else None,
        "findings": overview.findings(run),
        "nodes": nodes.nodes(record, run),
        "gpus": gpus.gpus(run),
        "fabric": curves.fabric(run),
        "training": curves.training(run),
        "untested": overview.not_tested(run),
        "again": stages.again(run),
        "history": stages.history(earlier),
    }
    links = [(name, TITLES[name]) for name, part in parts.items() if part is not None]
    body = el(
        "main",
        overview.header(record, run, links),
        overview.tiles(run) if run.stages or run.checks or run.training else el("p", "The run record is empty."),
        list(parts.values()),
        el("footer", "Drawn by hpcai.gpu_cluster from run.json, which this page carries inside."),
    )
    return f"<!DOCTYPE html>\n{el('html', _head(record), el('body', body, json_block(record, 'run')), lang='en')}\n"


def _head(record: dict[str, t.Any]) -> Html:
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name_="color-scheme", content="light dark"),
        el("title", f"{record.get('cluster') or 'cluster'} · GPU cluster report"),
        el("style", Html(style)),
    )
