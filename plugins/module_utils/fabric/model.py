# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where nodes are in a network, and the switches of a tree that say so. Pure, private."""

from __future__ import annotations

import hashlib
import re
import typing as t
from collections import Counter

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress

# From the top of the network down to what the node itself is on.
Place = t.Tuple[str, ...]
Switch = t.Dict[str, t.Any]
LONGEST = 63  # "cannot be longer than 64 characters", and slurmctld refuses 64 itself
TOP, UNPLACED = "top", "unplaced"
_STRANGE = re.compile(r"[^A-Za-z0-9_.-]+")


class FabricError(ValueError):
    """The network cannot be read; the text is fit for the user."""


class Placement(t.NamedTuple):
    """Where each node is, and what a person has to know about it."""

    places: dict[str, Place]
    findings: list[str]


def natural(name: str) -> list[tuple[int, str]]:
    """Order leaf2 before leaf10."""
    pieces = t.cast("list[str]", re.findall(r"[0-9]+|[^0-9]+", name))
    return [(int(piece), piece) if piece[0] in "0123456789" else (-1, piece) for piece in pieces]


def plain(name: str) -> str:
    """Return a name as Slurm's configuration can hold it, which a hostlist expression has to keep as it is."""
    text = _STRANGE.sub("-", name).strip("-") or "switch"
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def switches(places: t.Mapping[str, Place], joined: bool) -> list[Switch]:
    """Return the switches of the tree, leaves first and every child before its parent, always in the same order.

    A switch of Slurm has either nodes or switches: nodes that are on one with switches below get one of their own.
    """
    below: dict[Place, set[Place]] = {}
    nodes: dict[Place, list[str]] = {}
    for name, place in places.items():
        nodes.setdefault(place, []).append(name)
        for depth in range(1, len(place)):
            below.setdefault(place[:depth], set()).add(place[: depth + 1])
    for place in [place for place in nodes if place in below]:
        own = (*place, f"{place[-1]}-nodes")
        below[place].add(own)
        nodes[own] = nodes.pop(place)
    tops = {place[:1] for place in nodes}
    if joined and len(tops) > 1:
        below[()] = tops
    names = _names([*nodes, *below])
    order = sorted(names, key=lambda place: (-len(place), [natural(part) for part in place]))
    heights = _heights(below)
    order.sort(key=lambda place: heights.get(place, 0))
    return [
        {"name": names[place], "nodes": sorted(nodes[place], key=natural)}
        if place in nodes
        else {"name": names[place], "switches": sorted((names[child] for child in below[place]), key=natural)}
        for place in order
    ]


def _heights(below: t.Mapping[Place, set[Place]]) -> dict[Place, int]:
    heights: dict[Place, int] = {}
    for place in sorted(below, key=len, reverse=True):
        heights[place] = 1 + max(heights.get(child, 0) for child in below[place])
    return heights


def _names(places: t.Sequence[Place]) -> dict[Place, str]:
    """Name each switch by its own part, with as many of those above as it takes to tell it from all others."""
    names = {place: plain(place[-1]) if place else TOP for place in places}
    for parts in range(2, 1 + max((len(place) for place in places), default=0)):
        twice = {name for name, count in Counter(names.values()).items() if count > 1}
        names.update({place: plain("-".join(place[-parts:])) for place in places if place and names[place] in twice})
    same = sorted(name for name, count in Counter(names.values()).items() if count > 1)
    if same:
        raise FabricError(f"two different switches would have the same name in Slurm: {', '.join(same)}")
    return names


def without_common(places: t.Mapping[str, Place]) -> dict[str, Place]:
    """Take away what is above all nodes alike, but for one switch."""
    given = list(places.values())
    while given and all(len(place) > 2 and place[:2] == given[0][:2] for place in given):
        given = [place[1:] for place in given]
    return dict(zip(places, given))


def leaves(tree: t.Sequence[Switch]) -> dict[str, dict[str, str]]:
    """Return leaf and pod of each node, as a certification has them."""
    parent = {child: switch["name"] for switch in tree for child in switch.get("switches") or []}
    return {
        node: {"leaf": switch["name"], "pod": parent.get(switch["name"], "")}
        for switch in tree
        for node in switch.get("nodes") or []
    }


def settle(
    placement: Placement, nodes: t.Sequence[str], before: t.Mapping[str, str], joined: bool
) -> tuple[list[Switch], list[str], list[str]]:
    """Return the switches with every node on one, what a person has to know, and the nodes that were not found.

    slurmctld starts with a node that is on no switch, and never gives it to a job together with others. So a node that
    was not found, for it may just be off, stays on the leaf that it was on (``before``), else it is named as unplaced.
    """
    places = {name: placement.places[name] for name in nodes if name in placement.places}
    missing = [name for name in nodes if name not in places]
    findings = list(placement.findings)
    tree = switches(places, joined)
    leaf = {switch["name"]: places[switch["nodes"][0]] for switch in tree if "nodes" in switch}
    kept = {name: leaf[before[name]] for name in missing if before.get(name) in leaf}
    if kept:
        findings.append(
            f"{compress(sorted(kept, key=natural))}: not found in the network now; kept on the leaf where topology.conf"
            " has had it"
        )
    lost = [name for name in missing if name not in kept]
    if lost:
        way = "under the common top" if joined else "apart from all others, so that no job gets it together with them"
        findings.append(
            f"{compress(sorted(lost, key=natural))}: not found in the network; put on switch {UNPLACED}, {way}. See"
            " that it is up and linked and that it goes by this name there, then draw the topology again"
        )
    places.update(kept)
    places.update(dict.fromkeys(lost, (UNPLACED,)))
    return switches(places, joined), findings, missing
