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
    failure_text,
    folder,
    write,
)

# Nodes and limits in CycleCloud's status.


# Nodes of Slurm templates whose configuration a user may not see.
ROLES = {"scheduler": "scheduler", "scheduler-ha": "scheduler", "login": "login"}
GONE = {"Off", "Terminated", "Deallocated"}


def nodes(status: Json) -> list[Json]:
    """Return every node of `/status?nodes=true`, sorted by name."""
    arrays = {entry["name"]: entry for entry in status.get("nodearrays") or []}
    listed = [node(entry, arrays.get(entry.get("Template") or "")) for entry in status.get("nodes") or []]
    return sorted(listed, key=lambda entry: t.cast(str, entry["name"]))


def node(record: Json, array: Json | None = None) -> Json:
    """Return one node; `array` is its node array in the same status, which has the GPUs of a machine type."""
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
    """Return the machine types of every node array, with how many nodes can still be added and what limits them."""
    types = {}
    for array in status.get("nodearrays") or []:
        spot = (array.get("nodearray") or {}).get("Interruptible") is True
        types[array["name"]] = [_type(array, bucket, spot) for bucket in array.get("buckets") or []]
    return types


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
    """Return the maximum number of nodes: the lowest of all limits. A spot node counts only to the region's."""
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
    """Return how many nodes can be added, and the limit that decides it."""
    if bucket.get("valid") is False:
        return 0, bucket.get("invalidReason") or "not valid"
    cores = _cores(bucket)
    limits = {"bucket": bucket.get("availableCount")}
    if array.get("maxCount") is not None:
        active = sum(entry.get("activeCount") or 0 for entry in array.get("buckets") or [])
        limits["node array"] = array["maxCount"] - active
    for name in ("regional",) if spot else ("family", "regional"):
        quota, used = bucket.get(f"{name}QuotaCoreCount"), bucket.get(f"{name}ConsumedCoreCount")
        if quota is not None and used is not None:
            limits[f"{name} quota"] = (quota - used) // cores
    known = {name: max(0, int(value)) for name, value in limits.items() if value is not None}
    if not known:
        return 0, "unknown"
    # The bucket's count includes all other limits, so it is named only where no other is as low.
    name = min(known, key=lambda entry: (known[entry], entry == "bucket"))
    return known[name], name


def gpu_problems(status: Json, requested: dict[str, int]) -> list[str]:
    """Say where CycleCloud sees another number of GPUs than requested: without them Slurm gets no gres.conf."""
    types = array_types(status)
    problems = []
    for name, count in requested.items():
        if name not in types:
            problems.append(f"there is no node array {name}, but {', '.join(types) or 'none'}")
        for row in types.get(name, []):
            if row["gpus"] != count:
                problems.append(
                    f"CycleCloud sees {row['gpus']} GPUs in {row['machine_type']} of node array {name}, not {count}:"
                    " upgrade CycleCloud (8.7.0 or later, 8.8.0 for GB200), or set the GPU count in the template"
                )
    return problems


def ready(status: Json) -> tuple[bool, list[str]]:
    """Return whether the schedulers of a started cluster are ready, and those that failed."""
    schedulers = [node for node in nodes(status) if node["role"] == "scheduler"]
    failed = [f"{node['name']} is Failed: {node['message']}" for node in schedulers if node["state"] == "Failed"]
    started = str(status.get("targetState")).lower() == "started"
    return started and bool(schedulers) and all(node["state"] == "Ready" for node in schedulers), failed


def cluster(status: Json) -> Json:
    """Return the cluster in the form that cyclecloud_cluster_info documents."""
    all_nodes = nodes(status)
    done, failed = ready(status)
    return {
        "state": status.get("state"),
        "target_state": status.get("targetState"),
        "ready": done,
        "failed_nodes": failed,
        "schedulers": [node for node in all_nodes if node["role"] == "scheduler"],
        "login": [node for node in all_nodes if node["role"] == "login"],
        "node_arrays": array_types(status),
    }


# Whether a cluster is ready.


class HeadReadiness(t.NamedTuple):
    """``failed`` are causes to stop for; ``waiting`` says which nodes are not ready yet, empty when all are."""

    failed: list[str]
    waiting: list[str]
    scheduler: Json
    login: list[Json]


def head_readiness(status: Json, login_count: int) -> HeadReadiness:
    """Judge scheduler and login nodes; CycleCloud adds and removes compute nodes by itself."""
    alive = [node for node in nodes(status) if node["target_state"] != "Terminated"]
    heads = [node for node in alive if node["role"] == "scheduler"]
    login = [node for node in alive if node["role"] == "login"]
    head_nodes = [*heads, *login]
    failed = [
        f"{node['name']} failed: {node['message'] or 'no cause given'}"
        for node in head_nodes
        if node["state"] == "Failed"
    ]
    waiting = [
        f"{node['name']} is {node['state']}" for node in head_nodes if node["state"] != "Ready" or not address(node)
    ]
    if not heads:
        waiting.append("there is no scheduler yet")
    if len(login) < login_count:
        waiting.append(f"{len(login)} of {login_count} login nodes are there")
    return HeadReadiness(failed, waiting, heads[0] if heads else {}, login)


