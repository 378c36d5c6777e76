# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes and options of a campaign, which pairs of nodes met, and with what outcome. Pure, private."""

from __future__ import annotations

import math
import random
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import TestOutcome

# The nodes and options, read and validated once.


STAGES = ("reach", "local", "pair", "confirm", "ladder")
COLLECTIVES = ("all_reduce", "alltoall")
ROUND_ROBIN = 16  # nodes; below, there are too few known-good partners for anything cleverer
SECONDS = {"reach": 10.0, "local": 300.0, "pair": 120.0, "ladder": 300.0}


class CampaignError(ValueError):
    """The fleet or an option makes no sense; the text is fit for the user."""


# The most that earlier certificates count for. Of three nodes each meets others twice in three rounds, and four times
# to confirm: six good tests have to outweigh it, or a node that was repaired would stay out with good tests alone.
_HISTORY = 0.3


class FleetNode(t.NamedTuple):
    """One node of the fleet as the request has it."""

    name: str
    leaf: str = ""
    pod: str = ""
    physical_host: str = ""
    state: str = "idle"
    reason: str = ""
    suspicion: float = 0.0


class CampaignOptions(t.NamedTuple):
    """How the campaign goes; see the certification role for what each of them means."""

    run: str = ""
    seed: int = 0
    k: int = 3
    confirm_rounds: int = 4
    drain_at: float = 0.95
    clear_at: float = 0.004
    settle_at: float = 0.999
    q0: float = 0.5
    e0: float = 0.01
    prior: float = 0.02
    material: float = 0.03
    max_share: float = 0.05
    max_leaf: int = 3
    concurrent: int = 0
    gpus_per_node: int = 0
    cost_per_gpu_hour: float = 0.0
    rails: bool = False
    stages: tuple[str, ...] = STAGES
    collectives: tuple[str, ...] = COLLECTIVES
    seconds: t.Mapping[str, float] = SECONDS


_RANGES: dict[str, tuple[float, float]] = {
    "k": (1, 16),
    "confirm_rounds": (0, 16),
    "drain_at": (0.5, 1),
    "clear_at": (0, 0.5),
    "settle_at": (0.5, 1),
    "q0": (0.01, 0.99),
    "e0": (1e-6, 0.05),
    "prior": (1e-6, 0.5),
    "material": (0, 0.5),
    "max_share": (0, 1),
    "max_leaf": (1, math.inf),
    "concurrent": (0, math.inf),
    "gpus_per_node": (0, math.inf),
    "cost_per_gpu_hour": (0, math.inf),
}


def read_options(given: t.Mapping[str, t.Any]) -> CampaignOptions:
    """Return the options; one that is not given has its default, unknown names are left to others."""
    blank = CampaignOptions()
    values = {name: given[name] for name in CampaignOptions._fields if given.get(name) is not None}
    for name, value in values.items():
        if name in _RANGES:
            _number(name, value, isinstance(getattr(blank, name), int))
    if values.get("drain_at", 1) <= values.get("clear_at", 0):
        raise CampaignError("drain_at must lie above clear_at")
    for name in ("stages", "collectives"):
        values[name] = tuple(str(item) for item in values.get(name, getattr(blank, name)))
    unknown = sorted(set(values["stages"]) - set(STAGES))
    if unknown:
        raise CampaignError(f"stages has {', '.join(unknown)}; accepted are {', '.join(STAGES)}")
    unknown = sorted(set(values["collectives"]) - set(COLLECTIVES))
    if unknown or not values["collectives"]:
        raise CampaignError(f"collectives has {', '.join(unknown) or 'none'}; accepted are {', '.join(COLLECTIVES)}")
    if not isinstance(values.get("seconds", {}), dict):
        raise CampaignError(f"seconds is {values['seconds']!r}; seconds by stage are needed")
    seconds = {**SECONDS, **values.get("seconds", {})}
    for name, value in seconds.items():
        if (finite(value) or 0) <= 0:
            raise CampaignError(f"seconds.{name} is {value!r}; a number above 0 is needed")
    return blank._replace(**{**values, "seconds": seconds})


def _number(name: str, value: t.Any, whole: bool) -> None:
    least, most = _RANGES[name]
    if finite(value) is None or not least <= value <= most or (whole and value != int(value)):
        kind = "whole number" if whole else "number"
        raise CampaignError(f"{name} is {value!r}; a {kind} from {least:g} to {most:g} is needed")


