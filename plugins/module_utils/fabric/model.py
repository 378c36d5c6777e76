# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where nodes are in a network, the switches of a tree that say so, and topology.conf and topology.yaml of them. Pure.

The files are written as topology/tree and topology/block read them.
"""

from __future__ import annotations

import hashlib
import json
import re
import typing as t
from collections import Counter

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import release

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


# topology.conf and topology.yaml.


PLUGINS = ("tree", "block")
# BlockSizes; 23.11 had BlockLevels, which mean something else.
_BLOCK_SINCE = (24, 5)
# Before, slurmctld did not start with a block that is smaller than the base size.
_SMALL_SINCE = (25, 5)
# Several topologies, in topology.yaml, with which topology.conf and TopologyPlugin are ignored.
_YAML_SINCE = (25, 5)
_KEYS = ("name", "plugin", "default", "switches", "block_sizes")
_TOPOLOGY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def conf_lines(
    switches: t.Sequence[t.Mapping[str, t.Any]], plugin: str, block_sizes: t.Sequence[t.Any], version: str
) -> list[str]:
    """Return the lines of topology.conf; ``version`` is Slurm's, empty where it is not known."""
    if plugin not in PLUGINS:
        raise FabricError(f"slurm_topology_plugin is {plugin!r}: {' or '.join(PLUGINS)} is needed")
    if plugin == "tree":
        if block_sizes:
            raise FabricError("slurm_topology_block_sizes is for slurm_topology_plugin block")
        return [f"SwitchName={switch['name']} {_members(switch)}" for switch in switches]
    if version and release(version) < _BLOCK_SINCE:
        raise FabricError(f"topology/block needs Slurm 24.05, and this is {version}: set slurm_topology_plugin to tree")
    blocks = _in_order(switches)
    if not blocks:
        raise FabricError("topology/block needs switches with nodes, and there is none")
    small = bool(version) and release(version) >= _SMALL_SINCE
    sizes = _sizes(block_sizes, blocks, small) or [_base(blocks, small)]
    lines = [f"BlockName={block['name']} Nodes={compress(block['nodes'])}" for block in blocks]
    return [*lines, f"BlockSizes={','.join(map(str, sizes))}"]


def yaml_lines(
    topologies: t.Sequence[t.Mapping[str, t.Any]], switches: t.Sequence[t.Mapping[str, t.Any]], version: str
) -> list[str]:
    """Return the lines of topology.yaml; ``switches`` are those of each topology that has none of its own."""
    if version and release(version) < _YAML_SINCE:
        raise FabricError(
            f"slurm_topologies need topology.yaml of Slurm 25.05, and this is {version}: give slurm_topology_plugin"
        )
    for problem in topology_problems(topologies):
        raise FabricError(problem)
    first = next((entry["name"] for entry in topologies if entry.get("default")), topologies[0]["name"])
    lines = []
    for entry in topologies:
        # Quoted as JSON, which is YAML: a switch that is called 12 or "no" stays a text.
        lines += [f"- topology: {json.dumps(entry['name'])}"]
        lines += [f"  cluster_default: {json.dumps(entry['name'] == first)}"]
        lines += _yaml_body(entry, entry.get("switches") or switches)
    return lines


