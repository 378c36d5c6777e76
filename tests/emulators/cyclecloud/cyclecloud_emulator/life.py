# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time: machines are found or not, boot or not, go; lockers come."""

from __future__ import annotations

import re
import uuid

from . import azure, instances
from .store import Json, Store


def tick(store: Store) -> None:
    """Bring every node to where it is by now, however much time passed at once."""
    for cluster in store.state["clusters"].values():
        for node in list(cluster["nodes"].values()):
            while _step(store, cluster, node):
                store.dirty = True
    _lockers(store)


def _step(store: Store, cluster: Json, node: Json) -> bool:
    settings, age = store.state["settings"], store.now() - node["_since"]
    if node["Status"] == "Acquiring" and age >= settings["acquire"]:
        return _acquired(store, cluster, node)
    if node["Status"] == "Preparing":
        return _prepared(store, cluster, node, age)
    if node["Status"] == "Terminating" and age >= settings["terminate"]:
        return _gone(store, cluster, node)
    node["State"] = node["Status"]
    return False


def _moved(node: Json, status: str, seconds: float, message: str = "") -> bool:
    node.update(Status=status, State=status, StatusMessage=message, _since=node["_since"] + seconds)
    return True


def _acquired(store: Store, cluster: Json, node: Json) -> bool:
    settings = store.state["settings"]
    short, kind = settings["no_capacity"], node["MachineType"]
    if kind in short and (not isinstance(short, dict) or _running(store, kind) >= int(short[kind] or 0)):
        when = node["_since"] + settings["acquire"]
        cluster["capacity_failures"][f"{node['Template']}/{kind}"] = when
        text = f"AllocationFailed: Azure does not have enough capacity for {kind} in this region"
        return _moved(node, "Failed", settings["acquire"], text)
    problem = azure.made(store, cluster, node)
    if problem:
        return _moved(node, "Failed", settings["acquire"], problem)
    number = store.number()
    first = ".".join(settings["network"].split(".")[:2])
    made = node.pop("_address", "") or f"{first}.{number // 250}.{number % 250 + 4}"
    node["Hostname"] = _hostname(cluster, node)
    known = settings["machines"].get(node["Name"]) or instances.address(store, node["Hostname"])
    node["PrivateIp"] = known or made
    node["InstanceId"] = uuid.uuid5(uuid.NAMESPACE_URL, f"{node['NodeId']}/{number}").hex
    problem = instances.created(store, cluster, node)
    if problem:
        return _moved(node, "Failed", settings["acquire"], problem)
    return _moved(node, "Preparing", settings["acquire"], "Installing software")


def _running(store: Store, kind: str) -> int:
    every = [node for cluster in store.state["clusters"].values() for node in cluster["nodes"].values()]
    return sum(node["MachineType"] == kind and node["Status"] in {"Preparing", "Ready"} for node in every)


def _hostname(cluster: Json, node: Json) -> str:
    # Where its settings say so, the Slurm project gives a node its CycleCloud name.
    own = node["Fixed"] or (node["Configuration"].get("slurm") or {}).get("use_nodename_as_hostname") is True
    text = node["Name"] if own else f"{cluster['name']}-{node['Name']}"
    return re.sub(r"[^A-Za-z0-9-]", "-", text).lower()


def _matches(patterns: list[str], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


def _missing_spec(store: Store, cluster: Json, node: Json) -> str:
    """A cluster-init spec of the user whose project no locker has."""
    definition = {**cluster["heads"], **cluster["arrays"]}.get(node["Template"], {"attributes": {}, "specs": []})
    own = store.state["settings"]["projects"]
    for spec in definition["specs"]:
        project, dummy, version = spec.partition(":")
        name, version = project.rpartition("/")[2], version.partition(":")[2]
        offered = [*own.get(name, []), *(one["Version"] for one in store.find("Cloud.Project", Name=name))]
        if not offered or (version and version not in offered):
            return str(spec)
    for name in ("ClusterInitSpecs", "AdditionalClusterInitSpecs"):
        specs = definition["attributes"].get(name)
        for spec in specs if isinstance(specs, dict) else {}:
            project, version = spec.partition(":")[0], spec.rpartition(":")[2]
            if not store.find("Cloud.Project", Name=project, Version=version):
                return str(spec)
    return ""


def _prepared(store: Store, cluster: Json, node: Json, age: float) -> bool:
    settings = store.state["settings"]
    if _matches(settings["boot_failure"], node["Name"]):
        if age < settings["boot_timeout"]:
            return False
        return _moved(node, "Failed", settings["boot_timeout"], "Timeout awaiting system boot-up")
    if age < settings["prepare"]:
        return False
    if _matches(settings["init_failure"], node["Name"]):
        return _moved(node, "Failed", settings["prepare"], "Software Installation Failure: cluster-init failed")
    missing = _missing_spec(store, cluster, node)
    if missing:
        text = f"Software Installation Failure: no locker has the cluster-init spec {missing}"
        return _moved(node, "Failed", settings["prepare"], text)
    if instances.configured(store):
        report = node.get("_report")
        if report is None:  # its machine still boots
            return False
        if report["problem"]:
            return _moved(node, "Failed", settings["prepare"], f"Software Installation Failure: {report['problem']}")
    node["_boots"] += 1
    return _moved(node, "Ready", settings["prepare"])


def _gone(store: Store, cluster: Json, node: Json) -> bool:
    there = node.pop("InstanceId", None)
    if there:
        instances.deleted(store, cluster, node)
    for field in ("PrivateIp", "Hostname"):
        node.pop(field, None)
    if there:
        azure.gone(store, cluster, node)
    if node["TargetState"] == "Deallocated":
        return _moved(node, "Deallocated", 0)
    if not node["Fixed"]:
        cluster["nodes"].pop(node["Name"])
        return False
    return _moved(node, "Off", 0)


def _lockers(store: Store) -> None:
    settings = store.state["settings"]
    for locker in store.find("Cloud.Locker"):
        if locker["State"] == "Creating" and store.now() - locker["_since"] >= settings["locker"]:
            failed = locker.pop("_failure", "") or settings["locker_failure"]
            locker.update(State="Failed" if failed else "Created", Message=failed)
            locker["_since"] += settings["locker"]
            store.dirty = True
