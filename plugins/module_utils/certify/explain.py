# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a node was judged as it was: every test, with whom, what came back, and what is believed of the partners."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import CampaignError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import Ledger
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.standing import Standing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.verdicts import Sight, sights, verdicts

_WORDS = {"ok": "good", "bad": "bad", "infra": "no result", "open": "open"}


def explain(ledger: Ledger, now: Standing, name: str) -> list[str]:
    """Return the lines."""
    if name not in ledger.nodes:
        raise CampaignError(f"node {name} is not in this certification, which has {len(ledger.nodes)} nodes")
    node = verdicts(ledger, now)[name]
    posterior = "" if node["posterior"] is None else f", at fault with {node['posterior']:.4g}"
    why = f" ({node['reason']})" if node["reason"] else ""
    seen = sights(ledger, now)[name]
    return [
        f"{name}: {node['status']}{posterior}{why}",
        *(_line(now, sight, name) for sight in seen),
        *_rest(ledger, now, name),
    ]


def _line(now: Standing, sight: Sight, name: str) -> str:
    test, outcome = sight.test, sight.outcome
    partners = [f"{other} ({_believed(now, other)})" for other in test.nodes if other != name]
    ratio = f", {now.ratios[test.id]:.1%} of the median" if test.id in now.ratios else ""
    value = f" {outcome.value:g} {outcome.unit}{ratio}" if outcome.value is not None else ""
    said = "; ".join(part for part in (outcome.reason, now.weak.get(test.id, "")) if part)
    company = f" with {', '.join(partners)}" if partners else ""
    head = f"  {test.stage} {test.round}{company}: {_WORDS[sight.kind]}{value}"
    return f"{head}{f'; {said}' if said else ''} [{test.id}]"


def _believed(now: Standing, name: str) -> str:
    posterior = now.posterior.get(name)
    return "untested" if posterior is None else f"{posterior:.2g}"


def _rest(ledger: Ledger, now: Standing, name: str) -> list[str]:
    leaf = ledger.nodes[name].leaf
    above = [key for key in (f"leaf {leaf}", f"uplink {leaf}") if key in now.fabric]
    learnt = f"  learnt of this fleet: {now.share:.2%} of nodes are at fault, {now.noise:.2%} of tests fail for nothing"
    return [*(f"  {key} is at fault with {now.fabric[key]:.2g}" for key in above), learnt]
