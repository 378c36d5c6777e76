# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet in memory, of 1 to 16,000 nodes, with a hidden list of faults, that answers the tests of a campaign.

What a test comes to depends on the seed and on the test alone, so results may be asked for in any order.
"""

from __future__ import annotations

import random
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import judge, metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.campaign import CampaignPlan

Json = t.Dict[str, t.Any]

NORMAL = {"local": 480.0, "pair": 390.0, "ladder": 350.0}  # GB/s
SPREAD = 0.005
SLOW = 0.7
WEAK = 0.88  # with one rail of eight at a third; above the floor of pairs
EXPECT: tuple[Json, ...] = (
    {"check": "nccl_tests", "metric": "busbw", "op": ">=", "value": 440.0, "unit": "GB/s", "nodes": 1, "source": "sim"},
    {
        "check": "nccl_tests",
        "metric": "busbw",
        "op": ">=",
        "value": 310.0,
        "unit": "GB/s",
        "min_nodes": 2,
        "source": "sim",
    },
)


class Fault(t.NamedTuple):
    """What ails a node (slow, rail, flaky, wrong, hang, hang pair, dead, local) and how often a test shows it."""

    kind: str
    shows: float = 1.0


class Fleet:
    """The hidden truth."""

    def __init__(
        self,
        nodes: int,
        seed: int = 0,
        *,
        leaf: int = 0,
        pod: int = 0,
        noise: float = 0.0,
        faults: t.Mapping[str, Fault] | None = None,
        links: t.Iterable[tuple[str, str]] = (),
        leaves: t.Iterable[str] = (),
        uplinks: t.Iterable[str] = (),
        spines: t.Iterable[str] = (),
        speed: float = 1.0,
        spread: float = SPREAD,
        trio: float = 1.0,
        rails: t.Mapping[int, float] | None = None,
    ) -> None:
        self.names = [f"n{n:05d}" for n in range(nodes)]
        self.leaf = {name: f"leaf{n // leaf:04d}" if leaf else "" for n, name in enumerate(self.names)}
        self.pod = {name: f"pod{n // pod:03d}" if pod else "" for n, name in enumerate(self.names)}
        self.seed, self.noise, self.speed = seed, noise, speed
        self.faults = dict(faults or {})
        self.links = {frozenset(pair) for pair in links}
        self.leaves, self.uplinks, self.spines = set(leaves), set(uplinks), set(spines)
        self.spread, self.trio, self.rails = spread, trio, dict(rails or {})
        self.expect: t.Sequence[Json] = EXPECT  # what the nodes judge their own results by

    def facts(self, expect: t.Sequence[Json] = EXPECT) -> Json:
        """Return the fleet as a request names it."""
        nodes = [{"name": name, "leaf": self.leaf[name], "pod": self.pod[name], "state": "idle"} for name in self.names]
        return {"cluster": "simulated", "profile": {"profile": "simulated", "expect": list(expect)}, "nodes": nodes}

    def answer(self, test: Json) -> list[Json]:
        """Return the records of a test; none where nothing comes back."""
        dice = random.Random(f"{self.seed} {test['id']}")
        nodes = test["nodes"]
        shown = {name: self.faults[name].kind for name in nodes if self._shows(name, dice)}
        if self._silent(test, set(shown.values())):
            return [self._record(test, verdict="error", reason="nothing came back within 120 s")]
        if test["stage"] == "reach":
            return [record("reach", nodes[0], time=1.0, verdict="pass")]
        if "wrong" in shown.values() and len(nodes) > 1:
            return [self._record(test, verdict="fail", reason="512 wrong values", blame="hardware")]
        value = NORMAL.get("local" if len(nodes) == 1 else "ladder" if test["stage"] == "ladder" else "pair", 390.0)
        value *= self.speed * (self.trio if len(nodes) == 3 else 1.0) * dice.gauss(1.0, self.spread)
        if self._slow(test, shown, dice):
            value *= WEAK if set(shown.values()) == {"rail"} else SLOW
        own = self._record(test, metrics=self._metrics(test, value))
        return [own, *self._rails(test, shown, dice)]

    def _metrics(self, test: Json, value: float) -> list[Json]:
        metrics = [metric("busbw", value, "GB/s", collective=test["collective"] or "all_reduce", size=1 << 34)]
        return judge("nccl_tests", metrics, self.expect, nodes=len(test["nodes"]))

    def _rails(self, test: Json, shown: t.Mapping[str, str], dice: random.Random) -> t.Iterator[Json]:
        """Yield a record per rail; the third of a bad one is at a third."""
        for rail in range(8 if test["rails"] and len(test["nodes"]) > 1 else 0):
            weak = rail == 3 and "rail" in shown.values()
            value = 45.0 * self.rails.get(rail, 1.0) * dice.gauss(1.0, self.spread) * (0.33 if weak else 1.0)
            yield self._record(test, metrics=[metric("busbw", value, "GB/s", size=1 << 30)], scope={"rail": rail})

    def _shows(self, name: str, dice: random.Random) -> bool:
        return name in self.faults and dice.random() < self.faults[name].shows

    def _silent(self, test: Json, shown: set[str]) -> bool:
        hangs = "hang" in shown or ("hang pair" in shown and len(test["nodes"]) > 1)
        return "dead" in shown or (hangs and test["stage"] != "reach")

    def _slow(self, test: Json, shown: t.Mapping[str, str], dice: random.Random) -> bool:
        nodes = set(test["nodes"])
        if len(nodes) == 1:
            return "local" in shown.values()
        if {"slow", "rail", "flaky", "local"}.intersection(shown.values()):
            return True
        if any(pair <= nodes for pair in self.links) or self._switch(nodes):
            return True
        return test["stage"] != "ladder" and dice.random() < self.noise

    def _switch(self, nodes: set[str]) -> bool:
        """A slow leaf slows whoever is in it, an uplink whoever leaves it, a spine only what is wider than pairs."""
        leaves = {self.leaf[name] for name in nodes}
        pods = {self.pod[name] for name in nodes}
        up = len(leaves) > 1 and leaves & self.uplinks
        return bool(leaves & self.leaves or up or (len(leaves) > 1 and len(nodes) > 3 and pods & self.spines))

    def _record(self, test: Json, scope: Json | None = None, **rest: t.Any) -> Json:
        nodes = test["nodes"]
        scope = {**({"group": nodes} if len(nodes) > 1 else {}), **(scope or {})}
        node = nodes[0] if len(nodes) == 1 else None
        context = {"tool": "simulated", "version": "1", "test": test["id"]}
        rest.setdefault("blame", "fabric" if len(nodes) > 1 else "hardware")
        return record("nccl_tests", node, time=1.0, seconds=60.0, scope=scope, context=context, **rest)


def strewn(names: t.Sequence[str], share: float, fault: Fault, dice: random.Random) -> dict[str, Fault]:
    """Return exactly this share of the nodes, at random, with a fault."""
    return dict.fromkeys(dice.sample(list(names), round(share * len(names))), fault)


def certify(fleet: Fleet, options: Json | None = None, expect: t.Sequence[Json] = EXPECT) -> CampaignPlan:
    """Run a campaign on a fleet to its end."""
    campaign = CampaignPlan(fleet.facts(expect), {"seed": fleet.seed, **(options or {})})
    while True:
        batch = campaign.next()
        if batch is None:
            return campaign
        for test in batch["tests"]:
            campaign.take(test["id"], fleet.answer(test))
