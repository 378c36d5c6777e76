# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""topology.conf of switches, as topology/tree and topology/block read it. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.model import (
    UNPLACED,
    FabricError,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import release

PLUGINS = ("tree", "block")
# BlockSizes; 23.11 had BlockLevels, which mean something else.
_BLOCK_SINCE = (24, 5)
# Before, slurmctld did not start with a block that is smaller than the base size.
_SMALL_SINCE = (25, 5)


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
    found: list[t.Mapping[str, t.Any]] = []
    tops = [str(switch["name"]) for switch in switches if switch["name"] not in below]
    waiting = sorted(tops, key=lambda name: name == UNPLACED)[::-1]
    while waiting:
        switch = known[waiting.pop()]
        if "switches" in switch:
            waiting.extend(reversed([str(name) for name in switch["switches"]]))
        else:
            found.append(switch)
    return found


def _sizes(given: t.Sequence[t.Any], blocks: t.Sequence[t.Mapping[str, t.Any]], small_too: bool) -> list[int]:
    """Check the sizes as slurmctld does, which does not start otherwise."""
    try:
        sizes = [int(size) for size in given]
    except (TypeError, ValueError) as exc:
        raise FabricError(f"slurm_topology_block_sizes is {list(given)!r}: numbers of nodes are needed") from exc
    for one, other in zip(sizes, sizes[1:]):
        times = other // one if one > 0 else 0
        if other <= one or other % one or times & (times - 1):
            raise FabricError(
                f"slurm_topology_block_sizes has {other} after {one}: 2, 4, 8 .. times as many are needed"
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
