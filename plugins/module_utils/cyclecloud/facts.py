# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What CycleCloud's status says about nodes and limits, in our words. No I/O; private to this collection."""

from __future__ import annotations

import typing as t

Json = t.Dict[str, t.Any]
# Nodes of Slurm templates whose configuration a user may not see.
ROLES = {"scheduler": "scheduler", "scheduler-ha": "scheduler", "login": "login"}
GONE = {"Off", "Terminated", "Deallocated"}


def nodes(status: Json) -> list[Json]:
    """Every node of `/status?nodes=true`, in the order of names."""
    arrays = {one["name"]: one for one in status.get("nodearrays") or []}
    found = [node(one, arrays.get(one.get("Template") or "")) for one in status.get("nodes") or []]
    return sorted(found, key=lambda one: t.cast(str, one["name"]))


def node(record: Json, array: Json | None = None) -> Json:
    """One node; `array` is its node array in the same status, which knows the GPUs of a machine type."""
    return {
        "id": record.get("NodeId"),
        "name": record.get("Name"),
        "nodearray": record.get("Template"),
        "role": _role(record, array),
        "state": record.get("Status") or record.get("State"),
        "target_state": record.get("TargetState"),
        "message": record.get("StatusMessage") or "",
        "machine_type": record.get("MachineType"),
        "placement_group": record.get("PlacementGroupId"),
        "hostname": record.get("Hostname"),
        "address": record.get("PrivateIp"),
        "instance_id": record.get("InstanceId"),
        "cores": record.get("CoreCount"),
        "gpus": _gpus(record.get("MachineType"), array),
        "spot": bool(record.get("Interruptible")),
        "keep_alive": bool(record.get("KeepAlive")),
    }


def _role(record: Json, array: Json | None) -> str:
    for source in (record, (array or {}).get("nodearray") or {}):
        slurm = (source.get("Configuration") or {}).get("slurm")
        if isinstance(slurm, dict) and slurm.get("role"):
            return str(slurm["role"])
    return ROLES.get(str(record.get("Template")), "execute" if array else "")


def _gpus(machine_type: str | None, array: Json | None) -> int | None:
    for bucket in (array or {}).get("buckets") or []:
        if (bucket.get("definition") or {}).get("machineType") == machine_type:
            count = (bucket.get("virtualMachine") or {}).get("gpuCount")
            return int(count) if count is not None else None
    return None


def arrays(status: Json) -> dict[str, list[Json]]:
    """The machine types of every node array, with how many nodes can still be had and what limits them."""
    found = {}
    for one in status.get("nodearrays") or []:
        spot = (one.get("nodearray") or {}).get("Interruptible") is True
        found[one["name"]] = [_type(one, bucket, spot) for bucket in one.get("buckets") or []]
    return found


def _type(array: Json, bucket: Json, spot: bool) -> Json:
    machine = bucket.get("virtualMachine") or {}
    available, limit = available_now(array, bucket, spot)
    failed = bucket.get("lastCapacityFailure")
    return {
        "machine_type": (bucket.get("definition") or {}).get("machineType"),
        "valid": bucket.get("valid") is not False,
        "invalid_reason": bucket.get("invalidReason") or "",
        "spot": spot,
        "cores": machine.get("vcpuCount"),
        "gpus": machine.get("gpuCount"),
        "infiniband": machine.get("infiniband"),
        "active": bucket.get("activeCount") or 0,
        "available": available,
        "limit": limit,
        "max": maximum(array, bucket, spot),
        "capacity_failed_seconds_ago": failed if failed is not None and failed >= 0 else None,
    }


def _cores(bucket: Json) -> int:
    return int((bucket.get("virtualMachine") or {}).get("vcpuCount") or 1)


def maximum(array: Json, bucket: Json, spot: bool) -> int:
    """How many nodes there can be at most: the lowest of all limits. A spot node counts only to the region's."""
    names = (
        ["maxCount", "regionalQuotaCount"]
        if spot
        else ["maxCount", "quotaCount", "familyQuotaCount", "regionalQuotaCount"]
    )
    limits = [bucket[name] for name in names if bucket.get(name) is not None]
    if array.get("maxCount") is not None:
        limits.append(array["maxCount"])
    return max(0, int(min(limits))) if limits else 0


def available_now(array: Json, bucket: Json, spot: bool) -> tuple[int, str]:
    """How many nodes can be added, and by what that is limited."""
    if bucket.get("valid") is False:
        return 0, bucket.get("invalidReason") or "not valid"
    cores = _cores(bucket)
    limits = {"bucket": bucket.get("availableCount")}
    if array.get("maxCount") is not None:
        active = sum(one.get("activeCount") or 0 for one in array.get("buckets") or [])
        limits["node array"] = array["maxCount"] - active
    for name in ("regional",) if spot else ("family", "regional"):
        quota, used = bucket.get(f"{name}QuotaCoreCount"), bucket.get(f"{name}ConsumedCoreCount")
        if quota is not None and used is not None:
            limits[f"{name} quota"] = (quota - used) // cores
    known = {name: max(0, int(value)) for name, value in limits.items() if value is not None}
    if not known:
        return 0, "unknown"
    # The bucket knows of all others, so that it is named only where no other is as low.
    name = min(known, key=lambda one: (known[one], one == "bucket"))
    return known[name], name


def gpu_problems(status: Json, wanted: dict[str, int]) -> list[str]:
    """What is wrong with the GPUs that CycleCloud sees: without them Slurm gets no gres.conf."""
    found = arrays(status)
    problems = []
    for name, count in wanted.items():
        if name not in found:
            problems.append(f"there is no node array {name}, but {', '.join(found) or 'none'}")
        for one in found.get(name, []):
            if one["gpus"] != count:
                problems.append(
                    f"CycleCloud sees {one['gpus']} GPUs in {one['machine_type']} of node array {name}, not {count}:"
                    " upgrade CycleCloud (8.7.0 or later, 8.8.0 for GB200), or set the GPU count in the template"
                )
    return problems


def ready(status: Json) -> tuple[bool, list[str]]:
    """Whether the schedulers of a started cluster are ready, and what failed."""
    schedulers = [one for one in nodes(status) if one["role"] == "scheduler"]
    failed = [f"{one['name']} is Failed: {one['message']}" for one in schedulers if one["state"] == "Failed"]
    started = str(status.get("targetState")).lower() == "started"
    return started and bool(schedulers) and all(one["state"] == "Ready" for one in schedulers), failed


def cluster(status: Json) -> Json:
    """The whole cluster, as RETURN of the module cyclecloud_cluster_info says."""
    every = nodes(status)
    done, failed = ready(status)
    return {
        "state": status.get("state"),
        "target_state": status.get("targetState"),
        "ready": done,
        "failed_nodes": failed,
        "schedulers": [one for one in every if one["role"] == "scheduler"],
        "login": [one for one in every if one["role"] == "login"],
        "node_arrays": arrays(status),
    }
