# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast files may be sent to one storage account, and by how many connections: no I/O, private.

The account's limit is shared by every copy that runs, on all nodes. 8 % of it stay free: a cap is an average that
moments exceed, and what a service counts is more than the files' bytes. The 20 Gb/s, 8 files and 96 cores of
"Performance considerations for large scale deep learning training on Azure NDv4 (A100) series" (techcommunity, 2021-08)
give its 2300 Mb/s and 10 connections. A node's connections are at most nine tenths of its cores, as its programs go on.
"""

from __future__ import annotations

import math
import typing as t

LIMIT_SHARE = 92  # percent
CORE_SHARE = 90  # percent
LEAST_MBPS = 100


class PlanError(ValueError):
    """These files cannot be sent at once without being throttled; the text is fit for the user."""


class Plan(t.NamedTuple):
    """What each copy gets; `total_mbps` is what all of them may reach together."""

    cap_mbps: int
    concurrency: int
    copies_per_node: int
    nodes: int
    total_mbps: int


def plan(
    ingress_gbps: float,
    files_per_node: int,
    nodes: int,
    cores: int,
    *,
    node_gbps: float | None = None,
    cap_mbps: int | None = None,
    least_mbps: int = LEAST_MBPS,
) -> Plan:
    """Divide what an account takes among copies that run at the same time, one for each file."""
    _check(ingress_gbps, node_gbps, cap_mbps)
    for name, count in (("files", files_per_node), ("nodes", nodes), ("cores", cores), ("least", least_mbps)):
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise PlanError(f"{name} is {count!r}; a whole number from 1 is needed")
    budget = math.floor(ingress_gbps * 1000) * LIMIT_SHARE // 100
    most = budget // (files_per_node * nodes)
    if node_gbps is not None:
        most = min(most, math.floor(node_gbps * 1000) * LIMIT_SHARE // 100 // files_per_node)
    cap = most if cap_mbps is None else cap_mbps
    if cap > most:
        raise PlanError(_over(cap, most, files_per_node, nodes, ingress_gbps, node_gbps))
    if cap < least_mbps:
        raise PlanError(_slow(cap, files_per_node, nodes, budget, least_mbps, ingress_gbps))
    concurrency = max(1, cores * CORE_SHARE // 100 // files_per_node)
    return Plan(cap, concurrency, files_per_node, nodes, cap * files_per_node * nodes)


def _check(ingress: float, node: float | None, cap: int | None) -> None:
    for name, value in (("limit", ingress), ("node_limit", node)):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise PlanError(f"{name} is {value!r}; Gb/s above 0 are needed")
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int) or cap < 1):
        raise PlanError(f"cap is {cap!r}; whole Mb/s from 1 are needed")


def _over(cap: int, most: int, files: int, nodes: int, ingress: float, node: float | None) -> str:
    beside = "" if node is None else f", and each node sends at most {node:g} Gb/s"
    return (
        f"{nodes} nodes x {files} files x {cap} Mb/s are {nodes * files * cap} Mb/s, and the account takes"
        f" {ingress:g} Gb/s{beside}: it would throttle. At most {most} Mb/s can be the cap of each file"
    )


def _slow(cap: int, files: int, nodes: int, budget: int, least: int, ingress: float) -> str:
    at_once = budget // least
    return (
        f"{nodes} nodes x {files} files share {ingress:g} Gb/s, which leaves each {cap} Mb/s, less than {least}: it"
        f" would throttle. Send at most {at_once} files at a time (fewer files of each node at once, or from fewer"
        " nodes), divide them among several accounts, or have Azure support raise the account's ingress limit"
    )
