# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes may be repaired, and what becomes of them. Pure; private."""

from __future__ import annotations

import types
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import REASON_PREFIX, SLURMS_OWN

Record = t.Mapping[str, t.Any]
# What only meetings with other nodes showed, only meetings can prove gone.
_MET = f"{REASON_PREFIX}certification:"
_JOINS = f"{REASON_PREFIX}joining:"
_UNPROVED = f"{REASON_PREFIX}repair:was not certified"


def refusals(nodes: t.Sequence[Record], partners: t.Sequence[str] = ()) -> list[str]:
    """Say of every node why it cannot be repaired by us; a repair that was cut short may go on."""
    return [f"{node['name']}: {why}" for node in nodes for why in [_why_not(node, partners)] if why]


def _why_not(node: Record, partners: t.Sequence[str]) -> str:
    state = "+".join([node["state"], *node["flags"]])
    if node["name"] in partners:
        return "" if node["available"] or "MAINTENANCE" in node["flags"] else f"is {state}, and no partner for others"
    if node["state"] in ("DOWN", "UNKNOWN") or "NOT_RESPONDING" in node["flags"]:
        return f"is {state}; its slurmd has to run first ('hpcai-node-ready' there says what keeps it)"
    if node["drained"] and not node["reason"].startswith(REASON_PREFIX) and node["reason"] not in SLURMS_OWN:
        who = node["reason_user"] or "somebody"
        return f"was drained by {who}, who alone gives it back: {node['reason'] or 'no reason'}"
    if not node["drained"] and "MAINTENANCE" not in node["flags"]:
        return f"is {state} and not drained, so there is nothing to give back"
    if node["reason"].startswith(_MET) and not partners:
        return f"failed beside others ({node['reason']}); name healthy idle nodes as partners to prove it"
    if node["reason"].startswith(_JOINS) and not partners:
        return "joins the cluster: join_nodes.yml certifies it beside proven nodes, or name such nodes as partners"
    return ""


def claims(nodes: t.Sequence[Record]) -> list[dict[str, str]]:
    """Return the drains that Slurm made by itself, as they are once they are ours: until then nobody may lift them."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        if node["drained"] and node["reason"] in SLURMS_OWN:
            groups.setdefault(node["reason"], []).append(node["name"])
    return [
        {"name": compress(members, sort=True), "replace": reason, "reason": f"{REASON_PREFIX}slurm:{reason}"}
        for reason, members in sorted(groups.items())
    ]


def settle(
    before: t.Sequence[Record],
    now: t.Sequence[Record],
    certificate: Record,
    partners: t.Sequence[str],
    held: t.Mapping[str, str] = types.MappingProxyType({}),
) -> dict[str, t.Any]:
    """Return which nodes are proved, and which are to be drained again and why: whatever is not proved is."""
    verdicts = certificate.get("nodes") or {}
    cases = {node["name"]: node for node in before if node["name"] not in partners}
    status = {name: (verdicts.get(name) or {}).get("status", "untested") for name in cases}
    proved = sorted(name for name in cases if status[name] == "cleared")
    groups: dict[str, list[str]] = {}
    for node in now:
        name = node["name"]
        if name in cases and name not in proved and not node["drained"]:
            groups.setdefault(held.get(name) or _reason(cases[name]), []).append(name)
    refusals = [_refusal(name, status[name], verdicts.get(name) or {}) for name in sorted(set(cases) - set(proved))]
    # By a person; or by the reconciler, for the reservation ended before the certificate was there.
    refusals += [
        f"{node['name']} is cleared, and was drained meanwhile: {node['reason'] or 'no reason'}"
        for node in now
        if node["name"] in proved and node["drained"]
    ]
    drains = [{"name": compress(names, sort=True), "reason": reason} for reason, names in sorted(groups.items())]
    return {"proved": compress(proved, sort=True), "drains": drains, "refusals": refusals}


def _reason(node: Record) -> str:
    """What it was drained for still holds as far as anybody knows."""
    if node["reason"] in SLURMS_OWN:
        return f"{REASON_PREFIX}slurm:{node['reason']}"
    return node["reason"] if node["reason"].startswith(REASON_PREFIX) else _UNPROVED


def _refusal(name: str, status: str, verdict: Record) -> str:
    why = verdict.get("reason") or "no certificate came of it"
    return f"{name} is {status}: {why}"


def names(text: str) -> list[str]:
    """Expand a hostlist; an empty one is no nodes."""
    return expand(text) if text else []
