# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The standing of each node: kinds of faults, rails, and when not to accuse."""

from __future__ import annotations

import statistics
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import evidence
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.blame import (
    BlameKind,
    BlameSight,
    Causes,
    solve,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import TestOutcome, key
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import (
    PAIRS,
    ROUND_ROBIN,
    CampaignOptions,
    FleetNode,
    Ledger,
    RoundTest,
)

# Weak rails of fleets that are too small to compare a rail with the same one of other pairs. Pure.


FEW = 2 * evidence.LEAST  # nodes; fewer are too few pairs in a round
_TRIES = 1000  # rails of few nodes that are looked at in a campaign, those of confirmations among them
_ROOM = 3.0  # times what is material: different rails differ more than one and the same


class RailLimits(t.NamedTuple):
    """The least share of its test's other rails that a rail reaches, and for each the most that it does."""

    low: float
    gap: float
    best: dict[str, float]


def rounds(nodes: int) -> int:
    """Return in how many rounds of pairs rails are measured: each node once, and of few nodes each pair."""
    if nodes < FEW:
        return nodes
    return 1 + (nodes % 2 if nodes <= ROUND_ROBIN else 0)


def rail_reference(reference: t.Iterable[tuple[RoundTest, TestOutcome]], material: float) -> RailLimits | None:
    """Return the limits for rails of few nodes; None where they are not few, or no rails were measured."""
    known = [(test, shares(outcome)) for test, outcome in reference]
    if len({name for test, dummy in known for name in test.nodes}) >= FEW:
        return None
    limit = evidence.limit([value for dummy, rails in known for value in rails.values()], _ROOM * material, _TRIES)
    if limit is None:
        return None
    seen: dict[str, list[float]] = {}
    for dummy, rails in known:
        for rail, value in rails.items():
            seen.setdefault(rail, []).append(value)
    best = {rail: max(values) for rail, values in seen.items() if len(values) > 1}
    return RailLimits(limit.low, limit.median - limit.low, best)


def weak(outcome: TestOutcome, limit: RailLimits | None) -> dict[str, float]:
    """Return the rails of a test that are too slow, with their share of the others."""
    rail_shares = shares(outcome) if limit else {}
    return {
        rail: value
        for rail, value in rail_shares.items()
        if limit and value < limit.low and value < limit.best.get(rail, 2.0) - limit.gap
    }


def shares(outcome: TestOutcome) -> dict[str, float]:
    """Return each rail's speed as a share of the middle of its test; half of them may be weak."""
    middle = statistics.median_high(outcome.rails.values()) if outcome.rails else 0.0
    return {rail: value / middle for rail, value in outcome.rails.items()} if middle > 0 else {}


# When not to speak of single nodes: the whole fleet is off, or too much of it would go at once. Pure.


_MAJORITY = 0.5
_LEAST = 3  # nodes; of two that fail together each may be the only one

Result = t.Tuple[t.Sequence[str], TestOutcome]


def finding(kind: str, text: str, nodes: t.Iterable[str] = (), suspects: t.Iterable[str] = (), **rest: t.Any) -> Json:
    """Return a finding as the certificate lists it."""
    about = {"metric": rest.get("metric", ""), "value": rest.get("value"), "expected": rest.get("expected")}
    return {"kind": kind, "text": text, "nodes": sorted(nodes), "suspects": sorted(suspects), **about}


def population(results: t.Sequence[Result], profile: Json, nodes: int, material: float) -> list[Json]:
    """Return why no node may be judged by these speeds: the middle of the fleet itself is off, or most miss a floor.

    Each node counts by its best test: in a small fleet one bad node spoils most of them.
    """
    known = [(names, outcome) for names, outcome in results if outcome.kind != "infra" and not outcome.hard]
    everybody = {name for names, dummy in known for name in names}
    if len(everybody) < _LEAST:
        return []
    findings = []
    for number, limit in _references(profile, nodes, material):
        values = list(_best(known, number).values())
        median = statistics.median(values) if values else None
        if median is not None and median < limit["value"] * (1 - limit["slack"]):
            text = f"the fleet's median of {number} is {median:g}, expected is {limit['value']:g} ({limit['source']})"
            findings.append(finding("population", text, metric=number, value=median, expected=limit["value"]))
    slow = everybody - {name for names, outcome in known if outcome.kind == "ok" for name in names}
    if not findings and len(slow) > _MAJORITY * len(everybody):
        text = (
            f"{len(slow)} of {len(everybody)} nodes missed a floor in every test over {nodes} node{'s' * (nodes > 1)}"
        )
        findings.append(finding("population", text, value=len(slow), expected=0))
    return findings


def _best(known: t.Sequence[Result], number: str) -> dict[str, float]:
    best: dict[str, float] = {}
    for names, outcome in known:
        for name in names if number in outcome.numbers else ():
            best[name] = max(outcome.numbers[number], best.get(name, 0.0))
    return best


def _references(profile: Json, nodes: int, material: float) -> t.Iterator[tuple[str, Json]]:
    """Yield the values that the median of a fleet should reach: references with a slack, floors as they are."""
    for name, slack in (("reference", material), ("expect", 0.0)):
        items = profile.get(name)
        for item in items if isinstance(items, list) else []:
            value = finite(item.get("value"))
            if value is None or item.get("op", ">=") not in (">=", ">") or not _fits(item, nodes):
                continue
            source = str(item.get("source") or "the profile")
            yield key(str(item.get("check")), item), {"value": value, "slack": slack, "source": source}


def _fits(item: Json, nodes: int) -> bool:
    exact, least = item.get("nodes"), item.get("min_nodes")
    return nodes == (exact or nodes) and nodes >= (least or 1) and bool(exact or least or nodes == 1)


def drains(judged: t.Sequence[FleetNode], planned: int, options: CampaignOptions) -> tuple[list[str], list[Json]]:
    """Return who may be drained in one go, and the findings where that is too much to be chance."""
    if len(judged) > max(1, options.max_share * planned):
        share = f"{len(judged)} of {planned} nodes were judged bad, more than {options.max_share:.0%}"
        text = f"{share}: look for a common cause before any is drained"
        return [], [finding("common_cause", text, [n.name for n in judged], value=len(judged))]
    findings, allowed = [], []
    leaves: dict[str, list[str]] = {}
    for node in judged:
        leaves.setdefault(node.leaf, []).append(node.name)
    for leaf, names in sorted(leaves.items()):
        if leaf and len(names) >= options.max_leaf:
            text = f"{len(names)} nodes of leaf {leaf} were judged bad: look at the leaf before any is drained"
            findings.append(finding("common_cause", text, names, [leaf], value=len(names)))
        else:
            allowed += names
    return sorted(allowed), findings


# The kind of each test, judged beside others of its stage and the fleet as a whole. Pure.


Pair = t.Tuple[RoundTest, TestOutcome]


def kinds_of(ledger: Ledger) -> tuple[dict[str, str], dict[str, float], list[Json], dict[str, str]]:
    """Return the kind of every test, its ratio to tests of its kind, findings on the fleet, and weak values.

    A test is ok, bad or infra; or it is open: three nodes that are slower than pairs are, which may well be as it is.
    """
    kinds: dict[str, str] = {}
    ratios: dict[str, float] = {}
    weak: dict[str, str] = {}
    findings: list[Json] = []
    later = (ledger.own(), [*ledger.results("confirm"), *ledger.again()])
    for first, others, nodes in (("local", later[0], 1), ("pair", later[1], 2)):
        reference = list(ledger.results(first))
        common = population([(test.nodes, o) for test, o in reference], ledger.profile, nodes, ledger.options.material)
        findings += common
        beside = rail_reference(reference, ledger.options.material)
        # Of a few values the spread is known badly, and there are many rails to be wrong about.
        alike = [(test, o._replace(rails={})) for test, o in reference] if beside else reference
        limits = _limits(alike, ledger.options.material)
        for test, outcome in [*reference, *others]:
            below = ", ".join(text for text in (_below(test, outcome, limits), _inside(outcome, beside)) if text)
            bad = bool(below) or (outcome.kind == "bad" and (outcome.hard or not common))
            slow = "" if bad else _below(test, outcome, limits, nodes)
            kinds[test.id] = "infra" if outcome.kind == "infra" else "bad" if bad else "open" if slow else "ok"
            if below or slow:
                weak[test.id] = below or f"{slow}, which three may fall short of"
            ratio = _ratio(test, outcome, limits, nodes)
            if ratio is not None:
                ratios[test.id] = ratio
    return kinds, ratios, findings, weak


def _inside(outcome: TestOutcome, beside: RailLimits | None) -> str:
    """Return as text which rails lie outside those of the same test."""
    rails = sorted(weak(outcome, beside).items())
    return ", ".join(f"rail {rail} at {share:.1%} of the others between these nodes" for rail, share in rails[:4])


def _below(test: RoundTest, outcome: TestOutcome, limits: t.Mapping[str, evidence.Limit], nodes: int = 0) -> str:
    """Return which of its numbers lie outside those of the others, or of others over so many nodes."""
    texts = [
        f"{name} at {value / limits[name].median:.1%} of the fleet's median"
        for name, value in sorted(_compared(test, outcome, nodes).items())
        if name in limits and value < limits[name].low
    ]
    return ", ".join(texts[:4])


def _compared(test: RoundTest, outcome: TestOutcome, nodes: int = 0) -> dict[str, float]:
    """Return the values compared between tests of a kind: of one node all its rates, of a collective its main one."""
    if len(test.nodes) == 1:
        return dict(outcome.numbers)
    key = f"{test.collective} of {nodes or len(test.nodes)}"
    each = {f"{key}, rail {rail}": value for rail, value in outcome.rails.items()}
    return each if outcome.value is None else {key: outcome.value, **each}


def _limits(reference: t.Iterable[Pair], material: float) -> dict[str, evidence.Limit]:
    columns: dict[str, list[float]] = {}
    for test, outcome in reference:
        for name, value in _compared(test, outcome).items():
            columns.setdefault(name, []).append(value)
    limits = {name: evidence.limit(values, material) for name, values in columns.items()}
    return {name: limit for name, limit in limits.items() if limit}


def _ratio(test: RoundTest, outcome: TestOutcome, limits: t.Mapping[str, evidence.Limit], nodes: int) -> float | None:
    """Return the worst of its numbers beside the fleet's median, of pairs where nothing else is like it."""
    for width in (0, nodes):
        ratios = [
            value / limits[name].median
            for name, value in _compared(test, outcome, width).items()
            if name in limits and limits[name].median
        ]
        if ratios:
            return min(ratios)
    return None


# The standing of every node, given all outcomes. Pure.


_MOST = 64
_SHOWS = (0.8, 0.98)  # besides q0: a constant fault shows in nearly every test
_FABRIC = (0.001, 0.9)  # share of leaves at fault before anything is known, and how often one shows
_LEAF = 4  # nodes; of a smaller leaf the switch cannot be told from its nodes
SUSPECT = 0.5  # a cause that is more likely than not
_WEIGHT = 100.0  # causes and tests that the prior is worth


class Standing(t.NamedTuple):
    """What is believed of nodes and switches after some round."""

    kinds: dict[str, str]
    ratios: dict[str, float]
    posterior: dict[str, float]
    lost: dict[str, float]
    fabric: dict[str, float]
    findings: list[Json]
    noise: float
    share: float
    unfit: frozenset[str]
    good: dict[str, int]
    weak: dict[str, str]


def stand(ledger: Ledger, before: Standing | None = None) -> Standing:
    """Return the standing; ``before`` has the kinds of all tests already, so that they are not judged again."""
    kinds, ratios, findings, weak = (before.kinds, before.ratios, [], before.weak) if before else kinds_of(ledger)
    posterior, fabric, noise, share = _blame(ledger, _sights(ledger, kinds))
    own = (_unfit(ledger, kinds), _good(ledger, kinds))
    return Standing(kinds, ratios, posterior, _lost(ledger, kinds), fabric, findings, noise, share, *own, weak)


def _good(ledger: Ledger, kinds: t.Mapping[str, str]) -> dict[str, int]:
    """Return how many meetings of each node ended well."""
    counts = {node.name: 0 for node in ledger.taking_part()}
    for test, dummy in [*ledger.results(*PAIRS), *ledger.again()]:
        for name in test.nodes if kinds[test.id] == "ok" else ():
            counts[name] = counts.get(name, 0) + 1
    return counts


def enough(options: CampaignOptions) -> int:
    """Return after how many good tests a fault that shows with q0 is unlikely, whatever is learnt of the fleet."""
    odds, tests = options.prior / (1 - options.prior), 0
    while odds > options.clear_at / (1 - options.clear_at) and tests < _MOST:
        odds *= 1 - options.q0
        tests += 1
    return tests


def _unfit(ledger: Ledger, kinds: t.Mapping[str, str]) -> frozenset[str]:
    """Return the nodes that were found wrong by themselves, twice: no meeting with others can clear them."""
    odd = {test.nodes[0] for test, outcome in ledger.results("reach") if outcome.kind == "bad"}
    return frozenset(odd | {test.nodes[0] for test, dummy in ledger.own() if kinds[test.id] == "bad"})


def _sights(ledger: Ledger, kinds: t.Mapping[str, str]) -> list[tuple[tuple[str, ...], bool]]:
    """Return the tests that speak of nodes: pairs always, a node's own suite only once it has failed."""
    linked = _links(ledger, kinds)
    met = [*ledger.results(*PAIRS), *ledger.again()]
    meetings = [
        (test.nodes, kinds[test.id] == "bad")
        for test, dummy in met
        if kinds[test.id] in ("ok", "bad") and test.nodes not in linked
    ]
    own = [(test.nodes, kinds[test.id]) for test, dummy in ledger.alone()]
    failed = {nodes for nodes, kind in own if kind == "bad"}
    return meetings + [(nodes, kind == "bad") for nodes, kind in own if nodes in failed and kind != "infra"]


def _links(ledger: Ledger, kinds: t.Mapping[str, str]) -> set[tuple[str, ...]]:
    """Return the pairs that failed again when both nodes were believed to be well: the fault lies between them."""
    return {test.nodes for test, dummy in ledger.again() if kinds[test.id] == "bad"}


def links(ledger: Ledger, standing: Standing) -> list[tuple[str, ...]]:
    """Return the pairs whose connection is to blame."""
    well = {name for name, posterior in standing.posterior.items() if posterior < SUSPECT}
    return sorted(nodes for nodes in _links(ledger, standing.kinds) if well.issuperset(nodes))


def _blame(
    ledger: Ledger, sights: t.Sequence[tuple[tuple[str, ...], bool]]
) -> tuple[dict[str, float], dict[str, float], float, float]:
    options = ledger.options
    names = [node.name for node in ledger.taking_part()]
    number = {name: n for n, name in enumerate(names)}
    node = _node(options)
    fabric = _fabric(ledger)
    position = {name: len(names) + n for n, name in enumerate(fabric)}
    causes = Causes(
        [node] * len(names) + [BlameKind(name.split()[0], (_FABRIC,)) for name in fabric],
        [ledger.nodes[name].suspicion for name in names] + [0.0] * len(fabric),
    )
    seen = []
    for nodes, bad in sights:
        members = [number[name] for name in nodes if name in number]
        over = [position[name] for name in _above(ledger, nodes) if name in position]
        if members:
            seen.append(BlameSight((*members, *over), bad))
    beliefs = solve(causes, seen, options.e0, _WEIGHT)
    posterior = dict(zip(names, beliefs.posterior))
    above = {name: beliefs.posterior[n] for name, n in position.items()}
    return posterior, above, beliefs.noise, sum(beliefs.shares.get("node", (0.0,)))


def _node(options: CampaignOptions) -> BlameKind:
    """Return how a node may be at fault: seldom seen, mostly, always."""
    shows = (options.q0, *_SHOWS)
    return BlameKind("node", tuple((options.prior / len(shows), q) for q in shows))


def _fabric(ledger: Ledger) -> list[str]:
    """Return the switches and uplinks that can be told from the nodes below them."""
    counts: dict[str, int] = {}
    for node in ledger.taking_part():
        counts[node.leaf] = counts.get(node.leaf, 0) + 1
    leaves = sorted(leaf for leaf, count in counts.items() if leaf and count >= _LEAF)
    return [f"{kind} {leaf}" for kind in ("leaf", "uplink") for leaf in leaves] if len(counts) > 1 else []


def explained(ledger: Ledger, standing: Standing, nodes: t.Sequence[str]) -> bool:
    """Say whether a switch or uplink above these nodes is suspect."""
    return any(standing.fabric.get(name, 0.0) >= SUSPECT for name in _above(ledger, nodes))


def _above(ledger: Ledger, nodes: t.Sequence[str]) -> list[str]:
    """Return the switches and uplinks that a test goes through; none for one node."""
    leaves = sorted({ledger.nodes[name].leaf for name in nodes})
    if len(nodes) == 1:
        return []
    ups = [f"uplink {leaf}" for leaf in leaves] if len(leaves) > 1 else []
    return [f"leaf {leaf}" for leaf in leaves] + ups


def _lost(ledger: Ledger, kinds: t.Mapping[str, str]) -> dict[str, float]:
    """Return how likely each node makes tests end without a result: inferred as faults are, but never as hardware."""
    names = [node.name for node in ledger.taking_part()]
    number = {name: n for n, name in enumerate(names)}
    kind = _node(ledger.options)
    seen = []
    for test, dummy in ledger.results(*PAIRS):
        members = tuple(number[name] for name in test.nodes if name in number)
        seen.append(BlameSight(members, kinds[test.id] == "infra"))
    beliefs = solve(Causes([kind] * len(names), [0.0] * len(names)), seen, ledger.options.e0, _WEIGHT)
    return dict(zip(names, beliefs.posterior))
