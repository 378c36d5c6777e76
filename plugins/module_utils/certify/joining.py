# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes join a cluster that is certified, and beside which proven ones they are certified. Pure, private."""

from __future__ import annotations

import math
import typing as t
from collections import Counter

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import slurm as certify_slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.nodes import REASON_PREFIX

REASON = f"{REASON_PREFIX}joining:not certified beside proven nodes yet"
_OURS = f"{REASON_PREFIX}joining:"
# Of two nodes nobody can say which is at fault; of three the slow one is convicted.
LEAST = 2
# Fewer nodes are not compared with each other, and a rail that is weak in one of them is seen by limits alone.
_COMPARED = 5
# For so many newcomers one more partner: a suspect needs partners of its own that never failed.
_PER_PARTNER = 4
# What Slurm says of a node that has not answered: nobody's decision.
SILENT = "Not responding"
_GONE = {"DOWN", "UNKNOWN"}


class Joining(t.NamedTuple):
    """Nodes to hold, nodes that can be certified now with their partners, and what a person has to know."""

    hold: list[str]
    ready: list[str]
    partners: list[str]
    waiting: list[str]
    findings: list[str]


def proven(certificates: t.Sequence[t.Any]) -> dict[str, bool]:
    """Return of each node that was tested whether its last certificate, the newest last, proves it beside others.

    One that only tested nodes by themselves proves nothing about the network, and takes nothing back.
    """
    known: dict[str, bool] = {}
    for certificate in certificates:
        nodes = certificate.get("nodes") if isinstance(certificate, dict) else None
        for name, verdict in nodes.items() if isinstance(nodes, dict) else []:
            status, tests = (verdict.get(key) for key in ("status", "tests")) if isinstance(verdict, dict) else ("", 0)
            if status == "cleared" and isinstance(tests, int) and tests > 0:
                known[name] = True
            elif status in ("watched", "drained"):
                known[name] = False
    return known


def renewed(certificates: t.Sequence[t.Any], now: t.Mapping[str, str]) -> set[str]:
    """Return the nodes that are another installation now than the last certificate that tested them tells of.

    What is not known, of then or of now, makes no node another one.
    """
    last: dict[str, str] = {}
    for certificate in certificates:
        for name in proven([certificate]):
            installation = certificate["nodes"][name].get("installation")
            if isinstance(installation, str) and installation:
                last[name] = installation
    return {name for name, installation in now.items() if installation and last.get(name, installation) != installation}


def plan(
    nodes: t.Sequence[Json],
    known: t.Mapping[str, bool],
    where: t.Mapping[str, t.Mapping[str, str]],
    named: t.Collection[str],
    count: int,
    again: t.Collection[str] = (),
) -> Joining:
    """Return what becomes of nodes that no certificate tells of, or of those that are named.

    What certificates say of nodes that were installed anew (``again``) holds no more. As long as no node is proven
    nobody joins: then all nodes are certified beside each other.
    """
    known = {name: value for name, value in known.items() if name not in again}
    if not any(known.values()):
        text = "no node is proven yet: certify.yml certifies all of them beside each other"
        return Joining([], [], [], sorted(named), [text] if named else [])
    newcomers = [node for node in nodes if (node["name"] in named if named else _joins(node, known))]
    hold, held = [], []
    findings = [_renewal(node["name"]) for node in newcomers if node["name"] in again]
    for node in newcomers:
        state, name = certify_slurm.state(node), node["name"]
        if node["drained"] and node["reason"].startswith(_OURS):
            held.append(node)
        elif node["drained"] and node["reason"].startswith(REASON_PREFIX):
            advice = "mend that, then have repair_node.yml certify it beside proven nodes (node_repair_partners)"
            findings.append(f"{name}: is drained for {node['reason']}: {advice}")
        elif node["drained"] or (node["reason"] and node["reason"] != SILENT):
            who = node["reason_user"] or "somebody"
            findings.append(f"{name}: left as it is, its reason is of {who}: {node['reason'] or 'none'}")
        elif state == "busy" and not named:
            since = "not certified since it was installed anew" if name in again else "never certified"
            findings.append(f"{name}: was {since} and runs jobs; name it to have it drained and certified")
        else:
            hold.append(name)
            held.append(node)
    ready = [node["name"] for node in held if not _away(node)]
    # Whoever names a node wants to know that it was left as it is.
    waiting = [node["name"] for node in (newcomers if named else held) if node["name"] not in ready]
    findings += [f"{node['name']}: is held, and {_away(node)}" for node in held if _away(node)]
    partners = choose(nodes, known, where, ready, set(hold) | {node["name"] for node in newcomers}, count)
    if ready and len(partners) < LEAST:
        findings.append(
            f"{compress(ready, sort=True)} cannot be certified now: {LEAST} proven nodes have to be idle, and"
            f" {len(partners)} are. They stay held; run this again when jobs have ended"
        )
        ready, waiting, partners = [], [*ready, *waiting], []
    elif 0 < len(ready) + len(partners) < _COMPARED:
        findings.append(
            f"{len(partners)} proven nodes are idle: so few are judged by the limits of the machine type alone, and not"
            " compared with each other"
        )
    return Joining(hold, ready, partners, waiting, findings)


def _renewal(name: str) -> str:
    return f"{name}: was installed anew, or is another machine, since it was certified: its machine ID is another one"


def _joins(node: Json, known: t.Mapping[str, bool]) -> bool:
    """Say whether a node is new: nothing was ever measured of it, or it is held for that.

    Nodes that Slurm creates by itself are excepted, as a job waits for them.
    """
    if node["drained"] and node["reason"].startswith(_OURS):
        return True
    return node["name"] not in known and not {"CLOUD", "DYNAMIC_NORM", "FUTURE"} & {*node["flags"], node["state"]}


def _away(node: Json) -> str:
    """Say why a held node cannot be certified now."""
    if certify_slurm.mute(node) or node["state"] in _GONE:
        return "its slurmd does not answer ('hpcai-node-ready' there says what keeps it)"
    if node["state"] in ("ALLOCATED", "MIXED") or "COMPLETING" in node["flags"]:
        return "its jobs have not ended yet"
    return ""


def choose(
    nodes: t.Sequence[Json],
    known: t.Mapping[str, bool],
    where: t.Mapping[str, t.Mapping[str, str]],
    ready: t.Sequence[str],
    never: t.Container[str],
    count: int,
) -> list[str]:
    """Return few proven idle nodes: of the newcomers' own leaves first, shared out as the newcomers are."""
    free = [
        node["name"]
        for node in nodes
        if known.get(node["name"]) and node["name"] not in never and certify_slurm.state(node) == "idle"
    ]
    least = max(count, LEAST, _COMPARED - len(ready))
    wanted = max(least, math.ceil(len(ready) / _PER_PARTNER)) if ready else 0
    members = {key: Counter(where.get(name, {}).get(key, "") for name in ready) for key in ("leaf", "pod")}
    chosen: list[str] = []
    taken: Counter[str] = Counter()
    while free and len(chosen) < wanted:

        def near(name: str) -> tuple[bool, float, bool, str]:
            leaf, pod = (where.get(name, {}).get(key, "") for key in ("leaf", "pod"))
            beside = members["leaf"][leaf] if leaf else 0
            return (not beside, taken[leaf] / beside if beside else 0.0, not (pod and members["pod"][pod]), name)

        best = min(free, key=near)
        free.remove(best)
        chosen.append(best)
        taken[where.get(best, {}).get("leaf", "")] += 1
    return chosen