def read_nodes(fleet: t.Mapping[str, t.Any]) -> list[FleetNode]:
    """Return the nodes in the order of their names."""
    given = fleet.get("nodes")
    if not isinstance(given, list) or not given:
        raise CampaignError("the fleet names no nodes")
    nodes = {}
    for item in given:
        node = _node(item)
        if node.name in nodes:
            raise CampaignError(f"node {node.name} is named twice")
        nodes[node.name] = node
    return [nodes[name] for name in sorted(nodes)]


def _node(item: t.Any) -> FleetNode:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not item["name"]:
        raise CampaignError(f"a node of the fleet has no name: {item!r:.200}")
    texts = {key: str(item.get(key) or "") for key in ("leaf", "pod", "physical_host", "reason")}
    suspicion = finite(item.get("suspicion")) or 0.0
    state = str(item.get("state") or "idle").lower()
    return FleetNode(item["name"], state=state, suspicion=min(_HISTORY, max(0.0, suspicion)), **texts)


def away(node: FleetNode) -> str:
    """Return why a node takes no part, or nothing: only idle ones do."""
    return "" if node.state == "idle" else f"{node.state}{f': {node.reason}' if node.reason else ''}"


def profile(fleet: t.Mapping[str, t.Any]) -> Json:
    """Return the machine type's profile."""
    given = fleet.get("profile")
    return given if isinstance(given, dict) else {}


# Who meets whom: disjoint pairs that cover everybody, and nobody twice while that is possible. Pure.


Met = t.Dict[str, t.Set[str]]
Group = t.List[str]
Shun = t.Callable[[str, str], bool]
_LOOK = 64  # candidates that are tried before a partner is looked for among the pairs already made


def _nobody(name: str, other: str) -> bool:
    return False


def meet(met: Met, group: t.Iterable[str]) -> None:
    """Record that the nodes of a group have met."""
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


def inside(nodes: t.Sequence[FleetNode], met: Met, dice: random.Random) -> list[Group]:
    """Return pairs inside each leaf; who is left over there meets others who are."""
    leaves: dict[str, list[str]] = {}
    for node in nodes:
        leaves.setdefault(node.leaf, []).append(node.name)
    groups: list[Group] = []
    left: list[str] = []
    for leaf in sorted(leaves):
        pairs, over = match(_shuffled(leaves[leaf], dice), met)
        groups += pairs
        left += over
    return _finish(groups, left, met)


def across(nodes: t.Sequence[FleetNode], met: Met, dice: random.Random) -> list[Group]:
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
    pairs, over = match(left, met)
    return _finish(groups + pairs, over, met)


def anyhow(nodes: t.Sequence[FleetNode], met: Met, dice: random.Random) -> list[Group]:
    """Return random pairs."""
    pairs, over = match(_shuffled([node.name for node in nodes], dice), met)
    return _finish(pairs, over, met)


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
    pairs, over = match(left, met)
    groups = groups + pairs
    while len(over) > 1:
        first, second = over.pop(), over.pop()
        if not _part(groups, first, second, met):
            groups.append([first, second])
    if over and not groups:
        return [over]
    if over:
        known = met.get(over[0], set())
        new = (n for n, group in enumerate(groups) if len(group) == 2 and not known.intersection(group))
        groups[next(new, 0)].append(over[0])
    return groups


def _part(groups: list[Group], first: str, second: str, met: Met) -> bool:
    """Give two who have met each other the partners of a pair that neither of them knows."""
    for group in groups:
        for a, b in ((0, 1), (1, 0)):
            if group[a] not in met.get(first, ()) and group[b] not in met.get(second, ()):
                groups.append([second, group[b]])
                group[:] = [first, group[a]]
                return True
    return False


# The tests planned and their outcomes so far; all that a campaign decides is a function of them. Pure.


PAIRS = ("pair", "confirm")


class RoundTest(t.NamedTuple):
    """One thing to run on some nodes."""

    id: str
    stage: str
    round: int
    nodes: tuple[str, ...]
    collective: str = ""
    rails: bool = False

    def facts(self) -> Json:
        """Return the test as a batch and a job's file list it."""
        return {**self._asdict(), "nodes": list(self.nodes)}


class Batch(t.NamedTuple):
    """Tests that may run at the same time."""

    id: str
    stage: str
    round: int
    tests: tuple[RoundTest, ...]


