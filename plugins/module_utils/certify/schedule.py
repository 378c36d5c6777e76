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
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import FleetNode
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import PAIRS, Batch, Ledger, RoundTest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.standing import (
    SUSPECT,
    Standing,
    enough,
    explained,
)

# Who is tested again, and with whom: suspects meet partners that never failed. Pure, private.


Group = t.List[str]
_LOOK = 64  # candidates that are tried for a partner who is new


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
    """Return whom the next round brings together; nothing when everything is settled."""
    wanted = [name for name in unsettled(ledger, standing) if name not in busy]
    touched = spoilt(ledger, standing)
    free = [name for name in standing.posterior if name not in busy]
    dice.shuffle(free)
    shun, sound = _shun(ledger, standing), ledger.options.clear_at
    # Who has failed and is cleared by now is a better partner than one that it knows already.
    free.sort(key=lambda name: (standing.posterior[name] > sound, name in touched))
    bad = {name for name in touched if standing.posterior.get(name, 1.0) > sound or name in wanted} | standing.unfit
    found = _with_partners([name for name in wanted if name in touched], free, bad, ledger, shun)
    # Who has only too few tests behind it needs no better partner than another such node.
    rest, over = certify_ledger.match(_left(wanted, found, set(touched)), ledger.met, shun)
    found += rest
    found += _with_partners(over, _left(free, found), bad, ledger, shun)
    found += _among_themselves(_left(wanted, found), ledger, shun)
    spoilers = {name for name, p in standing.posterior.items() if max(p, standing.lost[name]) >= SUSPECT}
    return found + _with_partners(_left(wanted, found), _left(free, found), spoilers | standing.unfit, ledger, shun)


def _shun(ledger: Ledger, standing: Standing) -> certify_ledger.Shun:
    """Return who is no partner for whom: through a suspect switch or uplink no meeting tells of its nodes."""
    suspects = {name for name, posterior in standing.fabric.items() if posterior >= SUSPECT}
    leaf = {name: node.leaf for name, node in ledger.nodes.items()}

    def shun(one: str, other: str) -> bool:
        ways = {leaf[one], leaf[other]}
        kinds = ("leaf", "uplink") if len(ways) > 1 else ("leaf",)
        return any(f"{kind} {name}" in suspects for name in ways for kind in kinds)

    return shun if suspects else lambda one, other: False


def _left(names: t.Iterable[str], found: t.Sequence[Group], others: t.Iterable[str] = ()) -> list[str]:
    taken = {name for group in found for name in group}.union(others)
    return [name for name in names if name not in taken]


def _with_partners(
    wanted: t.Sequence[str], free: t.Iterable[str], bad: t.Container[str], ledger: Ledger, shun: certify_ledger.Shun
) -> list[Group]:
    """Give each a partner of its own that it has not met, else one that it has; none of the bad ones."""
    pool = [name for name in free if name not in bad]
    found: list[Group] = []
    taken: set[str] = set()
    for name in wanted:
        known = ledger.met.get(name, set())
        able = (n for n, other in enumerate(pool) if other != name and other not in taken and not shun(name, other))
        others = list(itertools.islice(able, _LOOK))
        place = next((n for n in others if pool[n] not in known), others[0] if others else None)
        if place is not None and name not in taken:
            found.append([name, pool.pop(place)])
            taken.update(found[-1])
    return found


def _among_themselves(alone: t.Sequence[str], ledger: Ledger, shun: certify_ledger.Shun) -> list[Group]:
    """Without enough good partners suspects meet each other, the most suspect with the least."""
    half = (len(alone) + 1) // 2
    mixed = [name for pair in zip(alone[:half], reversed(alone[half:])) for name in pair]
    rest, over = certify_ledger.match(mixed, ledger.met, shun)
    return rest + [list(pair) for pair in zip(over[::2], over[1::2]) if not shun(*pair)]


def again(ledger: Ledger, standing: Standing, believed: float = 0.0) -> list[Group]:
    """Return groups that failed although each of their nodes is well with others: is it the way between them?

    ``believed`` is how far a node may be suspect and still be taken to be well.
    """
    asked = {test.nodes for batch in ledger.batches for test in batch.tests if test.stage == "retest"}
    well = max(ledger.options.clear_at, ledger.options.prior, standing.share, believed)
    found: list[Group] = []
    taken: set[str] = set()
    for test, dummy in ledger.results(*PAIRS):
        if standing.kinds[test.id] != "bad" or test.nodes in asked or taken.intersection(test.nodes):
            continue
        blamed = explained(ledger, standing, test.nodes)
        if not blamed and all(standing.posterior.get(name, 1.0) <= well for name in test.nodes):
            found.append(list(test.nodes))
            taken.update(test.nodes)
    return found


