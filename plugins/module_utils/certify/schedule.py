# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tests come next: confirm a suspicion, climb the ladder of group sizes, narrow a fault down."""

from __future__ import annotations

import itertools
import random
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import evidence, standing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import ledger as certify_ledger
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import (
    PAIRS,
    Batch,
    FleetNode,
    Ledger,
    RoundTest,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.standing import (
    SUSPECT,
    Standing,
    enough,
    explained,
)

# Which nodes are tested again, and with which partners: suspects meet nodes that never failed. Pure.


Group = t.List[str]
_LOOK = 64  # candidates that are tried for a partner not met before


def unsettled(ledger: Ledger, standing: Standing) -> list[str]:
    """Return the nodes of which too little is known, the most suspect first."""
    options = ledger.options
    least = enough(options)
    open_ = [
        name
        for name, posterior in standing.posterior.items()
        if (posterior > options.clear_at or standing.good[name] < least)
        and posterior < options.settle_at
        and standing.lost[name] < options.drain_at
        and name not in standing.unfit
        # Behind a slow switch no test can clear a node.
        and standing.fabric.get(f"leaf {ledger.nodes[name].leaf}", 0.0) < SUSPECT
    ]
    return sorted(open_, key=lambda name: (-standing.posterior[name], name))


def spoilt(ledger: Ledger, standing: Standing) -> set[str]:
    """Return the nodes of which some test did not end well, unless a suspect switch explains it."""
    tests = [test for test, dummy in [*ledger.results("local", *PAIRS), *ledger.own(), *ledger.again()]]
    bad = [test for test in tests if standing.kinds[test.id] != "ok"]
    slow = {test.id for test in bad if standing.kinds[test.id] == "bad" and explained(ledger, standing, test.nodes)}
    return {name for test in bad if test.id not in slow for name in test.nodes} | standing.unfit


def groups(ledger: Ledger, standing: Standing, dice: random.Random, busy: t.Container[str] = ()) -> list[Group]:
    """Return the groups of the next round; none when every node is settled."""
    pending = [name for name in unsettled(ledger, standing) if name not in busy]
    touched = spoilt(ledger, standing)
    free = [name for name in standing.posterior if name not in busy]
    dice.shuffle(free)
    shun, sound = _shun(ledger, standing), ledger.options.clear_at
    # A node that failed and is cleared by now is a better partner than one that it has met.
    free.sort(key=lambda name: (standing.posterior[name] > sound, name in touched))
    bad = {name for name in touched if standing.posterior.get(name, 1.0) > sound or name in pending} | standing.unfit
    pairs = _with_partners([name for name in pending if name in touched], free, bad, ledger, shun)
    # A node that only lacks tests needs no better partner than another such node.
    rest, over = certify_ledger.match(_left(pending, pairs, set(touched)), ledger.met, shun)
    pairs += rest
    pairs += _with_partners(over, _left(free, pairs), bad, ledger, shun)
    pairs += _among_themselves(_left(pending, pairs), ledger, shun)
    spoilers = {name for name, p in standing.posterior.items() if max(p, standing.lost[name]) >= SUSPECT}
    return pairs + _with_partners(_left(pending, pairs), _left(free, pairs), spoilers | standing.unfit, ledger, shun)


def _shun(ledger: Ledger, standing: Standing) -> certify_ledger.Shun:
    """Return which nodes are no partners: a test through a suspect switch or uplink is no evidence on its nodes."""
    suspects = {name for name, posterior in standing.fabric.items() if posterior >= SUSPECT}
    leaf = {name: node.leaf for name, node in ledger.nodes.items()}

    def shun(node: str, other: str) -> bool:
        ways = {leaf[node], leaf[other]}
        kinds = ("leaf", "uplink") if len(ways) > 1 else ("leaf",)
        return any(f"{kind} {name}" in suspects for name in ways for kind in kinds)

    return shun if suspects else lambda node, other: False


def _left(names: t.Iterable[str], pairs: t.Sequence[Group], others: t.Iterable[str] = ()) -> list[str]:
    taken = {name for group in pairs for name in group}.union(others)
    return [name for name in names if name not in taken]


def _with_partners(
    names: t.Sequence[str], free: t.Iterable[str], bad: t.Container[str], ledger: Ledger, shun: certify_ledger.Shun
) -> list[Group]:
    """Give each a partner of its own that it has not met, else one that it has; none of the bad ones."""
    pool = [name for name in free if name not in bad]
    pairs: list[Group] = []
    taken: set[str] = set()
    for name in names:
        known = ledger.met.get(name, set())
        able = (n for n, other in enumerate(pool) if other != name and other not in taken and not shun(name, other))
        others = list(itertools.islice(able, _LOOK))
        index = next((n for n in others if pool[n] not in known), others[0] if others else None)
        if index is not None and name not in taken:
            pairs.append([name, pool.pop(index)])
            taken.update(pairs[-1])
    return pairs


def _among_themselves(alone: t.Sequence[str], ledger: Ledger, shun: certify_ledger.Shun) -> list[Group]:
    """Return pairs of suspects for whom there are no good partners, the most suspect with the least."""
    half = (len(alone) + 1) // 2
    mixed = [name for pair in zip(alone[:half], reversed(alone[half:])) for name in pair]
    rest, over = certify_ledger.match(mixed, ledger.met, shun)
    return rest + [list(pair) for pair in zip(over[::2], over[1::2]) if not shun(*pair)]


def again(ledger: Ledger, standing: Standing, believed: float = 0.0) -> list[Group]:
    """Return groups that failed although each of their nodes is well with others: is it the way between them?

    ``believed`` is how far a node may be suspect and still be taken to be well.
    """
    retested = {test.nodes for batch in ledger.batches for test in batch.tests if test.stage == "retest"}
    well = max(ledger.options.clear_at, ledger.options.prior, standing.share, believed)
    failed: list[Group] = []
    taken: set[str] = set()
    for test, dummy in ledger.results(*PAIRS):
        if standing.kinds[test.id] != "bad" or test.nodes in retested or taken.intersection(test.nodes):
            continue
        blamed = explained(ledger, standing, test.nodes)
        if not blamed and all(standing.posterior.get(name, 1.0) <= well for name in test.nodes):
            failed.append(list(test.nodes))
            taken.update(test.nodes)
    return failed


# Wider and wider collectives on the nodes that came through, and which of them are slow. Pure.


_STEP = 4  # without a topology each rung is so many times as wide
_RUNGS = 5


class Rung(t.NamedTuple):
    """Groups of one width that run at the same time."""

    name: str
    groups: list[list[str]]


def rungs(nodes: t.Sequence[FleetNode]) -> list[Rung]:
    """Return leaf, pod and whole fleet, as far as they differ; without a topology powers of a step."""
    everybody = [node.name for node in nodes]
    if len(everybody) < 3:
        return []
    leaves = by(nodes, "leaf")
    candidates = []
    if len(leaves) > 1:
        pods = by(nodes, "pod")
        candidates = [Rung("leaf", list(leaves.values())), Rung("pod", list(pods.values()) if len(pods) > 1 else [])]
    else:
        widths = [len(everybody) // _STEP**n for n in range(_RUNGS - 1, 0, -1)]
        candidates = [Rung(f"{n} nodes", _chunks(everybody, n)) for n in widths if n > 2]
    candidates.append(Rung("all", [everybody]))
    kept = [Rung(rung.name, [group for group in rung.groups if len(group) > 2]) for rung in candidates]
    return [rung for rung in kept if rung.groups]


def by(nodes: t.Sequence[FleetNode], field: str) -> dict[str, list[str]]:
    """Return the names of nodes by their leaf or pod."""
    members: dict[str, list[str]] = {}
    for node in nodes:
        members.setdefault(getattr(node, field), []).append(node.name)
    return dict(sorted(members.items()))


def _chunks(names: t.Sequence[str], size: int) -> list[list[str]]:
    """Return groups of at least this size that cover everybody."""
    count = max(1, len(names) // size)
    return [list(names[len(names) * n // count : len(names) * (n + 1) // count]) for n in range(count)]


def survivors(ledger: Ledger, now: standing.Standing) -> list[FleetNode]:
    """Return the nodes that may be part of a wide step: none that is likely to spoil it, or has done so unexplained."""
    suspects = {name for name, p in now.posterior.items() if max(p, now.lost[name]) >= standing.SUSPECT} | now.unfit
    marred = {
        name
        for test, dummy in [*ledger.results(*PAIRS), *ledger.again()]
        if now.kinds[test.id] == "bad" and suspects.isdisjoint(test.nodes) and not excused(ledger, now, test.nodes)
        for name in test.nodes
        if now.posterior.get(name, 1.0) > ledger.options.clear_at
    }
    return [node for node in ledger.taking_part() if node.name not in suspects | marred]


def excused(ledger: Ledger, now: standing.Standing, nodes: t.Sequence[str]) -> bool:
    """Say whether a known fault between these nodes explains that they are slow together."""
    links = standing.links(ledger, now)
    return standing.explained(ledger, now, nodes) or any(set(link) <= set(nodes) for link in links)


def slow(ledger: Ledger, tests: t.Sequence[RoundTest]) -> dict[str, str]:
    """Return the tests that miss their floor, or lie outside the others of their rung, with the reason."""
    reasons: dict[str, str] = {}
    rungs_ = {(test.round, test.collective) for test in tests}
    limits = {rung: evidence.limit(_rung(ledger, *rung), ledger.options.material) for rung in rungs_}
    for test in tests:
        outcome, limit = ledger.outcome(test), limits[test.round, test.collective]
        if outcome and outcome.kind == "bad":
            reasons[test.id] = outcome.reason
        elif outcome and outcome.kind == "ok" and outcome.value is not None and limit and outcome.value < limit.low:
            reasons[test.id] = f"{outcome.value:g}, while the median of its rung is {limit.median:g}"
    return reasons


def _rung(ledger: Ledger, number: int, collective: str) -> list[float]:
    """Return the values of a rung's groups from the run of all of them, before anything was narrowed down."""
    for batch in ledger.batches:
        if batch.stage == "ladder" and (batch.round, batch.tests[0].collective) == (number, collective):
            outcomes = [ledger.outcome(test) for test in batch.tests]
            return [
                outcome.value for outcome in outcomes if outcome and outcome.kind == "ok" and outcome.value is not None
            ]
    return []


def leaves(ledger: Ledger, nodes: t.Sequence[str]) -> list[str]:
    """Return the leaves that a group spans."""
    return sorted({ledger.nodes[name].leaf for name in nodes} - {""})


# What in a slow step of the ladder is slow: the switch, or the way between two nodes. Pure.


Names = t.Tuple[str, ...]
_BATCHES = 40  # at most, of one rung and collective: between 1,000 nodes it takes up to 36
_TRIES = 2  # a node that is bad in one of three leads astray in one of nine


class Way(t.NamedTuple):
    """Where something slow lies: inside one group, or between two."""

    group: Names
    other: Names = ()

    @property
    def nodes(self) -> Names:
        return tuple(sorted(self.group + self.other))


Course = t.Generator[Batch, None, t.Set[Names]]
Run = t.Callable[[t.Iterable[Names]], Course]


def climb(
    ledger: Ledger, now: standing.Standing, number: int, groups: t.Sequence[t.Sequence[str]], collective: str
) -> t.Iterator[Batch]:
    """Run one rung, and narrow down what is slow in it."""
    opened: list[Batch] = []

    def run(parts: t.Iterable[Names]) -> Course:
        wide = [part for part in parts if len(part) > 1]
        if not wide:
            return set()
        batch = ledger.open("ladder", number, wide, collective=collective)
        opened.append(batch)
        yield batch
        bad = slow(ledger, batch.tests)
        return {test.nodes for test in batch.tests if test.id in bad}

    def always(parts: t.Iterable[Names]) -> Course:
        """Return the groups that are slow each time: what comes and goes leads nowhere."""
        bad = yield from run(parts)
        for dummy in range(_TRIES - 1):
            bad &= yield from run(sorted(bad))
        return bad

    slow_groups = yield from run([tuple(group) for group in groups])
    if now.findings:  # where all is slow there is nothing narrower to find
        return
    known = [*standing.links(ledger, now), *slowest(ledger)] if slow_groups else []
    again = [_rest(ledger, now, nodes, known) for nodes in sorted(slow_groups)]
    ways = [Way(nodes) for nodes in sorted((yield from run(again)))]
    while ways and len(opened) < _BATCHES:
        ways = yield from _narrower(ledger, ways, always)
        # Two nodes are named only by what they have shown twice.
        yield from run(way.nodes for way in ways if len(way.nodes) == 2)


def _narrower(ledger: Ledger, ways: t.Sequence[Way], run: Run) -> t.Generator[Batch, None, list[Way]]:
    """Return the slow parts of these ways, which share no nodes."""
    parts = {way: _parts(ledger, way) for way in ways}
    bad = yield from run(part.nodes for turns in parts.values() for part in turns[0])
    open_ = [way for way, turns in parts.items() if not any(part.nodes in bad for part in turns[0])]
    bad |= yield from run(part.nodes for way in open_ for part in parts[way][1] if way.other)
    narrower: list[Way] = []
    for way, turns in parts.items():
        hits = [part for turn in turns for part in turn if part.nodes in bad]
        if way in open_ and not way.other:
            hits = turns[1]
        # What shows here and there is no narrower than both, unless it is switches that are slow.
        several = not way.other and len(leaves(ledger, way.group)) > 1
        narrower += hits if len(hits) == 1 or several else []
    return narrower


def _parts(ledger: Ledger, way: Way) -> tuple[list[Way], list[Way]]:
    """Return the parts of a way to try first, and those to try then; in each turn no node is needed twice."""
    a, b = _halves(ledger, way.group)
    if not way.other:
        return [Way(part) for part in (a, b) if len(part) > 1], [Way(a, b)] if b else []
    c, d = _halves(ledger, way.other)
    turns = [
        [Way(left, right) for left, right in turn if left and right] for turn in (((a, c), (b, d)), ((a, d), (b, c)))
    ]
    return ([], []) if not b and not d else (turns[0], turns[1])


def _halves(ledger: Ledger, names: Names) -> tuple[Names, Names]:
    """Return two halves: of the leaves, or of the nodes of one."""
    leaves = by([ledger.nodes[name] for name in names], "leaf")
    parts = [tuple(group) for group in leaves.values()] if len(leaves) > 1 else [(name,) for name in names]
    middle = (len(parts) + 1) // 2
    first, second = [tuple(name for part in half for name in part) for half in (parts[:middle], parts[middle:])]
    return first, second


def _rest(ledger: Ledger, now: standing.Standing, nodes: Names, known: t.Iterable[Names]) -> Names:
    """Return a group without nodes that are known to slow it: of leaves, one end of a way, or slow groups."""
    out: set[str] = set()
    spans = len(leaves(ledger, nodes)) > 1
    for name in nodes:
        leaf = ledger.nodes[name].leaf
        above = [f"leaf {leaf}", *([f"uplink {leaf}"] if spans else [])]
        if any(now.fabric.get(cause, 0.0) >= standing.SUSPECT for cause in above):
            out.add(name)
    for slow in known:
        if set(slow) < set(nodes) - out:
            out.update(slow[:1] if len(slow) == 2 else slow)
    return tuple(name for name in nodes if name not in out)


def slowest(ledger: Ledger) -> dict[Names, list[RoundTest]]:
    """Return the narrowest groups that were slow in the ladder, whenever they ran, with their tests."""
    groups: dict[Names, list[RoundTest]] = {}
    well = {(nodes, test.collective) for nodes, test, bad in _runs(ledger) if not bad}
    for nodes, test, bad in _runs(ledger):
        if bad and (nodes, test.collective) not in well:
            groups.setdefault(nodes, []).append(test)
    return {
        nodes: tests for nodes, tests in groups.items() if not any(set(narrower) < set(nodes) for narrower in groups)
    }


def fleeting(ledger: Ledger) -> dict[Names, list[RoundTest]]:
    """Return the groups that were slow once, and well when they ran again."""
    well = {(nodes, test.collective) for nodes, test, bad in _runs(ledger) if not bad}
    groups: dict[Names, list[RoundTest]] = {}
    for nodes, test, bad in _runs(ledger):
        if bad and (nodes, test.collective) in well:
            groups.setdefault(nodes, []).append(test)
    return groups


def _runs(ledger: Ledger) -> list[tuple[Names, RoundTest, bool]]:
    """Return the groups and tests of the ladder that gave a result, and whether each was slow."""
    bad = {name for batch in ledger.batches if batch.stage == "ladder" for name in slow(ledger, batch.tests)}
    answered = [test for test, outcome in ledger.results("ladder") if outcome.kind != "infra"]
    return [(tuple(sorted(test.nodes)), test, test.id in bad) for test in answered]