class Ledger:
    """The book of one campaign."""

    def __init__(self, nodes: t.Sequence[FleetNode], options: CampaignOptions, profile: Json) -> None:
        self.options, self.profile = options, profile
        self.nodes = {node.name: node for node in nodes}
        self.untested = {node.name: away(node) for node in nodes if away(node)}
        self.batches: list[Batch] = []
        self.outcomes: dict[str, TestOutcome] = {}
        self.met: Met = {}
        # What was believed of each node when so many batches were in.
        self.history: dict[int, dict[str, float]] = {}

    def open(self, stage: str, number: int, groups: t.Sequence[t.Sequence[str]], **more: t.Any) -> Batch:
        """Plan a batch; ``again`` are groups that meet once more in it."""
        name = f"{len(self.batches):02d}-{stage}"
        kinds = [(stage, group) for group in groups] + [("retest", group) for group in more.pop("again", ())]
        tests = tuple(
            RoundTest(f"{name}-{n:05d}", kind, number, tuple(group), **more) for n, (kind, group) in enumerate(kinds)
        )
        batch = Batch(name, stage, number, tests)
        self.batches.append(batch)
        if stage in PAIRS:
            for test in tests:
                meet(self.met, test.nodes)
        return batch

    def missing(self, batch: Batch) -> list[RoundTest]:
        """Return the tests of a batch that nothing came back of."""
        return [test for test in batch.tests if test.id not in self.outcomes]

    def outcome(self, test: RoundTest) -> TestOutcome | None:
        """Return the outcome of a test.

        Between nodes a warning is a slow connection; records of one node that are about another do not count.
        """
        outcome = self.outcomes.get(test.id)
        if outcome and outcome.warned and len(test.nodes) > 1:
            return outcome._replace(kind="bad", blame="fabric", reason=outcome.warned)
        if outcome and len(test.nodes) == 1 and outcome.nodes - set(test.nodes):
            wrong = f"records of {test.nodes[0]} speak of {', '.join(sorted(outcome.nodes))}"
            return TestOutcome(reason=wrong, begun=outcome.begun, ended=outcome.ended, digest=outcome.digest)
        return outcome

    def results(self, *stages: str) -> t.Iterator[tuple[RoundTest, TestOutcome]]:
        """Yield the tests of these stages that were answered, as planned."""
        for batch in self.batches:
            for test in batch.tests:
                outcome = self.outcome(test) if test.stage in stages else None
                if outcome:
                    yield test, outcome

    def own(self) -> list[tuple[RoundTest, TestOutcome]]:
        """Return the second tries of single nodes."""
        return [pair for pair in self.results("retest") if len(pair[0].nodes) == 1]

    def alone(self) -> list[tuple[RoundTest, TestOutcome]]:
        """Return the suites of single nodes, first and second tries."""
        return [*self.results("local"), *self.own()]

    def mute(self) -> set[str]:
        """Return the nodes with two or more tests with others and no result, whose partners all had some elsewhere."""
        met = [(test, outcome.kind != "infra") for test, outcome in self.results(*PAIRS)]
        answered = {name for test, well in met if well for name in test.nodes}
        lost: dict[str, list[tuple[str, ...]]] = {}
        for test, dummy in met:
            for name in set(test.nodes) - answered:
                lost.setdefault(name, []).append(test.nodes)
        return {
            name
            for name, groups in lost.items()
            if len(groups) > 1 and all(set(group) - {name} <= answered for group in groups)
        }

    def last(self) -> dict[str, TestOutcome]:
        """Return the outcome of the last try of each node's own suite."""
        return {test.nodes[0]: outcome for test, outcome in self.alone()}

    def again(self) -> list[tuple[RoundTest, TestOutcome]]:
        """Return the second meetings of groups that failed although their nodes are well."""
        return [pair for pair in self.results("retest") if len(pair[0].nodes) > 1]

    def until(self, batches: int) -> Ledger:
        """Return the book as it was after so many batches."""
        book = Ledger(list(self.nodes.values()), self.options, self.profile)
        book.untested, book.outcomes, book.batches = self.untested, self.outcomes, self.batches[:batches]
        return book

    def taking_part(self) -> list[FleetNode]:
        """Return the nodes that are tested further."""
        return [node for name, node in self.nodes.items() if name not in self.untested]
