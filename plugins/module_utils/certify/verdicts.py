# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a campaign says of each node: cleared, watched, drained or untested, and why. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import away
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import PAIRS, Ledger, Test
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.standing import (
    SUSPECT,
    Standing,
    enough,
    explained,
)

_REPAIRED = ("hardware", "fabric")  # what configuration or software did is not for a repair

Verdict = t.Tuple[str, str, t.Optional[str]]


class Sight(t.NamedTuple):
    """One test of a node, and what it counts as: good, bad, or nothing known."""

    test: Test
    outcome: Outcome
    kind: str


def sights(ledger: Ledger, now: Standing) -> dict[str, list[Sight]]:
    """Return what was tried with each node, in the order of the plan."""
    found: dict[str, list[Sight]] = {name: [] for name in ledger.nodes}
    for test, outcome in ledger.results("reach", "local", "retest", *PAIRS):
        for name in test.nodes:
            found[name].append(Sight(test, outcome, now.kinds.get(test.id, outcome.kind)))
    return found


def verdicts(ledger: Ledger, now: Standing) -> dict[str, Json]:
    """Return the node entries of the certificate."""
    judge = _Judge(ledger, now)
    found = {}
    for name, seen in sights(ledger, now).items():
        status, reason, blame = judge.verdict(name, seen)
        node = ledger.nodes[name]
        meetings = [sight.kind for sight in seen if len(sight.test.nodes) > 1]
        hosts = [sight.outcome.hosts[name] for sight in seen if name in sight.outcome.hosts]
        found[name] = {
            "status": status,
            "posterior": _rounded(now.posterior.get(name)),
            "reason": reason,
            "class": blame,
            "leaf": node.leaf,
            "physical_host": hosts[-1] if hosts else node.physical_host,
            "tests": len(meetings),
            "failed": meetings.count("bad"),
        }
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


class _Judge:
    """Judges node after node."""

    def __init__(self, ledger: Ledger, now: Standing) -> None:
        self._ledger, self._now, self._options = ledger, now, ledger.options
        self._own = {test.nodes[0]: outcome for test, outcome in ledger.alone()}
        # Where nodes were never to meet, a node's own suite is all that there is of it.
        self._meets = "pair" in ledger.options.stages and sum(not away(node) for node in ledger.nodes.values()) > 1

    def verdict(self, name: str, seen: t.Sequence[Sight]) -> Verdict:
        """Return status, reason and class of a node."""
        bad = [sight for sight in seen if sight.kind == "bad"]
        posterior = self._now.posterior.get(name, 1.0)
        if name in self._ledger.untested:
            return "untested", self._ledger.untested[name], "infra"
        if bad and (posterior >= self._options.drain_at or name in self._now.unfit):
            own = [sight for sight in bad if not self._excused(name, sight)] or bad
            blame = _blame(own)
            return ("drained" if blame in _REPAIRED else "watched"), self._cause(own), blame
        hole = self._hole(name, seen)
        if hole:
            return "untested", hole, "infra"
        if self._now.findings:
            off = self._now.findings[0]["text"]
            return "watched", f"not judged, as the fleet as a whole is off: {off}", "fabric"
        if self._now.lost[name] >= SUSPECT:
            return "watched", "more of its tests than of others end without a result", "infra"
        tried = not self._meets or self._now.good[name] >= enough(self._options)
        if tried and (posterior <= self._options.clear_at or not (self._meets or bad)):
            return "cleared", "", None
        shadow = self._shadow(name)
        if shadow:
            return "watched", f"behind a suspect: {shadow}", "fabric"
        if bad:
            return "watched", f"{len(bad)} of {len(seen)} tests were bad: {self._cause(bad)}", _blame(bad)
        return "watched", f"{len(seen)} good tests are too few to clear it", None

    def _hole(self, name: str, seen: t.Sequence[Sight]) -> str:
        """Return what is missing to say anything of the node: silence is no pass."""
        told = [sight for sight in seen if sight.kind != "infra" and sight.test.stage != "reach"]
        lost = [sight.outcome.reason for sight in seen if sight.kind == "infra"]
        if not told:
            return lost[-1] if lost else "nothing came back of it"
        if self._now.lost[name] >= self._options.drain_at:
            return f"its tests end without a result: {lost[-1]}"
        own = self._own.get(name)
        if own and own.kind == "infra":
            return f"its own suite is not complete: {own.reason}"
        met = any(len(sight.test.nodes) > 1 for sight in told)
        return "" if met or not self._meets else "no test with a partner gave a result"

    def _excused(self, name: str, sight: Sight) -> bool:
        """Say whether a bad test is explained by what else was part of it: its reason is not this node's."""
        others = [self._now.posterior.get(other, 0.0) for other in sight.test.nodes if other != name]
        return max(others, default=0.0) >= SUSPECT or explained(self._ledger, self._now, sight.test.nodes)

    def _shadow(self, name: str) -> str:
        """Return the suspect switch that a node hangs on."""
        leaf = self._ledger.nodes[name].leaf
        above = (f"{kind} {leaf}" for kind in ("leaf", "uplink"))
        return next((name for name in above if self._now.fabric.get(name, 0.0) >= SUSPECT), "")

    def _cause(self, bad: t.Sequence[Sight]) -> str:
        """Return what was seen, of the node alone before that in company."""
        first = min(bad, key=lambda sight: (len(sight.test.nodes), not sight.outcome.reason))
        parts = [first.outcome.reason, self._now.weak.get(first.test.id, "")]
        return "; ".join(part for part in parts if part)


def _blame(bad: t.Sequence[Sight]) -> str | None:
    """Return the class of what was seen of the node alone, else of most of its meetings.

    What is only slow beside others has none of its own: of a node it is hardware, between nodes fabric.
    """
    alone = [sight for sight in bad if len(sight.test.nodes) == 1]
    found = [sight.outcome.blame or ("hardware" if alone else "fabric") for sight in alone or bad]
    return max(sorted(set(found)), key=found.count)
