# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When not to speak of single nodes: the whole fleet is off, or too much of it would go at once. Pure, private."""

from __future__ import annotations

import statistics
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json, finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.evidence import Outcome, key
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import Node, Options

_MAJORITY = 0.5
_LEAST = 3  # nodes; of two that fail together each may be the only one

Result = t.Tuple[t.Sequence[str], Outcome]


def finding(kind: str, text: str, nodes: t.Iterable[str] = (), suspects: t.Iterable[str] = (), **rest: t.Any) -> Json:
    """Return a finding as the certificate lists it."""
    about = {"metric": rest.get("metric", ""), "value": rest.get("value"), "expected": rest.get("expected")}
    return {"kind": kind, "text": text, "nodes": sorted(nodes), "suspects": sorted(suspects), **about}


def population(results: t.Sequence[Result], profile: Json, nodes: int, material: float) -> list[Json]:
    """Return why no node may be judged by these speeds: the middle of the fleet itself is off, or most miss a floor.

    Each node counts by its best test: in a small fleet one bad node spoils most of them.
    """
    known = [(names, outcome) for names, outcome in results if outcome.kind != "infra" and not outcome.hard]
    everybody = {name for names, dummy in known for name in names}
    if len(everybody) < _LEAST:
        return []
    found = []
    for wanted, limit in _references(profile, nodes, material):
        values = list(_best(known, wanted).values())
        median = statistics.median(values) if values else None
        if median is not None and median < limit["value"] * (1 - limit["slack"]):
            text = f"the fleet's median of {wanted} is {median:g}, expected is {limit['value']:g} ({limit['source']})"
            found.append(finding("population", text, metric=wanted, value=median, expected=limit["value"]))
    slow = everybody - {name for names, outcome in known if outcome.kind == "ok" for name in names}
    if not found and len(slow) > _MAJORITY * len(everybody):
        text = (
            f"{len(slow)} of {len(everybody)} nodes missed a floor in every test over {nodes} node{'s' * (nodes > 1)}"
        )
        found.append(finding("population", text, value=len(slow), expected=0))
    return found


def _best(known: t.Sequence[Result], wanted: str) -> dict[str, float]:
    best: dict[str, float] = {}
    for names, outcome in known:
        for name in names if wanted in outcome.numbers else ():
            best[name] = max(outcome.numbers[wanted], best.get(name, 0.0))
    return best


def _references(profile: Json, nodes: int, material: float) -> t.Iterator[tuple[str, Json]]:
    """Yield what the middle of a fleet should reach: references with a slack, floors as they are."""
    for name, slack in (("reference", material), ("expect", 0.0)):
        items = profile.get(name)
        for item in items if isinstance(items, list) else []:
            value = finite(item.get("value"))
            if value is None or item.get("op", ">=") not in (">=", ">") or not _fits(item, nodes):
                continue
            source = str(item.get("source") or "the profile")
            yield key(str(item.get("check")), item), {"value": value, "slack": slack, "source": source}


def _fits(item: Json, nodes: int) -> bool:
    exact, least = item.get("nodes"), item.get("min_nodes")
    return nodes == (exact or nodes) and nodes >= (least or 1) and bool(exact or least or nodes == 1)


def drains(judged: t.Sequence[Node], planned: int, options: Options) -> tuple[list[str], list[Json]]:
    """Return who may be drained in one go, and the findings where that is too much to be chance."""
    if len(judged) > max(1, options.max_share * planned):
        share = f"{len(judged)} of {planned} nodes were judged bad, more than {options.max_share:.0%}"
        text = f"{share}: look for a common cause before any is drained"
        return [], [finding("common_cause", text, [n.name for n in judged], value=len(judged))]
    found, allowed = [], []
    leaves: dict[str, list[str]] = {}
    for node in judged:
        leaves.setdefault(node.leaf, []).append(node.name)
    for leaf, names in sorted(leaves.items()):
        if leaf and len(names) >= options.max_leaf:
            text = f"{len(names)} nodes of leaf {leaf} were judged bad: look at the leaf before any is drained"
            found.append(finding("common_cause", text, names, [leaf], value=len(names)))
        else:
            allowed += names
    return sorted(allowed), found