# Wider and wider collectives on the nodes that came through, and which of them are slow. Pure, private.


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
    found = []
    if len(leaves) > 1:
        pods = by(nodes, "pod")
        found = [Rung("leaf", list(leaves.values())), Rung("pod", list(pods.values()) if len(pods) > 1 else [])]
    else:
        widths = [len(everybody) // _STEP**n for n in range(_RUNGS - 1, 0, -1)]
        found = [Rung(f"{n} nodes", _chunks(everybody, n)) for n in widths if n > 2]
    found.append(Rung("all", [everybody]))
    kept = [Rung(rung.name, [group for group in rung.groups if len(group) > 2]) for rung in found]
    return [rung for rung in kept if rung.groups]


def by(nodes: t.Sequence[FleetNode], field: str) -> dict[str, list[str]]:
    """Return the names of nodes by what they hang on."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(getattr(node, field), []).append(node.name)
    return dict(sorted(found.items()))


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
    """Say whether something between these nodes is known to make what they do together slow."""
    links = standing.links(ledger, now)
    return standing.explained(ledger, now, nodes) or any(set(link) <= set(nodes) for link in links)


def slow(ledger: Ledger, tests: t.Sequence[RoundTest]) -> dict[str, str]:
    """Return the tests that miss their floor, or lie outside the others of their rung, with the reason."""
    found: dict[str, str] = {}
    rungs_ = {(test.round, test.collective) for test in tests}
    limits = {rung: evidence.limit(_rung(ledger, *rung), ledger.options.material) for rung in rungs_}
    for test in tests:
        outcome, limit = ledger.outcome(test), limits[test.round, test.collective]
        if outcome and outcome.kind == "bad":
            found[test.id] = outcome.reason
        elif outcome and outcome.kind == "ok" and outcome.value is not None and limit and outcome.value < limit.low:
            found[test.id] = f"{outcome.value:g}, while the median of its rung is {limit.median:g}"
    return found


def _rung(ledger: Ledger, number: int, collective: str) -> list[float]:
    """Return what the groups of a rung reached when all of them ran, before anything was narrowed down."""
    for batch in ledger.batches:
        if batch.stage == "ladder" and (batch.round, batch.tests[0].collective) == (number, collective):
            found = [ledger.outcome(one) for one in batch.tests]
            return [one.value for one in found if one and one.kind == "ok" and one.value is not None]
    return []


def leaves(ledger: Ledger, nodes: t.Sequence[str]) -> list[str]:
    """Return the leaves that a group spans."""
    return sorted({ledger.nodes[name].leaf for name in nodes} - {""})


# What in a slow step of the ladder is slow: the switch, or the way between two nodes. Pure, private.


Names = t.Tuple[str, ...]
_BATCHES = 40  # at most, of one rung and collective: between 1,000 nodes it takes up to 36
_TRIES = 2  # a node that is bad in one of three leads astray in one of nine


class Way(t.NamedTuple):
    """What is slow lies inside of one group, or between two."""

    one: Names
    other: Names = ()

    @property
    def nodes(self) -> Names:
        return tuple(sorted(self.one + self.other))


Course = t.Generator[Batch, None, t.Set[Names]]
Run = t.Callable[[t.Iterable[Names]], Course]


def climb(
    ledger: Ledger, now: standing.Standing, number: int, groups: t.Sequence[t.Sequence[str]], collective: str
) -> t.Iterator[Batch]:
    """Run one rung, and narrow down what is slow in it."""

    def run(parts: t.Iterable[Names]) -> Course:
        wide = [part for part in parts if len(part) > 1]
        if not wide:
            return set()
        batch = ledger.open("ladder", number, wide, collective=collective)
        yield batch
        bad = slow(ledger, batch.tests)
        return {test.nodes for test in batch.tests if test.id in bad}

    def always(parts: t.Iterable[Names]) -> Course:
        """What is slow by something that comes and goes leads nowhere: slow is here what is slow each time."""
        bad = yield from run(parts)
        for dummy in range(_TRIES - 1):
            bad &= yield from run(sorted(bad))
        return bad

    begun = len(ledger.batches)
    found = yield from run([tuple(group) for group in groups])
    if now.findings:  # where all is slow there is nothing narrower to find
        return
    known = [*standing.links(ledger, now), *slowest(ledger)] if found else []
    again = [_rest(ledger, now, nodes, known) for nodes in sorted(found)]
    ways = [Way(nodes) for nodes in sorted((yield from run(again)))]
    while ways and len(ledger.batches) - begun < _BATCHES:
        ways = yield from _narrower(ledger, ways, always)
        # Two nodes are named only by what they have shown twice.
        yield from run(way.nodes for way in ways if len(way.nodes) == 2)


def _narrower(ledger: Ledger, ways: t.Sequence[Way], run: Run) -> t.Generator[Batch, None, list[Way]]:
    """Part each of these, which share no nodes, and return what is narrower and slow."""
    parts = {way: _parts(ledger, way) for way in ways}
    bad = yield from run(part.nodes for found in parts.values() for part in found[0])
    open_ = [way for way, found in parts.items() if not any(part.nodes in bad for part in found[0])]
    bad |= yield from run(part.nodes for way in open_ for part in parts[way][1] if way.other)
    narrower: list[Way] = []
    for way, found in parts.items():
        hits = [part for turn in found for part in turn if part.nodes in bad]
        if way in open_ and not way.other:
            hits = found[1]
        # What shows here and there is no narrower than both, unless it is switches that are slow.
        several = not way.other and len(leaves(ledger, way.one)) > 1
        narrower += hits if len(hits) == 1 or several else []
    return narrower


def _parts(ledger: Ledger, way: Way) -> tuple[list[Way], list[Way]]:
    """Return what to try of it first, and then: in each turn nobody is needed twice."""
    a, b = _halves(ledger, way.one)
    if not way.other:
        return [Way(part) for part in (a, b) if len(part) > 1], [Way(a, b)] if b else []
    c, d = _halves(ledger, way.other)
    turns = [[Way(one, other) for one, other in turn if one and other] for turn in (((a, c), (b, d)), ((a, d), (b, c)))]
    return ([], []) if not b and not d else (turns[0], turns[1])


def _halves(ledger: Ledger, names: Names) -> tuple[Names, Names]:
    """Return two halves: of the leaves, or of the nodes of one."""
    leaves = by([ledger.nodes[name] for name in names], "leaf")
    parts = [tuple(group) for group in leaves.values()] if len(leaves) > 1 else [(name,) for name in names]
    middle = (len(parts) + 1) // 2
    one, other = [tuple(name for part in half for name in part) for half in (parts[:middle], parts[middle:])]
    return one, other


def _rest(ledger: Ledger, now: standing.Standing, nodes: Names, known: t.Iterable[Names]) -> Names:
    """Return a group without what is known to slow it: leaves, one end of a way, what is slow by itself."""
    out: set[str] = set()
    spans = len(leaves(ledger, nodes)) > 1
    for name in nodes:
        leaf = ledger.nodes[name].leaf
        above = [f"leaf {leaf}", *([f"uplink {leaf}"] if spans else [])]
        if any(now.fabric.get(one, 0.0) >= standing.SUSPECT for one in above):
            out.add(name)
    for slow in known:
        if set(slow) < set(nodes) - out:
            out.update(slow[:1] if len(slow) == 2 else slow)
    return tuple(name for name in nodes if name not in out)


def slowest(ledger: Ledger) -> dict[Names, list[RoundTest]]:
    """Return the narrowest groups that were slow in the ladder, whenever they ran, with their tests."""
    found: dict[Names, list[RoundTest]] = {}
    well = {(nodes, test.collective) for nodes, test, bad in _runs(ledger) if not bad}
    for nodes, test, bad in _runs(ledger):
        if bad and (nodes, test.collective) not in well:
            found.setdefault(nodes, []).append(test)
    return {nodes: tests for nodes, tests in found.items() if not any(set(one) < set(nodes) for one in found)}


def fleeting(ledger: Ledger) -> dict[Names, list[RoundTest]]:
    """Return the groups that were slow once, and well when they ran again."""
    well = {(nodes, test.collective) for nodes, test, bad in _runs(ledger) if not bad}
    found: dict[Names, list[RoundTest]] = {}
    for nodes, test, bad in _runs(ledger):
        if bad and (nodes, test.collective) in well:
            found.setdefault(nodes, []).append(test)
    return found


def _runs(ledger: Ledger) -> list[tuple[Names, RoundTest, bool]]:
    """Return what ran in the ladder and gave a result, and whether it was slow."""
    bad = {name for batch in ledger.batches if batch.stage == "ladder" for name in slow(ledger, batch.tests)}
    told = [test for test, outcome in ledger.results("ladder") if outcome.kind != "infra"]
    return [(tuple(sorted(test.nodes)), test, test.id in bad) for test in told]
