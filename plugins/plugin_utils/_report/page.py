# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page: one file, no network; a fleet's has one script, which the page's policy knows by digest. Private."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report import curves, gpus, nodes, overview, stages
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet import compose, explore
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.read import Certified
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, el, json_block
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Run, runs, subject

# Nothing may be loaded, and nothing that slipped into the page could run.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE = Path(__file__).with_name("style.css")
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


def page(record: dict[str, t.Any], certified: Certified | None = None) -> str:
    """Return the report of a run record (plain JSON types), and of a certified fleet, as an HTML document."""
    if certified is None:
        return _document(record, _run(record), [], POLICY, [STYLE])
    made = compose.compose(record, certified)
    body = [made.header, made.tiles, list(made.parts.values()), _footer("run.json and the certificate")]
    title = certified.fleet.certificate.get("cluster") or record.get("cluster")
    policy = f"{POLICY}; {explore.script_policy()}"
    return _document({**record, "cluster": str(title or "")}, body, made.blocks, policy, [STYLE, compose.STYLE])


def _run(record: dict[str, t.Any]) -> list[t.Any]:
    all_runs = runs(record)
    run, earlier = (all_runs[0], all_runs[1:]) if all_runs else (Run("none", [], [], []), [])
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
    return [
        overview.header(record, run, links),
        overview.tiles(run) if run.stages or run.checks or run.training else el("p", "The run record is empty."),
        list(parts.values()),
        _footer("run.json"),
    ]


def _footer(source: str) -> Html:
    return el("footer", f"Drawn by hpcai.gpu_cluster from {source}. The record is inside this page.")


def _document(record: dict[str, t.Any], body: list[t.Any], blocks: list[Html], policy: str, styles: list[Path]) -> str:
    carried = json_block(record, "run")
    document = el("html", _head(record, policy, styles), el("body", el("main", body), carried, blocks), lang="en")
    return f"<!DOCTYPE html>\n{document}\n"


def _head(record: dict[str, t.Any], policy: str, styles: list[Path]) -> Html:
    style = "".join(path.read_text(encoding="utf-8") for path in styles)
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name_="color-scheme", content="light dark"),
        el("title", f"{subject(record)} · GPU cluster report"),
        el("style", Html(style)),
    )
