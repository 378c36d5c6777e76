# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What in a slow step of the ladder is slow: the switch, or the way between two nodes. Pure, private.

A slow group is run once more, without what is known to slow it. Slow again, it is parted: its leaves in halves, then
its nodes. Where no half is slow it is what lies between them, so parts of both are put together until nothing narrower
is slow.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import ladder, standing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import Batch, Ledger, Test

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
        bad = ladder.slow(ledger, batch.tests)
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
        several = not way.other and len(ladder.leaves(ledger, way.one)) > 1
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
    leaves = ladder.by([ledger.nodes[name] for name in names], "leaf")
    parts = [tuple(group) for group in leaves.values()] if len(leaves) > 1 else [(name,) for name in names]
    middle = (len(parts) + 1) // 2
    one, other = [tuple(name for part in half for name in part) for half in (parts[:middle], parts[middle:])]
    return one, other


def _rest(ledger: Ledger, now: standing.Standing, nodes: Names, known: t.Iterable[Names]) -> Names:
    """Return a group without what is known to slow it: leaves, one end of a way, what is slow by itself."""
    out: set[str] = set()
    spans = len(ladder.leaves(ledger, nodes)) > 1
    for name in nodes:
        leaf = ledger.nodes[name].leaf
        above = [f"leaf {leaf}", *([f"uplink {leaf}"] if spans else [])]
        if any(now.fabric.get(one, 0.0) >= standing.SUSPECT for one in above):
            out.add(name)
    for slow in known:
        if set(slow) < set(nodes) - out:
            out.update(slow[:1] if len(slow) == 2 else slow)
    return tuple(name for name in nodes if name not in out)


def slowest(ledger: Ledger) -> dict[Names, list[Test]]:
    """Return the narrowest groups that were slow in the ladder, whenever they ran, with their tests."""
    found: dict[Names, list[Test]] = {}
    well = {(nodes, test.collective) for nodes, test, bad in _runs(ledger) if not bad}
    for nodes, test, bad in _runs(ledger):
        if bad and (nodes, test.collective) not in well:
            found.setdefault(nodes, []).append(test)
    return {nodes: tests for nodes, tests in found.items() if not any(set(one) < set(nodes) for one in found)}


def fleeting(ledger: Ledger) -> dict[Names, list[Test]]:
    """Return the groups that were slow once, and well when they ran again."""
    well = {(nodes, test.collective) for nodes, test, bad in _runs(ledger) if not bad}
    found: dict[Names, list[Test]] = {}
    for nodes, test, bad in _runs(ledger):
        if bad and (nodes, test.collective) in well:
            found.setdefault(nodes, []).append(test)
    return found


def _runs(ledger: Ledger) -> list[tuple[Names, Test, bool]]:
    """Return what ran in the ladder and gave a result, and whether it was slow."""
    bad = {name for batch in ledger.batches if batch.stage == "ladder" for name in ladder.slow(ledger, batch.tests)}
    told = [test for test, outcome in ledger.results("ladder") if outcome.kind != "infra"]
    return [(tuple(sorted(test.nodes)), test, test.id in bad) for test in told]
