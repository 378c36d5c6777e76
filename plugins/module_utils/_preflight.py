# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What in an inventory would end in a broken cluster, found before anything is changed. No I/O; private."""

from __future__ import annotations

import re
import typing as t

_CLUSTER = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?")
Inputs = t.Mapping[str, t.Any]


def findings(inputs: Inputs) -> list[str]:
    """Every problem at once; each text names the variable, its value, and what would be accepted."""
    checks = (_cluster, _groups, _shared_controller, _names, _systems, _partitions, _accounting, _settings)
    return [text for check in checks for text in check(inputs)]


def _say(variable: str, value: object, problem: str, accepted: str) -> str:
    return f"{variable} is {value!r}: {problem}; accepted: {accepted}"


def _twice(names: t.Iterable[t.Any]) -> list[t.Any]:
    seen: list[t.Any] = [name for name in names if name]
    return sorted({name for name in seen if seen.count(name) > 1})


def _cluster(inputs: Inputs) -> list[str]:
    name = inputs.get("cluster_name")
    if isinstance(name, str) and _CLUSTER.fullmatch(name):
        return []
    accepted = "1 to 40 lower-case letters, digits, - and _, beginning with a letter"
    return [_say("cluster_name", name, "Slurm and its database cannot use it", accepted)]


def _groups(inputs: Inputs) -> list[str]:
    found = []
    wants = (
        ("preflight_compute_hosts", "slurm_compute", "there is no node to run jobs"),
        ("preflight_controller_hosts", "slurm_controller", "there is no host for slurmctld"),
        ("preflight_database_hosts", "slurm_database", "there is no host for accounting"),
    )
    for variable, group, problem in wants:
        if not inputs.get(variable):
            found.append(_say(variable, [], problem, f"at least one host in inventory group {group}"))
    databases = list(inputs.get("preflight_database_hosts") or [])
    if len(databases) > 1:
        found.append(_say("preflight_database_hosts", databases, "slurmdbd runs on one host", "exactly one host"))
    return found


def _shared_controller(inputs: Inputs) -> list[str]:
    both = sorted(
        set(inputs.get("preflight_compute_hosts") or []) & set(inputs.get("preflight_controller_hosts") or [])
    )
    if not both or inputs.get("preflight_allow_shared_controller"):
        return []
    accepted = "separate hosts, or preflight_allow_shared_controller: true"
    return [_say("preflight_compute_hosts", both, "also the controller, which jobs would slow down", accepted)]


def _names(inputs: Inputs) -> list[str]:
    found = []
    computes = list(inputs.get("preflight_compute_hosts") or [])
    nodes: dict[str, list[str]] = {}
    addresses: dict[str, list[str]] = {}
    for host in computes:
        known = inputs.get("hosts", {}).get(host, {})
        nodes.setdefault(known.get("node") or host.split(".")[0], []).append(host)
        if known.get("address"):
            addresses.setdefault(known["address"], []).append(host)
    found += [_say("slurm_compute", h, "listed twice", "each host once") for h in _twice(computes)]
    for name, hosts in sorted(nodes.items()):
        if not _NODE.fullmatch(name):
            found.append(_say("node name", name, "not a host name", "letters, digits and -, not at either end"))
        if len(set(hosts)) > 1:
            problem = f"the node name of {', '.join(sorted(set(hosts)))}"
            found.append(_say("hostname", name, problem, "one name per machine (its host name, or slurm_node.name)"))
    for address, hosts in sorted(addresses.items()):
        if len(set(hosts)) > 1:
            problem = f"the address of {', '.join(sorted(set(hosts)))}"
            found.append(_say("ansible_host", address, problem, "one machine per inventory host"))
    return found


def _systems(inputs: Inputs) -> list[str]:
    """Hosts without facts are passed over: they are not part of this run."""
    table = inputs.get("preflight_supported_systems") or {}
    accepted = ", ".join(f"{name} {', '.join(map(str, releases))}" for name, releases in table.items())
    found = []
    for host, known in sorted(inputs.get("hosts", {}).items()):
        system, release = known.get("system"), str(known.get("release") or "")
        if system and release not in [str(item) for item in table.get(system, [])]:
            found.append(_say(f"operating system of {host}", f"{system} {release}", "not supported", accepted))
    return found


def _partitions(inputs: Inputs) -> list[str]:
    parts = list(inputs.get("slurm_partitions") or [])
    computes = set(inputs.get("preflight_compute_hosts") or [])
    computes |= {known.get("node") for known in inputs.get("hosts", {}).values()} | {"ALL"}
    found = [
        _say("slurm_partitions", name, "defined twice", "each name once")
        for name in _twice(p.get("name") for p in parts)
    ]
    defaults = [part.get("name") for part in parts if part.get("default")]
    if len(defaults) > 1:
        found.append(_say("slurm_partitions", defaults, "several are the default", "at most one with default: true"))
    for part in parts:
        nodes = part.get("nodes") or []
        names = [nodes] if isinstance(nodes, str) else list(nodes)
        label = f"slurm_partitions ({part.get('name')})"
        if not names:
            found.append(_say(label, names, "has no nodes", "hosts of the group slurm_compute, or ALL"))
        strange = sorted(name for name in names if name not in computes and "[" not in name and "," not in name)
        if strange:
            found.append(_say(label, strange, "not among the compute nodes", "hosts of the group slurm_compute"))
    return found


def _accounting(inputs: Inputs) -> list[str]:
    accounts = [item.get("name") for item in inputs.get("slurm_database_accounts") or []]
    found = [_say("slurm_database_accounts", name, "defined twice", "each name once") for name in _twice(accounts)]
    for item in [*(inputs.get("slurm_database_accounts") or []), *(inputs.get("slurm_database_qos") or [])]:
        name = str(item.get("name") or "")
        if name != name.lower() or not name:
            found.append(
                _say("slurm_database_accounts or _qos", name, "Slurm keeps such names in lower case", "lower case")
            )
    for user in inputs.get("slurm_database_users") or []:
        if user.get("account") not in [*accounts, "root"]:
            label = f"slurm_database_users ({user.get('name')}).account"
            found.append(_say(label, user.get("account"), "no such account", f"one of {', '.join(map(str, accounts))}"))
    return found


def _settings(inputs: Inputs) -> list[str]:
    found = []
    extra = inputs.get("slurm_extra_settings") or {}
    owned = {"nodename": "slurm_node", "partitionname": "slurm_partitions", "clustername": "cluster_name"}
    owned["slurmctldhost"] = "slurm_controller_hosts"
    for key in extra:
        if key.lower() in owned:
            found.append(_say("slurm_extra_settings", key, "contradicts what the roles write", owned[key.lower()]))
    headroom = inputs.get("slurm_memory_headroom", 0.05)
    if not isinstance(headroom, (int, float)) or isinstance(headroom, bool) or not 0 <= headroom < 1:
        found.append(_say("slurm_memory_headroom", headroom, "not a share of the memory", "a number from 0 to below 1"))
    for name in ("cluster_shared_dir", "cluster_scratch_dir"):
        path = inputs.get(name)
        if path and not str(path).startswith("/"):
            found.append(_say(name, path, "not an absolute path", "a path that begins with /"))
    controllers = list(inputs.get("preflight_controller_hosts") or [])
    if len(controllers) > 1 and not inputs.get("slurm_state_is_shared"):
        problem = "several controllers need a state directory that all of them see"
        accepted = "one host, or slurm_state_dir on shared storage and slurm_state_is_shared: true"
        found.append(_say("preflight_controller_hosts", controllers, problem, accepted))
    return found