def address(node: t.Mapping[str, t.Any]) -> str:
    return str(node.get("address") or node.get("hostname") or "")


def name_and_address(node: t.Mapping[str, t.Any]) -> dict[str, str]:
    return {"name": str(node.get("name", "")), "address": address(node)}


def nodes_left(status: Json) -> list[str]:
    """Return the nodes that a terminated cluster still has."""
    return [f"{node['name']} is {node['state']}" for node in nodes(status) if node["state"] not in GONE]


def array_readiness(
    status: Json, arrays: t.Sequence[t.Mapping[str, t.Any]]
) -> tuple[dict[str, Json], list[str], list[str]]:
    """Return for every requested array what the server can make of it, faults, and warnings."""
    types = array_types(status)
    result: dict[str, Json] = {}
    warnings = []
    faults = gpu_problems(status, {array["name"]: int(array.get("gpus") or 0) for array in arrays if array.get("gpus")})
    for array in arrays:
        name, machine, requested = array["name"], array["machine_type"], int(array["max_nodes"])
        observed = next((kind for kind in types.get(name, []) if kind["machine_type"] == machine), None)
        if observed is None:
            faults.append(f"{name}: CycleCloud has no {machine} in this region; is the size offered there?")
            observed = {"gpus": 0, "available": 0, "active": 0, "valid": True}
        reachable = int(observed["available"]) + int(observed["active"])
        gpus = int(observed["gpus"] or 0)
        result[name] = {"machine_type": machine, "max_nodes": requested, "gpus_per_node": gpus, "available": reachable}
        if not observed["valid"]:
            warnings.append(f"{name}: not usable: {observed['invalid_reason']}")
        elif reachable < requested:
            limit = observed.get("limit") or "the region"
            warnings.append(f"{name}: {reachable} of {requested} nodes can be had, limited by {limit}")
    return result, faults, warnings


# Waiting: for nodes, for Slurm on the scheduler, for the end of a cluster.


class Waiter:
    """Waits with the limits of option ``wait`` in seconds; poll is the pause between two queries."""

    def __init__(self, server: LocalServer, name: str, wait: t.Mapping[str, t.Any]) -> None:
        self.server, self.name = server, name
        self.limits = {
            "ready": 2400.0,
            "slurm": 600.0,
            "machine_types": 1800.0,
            "arrays": 600.0,
            "poll": 10.0,
            **{key: float(value) for key, value in wait.items()},
        }

    def nodes(self, login_count: int, grace: float = 0) -> HeadReadiness:
        """Wait until scheduler and login nodes are Ready; one that failed ends it, after a grace for a retry."""
        begin = time.monotonic()
        end = begin + self.limits["ready"]
        while True:
            heads = head_readiness(self.server.status(self.name), login_count)
            if heads.failed and time.monotonic() >= begin + grace:
                raise CliError(
                    f"{'; '.join(heads.failed)}. Look at the node's log in CycleCloud and correct the settings; the"
                    " next run tries the node again"
                )
            if not heads.waiting:
                return heads
            if time.monotonic() > end:
                raise CliError(
                    f"after {self.limits['ready']:g} s {'; '.join(heads.waiting)}. Look at its messages in CycleCloud:"
                    " quota, capacity, an image that does not boot, or port 9443 of the server closed for the subnet"
                )
            time.sleep(self.limits["poll"])

    def arrays(self, requested: t.Sequence[t.Mapping[str, t.Any]]) -> tuple[dict[str, Json], list[str]]:
        """Wait until every array has its machine type with its GPUs, which CycleCloud fills in after the start."""
        end = time.monotonic() + self.limits["arrays"]
        while True:
            arrays, faults, warnings = array_readiness(self.server.status(self.name), requested)
            if not faults:
                return arrays, warnings
            if time.monotonic() > end:
                raise CliError(f"after {self.limits['arrays']:g} s of waiting for the node arrays: {'; '.join(faults)}")
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
        """Wait until the server does not know the cluster any more, which the end of its command does not prove."""
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


# The name of the scheduler in its known_hosts file, which is its alone: its address may become another machine's.
_ALIAS = "scheduler"


