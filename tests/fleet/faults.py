# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a fleet: a list drawn from a seed, and what one run of a tool shows of it. Pure.

The emulated tools read the list, tests compare with it; whatever looks for faults never does.
"""

from __future__ import annotations

import hashlib
import random
import typing as t

Json = t.Dict[str, t.Any]

# Constant faults of single nodes, each found by another test.
SLOW_GPU, SLOW_RAIL, WRONG, HANG, DEAD, HUNG = "slow_gpu", "slow_rail", "wrong_results", "hang", "dead", "hung"
# Faults that a run shows by chance, or by who takes part.
FLAKY, LINK, LEAF, PARTNERS = "flaky", "bad_link", "slow_leaf", "bad_partners"
KINDS = (SLOW_GPU, SLOW_RAIL, WRONG, HANG, DEAD, HUNG, FLAKY, LINK, LEAF, PARTNERS)
NODES_OF = {LINK: 2, PARTNERS: 2}  # every other kind but a leaf has one
# Of slurmd and not of a tool: the fleet itself brings them about.
OF_SLURMD = (DEAD, HUNG)
FACTOR = 0.75  # of what is slow: below every floor of a profile, far from dead
CHANCE = 1 / 3


def leaves(nodes: t.Sequence[str], size: int) -> dict[str, list[str]]:
    """Switches and their nodes, in order."""
    return {f"leaf{at // size + 1}": list(nodes[at : at + size]) for at in range(0, len(nodes), size)}


def draw(seed: int, kinds: t.Iterable[str], nodes: t.Sequence[str], leaf: int) -> list[Json]:
    """One fault of every kind asked for, each on nodes that no other one has; a leaf, which takes many, is first."""
    chance, switches = random.Random(seed), leaves(nodes, leaf)
    free = list(nodes)
    found: list[Json] = []
    for kind in sorted(kinds, key=lambda one: one != LEAF):
        if kind == LEAF:
            name = chance.choice([one for one, members in switches.items() if set(members) <= set(free)])
            taken = switches[name]
        elif kind == PARTNERS:  # of one leaf: the first round may put them together
            taken = chance.sample([one for one in next(_rooms(chance, switches, free)) if one in free], 2)
        else:
            taken = chance.sample(free, NODES_OF.get(kind, 1))
        free = [one for one in free if one not in taken]
        found.append({"kind": kind, "nodes": sorted(taken), "seed": seed})
    return found


def _rooms(chance: random.Random, switches: dict[str, list[str]], free: list[str]) -> t.Iterator[list[str]]:
    """Leaves in which two nodes are sound, in any order."""
    able = [members for members in switches.values() if len(set(members) & set(free)) > 1]
    return iter(chance.sample(able, len(able)))


def effects(found: t.Iterable[Json], host: str, members: t.Sequence[str], run: str, rails: t.Sequence[str]) -> Json:
    """What is wrong with one host while these members run something together, as the emulated tools are told it."""
    shown: Json = {}
    for fault in found:
        if host in fault["nodes"] and _shows(fault, members, run):
            shown.update(_effect(fault, rails))
        elif fault["kind"] == HANG and set(fault["nodes"]) & set(members):
            # A collective that one of its ranks never leaves hangs all of them.
            shown.update(_effect(fault, rails))
    return shown


def _shows(fault: Json, members: t.Sequence[str], run: str) -> bool:
    inside = set(fault["nodes"]) & set(members)
    if fault["kind"] == FLAKY:
        return len(set(members)) > 1 and _lot(fault, run) < CHANCE
    if fault["kind"] == LINK:
        return len(inside) > 1
    if fault["kind"] == LEAF:  # its uplinks: what stays inside is as fast as anywhere
        return 0 < len(inside) < len(set(members))
    return True


def _lot(fault: Json, run: str) -> float:
    """A number from 0 to 1 that one run of one fault always draws."""
    text = f"{fault['seed']}/{fault['nodes']}/{run}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32


def _effect(fault: Json, rails: t.Sequence[str]) -> Json:
    kind = fault["kind"]
    if kind == SLOW_GPU:
        return {"slow_gpu": {"0": FACTOR}}
    if kind == WRONG:
        return {"wrong_results": ["all_reduce"]}
    if kind == HANG:
        return {"hung": ["all_reduce_perf"]}
    if kind in OF_SLURMD:
        return {}
    # The first rail alone, or all of them.
    return {"ib_slow": dict.fromkeys(rails[:1] if kind == SLOW_RAIL else rails, FACTOR)}


def culprits(found: t.Iterable[Json]) -> dict[str, list[str]]:
    """Kinds of faults by the nodes that a certification should name: a link or a leaf is no node's fault."""
    named: dict[str, list[str]] = {}
    for fault in found:
        if fault["kind"] not in (LINK, LEAF):
            for node in fault["nodes"]:
                named.setdefault(node, []).append(fault["kind"])
    return named
