# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is every host there once, under one name, and of a kind that the roles know? No I/O; private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.node_lines import NodeError, node
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.wording import say, twice

_CLUSTER = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?")
_COUNTS = ("sockets", "cores_per_socket", "threads_per_core", "real_memory")
_REACHED = "a host that answers, and a user who may become root on it"
_UNREAD = "its facts could not be read (the first step of the run says why)"
_WAYS_OUT = (
    f"{_REACHED}; or slurm_node for it, with {', '.join(_COUNTS)}; or a cache that kept its facts "
    "(ansible.cfg, section defaults: fact_caching = ansible.builtin.jsonfile, "
    "fact_caching_connection = a directory, fact_caching_timeout = 0)"
)
_GROUPS = (
    ("preflight_compute_hosts", "slurm_compute", "there is no node to run jobs"),
    ("preflight_controller_hosts", "slurm_controller", "there is no host for slurmctld"),
    ("preflight_database_hosts", "slurm_database", "there is no host for accounting"),
    ("preflight_login_hosts", "slurm_login", "there is no host where people submit jobs"),
)
Inputs = t.Mapping[str, t.Any]


def _known(inputs: Inputs, host: str) -> t.Mapping[str, t.Any]:
    return inputs.get("hosts", {}).get(host, {})


def cluster(inputs: Inputs) -> list[str]:
    """Return what is wrong with the name of the cluster."""
    name = inputs.get("cluster_name")
    if isinstance(name, str) and _CLUSTER.fullmatch(name):
        return []
    accepted = "1 to 40 lower-case letters, digits, - and _, beginning with a letter"
    return [say("cluster_name", name, "Slurm and its database cannot use it", accepted)]


def groups(inputs: Inputs) -> list[str]:
    """Return the groups without a host, hosts that are listed twice, and a second database."""
    problems = []
    for variable, group, problem in _GROUPS:
        # Nodes that Slurm creates by itself are in no inventory.
        elastic = group == "slurm_compute" and bool(inputs.get("slurm_elastic_nodes"))
        if not inputs.get(variable) and not elastic:
            problems.append(say(variable, [], problem, f"at least one host in inventory group {group}"))
        for host in twice(inputs.get(variable) or []):
            problems.append(say(variable, host, "listed twice", "each host once"))
    databases = list(dict.fromkeys(inputs.get("preflight_database_hosts") or []))
    if len(databases) > 1:
        problems.append(say("preflight_database_hosts", databases, "slurmdbd runs on one host", "exactly one host"))
    return problems


def login(inputs: Inputs) -> list[str]:
    """On a Slurm that is there everything starts on a host with its commands."""
    if inputs.get("preflight_login_hosts"):
        return []
    return [
        say("preflight_login_hosts", [], "there is no host where jobs are submitted", "a host in group slurm_login")
    ]


def shared_controller(inputs: Inputs) -> list[str]:
    """Return the controllers that are compute nodes as well, where nobody has allowed it."""
    both = sorted(
        set(inputs.get("preflight_compute_hosts") or []) & set(inputs.get("preflight_controller_hosts") or [])
    )
    if not both or inputs.get("preflight_allow_shared_controller"):
        return []
    accepted = "separate hosts, or preflight_allow_shared_controller: true"
    return [say("preflight_compute_hosts", both, "also the controller, which jobs would slow down", accepted)]


def one_machine_each(inputs: Inputs) -> list[str]:
    """Also finds a machine that stands in the inventory under two names, in whatever groups."""
    problems = []
    names: dict[str, list[str]] = {}
    addresses: dict[str, list[str]] = {}
    computes = inputs.get("preflight_compute_hosts") or []
    for host in dict.fromkeys([*computes, *sorted(inputs.get("hosts", {}))]):
        known = _known(inputs, host)
        own = known.get("hostname") or host.split(".")[0]
        name = known.get("node") or own if host in computes else own
        names.setdefault(str(name), []).append(host)
        if known.get("address"):
            addresses.setdefault(str(known["address"]), []).append(host)
        if host in computes and not _NODE.fullmatch(str(name)):
            problems.append(
                say(f"node name of {host}", name, "not a host name", "letters, digits and -, not at either end")
            )
    for name, hosts in sorted(names.items()):
        if len(hosts) > 1:
            problem = f"the name of {', '.join(sorted(hosts))}"
            problems.append(say("node name", name, problem, "one name per machine (its host name, or slurm_node.name)"))
    for address, hosts in sorted(addresses.items()):
        if len(hosts) > 1:
            problem = f"the address of {', '.join(sorted(hosts))}"
            problems.append(say("ansible_host", address, problem, "one machine per inventory host"))
    return problems


