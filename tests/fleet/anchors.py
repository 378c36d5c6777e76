# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How others look for bad nodes, after their published descriptions: whom each accuses, after how many rounds."""

from __future__ import annotations

import math
import random
import typing as t

_SHARE = 0.25  # of its tests that a node fails among all pairs: a healthy one fails with the bad ones only


class World:
    """A fleet whose tests look bad by noise, or because a member that is at fault shows it."""

    def __init__(self, names: t.Sequence[str], faults: t.Mapping[str, float], noise: float, seed: str) -> None:
        self.names, self.faults, self.noise, self.dice = list(names), faults, noise, random.Random(seed)
        self.tests = 0

    def bad(self, group: t.Iterable[str]) -> bool:
        """Test a group."""
        self.tests += 1
        random_ = self.dice.random
        shown = sum(random_() < self.faults[name] for name in group if name in self.faults)
        return bool(shown) or random_() < self.noise

    def pairs(self) -> list[list[str]]:
        """Return random pairs; of an odd number one is left out, as these methods do."""
        order = list(self.names)
        self.dice.shuffle(order)
        return [order[n : n + 2] for n in range(0, len(order) - 1, 2)]


def all_pairs(world: World) -> tuple[set[str], int]:
    """Everybody meets everybody (SuperBench pair-wise, Meta gcm); accused is who fails too large a share."""
    failed = dict.fromkeys(world.names, 0)
    count = len(world.names)
    bad = [name for name in world.names if name in world.faults]
    rest = [name for name in world.names if name not in world.faults]
    for n, name in enumerate(bad):
        for other in [*bad[n + 1 :], *rest]:
            if world.bad((name, other)):
                failed[name] += 1
                failed[other] += 1
    healthy = len(rest) * (len(rest) - 1) // 2
    # Pairs of healthy nodes differ in nothing: draw how many noise takes, then which.
    spread = math.sqrt(healthy * world.noise * (1 - world.noise))
    for dummy in range(max(0, round(world.dice.gauss(healthy * world.noise, spread))) if world.noise else 0):
        for name in world.dice.sample(rest, 2):
            failed[name] += 1
    world.tests += healthy
    return {name for name in world.names if failed[name] > _SHARE * (count - 1)}, count - 1 + count % 2


def drain_both(world: World) -> tuple[set[str], int]:
    """One pass of pairs; both of a bad pair are accused."""
    return {name for pair in world.pairs() if world.bad(pair) for name in pair}, 1


def two_pass(world: World) -> tuple[set[str], int]:
    """Random pairs, then each suspect with a node that passed (Google cluster-health-scanner)."""
    results = [(pair, world.bad(pair)) for pair in world.pairs()]
    suspects = [name for pair, bad in results if bad for name in pair]
    good = [name for pair, bad in results if not bad for name in pair]
    world.dice.shuffle(good)
    return {name for name, partner in zip(suspects, good) if world.bad((name, partner))}, 2


def bisect(world: World) -> tuple[set[str], int]:
    """Halve every group that fails, down to single nodes, each tried with a node of a group that passed."""
    groups, rounds = [list(world.names)], 0
    good: list[str] = []
    accused: set[str] = set()
    while groups:
        rounds += 1
        failed = []
        for group in groups:
            helper = [world.dice.choice(good)] if len(group) == 1 and good else []
            if not world.bad(group + helper):
                good += group
            elif len(group) == 1:
                accused.update(group)
            else:
                failed.append(group)
        groups = [half for group in failed for half in (group[: len(group) // 2], group[len(group) // 2 :])]
    return accused, rounds


METHODS: dict[str, t.Callable[[World], tuple[set[str], int]]] = {
    "all pairs": all_pairs,
    "bisect": bisect,
    "two-pass swap": two_pass,
    "drain both": drain_both,
}