def topology_problems(topologies: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Say what is wrong with the entries by themselves."""
    names = [str(entry.get("name")) for entry in topologies]
    problems = []
    for name in sorted({name for name in names if names.count(name) > 1 or not _TOPOLOGY.fullmatch(name)}):
        problems.append(
            f"slurm_topologies ({name}): the name is not usable; accepted: letters, digits, _ . -, each one's own"
        )
    for entry in topologies:
        label, plugin = f"slurm_topologies ({entry.get('name')})", entry.get("plugin", "tree")
        if plugin not in (*PLUGINS, "flat"):
            problems.append(f"{label}: plugin is {plugin!r}; accepted: tree, block or flat")
        if entry.get("block_sizes") and plugin != "block":
            problems.append(f"{label}: has block_sizes with plugin {plugin}; accepted: with plugin block")
        if entry.get("switches") and plugin == "flat":
            problems.append(f"{label}: has switches with plugin flat; accepted: with plugin tree or block")
        strange = sorted(set(entry) - set(_KEYS))
        if strange:
            problems.append(f"{label}: has {', '.join(strange)}; accepted: {', '.join(_KEYS)}")
    if sum(bool(entry.get("default")) for entry in topologies) > 1:
        problems.append("slurm_topologies: several are the default; accepted: one or none")
    return problems


def _yaml_body(entry: t.Mapping[str, t.Any], switches: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    plugin = entry.get("plugin", "tree")
    if plugin == "flat":
        return ["  flat: true"]
    if not switches:
        raise FabricError(f"slurm_topologies ({entry['name']}): there are no switches, here and in slurm_topology")
    if plugin == "tree":
        lines = ["  tree:", "    switches:"]
        for switch in switches:
            key, members = ("children", "switches") if "switches" in switch else ("nodes", "nodes")
            lines += _yaml_item("switch", switch["name"], key, compress(switch[members]))
        return lines
    blocks = _in_order(switches)
    sizes = _sizes(entry.get("block_sizes") or [], blocks, True) or [_base(blocks, True)]
    lines = ["  block:", "    block_sizes:", *[f"    - {size}" for size in sizes], "    blocks:"]
    for block in blocks:
        lines += _yaml_item("block", block["name"], "nodes", compress(block["nodes"]))
    return lines


def _yaml_item(kind: str, name: object, key: str, members: str) -> list[str]:
    return [f"    - {kind}: {json.dumps(str(name))}", f"      {key}: {json.dumps(members)}"]


def _base(blocks: t.Sequence[t.Mapping[str, t.Any]], small: bool) -> int:
    """Return the size of the smallest block: without BlockSizes that of the first one would count."""
    whole = [block for block in blocks if block["name"] != UNPLACED] if small else []
    return min(len(block["nodes"]) for block in whole or blocks)


def _members(switch: t.Mapping[str, t.Any]) -> str:
    key = "switches" if "switches" in switch else "nodes"
    return f"{key.capitalize()}={compress(switch[key])}"


def _in_order(switches: t.Sequence[t.Mapping[str, t.Any]]) -> list[t.Mapping[str, t.Any]]:
    """Return the leaves as they lie beside each other: Slurm makes larger blocks of neighbours in the file."""
    known = {switch["name"]: switch for switch in switches}
    below = {child for switch in switches for child in switch.get("switches") or []}
    tree: list[t.Mapping[str, t.Any]] = []
    tops = [str(switch["name"]) for switch in switches if switch["name"] not in below]
    waiting = sorted(tops, key=lambda name: name == UNPLACED)[::-1]
    while waiting:
        switch = known[waiting.pop()]
        if "switches" in switch:
            waiting.extend(reversed([str(name) for name in switch["switches"]]))
        else:
            tree.append(switch)
    return tree


def _sizes(given: t.Sequence[t.Any], blocks: t.Sequence[t.Mapping[str, t.Any]], small_too: bool) -> list[int]:
    """Check the sizes as slurmctld does, which does not start otherwise."""
    try:
        sizes = [int(size) for size in given]
    except (TypeError, ValueError) as exc:
        raise FabricError(f"slurm_topology_block_sizes is {list(given)!r}: numbers of nodes are needed") from exc
    for size, other in zip(sizes, sizes[1:]):
        times = other // size if size > 0 else 0
        if other <= size or other % size or times & (times - 1):
            raise FabricError(
                f"slurm_topology_block_sizes has {other} after {size}: 2, 4, 8 .. times as many are needed"
            )
    if sizes and sizes[0] < 1:
        raise FabricError(f"slurm_topology_block_sizes begins with {sizes[0]}: 1 or more are needed")
    small = [block["name"] for block in blocks if sizes and len(block["nodes"]) < sizes[0]]
    if small and not small_too:
        raise FabricError(
            f"slurm_topology_block_sizes begins with {sizes[0]}, and {', '.join(small)} has fewer nodes: before 25.05"
            " slurmctld does not start like that. Take the size of the smallest block"
        )
    return sizes
