# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster as the server tells of it: node arrays, what is ready, what is waited for, hosts."""

from __future__ import annotations

import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import (
    Cli,
    CliError,
    Json,
    LocalServer,
    folder,
    told,
)

# What CycleCloud's status says about nodes and limits, in our words. No I/O; private to this collection.


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


def array_types(status: Json) -> dict[str, list[Json]]:
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
    found = array_types(status)
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
        "node_arrays": array_types(status),
    }


# Is a cluster ready, does it fail, has CycleCloud seen its GPUs? Judged from what facts.py reads. Pure; private.


class Look(t.NamedTuple):
    """``failed`` are causes to stop for; ``waiting`` tells what is not there yet, empty when all is."""

    failed: list[str]
    waiting: list[str]
    scheduler: Json
    login: list[Json]


def look(status: Json, login_wanted: int) -> Look:
    """Judge scheduler and login nodes; compute nodes come and go by themselves."""
    alive = [one for one in nodes(status) if one["target_state"] != "Terminated"]
    heads = [one for one in alive if one["role"] == "scheduler"]
    login = [one for one in alive if one["role"] == "login"]
    mine = [*heads, *login]
    failed = [f"{one['name']} failed: {one['message'] or 'no cause given'}" for one in mine if one["state"] == "Failed"]
    waiting = [f"{one['name']} is {one['state']}" for one in mine if one["state"] != "Ready" or not address(one)]
    if not heads:
        waiting.append("there is no scheduler yet")
    if len(login) < login_wanted:
        waiting.append(f"{len(login)} of {login_wanted} login nodes are there")
    return Look(failed, waiting, heads[0] if heads else {}, login)


def address(node: t.Mapping[str, t.Any]) -> str:
    return str(node.get("address") or node.get("hostname") or "")


def place(node: t.Mapping[str, t.Any]) -> dict[str, str]:
    return {"name": str(node.get("name", "")), "address": address(node)}


def nodes_left(status: Json) -> list[str]:
    """Nodes that a terminated cluster still has."""
    return [f"{one['name']} is {one['state']}" for one in nodes(status) if one["state"] not in GONE]


def array_readiness(
    status: Json, wanted: t.Sequence[t.Mapping[str, t.Any]]
) -> tuple[dict[str, Json], list[str], list[str]]:
    """Return for every array what the server can make, faults, and warnings."""
    there = array_types(status)
    result: dict[str, Json] = {}
    warnings = []
    faults = gpu_problems(status, {one["name"]: int(one.get("gpus") or 0) for one in wanted if one.get("gpus")})
    for one in wanted:
        name, machine, most = one["name"], one["machine_type"], int(one["max_nodes"])
        seen = next((kind for kind in there.get(name, []) if kind["machine_type"] == machine), None)
        if seen is None:
            faults.append(f"{name}: CycleCloud has no {machine} in this region; is the size offered there?")
            seen = {"gpus": 0, "available": 0, "active": 0, "valid": True}
        can = int(seen["available"]) + int(seen["active"])
        gpus = int(seen["gpus"] or 0)
        result[name] = {"machine_type": machine, "max_nodes": most, "gpus_per_node": gpus, "available": can}
        if not seen["valid"]:
            warnings.append(f"{name}: not usable: {seen['invalid_reason']}")
        elif can < most:
            warnings.append(f"{name}: {can} of {most} nodes can be had, limited by {seen.get('limit') or 'the region'}")
    return result, faults, warnings


# Wait for a cluster of CycleCloud: for its nodes, for Slurm on the scheduler, for its end.


Seen = t.TypeVar("Seen")


class Waiter:
    """``wait`` has seconds for ready and slurm, and poll between two looks."""

    def __init__(self, server: LocalServer, name: str, wait: t.Mapping[str, t.Any]) -> None:
        self.server, self.name = server, name
        self.limits = {
            "ready": 2400.0,
            "slurm": 600.0,
            "poll": 10.0,
            **{key: float(value) for key, value in wait.items()},
        }

    def nodes(self, login_wanted: int, grace: float = 0) -> Look:
        """Wait until scheduler and login nodes are Ready; one that failed ends it, after a grace for a retry."""
        begin = time.monotonic()
        end = begin + self.limits["ready"]
        while True:
            seen = look(self.server.status(self.name), login_wanted)
            if seen.failed and time.monotonic() >= begin + grace:
                raise CliError(
                    f"{'; '.join(seen.failed)}. Look at the node's log in CycleCloud and correct the settings; the next"
                    " run tries the node again"
                )
            if not seen.waiting:
                return seen
            if time.monotonic() > end:
                raise CliError(
                    f"after {self.limits['ready']:g} s {'; '.join(seen.waiting)}. Look at its messages in CycleCloud:"
                    " quota, capacity, an image that does not boot, or port 9443 of the server closed for the subnet"
                )
            time.sleep(self.limits["poll"])

    def gone(self, limit: float) -> None:
        """Wait until a terminated cluster has no node left."""
        end = time.monotonic() + limit
        while True:
            left = nodes_left(self.server.status(self.name)) if self.server.exists(self.name) else []
            if not left:
                return
            if time.monotonic() > end:
                raise CliError(
                    f"{limit:g} s after it was terminated {'; '.join(left[:10])}: run this again, it goes on here"
                )
            time.sleep(self.limits["poll"])

    def deleted(self, limit: float) -> None:
        """Wait until the server does not know the cluster any more: that its command ended well does not say so."""
        end = time.monotonic() + limit
        while self.server.exists(self.name):
            if time.monotonic() > end:
                left = nodes_left(self.server.status(self.name))
                raise CliError(
                    f"{limit:g} s after 'delete_cluster {self.name}' ended without an error CycleCloud has the cluster"
                    f" still{', and ' + '; '.join(left[:10]) if left else ''}: look at its messages in CycleCloud, then"
                    " run this again"
                )
            time.sleep(self.limits["poll"])


