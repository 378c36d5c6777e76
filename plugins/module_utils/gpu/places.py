# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of where things are: GPUs on NUMA nodes, processes on CPUs. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.inventory import nodes_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.seen import (
    Finding,
    Options,
    Process,
    Seen,
    listing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import cpus as cpulist
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    Address,
    GpuPlace,
    TopologyError,
    address,
)

_NOWHERE: Address = (-1, 0, 0, 0)


def topology(seen: Seen, options: Options) -> Finding:
    """Compare NUMA nodes with the profile's, by PCI domain; what the node itself says is no expectation."""
    places = seen.topology.gpus
    if not places:
        return Finding(verdict="error", reason=seen.problem("query") or "no GPU has a place")
    samples = [_sample(seen, place) for place in places]
    if not options.places:
        asked = options.expects("gpu_topology")
        reason = "the profile's topology was not given" if asked else ""
        return Finding(verdict="error" if asked else "unjudged", reason=reason, samples=samples)
    nodes = nodes_of(options.places, [where for where in map(_where, places) if where])
    unknown = [place.index for place in places if place.numa_node is None]
    vague = [place.index for place in places if nodes.get(_where(place) or _NOWHERE, 0) is None]
    wrong = {
        place.index: f"{listing([place.index])} ({place.bus_id}) is on NUMA node {place.numa_node}, expected {node}"
        for place, node in ((place, _node(nodes, place)) for place in places)
        if place.numa_node is not None and place.index not in vague and node != str(place.numa_node)
    }
    metrics = [metric("misplaced", None if (unknown or vague) and not wrong else len(wrong), "GPUs")]
    if wrong:
        return Finding(metrics, "fail", "; ".join(wrong.values()), "config", list(wrong), samples)
    if unknown:
        reason = f"the NUMA node of {listing(unknown)} is unknown"
        return Finding(metrics, "error", reason, gpus=unknown, samples=samples)
    if vague:
        reason = f"which GPUs of the profile {listing(vague)} are cannot be told: another number shares the PCI domain"
        return Finding(metrics, "error", reason, samples=samples)
    return Finding(metrics, "pass", samples=samples)


def _where(place: GpuPlace) -> Address | None:
    return address(place.bus_id)


def _node(nodes: t.Mapping[Address, int | None], place: GpuPlace) -> str:
    where = _where(place)
    return str(nodes.get(where, "no GPU in this PCI domain")) if where else "another bus id"


def _sample(seen: Seen, place: GpuPlace) -> Json:
    matrix = seen.reading.matrix
    row = next((gpu for gpu in matrix.gpus if gpu.index == place.index), None) if matrix else None
    return {
        "gpu": place.index,
        "bus_id": place.bus_id,
        "numa_node": place.numa_node,
        "cpus": place.cpus,
        "nics": list(place.nics),
        "links": dict(row.links) if row else {},
    }


def pinning(seen: Seen, options: Options) -> Finding:
    """A process belongs on the CPUs of its GPU; one that uses several, on the CPUs of all of them."""
    if not seen.processes:
        problem = seen.problem("query")
        return Finding(verdict="error" if problem else "skipped", reason=problem or "no process uses a GPU")
    visible = [process for process in seen.processes if process.cpus is not None]
    if not visible:
        reason = f"none of the {len(seen.processes)} processes that use a GPU can be seen from here"
        return Finding(verdict="skipped", reason=reason)
    samples = [_pinned(seen, process) for process in visible]
    unknown = [row for row in samples if row["inside"] is None]
    outside = [row for row in samples if row["inside"] is False]
    gpus = [gpu for row in (outside or unknown) for gpu in row["gpus"]]
    metrics = [metric("misplaced", None if unknown and not outside else len(outside), "processes")]
    if unknown and not outside:
        return Finding(metrics, "error", f"the CPUs of {listing(gpus)} are unknown", gpus=gpus, samples=samples)
    told = [f"pid {row['pid']} may run on {row['cpus']}, {listing(row['gpus'])} on {row['wanted']}" for row in outside]
    return Finding(metrics, reason="; ".join(told), blame="config", gpus=gpus, samples=samples)


def _pinned(seen: Seen, process: Process) -> Json:
    places = {place.index: place.cpus for place in seen.topology.gpus}
    known = all(places.get(index) for index in process.gpus)
    wanted = {cpu for index in process.gpus for cpu in cpulist.parse(places.get(index, ""))}
    try:
        inside = set(cpulist.parse(process.cpus or "")) <= wanted if known and process.cpus else None
    except TopologyError:
        inside = None
    return {
        "pid": process.pid,
        "gpus": list(process.gpus),
        "cpus": process.cpus,
        "wanted": cpulist.write(wanted),
        "inside": inside,
    }
