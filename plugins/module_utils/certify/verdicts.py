# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts of a campaign with their explanation, and the findings for people."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import schedule, standing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import TestOutcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import (
    PAIRS,
    CampaignError,
    Ledger,
    RoundTest,
    away,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.standing import (
    SUSPECT,
    Standing,
    enough,
    explained,
    finding,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import hostlist

# The status of each node: cleared, watched, drained or untested, and why. Pure.


_REPAIRED = ("hardware", "fabric")  # what configuration or software did is not for a repair

Verdict = t.Tuple[str, str, t.Optional[str]]


class VerdictSight(t.NamedTuple):
    """One test of a node, and what it counts as: good, bad, or nothing known."""

    test: RoundTest
    outcome: TestOutcome
    kind: str


def sights(ledger: Ledger, now: Standing) -> dict[str, list[VerdictSight]]:
    """Return the tests of each node, in the order of the plan."""
    sights_by_node: dict[str, list[VerdictSight]] = {name: [] for name in ledger.nodes}
    for test, outcome in ledger.results("reach", "local", "retest", *PAIRS):
        for name in test.nodes:
            sights_by_node[name].append(VerdictSight(test, outcome, now.kinds.get(test.id, outcome.kind)))
    return sights_by_node


def verdicts(ledger: Ledger, now: Standing) -> dict[str, Json]:
    """Return the node entries of the certificate."""
    judge = _Judge(ledger, now)
    entries = {}
    for name, seen in sights(ledger, now).items():
        status, reason, blame = judge.verdict(name, seen)
        node = ledger.nodes[name]
        meetings = [sight.kind for sight in seen if len(sight.test.nodes) > 1]
        hosts = [sight.outcome.hosts[name] for sight in seen if name in sight.outcome.hosts]
        installed = [sight.outcome.installations[name] for sight in seen if name in sight.outcome.installations]
        entries[name] = {
            "status": status,
            "posterior": _rounded(now.posterior.get(name)),
            "reason": reason,
            "class": blame,
            "leaf": node.leaf,
            "physical_host": hosts[-1] if hosts else node.physical_host,
            "installation": installed[-1] if installed else "",
            "tests": len(meetings),
            "failed": meetings.count("bad"),
        }
    return entries


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


class _Judge:
    """Judges node after node."""

    def __init__(self, ledger: Ledger, now: Standing) -> None:
        self._ledger, self._now, self._options = ledger, now, ledger.options
        self._own = {test.nodes[0]: outcome for test, outcome in ledger.alone()}
        # Where nodes were never to meet, a node's own suite is all that there is of it.
        self._meets = "pair" in ledger.options.stages and sum(not away(node) for node in ledger.nodes.values()) > 1

    def verdict(self, name: str, seen: t.Sequence[VerdictSight]) -> Verdict:
        """Return status, reason and class of a node."""
        bad = [sight for sight in seen if sight.kind == "bad"]
        posterior = self._now.posterior.get(name, 1.0)
        if name in self._ledger.untested:
            return "untested", self._ledger.untested[name], "infra"
        if bad and (posterior >= self._options.drain_at or name in self._now.unfit):
            own = [sight for sight in bad if not self._excused(name, sight)] or bad
            blame = _blame(own)
            return ("drained" if blame in _REPAIRED else "watched"), self._cause(own), blame
        hole = self._hole(name, seen)
        if hole:
            return "untested", hole, "infra"
        if self._now.findings:
            off = self._now.findings[0]["text"]
            return "watched", f"not judged, as the fleet as a whole is off: {off}", "fabric"
        if self._now.lost[name] >= SUSPECT:
            return "watched", "more of its tests than of others end without a result", "infra"
        tried = not self._meets or self._now.good[name] >= enough(self._options)
        if tried and (posterior <= self._options.clear_at or not (self._meets or bad)):
            return "cleared", "", None
        shadow = self._shadow(name)
        if shadow:
            return "watched", f"behind a suspect: {shadow}", "fabric"
        if bad:
            return "watched", f"{len(bad)} of {len(seen)} tests were bad: {self._cause(bad)}", _blame(bad)
        return "watched", f"{len(seen)} good tests are too few to clear it", None

    def _hole(self, name: str, seen: t.Sequence[VerdictSight]) -> str:
        """Return what is missing to judge the node: silence is no pass."""
        answered = [sight for sight in seen if sight.kind != "infra" and sight.test.stage != "reach"]
        lost = [sight.outcome.reason for sight in seen if sight.kind == "infra"]
        if not answered:
            return lost[-1] if lost else "nothing came back of it"
        if self._now.lost[name] >= self._options.drain_at:
            return f"its tests end without a result: {lost[-1]}"
        own = self._own.get(name)
        if own and own.kind == "infra":
            return f"its own suite is not complete: {own.reason}"
        met = any(len(sight.test.nodes) > 1 for sight in answered)
        return "" if met or not self._meets else "no test with a partner gave a result"

    def _excused(self, name: str, sight: VerdictSight) -> bool:
        """Say whether another node or a switch explains a bad test, so that its reason is not about this node."""
        others = [self._now.posterior.get(other, 0.0) for other in sight.test.nodes if other != name]
        return max(others, default=0.0) >= SUSPECT or explained(self._ledger, self._now, sight.test.nodes)

    def _shadow(self, name: str) -> str:
        """Return the suspect switch that a node hangs on."""
        leaf = self._ledger.nodes[name].leaf
        above = (f"{kind} {leaf}" for kind in ("leaf", "uplink"))
        return next((name for name in above if self._now.fabric.get(name, 0.0) >= SUSPECT), "")

    def _cause(self, bad: t.Sequence[VerdictSight]) -> str:
        """Return the reason of the first bad test, of the node alone before those with others."""
        first = min(bad, key=lambda sight: (len(sight.test.nodes), not sight.outcome.reason))
        parts = [first.outcome.reason, self._now.weak.get(first.test.id, "")]
        return "; ".join(part for part in parts if part)


def _blame(bad: t.Sequence[VerdictSight]) -> str | None:
    """Return the class of the bad tests of the node alone, else of most of its tests with others.

    What is only slow beside others has none of its own: of a node it is hardware, between nodes fabric.
    """
    alone = [sight for sight in bad if len(sight.test.nodes) == 1]
    classes = [sight.outcome.blame or ("hardware" if alone else "fabric") for sight in alone or bad]
    return max(sorted(set(classes)), key=classes.count)


# Why a node was judged as it was: every test, its partners and what is believed of them, and its result.


_WORDS = {"ok": "good", "bad": "bad", "infra": "no result", "open": "open"}


def explain(ledger: Ledger, now: Standing, name: str) -> list[str]:
    """Return why a node was judged as it was, line by line."""
    if name not in ledger.nodes:
        raise CampaignError(f"node {name} is not in this certification, which has {len(ledger.nodes)} nodes")
    node = verdicts(ledger, now)[name]
    posterior = "" if node["posterior"] is None else f", at fault with {node['posterior']:.4g}"
    why = f" ({node['reason']})" if node["reason"] else ""
    seen = sights(ledger, now)[name]
    return [
        f"{name}: {node['status']}{posterior}{why}",
        *(_line(now, sight, name) for sight in seen),
        *_rest(ledger, now, name),
    ]


def _line(now: Standing, sight: VerdictSight, name: str) -> str:
    test, outcome = sight.test, sight.outcome
    partners = [f"{other} ({_believed(now, other)})" for other in test.nodes if other != name]
    ratio = f", {now.ratios[test.id]:.1%} of the median" if test.id in now.ratios else ""
    value = f" {outcome.value:g} {outcome.unit}{ratio}" if outcome.value is not None else ""
    cause = "; ".join(part for part in (outcome.reason, now.weak.get(test.id, "")) if part)
    company = f" with {', '.join(partners)}" if partners else ""
    head = f"  {test.stage} {test.round}{company}: {_WORDS[sight.kind]}{value}"
    return f"{head}{f'; {cause}' if cause else ''} [{test.id}]"


def _believed(now: Standing, name: str) -> str:
    posterior = now.posterior.get(name)
    return "untested" if posterior is None else f"{posterior:.2g}"


def _rest(ledger: Ledger, now: Standing, name: str) -> list[str]:
    leaf = ledger.nodes[name].leaf
    above = [key for key in (f"leaf {leaf}", f"uplink {leaf}") if key in now.fabric]
    learnt = f"  learnt of this fleet: {now.share:.2%} of nodes are at fault, {now.noise:.2%} of tests fail for nothing"
    return [*(f"  {key} is at fault with {now.fabric[key]:.2g}" for key in above), learnt]


# What is wrong with more than a node: switches, links, rungs of the ladder, the fleet. Pure.


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
    """Return notes on how nodes were judged: good beside each other is not good."""
    tests = [outcome for dummy, outcome in ledger.results(*PAIRS) if outcome.kind != "infra"]
    wide = [(len(test.nodes), outcome) for test, outcome in ledger.results("ladder")]
    lost = sorted({nodes for nodes, outcome in wide if outcome.kind == "infra"})
    lines = []
    if not tests and "pair" in ledger.options.stages:
        lines.append("no test between nodes gave a result: what is known is what each node found of itself")
    if tests and not any(outcome.judged for outcome in tests):
        lines.append("no floor is known for the pair tests: they were judged beside each other only")
    if lost:
        lines.append(f"steps over {', '.join(map(str, lost))} nodes gave no result: nothing is known of their width")
    return lines


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
        yield finding("fabric", text, nodes, schedule.leaves(ledger, nodes))


def _slow(ledger: Ledger, now: standing.Standing) -> t.Iterator[Json]:
    """Yield findings on groups that are slow though their pairs are clean: switches, or the way between two nodes."""
    for nodes, tests in schedule.slowest(ledger).items():
        if schedule.excused(ledger, now, nodes):
            continue
        about, why = _about(ledger, tests)
        text = f"{about} is slow though their pairs are clean: {why}"
        if len(nodes) == 2:
            text = (
                f"{' and '.join(nodes)} are slow together, and well with everybody else: the way between them ({why})"
            )
        yield _fabric_finding(ledger, text, nodes, tests)
    for nodes, tests in schedule.fleeting(ledger).items():
        about, why = _about(ledger, tests)
        text = f"{about} was slow once and well when it ran again: something in it comes and goes ({why})"
        yield _fabric_finding(ledger, text, nodes, tests)


def _about(ledger: Ledger, tests: t.Sequence[RoundTest]) -> tuple[str, str]:
    """Return which collective ran over how many nodes, and why it counts as slow."""
    names = dict.fromkeys(test.collective for test in tests)
    return f"{' and '.join(names)} over {len(tests[0].nodes)} nodes", schedule.slow(ledger, tests[:1])[tests[0].id]


def _fabric_finding(ledger: Ledger, text: str, nodes: t.Sequence[str], tests: t.Sequence[RoundTest]) -> Json:
    outcome = ledger.outcome(tests[0])
    value = outcome.value if outcome else None
    return finding("fabric", text, nodes, schedule.leaves(ledger, nodes), metric=tests[0].collective, value=value)


def _outside(ledger: Ledger, now: standing.Standing) -> t.Iterator[Json]:
    """Yield findings on nodes whose own suite met its floors, but not the values of the others."""
    for test, outcome in [*ledger.results("local"), *ledger.own()]:
        if outcome.kind == "ok" and now.kinds[test.id] == "bad":
            ratio = now.ratios.get(test.id, 0.0)
            text = f"{test.nodes[0]} reaches {ratio:.1%} of the fleet's median in its worst measurement"
            yield finding("outlier", text, test.nodes, test.nodes, value=ratio, expected=1)


def ladder(ledger: Ledger) -> list[Json]:
    """Return the rungs as the certificate lists them."""
    rungs = []
    for batch in ledger.batches:
        bad = schedule.slow(ledger, batch.tests) if batch.stage == "ladder" else {}
        limits = [o.value for x in batch.tests for o in [ledger.outcome(x)] if o and o.value is not None]
        best = sorted(limits)[len(limits) // 2] if limits else None
        for test in batch.tests if batch.stage == "ladder" else ():
            outcome = ledger.outcome(test)
            value = outcome.value if outcome else None
            verdict = "fail" if test.id in bad else "pass" if outcome and outcome.kind == "ok" else "error"
            about: Json = {"nodes": len(test.nodes), "hostlist": hostlist.compress(test.nodes, sort=True)}
            about.update(collective=test.collective, value=value, unit=outcome.unit if outcome else "")
            about.update(expected=outcome.expected if outcome else "", verdict=verdict)
            rungs.append({**about, "ratio": value / best if value is not None and best else None})
    return rungs