class Scheduler:
    """The scheduler by SSH from the CycleCloud VM, with the key that CycleCloud made for its nodes.

    CycleCloud hands out no host keys. Those that the caller names are the only ones that count; else the key of the
    first contact is kept, and nothing runs as root in the run that saw it first.
    """

    def __init__(self, cli: Cli, request: Json, node: Json) -> None:
        self.node, self.request = node, request
        self.known = Path(request["state_dir"]) / "known_hosts"
        self.keys: list[str] = list(request.get("scheduler_host_keys") or [])
        key = Path(cli.params["home"]) / ".ssh" / "cyclecloud.pem"
        # One file per node: an address that is used again belongs to another machine.
        name = str(node["id"] or node["name"])
        self.hosts = self.known / (f"{name}.given" if self.keys else name)
        self.trusted = bool(self.keys) or bool(self._kept())
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": "15",
            "GlobalKnownHostsFile": "/dev/null",
            "HashKnownHosts": "no",
            "HostKeyAlias": _ALIAS,
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "yes" if self.keys else "accept-new",
            "UserKnownHostsFile": str(self.hosts),
        }
        flags = [argument for name, value in options.items() for argument in ("-o", f"{name}={value}")]
        self.argv = [request["ssh"], "-i", str(key), *flags, f"cyclecloud@{address(node)}", "--"]

    def run(self, *argv: str, timeout: float = 300) -> _process.Outcome:
        folder(self.known)
        if self.keys:
            write(self.hosts, "".join(f"{_ALIAS} {key}\n" for key in self.keys))
        return _process.run([*self.argv, *argv], timeout)

    def first_key(self) -> str:
        """Return what to say of a key that was taken at the first contact, empty where none was."""
        if self.trusted:
            return ""
        return (
            f"the host key of {self.node['name']} ({address(self.node)}) was taken at the first contact:"
            f" {', '.join(self._kept()) or 'none'}. Compare it with what Azure's agent reads on the machine (module"
            " azure_host_keys_info, or az vm run-command invoke --command-id RunShellScript --scripts 'cat"
            " /etc/ssh/ssh_host_*_key.pub'), and give it as scheduler_host_keys"
        )

    def _stranger(self) -> str:
        source = "scheduler_host_keys" if self.keys else str(self.hosts)
        return (
            f"who answers SSH at {address(self.node)} has none of the host keys of {self.node['name']} by {source}"
            f" ({', '.join(self.keys or self._kept())}), so it was not asked anything: Host key verification failed."
            " Compare them with what Azure's agent reads on the machine (module azure_host_keys_info), and give that as"
            " scheduler_host_keys"
        )

    def _kept(self) -> list[str]:
        try:
            lines = self.hosts.read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        return [line[len(_ALIAS) + 1 :] for line in lines if line.startswith(f"{_ALIAS} ")]

    def await_slurm(self, limit: float, poll: float) -> None:
        """Wait until slurmctld answers; it starts after the node is Ready."""
        end = time.monotonic() + limit
        while True:
            done = self.run("scontrol", "ping", timeout=60)
            if not done.problem and " is UP" in done.out:
                return
            if "Host key verification failed" in done.err:  # which no waiting cures
                raise CliError(self._stranger())
            if time.monotonic() > end:
                raise CliError(
                    f"slurmctld on {self.node['name']} ({address(self.node)}) does not answer after {limit:g} s:"
                    f" {failure_text(done)}. Port 22 from the server to the subnet must be open; see"
                    " 'systemctl status slurmctld' there"
                )
            time.sleep(poll)

    def scale(self) -> None:
        """Make changed node arrays known to Slurm: azslurm writes azure.conf and gres.conf and restarts slurmctld."""
        untrusted = self.first_key()
        if untrusted:
            raise CliError(
                f"'azslurm scale' was not run as root on the scheduler: {untrusted}. Slurm does not know the changed"
                " node arrays yet; the next run takes the key that was kept, and goes on here"
            )
        done = self.run("sudo", "-i", "azslurm", "scale", timeout=600)
        if done.problem:
            raise CliError(
                f"'azslurm scale' failed on {self.node['name']} ({address(self.node)}): {failure_text(done)}. Slurm"
                " does not know the changed node arrays yet; the next run tries again"
            )


# CycleCloud's nodes as inventory hosts.


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
    """Return hosts for nodes in one of the states that have an address and are not being terminated."""
    chosen = [
        node for node in nodes if node["state"] in states and node["target_state"] != "Terminated" and _address(node)
    ]
    return [ClusterHost(node["name"], _variables(node, cluster), _groups(node, cluster, prefix)) for node in chosen]


def _variables(node: Json, cluster: str) -> dict[str, t.Any]:
    variables = {variable: node[field] for field, variable in VARIABLES.items()}
    return {**variables, "cc_cluster": cluster, "ansible_host": _address(node)}


def _address(node: Json) -> str:
    address = str(node["address"] or node["hostname"] or "")
    return address if _ADDRESS.fullmatch(address) else ""


def _groups(node: Json, cluster: str, prefix: str) -> list[str]:
    groups = [f"cluster_{cluster}", f"nodearray_{node['nodearray']}", f"state_{str(node['state']).lower()}"]
    groups += [f"{kind}_{node[kind]}" for kind in ("role", "machine_type") if node[kind]]
    return [f"{prefix}_{name}" if prefix else name for name in groups]
