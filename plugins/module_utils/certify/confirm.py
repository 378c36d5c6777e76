# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is tested again, and with whom: suspects meet partners that never failed. Pure, private."""

from __future__ import annotations

import itertools
import random
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import pairs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import PAIRS, Ledger
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.standing import (
    SUSPECT,
    Standing,
    enough,
    explained,
)

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
    rest, over = pairs.match(_left(wanted, found, set(touched)), ledger.met, shun)
    found += rest
    found += _with_partners(over, _left(free, found), bad, ledger, shun)
    found += _among_themselves(_left(wanted, found), ledger, shun)
    spoilers = {name for name, p in standing.posterior.items() if max(p, standing.lost[name]) >= SUSPECT}
    return found + _with_partners(_left(wanted, found), _left(free, found), spoilers | standing.unfit, ledger, shun)


def _shun(ledger: Ledger, standing: Standing) -> pairs.Shun:
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
    wanted: t.Sequence[str], free: t.Iterable[str], bad: t.Container[str], ledger: Ledger, shun: pairs.Shun
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


def _among_themselves(alone: t.Sequence[str], ledger: Ledger, shun: pairs.Shun) -> list[Group]:
    """Without enough good partners suspects meet each other, the most suspect with the least."""
    half = (len(alone) + 1) // 2
    mixed = [name for pair in zip(alone[:half], reversed(alone[half:])) for name in pair]
    rest, over = pairs.match(mixed, ledger.met, shun)
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
