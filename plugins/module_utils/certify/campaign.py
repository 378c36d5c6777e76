# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A campaign as a whole: the plan of rounds, the certificate, and replay from its journal."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, judge, overall, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import (
    evidence,
    ledger,
    schedule,
    standing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import verdicts as certify_verdicts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import RATES, believable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import (
    PAIRS,
    ROUND_ROBIN,
    Batch,
    CampaignOptions,
    Ledger,
    away,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.standing import Standing, stand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.verdicts import verdicts

# What a certification will do, how long it takes and what it costs, before it starts. Pure.


class _Step(t.NamedTuple):
    stage: str
    text: str
    rounds: int
    tests: int
    nodes: int
    seconds: float


def plan(ledger: Ledger) -> Json:
    """Return the plan; confirmation is counted at its most, for the suspects that the prior predicts."""
    options = ledger.options
    ready = [node for node in ledger.nodes.values() if not away(node)]
    steps = [step for step in _steps(ledger, len(ready)) if step.stage in options.stages and step.rounds]
    hours = sum(step.seconds * step.nodes for step in steps) / 3600
    gpu_hours = hours * options.gpus_per_node
    robin = _pair_rounds(options, len(ready))[1]
    seconds = sum(step.seconds for step in steps)
    totals: Json = {
        "nodes": len(ready),
        "untested": len(ledger.nodes) - len(ready),
        "rounds": sum(step.rounds for step in steps if step.stage in ("pair", "confirm")),
        "tests": sum(step.tests for step in steps),
        "wall_seconds": round(seconds, 1),
        "node_hours": round(hours, 2),
        "gpu_hours": round(gpu_hours, 2),
        "cost": round(gpu_hours * options.cost_per_gpu_hour, 2),
        "round_robin": robin,
    }
    return {**totals, "text": [*(_line(step) for step in steps), _total(totals, options)]}


def _pair_rounds(options: CampaignOptions, nodes: int) -> tuple[int, bool]:
    """Return how many pair rounds there are, and whether everybody meets everybody."""
    if nodes < 2:
        return 0, False
    if nodes <= ROUND_ROBIN:
        return nodes - 1 + nodes % 2, True
    return options.k, False


def _steps(ledger: Ledger, nodes: int) -> t.Iterator[_Step]:
    options = ledger.options
    seconds = options.seconds
    if not nodes:
        return
    yield _Step("reach", "who answers", 1, nodes, nodes, seconds["reach"])
    yield _Step("local", "each node by itself", 1, nodes, nodes, seconds["local"])
    rounds, robin = _pair_rounds(options, nodes)
    how = "everybody meets everybody" if robin else "inside leaves, across leaves, at random"
    yield _Step("pair", how, rounds, rounds * (nodes // 2), nodes, rounds * seconds["pair"])
    # Each bad node spoils about one good one per round, until partners that never failed part them.
    suspects = min(nodes // 2, max(1, round(nodes * options.prior * (1 + options.k))))
    more = options.confirm_rounds if rounds else 0
    how = f"about {_counted(suspects, 'suspect')} with partners that never failed, at most"
    yield _Step("confirm", how, more, more * suspects, 2 * suspects, more * seconds["pair"])
    rungs = schedule.rungs([node for node in ledger.nodes.values() if not away(node)])
    tests = sum(len(rung.groups) for rung in rungs) * len(options.collectives)
    all_of_them = len(options.collectives) * seconds["ladder"]
    names = ", ".join(rung.name for rung in rungs)
    how = f"{names}: {' and '.join(options.collectives)}; what is slow is narrowed down besides"
    yield _Step("ladder", how, len(rungs), tests, nodes, len(rungs) * all_of_them)


def _counted(amount: int, noun: str) -> str:
    return f"{amount} {noun}{'s' * (amount != 1)}"


def _line(step: _Step) -> str:
    amount = f"{_counted(step.rounds, 'round')}, {_counted(step.tests, 'test')}"
    return f"{step.stage}: {amount}, {step.seconds / 60:.1f} min ({step.text})"


def _total(totals: Json, options: CampaignOptions) -> str:
    hours = f"{totals['gpu_hours']:g} GPU-hours" if options.gpus_per_node else f"{totals['node_hours']:g} node-hours"
    cost = f", about {totals['cost']:.2f} by the given price" if options.cost_per_gpu_hour else ""
    left = f"; {totals['untested']} not idle, so not tested" if totals["untested"] else ""
    return f"in all: {totals['nodes']} nodes, at most {totals['wall_seconds'] / 60:.1f} min, {hours}{cost}{left}"


# The certificate, as a function of the ledger. Pure.


SCHEMA = 1
STATUSES = ("cleared", "watched", "drained", "untested")
_VERDICTS = {"ok": "pass", "bad": "fail", "infra": "error", "open": "unjudged"}


def certificate(ledger: Ledger, now: Standing, fleet: Json, digests: t.Mapping[str, str]) -> Json:
    """Return the certificate of a ledger."""
    nodes = verdicts(ledger, now)
    of = {status: [name for name, node in nodes.items() if node["status"] == status] for status in STATUSES}
    untested = [{"node": name, "reason": nodes[name]["reason"]} for name in of["untested"]]
    drains, guarded = standing.drains([ledger.nodes[name] for name in of["drained"]], len(nodes), ledger.options)
    return {
        "schema": SCHEMA,
        "run": ledger.options.run,
        "cluster": str(fleet.get("cluster") or ""),
        "profile": str(ledger.profile.get("profile") or ledger.profile.get("vm_size") or ""),
        **_times(ledger),
        "planned": len(nodes),
        "reached": len(nodes) - len(untested),
        "nodes": nodes,
        "untested": untested,
        "drains": drains,
        "miss_bound": miss_bound(ledger, nodes, now.good),
        "notes": certify_verdicts.notes(ledger),
        "findings": [*certify_verdicts.findings(ledger, now), *guarded],
        "rounds": _rounds(ledger, now),
        "ladder": certify_verdicts.ladder(ledger),
        "plan": plan(ledger),
        "options": _options(ledger),
        "tools": _tools(ledger),
        "profile_sha256": hashlib.sha256(json.dumps(ledger.profile, sort_keys=True).encode()).hexdigest(),
        "records_sha256": digests.get("records_sha256") or _digest(ledger),
        "agent_sha256": digests.get("agent_sha256", ""),
        "agent_source_sha256": digests.get("agent_source_sha256", ""),
    }


def miss_bound(ledger: Ledger, nodes: t.Mapping[str, Json], good: t.Mapping[str, int]) -> Json:
    """Return how likely a fault that shows with chance q is still in a node that was cleared."""
    options = ledger.options
    cleared = [name for name, node in nodes.items() if node["status"] == "cleared"]
    least = min((good.get(name, 0) for name in cleared), default=0)
    unseen = (1 - options.q0) ** least
    posterior = max((nodes[name]["posterior"] or 0.0 for name in cleared), default=0.0)
    chance = max(posterior, options.prior * unseen / (options.prior * unseen + 1 - options.prior)) if cleared else None
    text = "no node was cleared"
    if chance is not None:
        count = "1 node" if len(cleared) == 1 else f"{len(cleared)} nodes"
        shows = "not each was tested with another"
        if least:
            shows = f"a fault that shows in {options.q0:.0%} of tests stays unseen in {least} with {unseen:.1%}"
        text = f"{count} cleared; {shows}; so each has one with at most {chance:.2%}"
    return {"q": options.q0, "tests": least, "unseen": unseen, "probability": chance, "text": text}


def _times(ledger: Ledger) -> Json:
    """Return when the first record began and the last one ended: the records' time, not that of the reader."""
    outcomes = [
        outcome for batch in ledger.batches for test in batch.tests for outcome in [ledger.outcome(test)] if outcome
    ]
    begun = min((outcome.begun for outcome in outcomes if outcome.begun is not None), default=None)
    ended = max((outcome.ended for outcome in outcomes if outcome.ended is not None), default=None)
    return {"time": ended, "seconds": None if begun is None or ended is None else ended - begun}


def _rounds(ledger: Ledger, now: Standing) -> list[Json]:
    return [
        {
            "id": batch.id,
            "stage": batch.stage,
            "round": batch.round,
            "tests": [_test(ledger, now, test) for test in batch.tests],
            "suspects": _suspects(ledger, n, now) if batch.stage in PAIRS else {},
        }
        for n, batch in enumerate(ledger.batches, 1)
    ]


def _test(ledger: Ledger, now: Standing, test: t.Any) -> Json:
    outcome = ledger.outcome(test)
    about: Json = {"id": test.id, "nodes": list(test.nodes), "verdict": None, "ratio": now.ratios.get(test.id)}
    if outcome:
        about["verdict"] = _VERDICTS[now.kinds.get(test.id, outcome.kind)]
        about.update(value=outcome.value, unit=outcome.unit)
    return {"value": None, "unit": "", **about}


def _suspects(ledger: Ledger, batches: int, now: Standing) -> Json:
    """Return who was suspect once so many batches were in, the most suspect first."""
    options = ledger.options
    then = ledger.history.get(batches) or stand(ledger.until(batches), now).posterior
    # Without history a posterior between the two limits is no suspicion yet, only too few tests.
    suspects = {name: p for name, p in then.items() if p > max(options.clear_at, options.prior)}
    return {name: float(f"{suspects[name]:.6g}") for name in sorted(suspects, key=lambda name: (-suspects[name], name))}


def _options(ledger: Ledger) -> Json:
    options = ledger.options._asdict()
    return {
        **options,
        "seconds": dict(options["seconds"]),
        "stages": list(options["stages"]),
        "collectives": list(options["collectives"]),
    }


def _tools(ledger: Ledger) -> Json:
    tools: Json = {}
    for batch in ledger.batches:
        for test in batch.tests:
            outcome = ledger.outcome(test)
            tools.update(outcome.tools if outcome else {})
    return dict(sorted(tools.items()))


def _digest(ledger: Ledger) -> str:
    """Return a digest of all records that were taken, whatever their order."""
    lines = sorted(f"{test} {outcome.digest}" for test, outcome in ledger.outcomes.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


# The course of a certification: which tests come next, given the results. No I/O, no clock.


_ARRANGE = (ledger.inside, ledger.across, ledger.anyhow)


class CampaignPlan:
    """One certification: run the batch of ``next()``, give each result to ``take()``, until ``next()`` returns None."""

    def __init__(self, fleet: Json, options: Json) -> None:
        self._fleet = fleet
        self.options = ledger.read_options(options)
        self.ledger = Ledger(ledger.read_nodes(fleet), self.options, ledger.profile(fleet))
        self._dice = random.Random(self.options.seed)  # noqa: S311 - reproducible, not secret
        self._rounds = self._early = 0
        self._course = self._batches()
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
        head = {"id": self._step[0].id, "stage": self._step[-1].stage, "round": self._step[-1].round}
        return {**head, "tests": tests, "missing": self._missing(), "concurrent": concurrent}

    def _missing(self) -> list[str]:
        return [test.id for batch in self._step for test in self.ledger.missing(batch)]

    def take(self, test_id: str, records: t.Sequence[t.Any], reason: str = "") -> None:
        """Take the records of a test, or the reason why there are none; a second call for a test changes nothing."""
        if test_id not in self.ledger.outcomes:
            self.ledger.outcomes[test_id] = evidence.read(records, reason)

    def plan(self) -> Json:
        """Return the tests, their time and cost before anything has run."""
        return plan(self.ledger)

    def certificate(self, **digests: str) -> Json:
        """Return the certificate of the results so far; digests (records_sha256, agent_sha256) go into it."""
        return certificate(self.ledger, self._stand(), self._fleet, digests)

    def explain(self, node: str) -> list[str]:
        """Return why a node was convicted or cleared, line by line: its tests, partners and results."""
        return certify_verdicts.explain(self.ledger, self._stand(), node)

    def _stand(self) -> standing.Standing:
        """Return the standing now; it is computed once for the same results, as it takes a while."""
        taken = (len(self.ledger.outcomes), len(self.ledger.untested))
        if self._stood is None or self._stood[0] != taken:
            self._stood = (taken, standing.stand(self.ledger))
            if self._step and not self._missing():
                self.ledger.history[len(self.ledger.batches)] = self._stood[1].posterior
        return self._stood[1]

    def _batches(self) -> t.Iterator[tuple[Batch, ...]]:
        stages = self.options.stages
        yield from self._single_nodes([stage for stage in ("reach", "local") if stage in stages])
        if "local" in stages:
            yield from self._suite_retests()
        if "pair" in stages:
            yield from self._pairs()
        if "confirm" in stages:
            yield from self._confirm()
        if "ladder" in stages:
            yield from self._ladder()

    def _single_nodes(self, stages: t.Sequence[str]) -> t.Iterator[tuple[Batch, ...]]:
        """Yield the tests of single nodes: one task answers, and runs the node's own suite."""
        everybody = [[node.name] for node in self.ledger.taking_part()]
        if everybody and stages:
            yield tuple(self.ledger.open(stage, 0, everybody) for stage in stages)
        for test, outcome in self.ledger.results("reach"):
            if outcome.kind == "infra":
                self.ledger.untested[test.nodes[0]] = f"did not answer: {outcome.reason}"
        for test, outcome in self.ledger.results("local"):
            # A node that never answered would cost its patience once more.
            if outcome.silent:
                self.ledger.untested.setdefault(test.nodes[0], f"its own suite gave no result: {outcome.reason}")

    def _suite_retests(self) -> t.Iterator[tuple[Batch, ...]]:
        """Yield the own suites of nodes again that did not end well: a fault has to be found twice."""
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
        railed = standing.rounds(len(nodes))
        self._early = self._early_confirmations(len(nodes))
        few = len(nodes) <= ROUND_ROBIN
        robin = ledger.round_robin([node.name for node in nodes]) if few else []
        arrange = [*_ARRANGE, *[ledger.anyhow] * self.options.k][: self.options.k]
        for number in range(len(robin) if few else len(arrange)):
            # A node that hangs costs all others the time limit of a round.
            mute = self.ledger.mute()
            left = [node for node in nodes if node.name not in mute]
            met = robin[number] if few else arrange[number](left, self.ledger.met, self._dice)
            groups = [group for group in met if not mute & set(group)]
            if groups:
                early = range(self._early if number < len(nodes) - 1 else 0)
                pairs = self._meeting("pair", groups, rails=number < railed)
                yield (pairs, *(self._meeting("confirm", groups) for dummy in early))

    def _early_confirmations(self, nodes: int) -> int:
        """Return how often at least each node of a fleet of two or three is confirmed as soon as it meets another.

        Everybody has met everybody then, and lacks tests all the same: these are needed in any case. Of three, who
        meet in three rounds, the first two have everybody in them.
        """
        if nodes > 3 or "confirm" not in self.options.stages:
            return 0
        return max(0, min(self.options.confirm_rounds, standing.enough(self.options) - (nodes - 1)))

    def _meeting(self, stage: str, groups: t.Sequence[t.Sequence[str]], rails: bool = True, **more: t.Any) -> Batch:
        self._rounds += 1
        each = self.options.rails and rails
        return self.ledger.open(stage, self._rounds, groups, collective=self.options.collectives[0], rails=each, **more)

    def _confirm(self) -> t.Iterator[tuple[Batch, ...]]:
        for dummy in range(self.options.confirm_rounds - self._early):
            now = self._stand()
            again = schedule.again(self.ledger, now)
            groups = schedule.groups(self.ledger, now, self._dice, {name for group in again for name in group})
            if not groups and not again:
                return
            yield (self._meeting("confirm", groups, again=again),)

    def _ladder(self) -> t.Iterator[tuple[Batch, ...]]:
        # Groups that failed in the last round, of nodes likely to be well, would be left out and their links untested.
        again = schedule.again(self.ledger, self._stand(), standing.SUSPECT)
        if again and "confirm" in self.options.stages and self.options.confirm_rounds:
            yield (self._meeting("confirm", [], again=again),)
        now = self._stand()
        for number, rung in enumerate(schedule.rungs(schedule.survivors(self.ledger, now)), 1):
            climbs = [
                schedule.climb(self.ledger, now, number, rung.groups, collective)
                for collective in self.options.collectives
            ]
            # The same nodes measure all collectives; what is slow in one of them is narrowed down after that.
            yield tuple(batch for climb in climbs for batch in itertools.islice(climb, 1))
            for climb in climbs:
                for batch in climb:
                    yield (batch,)


# A certificate made again from the request and raw records of its run, maybe with another profile.


METRIC = ("name", "value", "unit", "expected", "source", "ratio", "verdict")  # of a metric; all others are labels

_NOT_RUN = "no record of this test was kept"


def replay(request: t.Mapping[str, t.Any], records: t.Iterable[Json], profile: Json | None = None) -> CampaignPlan:
    """Return the campaign as it ended; tests that another profile would have added, and that never ran, are infra."""
    tests: dict[str, list[Json]] = {}
    expect = (profile or {}).get("expect") or []
    before = (request["fleet"].get("profile") or {}).get("expect") or []
    for original in records:
        test = str((original.get("context") or {}).get("test") or "")
        tests.setdefault(test, []).append(original if profile is None else _anew(original, expect, before))
    fleet = request["fleet"] if profile is None else {**request["fleet"], "profile": profile}
    campaign = CampaignPlan(fleet, request["options"])
    while True:
        batch = campaign.next()
        if batch is None:
            return campaign
        for test in batch["tests"]:
            campaign.take(test["id"], tests.get(test["id"], []), "" if test["id"] in tests else _NOT_RUN)


def _anew(original: Json, expect: t.Sequence[Json], before: t.Sequence[Json]) -> Json:
    """Return a record judged anew; one that no limit can be applied to is an error, and leaves the others alone."""
    try:
        return rejudged(original, expect, before)
    except (ValueError, TypeError) as exc:
        return {**original, "verdict": "error", "class": "infra", "reason": f"cannot be judged anew: {exc}"}


def rejudged(original: Json, expect: t.Sequence[Json], before: t.Sequence[Json]) -> Json:
    """Return a record judged by other expectations; a verdict that the former ones did not decide stays."""
    if (
        not _whole(original)
        or original["verdict"] not in ("pass", "warn", "fail", "unjudged")
        or not original["metrics"]
    ):
        return original
    missed = any(metric["verdict"] in ("fail", "warn") for metric in original["metrics"])
    if original["verdict"] in ("fail", "warn") and not missed:
        return original
    group = original["scope"].get("group") or [original["node"]]
    kept = [
        _limit(original["check"], metric) for metric in original["metrics"] if _own(original["check"], metric, before)
    ]
    metrics = judge(original["check"], original["metrics"], [*kept, *expect], nodes=len(group))
    verdict = overall(metrics)
    # Right values at a speed that no limit applies to are no pass.
    if verdict == "pass" and all(metric["verdict"] == "unjudged" for metric in metrics if metric["unit"] in RATES):
        verdict = original["verdict"] if not any(metric["unit"] in RATES for metric in metrics) else "unjudged"
    names = ("run", "seconds", "scope", "samples", "evidence", "context")
    rest = {name: original[name] for name in names if name in original}
    blame = original["class"] or ("fabric" if len(group) > 1 else "hardware")
    return record(
        original["check"],
        original["node"],
        time=original["time"],
        verdict=verdict,
        metrics=metrics,
        blame=blame,
        **rest,
    )


def _whole(original: Json) -> bool:
    """Say whether a record has all that judging it anew needs; one that lacks something stays as it is."""
    if not believable(original) or not {"node", "time", "class"} <= set(original):
        return False
    return all(
        set(METRIC) <= set(metric) and isinstance(metric["expected"] or "", str) for metric in original["metrics"]
    )


def _own(check: str, metric: Json, before: t.Sequence[Json]) -> bool:
    """Say whether a check judged this by a limit of its own, which is no matter of a profile."""
    if not metric.get("expected"):
        return False
    profile_limits = {(e["check"], e["metric"], f"{e['op']} {e['value']}") for e in before}
    return (check, metric["name"], metric["expected"]) not in profile_limits


def _limit(check: str, metric: Json) -> Json:
    """Return the limit by which a metric was judged, from its own fields."""
    op, dummy, value = metric["expected"].partition(" ")
    mark = {"verdict": "warn"} if metric["verdict"] == "warn" else {}
    more = {key: metric[key] for key in metric if key not in METRIC and metric[key] is not None}
    base = {"check": check, "metric": metric["name"], "op": op, "value": json.loads(value), "unit": metric["unit"]}
    return {**base, "source": metric["source"] or "the check itself", **mark, **more}
