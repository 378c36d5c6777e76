# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a certification will do, how long it takes and what it costs, before it starts. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import ladder
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import ROUND_ROBIN, Options, away
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import Ledger


class _Step(t.NamedTuple):
    stage: str
    text: str
    rounds: int
    tests: int
    nodes: int
    seconds: float


def plan(ledger: Ledger) -> Json:
    """Return the plan; confirmation is what it takes at most, on the suspects that the prior lets expect."""
    options = ledger.options
    ready = [node for node in ledger.nodes.values() if not away(node)]
    steps = [step for step in _steps(ledger, len(ready)) if step.stage in options.stages and step.rounds]
    hours = sum(step.seconds * step.nodes for step in steps) / 3600
    gpu_hours = hours * options.gpus_per_node
    robin = _pair_rounds(options, len(ready))[1]
    seconds = sum(step.seconds for step in steps)
    found: Json = {
        "nodes": len(ready),
        "untested": len(ledger.nodes) - len(ready),
        "rounds": sum(step.rounds for step in steps if step.stage in ("pair", "confirm")),
        "tests": sum(step.tests for step in steps),
        "wall_seconds": round(seconds, 1),
        "node_hours": round(hours, 2),
        "gpu_hours": round(gpu_hours, 2),
        "cost": round(gpu_hours * options.cost_per_gpu_hour, 2),
        "round_robin": robin,
    }
    return {**found, "text": [*(_line(step) for step in steps), _total(found, options)]}


def _pair_rounds(options: Options, nodes: int) -> tuple[int, bool]:
    """Return how many pair rounds there are, and whether everybody meets everybody."""
    if nodes < 2:
        return 0, False
    if nodes <= ROUND_ROBIN:
        return nodes - 1 + nodes % 2, True
    return options.k, False


def _steps(ledger: Ledger, nodes: int) -> t.Iterator[_Step]:
    options = ledger.options
    seconds = options.seconds
    if not nodes:
        return
    yield _Step("reach", "who answers", 1, nodes, nodes, seconds["reach"])
    yield _Step("local", "each node by itself", 1, nodes, nodes, seconds["local"])
    rounds, robin = _pair_rounds(options, nodes)
    how = "everybody meets everybody" if robin else "inside leaves, across leaves, at random"
    yield _Step("pair", how, rounds, rounds * (nodes // 2), nodes, rounds * seconds["pair"])
    # Each bad node spoils about one good one per round, until partners that never failed part them.
    suspects = min(nodes // 2, max(1, round(nodes * options.prior * (1 + options.k))))
    more = options.confirm_rounds if rounds else 0
    how = f"about {suspects} suspects with partners that never failed, at most"
    yield _Step("confirm", how, more, more * suspects, 2 * suspects, more * seconds["pair"])
    rungs = ladder.rungs([node for node in ledger.nodes.values() if not away(node)])
    tests = sum(len(rung.groups) for rung in rungs) * len(options.collectives)
    count = len(rungs) * len(options.collectives)
    names = ", ".join(rung.name for rung in rungs)
    how = f"{names}: {' and '.join(options.collectives)}; what is slow is narrowed down besides"
    yield _Step("ladder", how, count, tests, nodes, count * seconds["ladder"])


def _line(step: _Step) -> str:
    rounds = f"{step.rounds} round{'s' * (step.rounds > 1)}"
    return f"{step.stage}: {rounds}, {step.tests} tests, {step.seconds / 60:.1f} min ({step.text})"


def _total(found: Json, options: Options) -> str:
    hours = f"{found['gpu_hours']:g} GPU-hours" if options.gpus_per_node else f"{found['node_hours']:g} node-hours"
    cost = f", about {found['cost']:.2f} by the given price" if options.cost_per_gpu_hour else ""
    left = f"; {found['untested']} not idle, so not tested" if found["untested"] else ""
    return f"in all: {found['nodes']} nodes, at most {found['wall_seconds'] / 60:.1f} min, {hours}{cost}{left}"
