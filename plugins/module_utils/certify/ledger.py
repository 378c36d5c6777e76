# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was asked and what came back so far; all that a campaign decides is a function of it. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import Node, Options, away
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.pairs import Met, meet

PAIRS = ("pair", "confirm")


class Test(t.NamedTuple):
    """One thing to run on some nodes."""

    id: str
    stage: str
    round: int
    nodes: tuple[str, ...]
    collective: str = ""
    rails: bool = False

    def facts(self) -> Json:
        """Return it as the executor reads it."""
        return {**self._asdict(), "nodes": list(self.nodes)}


class Batch(t.NamedTuple):
    """Tests that may run at the same time."""

    id: str
    stage: str
    round: int
    tests: tuple[Test, ...]


class Ledger:
    """The book of one campaign."""

    def __init__(self, nodes: t.Sequence[Node], options: Options, profile: Json) -> None:
        self.options, self.profile = options, profile
        self.nodes = {node.name: node for node in nodes}
        self.untested = {node.name: away(node) for node in nodes if away(node)}
        self.batches: list[Batch] = []
        self.outcomes: dict[str, Outcome] = {}
        self.met: Met = {}
        # What was believed of each node when so many batches were in.
        self.history: dict[int, dict[str, float]] = {}

    def open(self, stage: str, number: int, groups: t.Sequence[t.Sequence[str]], **more: t.Any) -> Batch:
        """Plan a batch; ``again`` are groups that meet once more in it."""
        name = f"{len(self.batches):02d}-{stage}"
        kinds = [(stage, group) for group in groups] + [("retest", group) for group in more.pop("again", ())]
        tests = tuple(
            Test(f"{name}-{n:05d}", kind, number, tuple(group), **more) for n, (kind, group) in enumerate(kinds)
        )
        batch = Batch(name, stage, number, tests)
        self.batches.append(batch)
        if stage in PAIRS:
            for test in tests:
                meet(self.met, test.nodes)
        return batch

    def missing(self, batch: Batch) -> list[Test]:
        """Return the tests of a batch that nothing came back of."""
        return [test for test in batch.tests if test.id not in self.outcomes]

    def outcome(self, test: Test) -> Outcome | None:
        """Return what came back of a test.

        Between nodes a warning is a slow connection; of one node nothing counts that speaks of another.
        """
        found = self.outcomes.get(test.id)
        if found and found.warned and len(test.nodes) > 1:
            return found._replace(kind="bad", blame="fabric", reason=found.warned)
        if found and len(test.nodes) == 1 and found.nodes - set(test.nodes):
            wrong = f"records of {test.nodes[0]} speak of {', '.join(sorted(found.nodes))}"
            return Outcome(reason=wrong, begun=found.begun, ended=found.ended, digest=found.digest)
        return found

    def results(self, *stages: str) -> t.Iterator[tuple[Test, Outcome]]:
        """Yield the tests of these stages that were answered, as planned."""
        for batch in self.batches:
            for test in batch.tests:
                found = self.outcome(test) if test.stage in stages else None
                if found:
                    yield test, found

    def own(self) -> list[tuple[Test, Outcome]]:
        """Return the second tries of single nodes."""
        return [pair for pair in self.results("retest") if len(pair[0].nodes) == 1]

    def alone(self) -> list[tuple[Test, Outcome]]:
        """Return the suites of single nodes, first and second tries."""
        return [*self.results("local"), *self.own()]

    def mute(self) -> set[str]:
        """Return who never gave a result in company, at least twice, where all partners gave some with others."""
        met = [(test, outcome.kind != "infra") for test, outcome in self.results(*PAIRS)]
        told = {name for test, well in met if well for name in test.nodes}
        lost: dict[str, list[tuple[str, ...]]] = {}
        for test, dummy in met:
            for name in set(test.nodes) - told:
                lost.setdefault(name, []).append(test.nodes)
        return {
            name
            for name, groups in lost.items()
            if len(groups) > 1 and all(set(group) - {name} <= told for group in groups)
        }

    def last(self) -> dict[str, Outcome]:
        """Return what came of the last try of each node's own suite."""
        return {test.nodes[0]: outcome for test, outcome in self.alone()}

    def again(self) -> list[tuple[Test, Outcome]]:
        """Return the second meetings of groups that failed although their nodes are well."""
        return [pair for pair in self.results("retest") if len(pair[0].nodes) > 1]

    def until(self, batches: int) -> Ledger:
        """Return the book as it was after so many batches."""
        found = Ledger(list(self.nodes.values()), self.options, self.profile)
        found.untested, found.outcomes, found.batches = self.untested, self.outcomes, self.batches[:batches]
        return found

    def taking_part(self) -> list[Node]:
        """Return the nodes that are not out of it."""
        return [node for name, node in self.nodes.items() if name not in self.untested]
