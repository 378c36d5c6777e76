# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which sections the page of a certified fleet has, and in which order. Private."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report import curves, gpus, nodes, overview, stages
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet import (
    bands,
    certificate,
    data,
    distributions,
    explore,
    front,
    isolation,
    ladder,
    squares,
    strips,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.model import Fleet
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.read import Certified
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.markup import Html, json_block
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import Row, Run, runs, state, strings

FOREIGN = "The records beside this certificate are not those that it was made from: their digests differ."
# A matrix of more checks would be wider than the page, one of more nodes long and mostly green.
MAX_COLUMNS = 34
MAX_ROWS = 16
STYLE = Path(__file__).with_name("style.css")
TITLES = {
    "findings": "Findings",
    "map": "The fleet",
    "heat": "Checks by nodes",
    "nodes": "Checks by nodes",
    "gpus": "GPUs",
    "spread": "Distributions",
    "curves": "Collectives",
    "isolation": "Isolation",
    "ladder": "Ladder",
    "find": "Find a node",
    "not-tested": "Not tested",
    "stages": "Stages",
    "fabric": "Between nodes",
    "training": "Training",
    "basis": "Basis",
    "certificates": "Over time",
    "again": "Run it again",
    "history": "Earlier runs",
}


@dataclasses.dataclass(frozen=True)
class Page:
    """What goes into the page's body, and what a script needs."""

    header: Html
    tiles: Html
    parts: dict[str, Html]
    blocks: list[Html]


def compose(record: Row, certified: Certified) -> Page:
    """Draw the sections of a certified fleet."""
    all_runs = runs(record)
    run, before = (all_runs[0], all_runs[1:]) if all_runs else (Run("none", [], [], []), [])
    fleet = certified.fleet
    parts = {
        "findings": front.findings(fleet),
        "map": squares.fleet_map(fleet),
        "find": explore.explore(fleet),
        **_checks(record, run, certified),
        "isolation": isolation.isolation(fleet),
        "ladder": ladder.ladder(fleet),
        "not-tested": certificate.untested(fleet),
        "stages": stages.timeline(run) if run.stages else None,
        "fabric": curves.fabric(run),
        "training": curves.training(run),
        "basis": certificate.basis(fleet, certified.genuine),
        "certificates": certificate.earlier(fleet, certified.earlier),
        "again": stages.again(run) if run.stages else None,
        "history": stages.history(before),
    }
    drawn = {name: part for name, part in parts.items() if part is not None}
    emulated = overview.EMULATED if certified.emulated or run.emulated else None
    trouble = run.headline if any(state(stage) in ("failed", "unfinished") for stage in run.stages) else None
    foreign = FOREIGN if certified.genuine is False else None
    notices = [notice for notice in (foreign, emulated, trouble, *strings(fleet.certificate.get("notes"))) if notice]
    header = front.header(fleet, [(name, TITLES[name]) for name in drawn], notices)
    return Page(header, front.tiles(fleet), drawn, _blocks(fleet))


def _checks(record: Row, run: Run, certified: Certified) -> dict[str, Html | None]:
    """A few nodes have room for every cell; many are drawn as strips and distributions."""
    if certified.few is None:
        return {
            "heat": strips.heat_map(certified.fleet),
            "spread": distributions.distributions(certified.fleet),
            "curves": bands.curves(certified.fleet),
        }
    small = Run(run.name, [], certified.few, [])
    fits = len(certified.fleet.verdicts) <= MAX_COLUMNS and len(certified.fleet.nodes) <= MAX_ROWS
    table = {"nodes": nodes.nodes(record, small)} if fits else {"heat": strips.heat_map(certified.fleet)}
    return {
        **table,
        "gpus": gpus.gpus(small),
        "spread": distributions.distributions(certified.fleet),
    }


def _blocks(fleet: Fleet) -> list[Html]:
    script: t.Any = Html(f"<script>{explore.script()}</script>")
    return [json_block(data.data(fleet), "fleet"), script]
