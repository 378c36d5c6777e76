# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a cluster's nodes are in service, and with how many of them that can be proved now. Pure; private."""

from __future__ import annotations

import typing as t

Record = t.Mapping[str, t.Any]
_SWITCHED = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"}
ENOUGH = 2  # one job over two nodes reaches slurmd, munge, accounting and the network between nodes


class SlurmService(t.NamedTuple):
    """Whether every node is usable or busy, those that are not, and on how many nodes a job would start at once."""

    settled: bool
    broken: list[str]
    proof: int


def service(nodes: t.Iterable[Record], partitions: t.Iterable[Record]) -> SlurmService:
    """Judge what SlurmReader read.

    A node that somebody drained is out of service on purpose and does not count, nor does one that power saving has
    switched off. Any other has to be usable. The default partition, where jobs go, then has idle nodes for a proof, or
    jobs keep it busy and prove it better.
    """
    counted = [node for node in nodes if not node["drained"] and not _switched(node)]
    broken = [_say(node) for node in counted if not node["available"]]
    home = {name for part in partitions if part["default"] for name in part["nodes"]}
    usable = [node for node in counted if node["available"] and node["name"] in home]
    idle = [node for node in usable if node["state"] == "IDLE"]
    wanted = min(ENOUGH, sum(node["name"] in home for node in counted))
    provable = len(idle) >= wanted
    return SlurmService(not broken and (provable or len(usable) > len(idle)), broken, provable * wanted)


def _switched(node: Record) -> bool:
    """Whether power saving has the node switched off, or is about to switch it."""
    return bool(_SWITCHED & set(node["flags"]))


def _say(node: Record) -> str:
    state = "+".join([node["state"], *node["flags"]])
    return f"{node['name']} is {state}{': ' if node['reason'] else ''}{node['reason'] or ''}"
