# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The certificate: what may be said of a fleet, as a function of what came back. Pure, private."""

from __future__ import annotations

import hashlib
import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import findings, guards, plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import PAIRS, Ledger
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.standing import Standing, stand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.verdicts import verdicts

SCHEMA = 1
STATUSES = ("cleared", "watched", "drained", "untested")
_VERDICTS = {"ok": "pass", "bad": "fail", "infra": "error", "open": "unjudged"}


def certificate(ledger: Ledger, now: Standing, fleet: Json, digests: t.Mapping[str, str]) -> Json:
    """Return the certificate of what is in the ledger."""
    nodes = verdicts(ledger, now)
    of = {status: [name for name, node in nodes.items() if node["status"] == status] for status in STATUSES}
    untested = [{"node": name, "reason": nodes[name]["reason"]} for name in of["untested"]]
    drains, guarded = guards.drains([ledger.nodes[name] for name in of["drained"]], len(nodes), ledger.options)
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
        "notes": findings.notes(ledger),
        "findings": [*findings.findings(ledger, now), *guarded],
        "rounds": _rounds(ledger, now),
        "ladder": findings.ladder(ledger),
        "plan": plan.plan(ledger),
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
        shows = f"a fault that shows in {options.q0:.0%} of tests stays unseen in {least} with {unseen:.1%}"
        text = f"{len(cleared)} nodes cleared; {shows}; so each has one with at most {chance:.2%}"
    return {"q": options.q0, "tests": least, "unseen": unseen, "probability": chance, "text": text}


def _times(ledger: Ledger) -> Json:
    """Return when the first record began and the last one ended: the records' time, not that of the reader."""
    found = [
        outcome for batch in ledger.batches for test in batch.tests for outcome in [ledger.outcome(test)] if outcome
    ]
    begun = min((outcome.begun for outcome in found if outcome.begun is not None), default=None)
    ended = max((outcome.ended for outcome in found if outcome.ended is not None), default=None)
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
    found = {name: p for name, p in then.items() if p > max(options.clear_at, options.prior)}
    return {name: float(f"{found[name]:.6g}") for name in sorted(found, key=lambda name: (-found[name], name))}


def _options(ledger: Ledger) -> Json:
    options = ledger.options._asdict()
    return {
        **options,
        "seconds": dict(options["seconds"]),
        "stages": list(options["stages"]),
        "collectives": list(options["collectives"]),
    }


def _tools(ledger: Ledger) -> Json:
    found: Json = {}
    for batch in ledger.batches:
        for test in batch.tests:
            outcome = ledger.outcome(test)
            found.update(outcome.tools if outcome else {})
    return dict(sorted(found.items()))


def _digest(ledger: Ledger) -> str:
    """Return a digest of all records that were taken, whatever their order."""
    lines = sorted(f"{test} {outcome.digest}" for test, outcome in ledger.outcomes.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
