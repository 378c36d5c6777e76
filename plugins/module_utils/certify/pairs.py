# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who meets whom: disjoint pairs that cover everybody, and nobody twice while that is possible. Pure, private."""

from __future__ import annotations

import random
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import Node

Met = t.Dict[str, t.Set[str]]
Group = t.List[str]
Shun = t.Callable[[str, str], bool]
_LOOK = 64  # candidates that are tried before a partner is looked for among the pairs already made


def _nobody(one: str, other: str) -> bool:
    return False


def meet(met: Met, group: t.Iterable[str]) -> None:
    """Remember that these have met."""
    names = list(group)
    for name in names:
        met.setdefault(name, set()).update(other for other in names if other != name)


def round_robin(names: t.Sequence[str]) -> list[list[Group]]:
    """Return rounds in which everybody meets everybody once (circle method); of an odd number one rests in each."""
    ring: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    rounds = []
    for dummy in range(len(ring) - 1):
        half = len(ring) // 2
        facing = zip(ring[:half], reversed(ring[half:]))
        rounds.append([[a, b] for a, b in facing if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds


def inside(nodes: t.Sequence[Node], met: Met, dice: random.Random) -> list[Group]:
    """Return pairs inside each leaf; who is left over there meets others who are."""
    leaves: dict[str, list[str]] = {}
    for node in nodes:
        leaves.setdefault(node.leaf, []).append(node.name)
    groups: list[Group] = []
    left: list[str] = []
    for leaf in sorted(leaves):
        found, over = match(_shuffled(leaves[leaf], dice), met)
        groups += found
        left += over
    return _finish(groups, left, met)


def across(nodes: t.Sequence[Node], met: Met, dice: random.Random) -> list[Group]:
    """Return pairs that join different leaves, as far as no leaf holds more than half of the nodes."""
    leaves: dict[str, list[str]] = {}
    for node in nodes:
        leaves.setdefault(node.leaf, []).append(node.name)
    order = _shuffled(sorted(leaves), dice)
    # Facing each other at half the way round, two nodes of one leaf are met only in a leaf of more than half.
    ring = [name for leaf in order for name in _shuffled(leaves[leaf], dice)]
    half = (len(ring) + 1) // 2
    groups: list[Group] = []
    left: list[str] = []
    for n in range(half):
        pair = [ring[n], *ring[n + half : n + half + 1]]
        if len(pair) == 2 and pair[1] not in met.get(pair[0], ()):
            groups.append(pair)
        else:
            left += pair
    found, over = match(left, met)
    return _finish(groups + found, over, met)


def anyhow(nodes: t.Sequence[Node], met: Met, dice: random.Random) -> list[Group]:
    """Return random pairs."""
    found, over = match(_shuffled([node.name for node in nodes], dice), met)
    return _finish(found, over, met)


def _shuffled(names: t.Sequence[str], dice: random.Random) -> list[str]:
    order = list(names)
    dice.shuffle(order)
    return order


def match(order: t.Sequence[str], met: Met, shun: Shun = _nobody) -> tuple[list[Group], list[str]]:
    """Pair neighbours who have not met, and do not shun each other; return the pairs and who found nobody."""
    groups: list[Group] = []
    waiting: list[str] = []
    for name in order:
        known = met.get(name, set())
        n = next((n for n, other in enumerate(waiting[:_LOOK]) if other not in known and not shun(name, other)), None)
        if n is None:
            waiting.append(name)
        else:
            groups.append([waiting.pop(n), name])
    return groups, waiting


def _finish(groups: list[Group], left: t.Sequence[str], met: Met) -> list[Group]:
    """Place the leftovers: with each other, by parting a pair, and the last odd one as a third."""
    found, over = match(left, met)
    groups = groups + found
    while len(over) > 1:
        one, two = over.pop(), over.pop()
        if not _part(groups, one, two, met):
            groups.append([one, two])
    if over and not groups:
        return [over]
    if over:
        known = met.get(over[0], set())
        new = (n for n, group in enumerate(groups) if len(group) == 2 and not known.intersection(group))
        groups[next(new, 0)].append(over[0])
    return groups


def _part(groups: list[Group], one: str, two: str, met: Met) -> bool:
    """Give two who have met each other the partners of a pair that neither of them knows."""
    for group in groups:
        for a, b in ((0, 1), (1, 0)):
            if group[a] not in met.get(one, ()) and group[b] not in met.get(two, ()):
                groups.append([two, group[b]])
                group[:] = [one, group[a]]
                return True
    return False