class Scheduler:
    """The scheduler by SSH from the CycleCloud VM, with the key that CycleCloud made for its nodes."""

    def __init__(self, cli: Cli, want: Json, node: Json) -> None:
        self.node, self.want = node, want
        self.known = Path(want["state_dir"]) / "known_hosts"
        key = Path(cli.params["home"]) / ".ssh" / "cyclecloud.pem"
        # One file per node: an address that comes again belongs to another machine.
        hosts = self.known / str(node["id"] or node["name"])
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": "15",
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "accept-new",
            "UserKnownHostsFile": str(hosts),
        }
        flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        self.argv = [want["ssh"], "-i", str(key), *flags, f"cyclecloud@{address(node)}", "--"]

    def run(self, *words: str, timeout: float = 300) -> _process.Outcome:
        folder(self.known)
        return _process.run([*self.argv, *words], timeout)

    def await_slurm(self, limit: float, poll: float) -> None:
        """Wait until slurmctld answers; it starts after the node is Ready."""
        end = time.monotonic() + limit
        while True:
            done = self.run("scontrol", "ping", timeout=60)
            if not done.problem and " is UP" in done.out:
                return
            if time.monotonic() > end:
                raise CliError(
                    f"slurmctld on {self.node['name']} ({address(self.node)}) does not answer after {limit:g} s:"
                    f" {told(done)}. Port 22 from the server to the subnet must be open; see"
                    " 'systemctl status slurmctld' there"
                )
            time.sleep(poll)

    def scale(self) -> None:
        """Have Slurm know changed node arrays: azslurm writes azure.conf and gres.conf anew and restarts slurmctld."""
        done = self.run("sudo", "-i", "azslurm", "scale", timeout=600)
        if done.problem:
            raise CliError(
                f"'azslurm scale' failed on {self.node['name']} ({address(self.node)}): {told(done)}. Slurm does"
                " not know the changed node arrays yet; the next run tries again"
            )


# CycleCloud's nodes as inventory hosts. No I/O; private to this collection.


# A node says its host name itself, and ssh takes one that begins with a dash for an option.
_ADDRESS = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:_-]*")
# Field of a node -> variable.
VARIABLES = {
    "id": "cc_node_id",
    "nodearray": "cc_nodearray",
    "state": "cc_state",
    "target_state": "cc_target_state",
    "machine_type": "cc_machine_type",
    "placement_group": "cc_placement_group",
    "role": "cc_role",
    "gpus": "cc_gpu_count",
    "instance_id": "cc_instance_id",
    "hostname": "cc_hostname",
    "spot": "cc_spot",
}


class ClusterHost(t.NamedTuple):
    """One host; groups are names before Ansible's own rules for them. Remote is what the cluster says."""

    name: str
    remote: dict[str, t.Any]
    groups: list[str]


def to_hosts(nodes: list[Json], cluster: str, states: list[str], prefix: str) -> list[ClusterHost]:
    """Hosts of the nodes that are in one of the states, stay, and can be reached."""
    chosen = [
        node for node in nodes if node["state"] in states and node["target_state"] != "Terminated" and _address(node)
    ]
    return [ClusterHost(node["name"], _variables(node, cluster), _groups(node, cluster, prefix)) for node in chosen]


def _variables(node: Json, cluster: str) -> dict[str, t.Any]:
    found = {variable: node[field] for field, variable in VARIABLES.items()}
    return {**found, "cc_cluster": cluster, "ansible_host": _address(node)}


def _address(node: Json) -> str:
    found = str(node["address"] or node["hostname"] or "")
    return found if _ADDRESS.fullmatch(found) else ""


def _groups(node: Json, cluster: str, prefix: str) -> list[str]:
    found = [f"cluster_{cluster}", f"nodearray_{node['nodearray']}", f"state_{str(node['state']).lower()}"]
    found += [f"{kind}_{node[kind]}" for kind in ("role", "machine_type") if node[kind]]
    return [f"{prefix}_{name}" if prefix else name for name in found]
