# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters and their nodes: what is imported, started, added and ended."""

from __future__ import annotations

import re
import typing as t
import uuid

from . import records, template
from .limits import ALIVE, buckets, machine, types
from .store import Json, Store, UserError

# Making and changing clusters


def make(store: Store, name: str, text: str, section: str | None, given: Json, force: bool) -> Json:
    """Import a cluster, or re-import it over what runs; node arrays that are new wait for the next start."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise UserError(f"Invalid cluster name {name!r}")
    old = store.state["clusters"].get(name)
    if old and not force:
        raise UserError(f"Cluster {name} already exists. Use --force to overwrite it")
    sections = template.parse(text)
    top = template.cluster(sections, section)
    values, unknown = template.parameters(sections, given)
    for one in unknown:
        store.ignored(f"import_cluster {name}: parameter {one} is not declared")
    found = template.nodes(top, values)
    arrays = {
        key: {**one, "activated": bool(old and old["arrays"].get(key, {}).get("activated"))}
        for key, one in found.items()
        if one["kind"] == "nodearray"
    }
    heads = {key: one for key, one in found.items() if one["kind"] == "node"}
    account = _account(store, heads, arrays)
    cluster = old or {"name": name, "nodes": {}, "target": "Off", "capacity_failures": {}, "failed": ""}
    cluster.update(
        text=text, section=top.name, parameters=values, given=given, arrays=arrays, heads=heads, account=account
    )
    for key, one in heads.items():
        if key not in cluster["nodes"]:
            cluster["nodes"][key] = _node(store, cluster, key, key, one, types(one)[:1] or [""], fixed=True)
    store.state["clusters"][name] = cluster
    return cluster


def _account(store: Store, heads: Json, arrays: Json) -> str:
    named = {str(one["attributes"].get("Credentials") or "") for one in [*heads.values(), *arrays.values()]} - {""}
    for one in sorted(named):
        if one not in store.state["accounts"]:
            raise UserError(f"Could not find credentials {one!r}")
    return sorted(named)[0] if named else ""


def _node(
    store: Store, cluster: Json, name: str, source: str, definition: Json, kinds: list[str], fixed: bool, **more: t.Any
) -> Json:
    about = machine(kinds[0])
    return {
        "NodeId": uuid.uuid5(uuid.NAMESPACE_URL, f"{cluster['name']}/{name}/{store.number()}").hex,
        "Name": name,
        "Template": source,
        "ClusterName": cluster["name"],
        "MachineType": kinds[0],
        "Status": "Off",
        "State": "Off",
        "TargetState": "Terminated",
        "StatusMessage": "",
        "CoreCount": about.get("vcpuCount", 1),
        "Memory": about.get("memory", 1),
        "PlacementGroupId": None,
        "KeepAlive": definition["attributes"].get("KeepAlive") is True,
        "Interruptible": definition["attributes"].get("Interruptible") is True,
        "Configuration": definition["configuration"],
        "Fixed": fixed,
        "_since": store.now(),
        "_boots": 0,
        **more,
    }


def start(store: Store, name: str) -> Json:
    cluster = get(store, name)
    for array in cluster["arrays"].values():
        array["activated"] = True
    cluster["target"], cluster["failed"] = "Started", ""
    for node in cluster["nodes"].values():
        if node["Fixed"]:
            turn_on(store, node)
    for key, array in cluster["arrays"].items():
        wanted = int(array["attributes"].get("InitialCount") or 0)
        there = sum(node["Template"] == key for node in cluster["nodes"].values())
        if wanted > there:
            add(store, cluster, {"nodearray": key, "count": wanted - there}, str(uuid.uuid4()))
    return cluster


def terminate(store: Store, name: str) -> Json:
    cluster = get(store, name)
    cluster["target"] = "Terminated"
    for node in cluster["nodes"].values():
        turn_off(store, node)
    return cluster


def delete(store: Store, name: str, force: bool) -> None:
    cluster = get(store, name)
    if not force and any(node["Status"] not in {"Off", "Terminated"} for node in cluster["nodes"].values()):
        raise UserError(f"Cluster {name} is not terminated, it cannot be deleted")
    del store.state["clusters"][name]


def get(store: Store, name: str) -> Json:
    if name not in store.state["clusters"]:
        raise UserError(f"Cluster not found: {name}")
    found: Json = store.state["clusters"][name]
    return found


def state(cluster: Json) -> str:
    heads = [node for node in cluster["nodes"].values() if node["Fixed"]]
    statuses = {node["Status"] for node in heads}
    if cluster["target"] == "Started":
        if "Failed" in statuses:
            return "Failed"
        return "Started" if statuses <= {"Ready"} else "Starting"
    if cluster["target"] == "Terminated":
        alive = [n for n in cluster["nodes"].values() if n["Status"] not in {"Off", "Terminated"}]
        return "Terminating" if alive else "Terminated"
    return "Off"


# Nodes


def add(store: Store, cluster: Json, wanted: Json, operation: str) -> tuple[int, str]:
    """Add what quota leaves of a set; return how many, and why not all."""
    name = wanted["nodearray"]
    array = cluster["arrays"][name]
    kind = (wanted.get("definition") or {}).get("machineType") or types(array)[0]
    bucket = next(one for one in buckets(store, cluster, name) if one["definition"]["machineType"] == kind)
    count = min(wanted["count"], bucket["availableCount"])
    attributes = wanted.get("nodeAttributes") or {}
    for dummy in range(count):
        title = _title(cluster, name, wanted)
        node = _node(
            store, cluster, title, name, array, [kind], fixed=bool(attributes.get("Fixed")), _operation=operation
        )
        node.update({key: value for key, value in attributes.items() if key != "Fixed"})
        node["PlacementGroupId"] = wanted.get("placementGroupId")
        cluster["nodes"][title] = node
        turn_on(store, node)
    if count == wanted["count"]:
        return count, ""
    why = bucket["invalidReason"] or "the limit of the node array, of the family or of the region is reached"
    return count, f"Only {count} of {wanted['count']} nodes could be added: {why}"


def _title(cluster: Json, array: str, wanted: Json) -> str:
    form = wanted.get("nameFormat") or f"{array}-%d"
    number = int(wanted.get("nameOffset") or 1)
    while form % number in cluster["nodes"]:
        number += 1
    return str(form % number)


def turn_on(store: Store, node: Json) -> None:
    if node["TargetState"] == "Started" and node["Status"] in ALIVE:
        return
    node.update(TargetState="Started", Status="Acquiring", StatusMessage="", _since=store.now())


def turn_off(store: Store, node: Json, deallocate: bool = False) -> None:
    target = "Deallocated" if deallocate else "Terminated"
    if node["TargetState"] == target or (node["Status"] == "Off" and not deallocate):
        return
    node.update(TargetState=target, Status="Terminating", StatusMessage="", _since=store.now())


def reboot(store: Store, node: Json) -> None:
    if node["Status"] not in {"Ready", "Failed"}:
        raise UserError(f"Node {node['Name']} is {node['Status']}")
    node.update(TargetState="Started", Status="Preparing", StatusMessage="", _since=store.now())


def select(cluster: Json, wanted: Json) -> list[Json]:
    """The union of what the filter object names."""
    test = records.condition(wanted["filter"]) if wanted.get("filter") else lambda dummy: False
    lists = {"ids": "NodeId", "names": "Name", "hostnames": "Hostname", "ip_addresses": "PrivateIp"}
    return [
        node
        for node in cluster["nodes"].values()
        if test(node) or any(node.get(field) in (wanted.get(key) or []) for key, field in lists.items())
    ]
