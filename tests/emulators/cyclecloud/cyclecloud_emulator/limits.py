# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What CycleCloud reports of machine types, quota and capacity."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

from .store import Json, Store

CATALOG: Json = json.loads((Path(__file__).parent / "catalog.json").read_text())
ALIVE = {"Acquiring", "Preparing", "Ready"}


def types(array: Json) -> list[str]:
    value = array["attributes"].get("MachineType") or ""
    found = value if isinstance(value, list) else re.split(r"\s*,\s*", str(value))
    return [one for one in found if one]


def machine(name: str) -> Json:
    return CATALOG["machine_types"].get(name) or {}


# Virtual seconds between two types, and until one is worked up from what Azure said.
STEP, WORKED = 1.0, 10.0


def come(store: Store, account: Json, name: str) -> float:
    """Return when Azure's word on a type comes; what is worked up of it comes later."""
    kicked = store.state.get("types_kicked", 0)
    usual = account["_since"] + store.state["settings"]["machine_types"]
    begin = min(kicked, usual) if kicked > account["_since"] else usual
    return float(begin + STEP * list(CATALOG["machine_types"]).index(name))


def known(store: Store, cluster: Json, kind: str) -> bool:
    """Whether the type is in both tables; a type that does not exist is said to be disabled, not awaited."""
    account = store.state["accounts"].get(cluster.get("account") or "")
    if account is None or kind not in CATALOG["machine_types"]:
        return True
    return come(store, account, kind) + WORKED <= store.now()


def quota(store: Store, name: str) -> Json:
    """Limit and use of a family, of 'regional' or of 'spot', in cores; the use counts every cluster's nodes."""
    given = store.state["settings"]["quota"].get(name, {})
    used = given.get("used", 0)
    for cluster in store.state["clusters"].values():
        for node in cluster["nodes"].values():
            if node["Status"] in ALIVE and _counts(node, name):
                used += node["CoreCount"]
    limit = given.get("limit", CATALOG["quota"].get(name, 0))
    return {"limit": limit, "used": used, "free": max(0, limit - used)}


def _counts(node: Json, name: str) -> bool:
    spot = bool(node.get("Interruptible"))
    if name == "spot":
        return spot
    return not spot if name == "regional" else not spot and machine(node["MachineType"]).get("family") == name


def buckets(store: Store, cluster: Json, name: str, with_nodes: bool = False) -> list[Json]:
    kinds = [kind for kind in types(cluster["arrays"][name]) if known(store, cluster, kind)]
    return [_bucket(store, cluster, name, kind, with_nodes) for kind in kinds]


def _bucket(store: Store, cluster: Json, name: str, kind: str, with_nodes: bool) -> Json:
    array, about = cluster["arrays"][name], machine(kind)
    cores = about.get("vcpuCount", 1)
    members = [n for n in cluster["nodes"].values() if n["Template"] == name and n["Status"] in ALIVE]
    active = [node for node in members if node["MachineType"] == kind]
    spot = array["attributes"].get("Interruptible") is True
    family = {"limit": 0, "used": 0, "free": 0} if spot else quota(store, about.get("family", ""))
    regional = quota(store, "spot" if spot else "regional")
    most = array_limit(array, cores)
    free = (regional["free"] if spot else min(family["free"], regional["free"])) // cores
    valid, reason = bool(about) and array.get("activated", False), "" if about else "DisabledMachineType"
    failed = cluster["capacity_failures"].get(f"{name}/{kind}")
    limit = (regional["limit"] if spot else min(family["limit"], regional["limit"])) // cores
    shown = {**about, "gpuCount": 0} if kind in store.state["settings"]["gpu_count_zero"] else about
    found = {
        "bucketId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{cluster['name']}/{name}/{kind}")),
        "definition": {"machineType": kind},
        "maxCount": min(most, limit),
        "maxCoreCount": min(most, limit) * cores,
        "activeCount": len(active),
        "activeCoreCount": len(active) * cores,
        "availableCount": max(0, min(most - len(members), free)) if valid else 0,
        "availableCoreCount": (max(0, min(most - len(members), free)) if valid else 0) * cores,
        "quotaCount": limit,
        "quotaCoreCount": limit * cores,
        "consumedCoreCount": len(active) * cores,
        "familyQuotaCount": family["limit"] // cores,
        "familyQuotaCoreCount": family["limit"],
        "familyConsumedCoreCount": family["used"],
        "regionalQuotaCount": regional["limit"] // cores,
        "regionalQuotaCoreCount": regional["limit"],
        "regionalConsumedCoreCount": regional["used"],
        "maxPlacementGroupSize": int(array["attributes"].get("Azure.MaxScalesetSize") or 40),
        "placementGroups": _placements(active),
        "valid": valid,
        "invalidReason": reason or ("" if valid else "NotActivated"),
        "lastCapacityFailure": store.now() - failed if failed else -1.0,
        "virtualMachine": {key: value for key, value in shown.items() if key != "family"},
    }
    return {**found, "activeNodes": [node["Name"] for node in active]} if with_nodes else found


def _placements(active: list[Json]) -> list[Json]:
    names = sorted({node["PlacementGroupId"] for node in active if node.get("PlacementGroupId")})
    counts = {name: sum(node.get("PlacementGroupId") == name for node in active) for name in names}
    return [{"name": name, "activeCount": count} for name, count in counts.items()]


def array_limit(array: Json, cores: int) -> int:
    attributes = array["attributes"]
    most = int(attributes.get("MaxCount") or attributes.get("maxcount") or 0) or 10**6
    by_cores = int(attributes.get("MaxCoreCount") or 0)
    return min(most, by_cores // cores) if by_cores else min(most, 10_000)
