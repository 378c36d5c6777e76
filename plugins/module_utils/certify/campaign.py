# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The course of a certification: which tests come next, given what came back. No I/O, no clock, private.

The course is a function of the fleet, the options and the results: whoever replays the results of a run, in whatever
order they came, is asked the same tests and gets the same certificate.
"""

from __future__ import annotations

import random
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import (
    certificate,
    confirm,
    evidence,
    explain,
    fleet,
    ladder,
    narrow,
    pairs,
    plan,
    rails,
    standing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import Batch, Ledger

_ARRANGE = (pairs.inside, pairs.across, pairs.anyhow)


class Campaign:
    """One certification: ask ``next()``, run it, hand every result to ``take()``, until there is nothing next."""

    def __init__(self, fleet_: Json, options: Json) -> None:
        self._fleet = fleet_
        self.options = fleet.read_options(options)
        self.ledger = Ledger(fleet.read_nodes(fleet_), self.options, fleet.profile(fleet_))
        self._dice = random.Random(self.options.seed)  # noqa: S311 - reproducible, not secret
        self._rounds = self._railed = self._early = 0
        self._course = self._go()
        self._step: tuple[Batch, ...] = ()
        self._over = False
        self._stood: tuple[tuple[int, int], standing.Standing] | None = None

    def next(self) -> Json | None:
        """Return the batch to run: the same one until each of its tests was taken; None at the end.

        What needs nothing of each other comes as one batch, with the id of the first and the stage of the last.
        """
        while not self._over and not self._missing():
            self._step = next(self._course, ())
            self._over = not self._step
        if self._over:
            return None
        tests = [test.facts() for batch in self._step for test in batch.tests]
        most = len({tuple(test["nodes"]) for test in tests})
        concurrent = min(most, self.options.concurrent or most)
        told = {"id": self._step[0].id, "stage": self._step[-1].stage, "round": self._step[-1].round}
        return {**told, "tests": tests, "missing": self._missing(), "concurrent": concurrent}

    def _missing(self) -> list[str]:
        return [test.id for batch in self._step for test in self.ledger.missing(batch)]

    def take(self, test_id: str, records: t.Sequence[t.Any], reason: str = "") -> None:
        """Take what came back of a test, or why nothing will; what comes again changes nothing."""
        if test_id not in self.ledger.outcomes:
            self.ledger.outcomes[test_id] = evidence.read(records, reason)

    def plan(self) -> Json:
        """Return what will be done, how long it takes and what it costs, before anything was."""
        return plan.plan(self.ledger)

    def certificate(self, **digests: str) -> Json:
        """Return the certificate of what came back so far; digests (records_sha256, agent_sha256) go into it."""
        return certificate.certificate(self.ledger, self._stand(), self._fleet, digests)

    def explain(self, node: str) -> list[str]:
        """Return what convicted or cleared a node: its tests, with whom, and what came back."""
        return explain.explain(self.ledger, self._stand(), node)

    def _stand(self) -> standing.Standing:
        """Return what is believed now; it takes a while, so not twice of the same results."""
        taken = (len(self.ledger.outcomes), len(self.ledger.untested))
        if self._stood is None or self._stood[0] != taken:
            self._stood = (taken, standing.stand(self.ledger))
            if self._step and not self._missing():
                self.ledger.history[len(self.ledger.batches)] = self._stood[1].posterior
        return self._stood[1]

    def _go(self) -> t.Iterator[tuple[Batch, ...]]:
        stages = self.options.stages
        yield from self._alone([stage for stage in ("reach", "local") if stage in stages])
        if "local" in stages:
            yield from self._again()
        if "pair" in stages:
            yield from self._pairs()
        if "confirm" in stages:
            yield from self._confirm()
        if "ladder" in stages:
            yield from self._ladder()

    def _alone(self, stages: t.Sequence[str]) -> t.Iterator[tuple[Batch, ...]]:
        """Who answers, and each node by itself: one start of a task tells both."""
        everybody = [[node.name] for node in self.ledger.taking_part()]
        if everybody and stages:
            yield tuple(self.ledger.open(stage, 0, everybody) for stage in stages)
        for test, outcome in self.ledger.results("reach"):
            if outcome.kind == "infra":
                self.ledger.untested[test.nodes[0]] = f"did not answer: {outcome.reason}"
        for test, outcome in self.ledger.results("local"):
            # Who never answered would cost its patience once more.
            if outcome.silent:
                self.ledger.untested.setdefault(test.nodes[0], f"its own suite gave no result: {outcome.reason}")

    def _again(self) -> t.Iterator[tuple[Batch, ...]]:
        """Whatever a node's own suite finds wrong, it has to find twice."""
        kinds, out = self._stand().kinds, self.ledger.untested
        local = [test for test, dummy in self.ledger.results("local")]
        flagged = [test.nodes for test in local if test.nodes[0] not in out and kinds[test.id] != "ok"]
        if flagged:
            yield (self.ledger.open("retest", 0, flagged),)
        for test, outcome in self.ledger.own():
            if outcome.kind == "infra" and not outcome.partial:
                self.ledger.untested[test.nodes[0]] = f"its own suite gave no result twice: {outcome.reason}"

    def _pairs(self) -> t.Iterator[tuple[Batch, ...]]:
        # A node that is wrong by itself teaches nothing about its partners.
        unfit = self._stand().unfit
        nodes = [node for node in self.ledger.taking_part() if node.name not in unfit]
        if len(nodes) < 2:
            return
        self._railed = rails.rounds(len(nodes))
        few = len(nodes) <= fleet.ROUND_ROBIN
        robin = pairs.round_robin([node.name for node in nodes]) if few else []
        arrange = [*_ARRANGE, *[pairs.anyhow] * self.options.k][: self.options.k]
        for number in range(len(robin) if few else len(arrange)):
            # Whoever hangs costs everybody the time limit of a round.
            mute = self.ledger.mute()
            left = [node for node in nodes if node.name not in mute]
            met = robin[number] if few else arrange[number](left, self.ledger.met, self._dice)
            groups = [group for group in met if not mute & set(group)]
            if groups:
                yield (self._meeting("pair", groups), *self._more(groups, len(nodes)))

    def _more(self, groups: t.Sequence[t.Sequence[str]], nodes: int) -> t.Iterator[Batch]:
        """Two nodes have no other partner: that they have to meet again to be cleared is known before they start."""
        if nodes > 2 or "confirm" not in self.options.stages:
            return
        for dummy in range(min(self.options.confirm_rounds, standing.enough(self.options) - 1)):
            self._early += 1
            yield self._meeting("confirm", groups)

    def _meeting(self, stage: str, groups: t.Sequence[t.Sequence[str]], **more: t.Any) -> Batch:
        self._rounds += 1
        each = self.options.rails and (stage == "confirm" or self._rounds <= self._railed)
        return self.ledger.open(stage, self._rounds, groups, collective=self.options.collectives[0], rails=each, **more)

    def _confirm(self) -> t.Iterator[tuple[Batch, ...]]:
        for dummy in range(self.options.confirm_rounds - self._early):
            now = self._stand()
            again = confirm.again(self.ledger, now)
            groups = confirm.groups(self.ledger, now, self._dice, {name for group in again for name in group})
            if not groups and not again:
                return
            yield (self._meeting("confirm", groups, again=again),)

    def _ladder(self) -> t.Iterator[tuple[Batch, ...]]:
        # Who failed in the last round, and is more likely well than not, would be kept out with no word about the way.
        again = confirm.again(self.ledger, self._stand(), standing.SUSPECT)
        if again and "confirm" in self.options.stages and self.options.confirm_rounds:
            yield (self._meeting("confirm", [], again=again),)
        now = self._stand()
        for number, rung in enumerate(ladder.rungs(ladder.survivors(self.ledger, now)), 1):
            for collective in self.options.collectives:
                for batch in narrow.climb(self.ledger, now, number, rung.groups, collective):
                    yield (batch,)