def reached(inputs: Inputs) -> list[str]:
    """Heads that this run is about must answer, facts of an earlier run do not do; others when it is their turn."""
    tried = set(inputs.get("preflight_play_hosts") or [])
    answered = set(inputs.get("preflight_reached_hosts", tried))
    heads = [*(inputs.get("preflight_controller_hosts") or []), *(inputs.get("preflight_database_hosts") or [])]
    silent = [
        host
        for host in dict.fromkeys(heads)
        if host in tried and (host not in answered or not _known(inputs, host).get("facts"))
    ]
    return [say("inventory host", host, _UNREAD, _REACHED) for host in silent]


def nodes(inputs: Inputs) -> list[str]:
    """Where slurm.conf is drawn in this run, every node must be known, from facts, also cached ones, or slurm_node."""
    problems: list[str] = []
    silent: list[str] = []
    drawn = set(inputs.get("preflight_play_hosts") or []) & set(inputs.get("preflight_controller_hosts") or [])
    if not drawn or inputs.get("slurm_nodes"):
        return problems
    for host in inputs.get("preflight_compute_hosts") or []:
        override, facts = _known(inputs, host).get("slurm_node") or {}, _known(inputs, host).get("facts") or {}
        if not isinstance(override, dict):
            problems.append(
                say(f"slurm_node of {host}", override, "not a dictionary", f"{', '.join(_COUNTS)} and others")
            )
        elif not facts and not set(_COUNTS) <= set(override):
            silent.append(host)
        else:
            problems += _node(host, facts, override)
    if silent:
        problem = f"{_UNREAD}, so Slurm cannot be told what it has"
        problems.append(say("inventory host", silent[0] if len(silent) == 1 else silent, problem, _WAYS_OUT))
    return problems


def _node(host: str, facts: t.Mapping[str, t.Any], override: dict[str, t.Any]) -> list[str]:
    try:
        described = node(host, facts, override, 0)
    except NodeError as exc:
        return [str(exc)]
    counts = {f"slurm_node.{field} of {host}": described[field] for field in _COUNTS}
    bad = {label: count for label, count in counts.items() if not isinstance(count, int) or count < 1}
    return [say(label, count, "not a count", "a whole number above 0") for label, count in bad.items()]


def controller_names(inputs: Inputs) -> list[str]:
    """slurmctld only starts where slurm.conf has what gethostname() says, or that up to its first dot."""
    problems = []
    for host in inputs.get("preflight_controller_hosts") or []:
        known = _known(inputs, host)
        full = (known.get("facts") or {}).get("nodename")
        own = [name for name in (full, known.get("hostname")) if name]
        if own and host not in own:
            names = " or ".join(dict.fromkeys(own))
            accepted = f"the inventory name {names}, or the machine's name set to it (hostnamectl set-hostname {host})"
            problems.append(say("preflight_controller_hosts", host, f"the machine calls itself {own[0]}", accepted))
    return problems


def systems(inputs: Inputs) -> list[str]:
    """Hosts without facts are passed over: they are not part of this run."""
    table = inputs.get("preflight_supported_systems") or {}
    accepted = ", ".join(f"{name} {', '.join(map(str, releases))}" for name, releases in table.items())
    problems = []
    for host, known in sorted(inputs.get("hosts", {}).items()):
        system, release = known.get("system"), str(known.get("release") or "")
        if system and release not in [str(item) for item in table.get(system, [])]:
            problems.append(say(f"operating system of {host}", f"{system} {release}", "not supported", accepted))
    return problems


CHECKS = (cluster, groups, shared_controller, one_machine_each, reached, nodes, controller_names, systems)
