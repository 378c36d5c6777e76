# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is to blame: a posterior for every possible cause, from all tests at once. Pure, private.

A test looks bad by noise, or because one of its causes (its nodes, their leaf switches) showed: a noisy-OR. A test
that looked good then speaks for each of its causes on its own; one that looked bad shares its blame by what is believed
of the others, which belief propagation settles in a few sweeps over the bad tests alone. How common faults and noise
are in this fleet is learnt on the way, from the prior that the caller gives.
"""

from __future__ import annotations

import math
import typing as t

_SWEEPS = 60
_SETTLED = 1e-3
_MOST_NOISE = 0.05
_STRIDE = 1.7
_LARGEST = 700.0  # log odds that a float holds as odds


class BlameKind(t.NamedTuple):
    """Causes of one kind: how they may be at fault, as (share of such causes, chance that one test shows it)."""

    name: str
    faults: tuple[tuple[float, float], ...]


class BlameSight(t.NamedTuple):
    """One test: the causes that could have spoilt it, and whether it looked bad."""

    causes: tuple[int, ...]
    bad: bool


class Beliefs(t.NamedTuple):
    """What came out: the posterior of each cause, the noise, and the share of each fault by kind."""

    posterior: list[float]
    noise: float
    shares: dict[str, tuple[float, ...]]


class Causes(t.NamedTuple):
    """All causes by number: the kind of each, and the least that its prior may be (its history)."""

    kinds: list[BlameKind]
    floors: list[float]


def solve(causes: Causes, sights: t.Sequence[BlameSight], noise: float, weight: float) -> Beliefs:
    """Return the beliefs; ``weight`` is how many causes and tests the given shares and noise are worth."""
    graph = _Graph(causes, sights, noise, weight)
    for dummy in range(_SWEEPS):
        change = graph.sweep()
        if graph.learn() < _SETTLED / 5 and change < _SETTLED:
            break
    return Beliefs([sum(graph.faults(i)) for i in range(len(causes.kinds))], graph.noise, graph.shares)


def _towards(share: float, learnt: float) -> float:
    """Return the share moved past what was learnt: plain steps are small, and all in one direction."""
    return min(0.3, share * (learnt / share) ** _STRIDE)


def _probabilities(logs: list[float]) -> list[float]:
    """Return the probability of each fault by its log odds against none."""
    top = max(0.0, *logs)
    raised = [math.exp(value - top) for value in logs]
    norm = math.exp(-top) + sum(raised)
    return [value / norm for value in raised]


class _Graph:
    """The messages of one solution."""

    def __init__(self, causes: Causes, sights: t.Sequence[BlameSight], noise: float, weight: float) -> None:
        self._causes, self._weight, self._noise_prior = causes, weight, noise
        self.noise = noise
        self._kinds = {kind.name: kind for kind in causes.kinds}
        self.shares = {name: tuple(share for share, dummy in kind.faults) for name, kind in self._kinds.items()}
        self._shows = [tuple(shows for dummy, shows in kind.faults) for kind in causes.kinds]
        self._tests = len(sights)
        self._bad = [sight.causes for sight in sights if sight.bad and sight.causes]
        good = [0] * len(causes.kinds)
        for sight in sights:
            if not sight.bad:
                for cause in sight.causes:
                    good[cause] += 1
        # The sum of all messages to each cause, without its prior; here that of its good tests.
        self._sums = [[n * math.log1p(-q) for q in self._shows[i]] for i, n in enumerate(good)]
        self._messages = [[[0.0] * len(self._shows[cause]) for cause in bad] for bad in self._bad]
        self._alike = self._like(good)
        # What is asked for each message is looked up once: the prior of each cause, one for all of a kind and floor.
        keys = [(kind.name, floor) for kind, floor in zip(causes.kinds, causes.floors)]
        self._priors = list(dict.fromkeys(keys))
        number = {key: n for n, key in enumerate(self._priors)}
        self._prior_of = [number[key] for key in keys]
        self._prior()

    def _like(self, good: t.Sequence[int]) -> list[tuple[int, int]]:
        """Return one of all causes that cannot be told apart, with their number: most were never in a bad test."""
        touched = {cause for bad in self._bad for cause in bad}
        alike: dict[t.Any, list[int]] = {}
        for cause, kind in enumerate(self._causes.kinds):
            own = cause if cause in touched else None
            alike.setdefault((own, kind.name, good[cause], self._causes.floors[cause]), []).append(cause)
        return [(members[0], len(members)) for members in alike.values()]

    def _prior(self) -> None:
        """Turn the shares into the log odds of each fault, by kind and floor."""
        self._odds: list[list[float]] = []
        for kind, floor in self._priors:
            total = sum(self.shares[kind])
            scale = max(1.0, floor / total)
            well = max(1e-9, 1.0 - scale * total)
            self._odds.append([math.log(scale * share / well) for share in self.shares[kind]])

    def faults(self, cause: int) -> list[float]:
        """Return the probability of each fault of a cause."""
        odds = self._odds[self._prior_of[cause]]
        return _probabilities([prior + total for prior, total in zip(odds, self._sums[cause])])

    def sweep(self) -> float:
        """Renew the messages of every bad test to its causes; return the largest change of one."""
        change = 0.0
        for bad, messages in zip(self._bad, self._messages):
            hidden = [self._hidden(cause, message) for cause, message in zip(bad, messages)]
            unseen = (1.0 - self.noise) * math.prod(hidden)
            for cause, message, own in zip(bad, messages, hidden):
                others, sums = unseen / own, self._sums[cause]
                for s, shows in enumerate(self._shows[cause]):
                    new = math.log((1.0 - (1.0 - shows) * others) / (1.0 - others))
                    delta = new - message[s]
                    message[s] = new
                    sums[s] += delta
                    if abs(delta) > change:
                        change = abs(delta)
        return change

    def _hidden(self, cause: int, message: t.Sequence[float]) -> float:
        """Return the chance that a cause would not have shown in a test, whose message to it is left out."""
        all_ = quiet = 1.0
        priors = self._odds[self._prior_of[cause]]
        for prior, total, gone, shows in zip(priors, self._sums[cause], message, self._shows[cause]):
            logs = prior + total - gone
            if logs > _LARGEST:
                return self._hidden_surely(cause, message)
            odds = math.exp(logs)
            all_ += odds
            quiet += odds * (1.0 - shows)
        return quiet / all_

    def _hidden_surely(self, cause: int, message: t.Sequence[float]) -> float:
        """Return the same of a cause whose odds no float holds: a switch that hundreds of tests speak against."""
        priors = self._odds[self._prior_of[cause]]
        logs = [prior + total - gone for prior, total, gone in zip(priors, self._sums[cause], message)]
        return 1.0 - sum(p * shows for p, shows in zip(_probabilities(logs), self._shows[cause]))

    def learn(self) -> float:
        """Learn how common each fault and noise are; return the largest change."""
        before = (self.noise, *(share for shares in self.shares.values() for share in shares))
        seen = {name: [self._weight * share for share, dummy in kind.faults] for name, kind in self._kinds.items()}
        count = dict.fromkeys(seen, self._weight)
        for cause, number in self._alike:
            kind = self._causes.kinds[cause].name
            count[kind] += number
            for s, p in enumerate(self.faults(cause)):
                seen[kind][s] += number * p
        for name, expected in seen.items():
            self.shares[name] = tuple(_towards(old, new / count[name]) for old, new in zip(self.shares[name], expected))
        self.noise = self._learn_noise()
        self._prior()
        after = (self.noise, *(share for shares in self.shares.values() for share in shares))
        return max(abs(a - b) for a, b in zip(before, after))

    def _learn_noise(self) -> float:
        noisy = self._weight * self._noise_prior
        for bad, messages in zip(self._bad, self._messages):
            quiet = math.prod([self._hidden(cause, message) for cause, message in zip(bad, messages)])
            noisy += self.noise * quiet / (1.0 - (1.0 - self.noise) * quiet)
        return min(_MOST_NOISE, noisy / (self._weight + self._tests))
