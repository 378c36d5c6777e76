# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with more than a node: switches, links, rungs of the ladder, the fleet. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import ladder as rungs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import narrow, standing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.guards import finding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import PAIRS, Ledger, Test
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import hostlist


def findings(ledger: Ledger, now: standing.Standing) -> list[Json]:
    """Return everything that no single node explains, and which nodes lie outside the fleet."""
    return [
        *now.findings,
        *_fabric(ledger, now),
        *_links(ledger, now),
        *_slow(ledger, now),
        *_outside(ledger, now),
    ]


def notes(ledger: Ledger) -> list[str]:
    """Return what the reader should know of how it was judged: good beside each other is not good."""
    tests = [outcome for dummy, outcome in ledger.results(*PAIRS) if outcome.kind != "infra"]
    wide = [(len(test.nodes), outcome) for test, outcome in ledger.results("ladder")]
    lost = sorted({nodes for nodes, outcome in wide if outcome.kind == "infra"})
    found = []
    if not tests and "pair" in ledger.options.stages:
        found.append("no test between nodes gave a result: what is known is what each node found of itself")
    if tests and not any(outcome.judged for outcome in tests):
        found.append("no floor is known for the pair tests: they were judged beside each other only")
    if lost:
        found.append(f"steps over {', '.join(map(str, lost))} nodes gave no result: nothing is known of their width")
    return found


def _fabric(ledger: Ledger, now: standing.Standing) -> t.Iterator[Json]:
    for name, posterior in now.fabric.items():
        kind, leaf = name.split(" ", 1)
        # A slow switch makes its uplink look slow as well.
        over = now.fabric[f"leaf {leaf}"] if kind == "uplink" else 0.0
        if posterior >= standing.SUSPECT > over:
            nodes = [node.name for node in ledger.nodes.values() if node.leaf == leaf]
            where = "every connection of" if kind == "leaf" else "what connects others with"
            text = f"{where} leaf {leaf} is slow, and no node of it explains that (posterior {posterior:.3g})"
            yield finding("fabric", text, nodes, [name], value=posterior)


def _links(ledger: Ledger, now: standing.Standing) -> t.Iterator[Json]:
    for nodes in standing.links(ledger, now):
        text = f"{' and '.join(nodes)} are slow together, twice, and well with everybody else: the way between them"
        yield finding("fabric", text, nodes, rungs.leaves(ledger, nodes))


def _slow(ledger: Ledger, now: standing.Standing) -> t.Iterator[Json]:
    """Pairs clean but a rung slow: the narrowest slow groups name the switches, or the way between two nodes."""
    for nodes, tests in narrow.slowest(ledger).items():
        if rungs.excused(ledger, now, nodes):
            continue
        about, why = _about(ledger, tests)
        text = f"{about} is slow though their pairs are clean: {why}"
        if len(nodes) == 2:
            text = (
                f"{' and '.join(nodes)} are slow together, and well with everybody else: the way between them ({why})"
            )
        yield _found(ledger, text, nodes, tests)
    for nodes, tests in narrow.fleeting(ledger).items():
        about, why = _about(ledger, tests)
        text = f"{about} was slow once and well when it ran again: something in it comes and goes ({why})"
        yield _found(ledger, text, nodes, tests)


def _about(ledger: Ledger, tests: t.Sequence[Test]) -> tuple[str, str]:
    """Return what ran, and what was slow about it."""
    names = dict.fromkeys(test.collective for test in tests)
    return f"{' and '.join(names)} over {len(tests[0].nodes)} nodes", rungs.slow(ledger, tests[:1])[tests[0].id]


def _found(ledger: Ledger, text: str, nodes: t.Sequence[str], tests: t.Sequence[Test]) -> Json:
    outcome = ledger.outcome(tests[0])
    value = outcome.value if outcome else None
    return finding("fabric", text, nodes, rungs.leaves(ledger, nodes), metric=tests[0].collective, value=value)


def _outside(ledger: Ledger, now: standing.Standing) -> t.Iterator[Json]:
    """Nodes whose own suite met its floors, but not what the others reach."""
    for test, outcome in [*ledger.results("local"), *ledger.own()]:
        if outcome.kind == "ok" and now.kinds[test.id] == "bad":
            ratio = now.ratios.get(test.id, 0.0)
            text = f"{test.nodes[0]} reaches {ratio:.1%} of the fleet's median in its worst measurement"
            yield finding("outlier", text, test.nodes, test.nodes, value=ratio, expected=1)


def ladder(ledger: Ledger) -> list[Json]:
    """Return the rungs as the certificate lists them."""
    found = []
    for batch in ledger.batches:
        bad = rungs.slow(ledger, batch.tests) if batch.stage == "ladder" else {}
        limits = [o.value for x in batch.tests for o in [ledger.outcome(x)] if o and o.value is not None]
        best = sorted(limits)[len(limits) // 2] if limits else None
        for test in batch.tests if batch.stage == "ladder" else ():
            outcome = ledger.outcome(test)
            value = outcome.value if outcome else None
            verdict = "fail" if test.id in bad else "pass" if outcome and outcome.kind == "ok" else "error"
            about: Json = {"nodes": len(test.nodes), "hostlist": hostlist.compress(test.nodes, sort=True)}
            about.update(collective=test.collective, value=value, unit=outcome.unit if outcome else "")
            about.update(expected=outcome.expected if outcome else "", verdict=verdict)
            found.append({**about, "ratio": value / best if value is not None and best else None})
    return found
