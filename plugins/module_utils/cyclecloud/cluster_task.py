# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of module cyclecloud_cluster, from the options to its result. Private."""

from __future__ import annotations

import contextlib

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import ready, wish
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import (
    CLI_SPEC,
    Cli,
    CliError,
    Json,
    ca_file,
    login,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cluster import Cluster, Found
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.here import Server
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.waiting import Scheduler, Waiter

# Seconds in which a node may still be called failed after it is tried again.
RETRY = 60.0
_MAP: Json = {"type": "dict", "default": {}}
_LIST: Json = {"type": "list", "elements": "dict", "default": []}
SPEC: Json = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["started", "present", "absent"], "default": "started"},
    "template": {"type": "str", "default": ""},
    "builtin": {"type": "str", "default": ""},
    "region": {"type": "str"},
    "subnet_id": {"type": "str"},
    "credentials": {"type": "str", "default": "azure"},
    "node_arrays": _LIST,
    "scheduler": _MAP,
    "login": _MAP,
    "shared": _MAP,
    "slurm": _MAP,
    "autoscale": {"type": "bool", "default": True},
    "node_identity": {"type": "str", "default": ""},
    "tags": _MAP,
    "max_scaleset_size": {"type": "int", "default": 100},
    "parameters": _MAP,
    "secret_parameters": {**_MAP, "no_log": True},
    "project": _MAP,
    "specs": _LIST,
    "locker": {"type": "str", "default": ""},
    "drift": {"type": "str", "choices": ["correct", "report"], "default": "correct"},
    "ssh": {"type": "str", "default": "ssh"},
    "wait": _MAP,
    **CLI_SPEC,
}
# What a cluster needs beyond its defaults, by option.
_MEMBERS = {"scheduler": ("machine_type",), "shared": ("size_gb", "sched_size_gb"), "slurm": ("version", "node_prefix")}


def missing(want: Json) -> list[str]:
    """Members of options that have to be there."""
    found = [f"{name} is needed" for name in ("region", "subnet_id") if not want.get(name)]
    found += [
        f"{name}.{one} is needed"
        for name, ones in _MEMBERS.items()
        for one in ones
        if want[name].get(one) in (None, "")
    ]
    if not want["template"] and not want["builtin"]:
        found.append("either template or builtin is needed")
    return found


def refuse(want: Json, problems: list[str]) -> None:
    if problems:
        what = "deleted" if want["state"] == "absent" else "sent"
        raise CliError(f"cluster {want['name']} is not {what}: " + "; ".join(problems))


def present(cli: Cli, want: Json, server: Server, check: bool) -> Json:
    """Have the cluster, started if so wished."""
    refuse(want, missing(want))
    cluster = Cluster(cli, want, server)
    refuse(want, cluster.prepare())
    found = cluster.look()
    send = found.send or bool(found.drift and want["drift"] == "correct")
    begin = want["state"] == "started" and (not found.started or send or "start" in found.pending)
    retry = want["state"] == "started" and found.there and not begin and _failed(server, want)
    scale = want["state"] == "started" and ("scale" in found.pending or (send and found.started))
    result: Json = {
        "changed": bool(send or begin or retry or scale),
        "diff": cluster.diff(found) if send or found.drift else [],
        "warnings": _told_drift(found) if not send else [],
        "cluster": plain(want, cluster.digest()),
    }
    if check:
        return result
    if send:
        cluster.send(found)
    if begin:
        cluster.start()
    if retry:
        cli.read("retry", want["name"])
    if want["state"] == "started":
        result["warnings"] += finish(cli, want, server, cluster, result["cluster"], RETRY if retry else 0)
    return result


def _failed(server: Server, want: Json) -> bool:
    """Whether an earlier run ended with a node that failed."""
    return bool(ready.look(server.status(want["name"]), 0).failed)


def _told_drift(found: Found) -> list[str]:
    if not found.drift:
        return []
    return [f"somebody changed {', '.join(found.drift)} in CycleCloud; drift: correct puts them back"]


def plain(want: Json, digest: str) -> Json:
    """What can be said of a cluster before it is there."""
    arrays = {
        one["name"]: {
            "machine_type": one["machine_type"],
            "max_nodes": int(one["max_nodes"]),
            "gpus_per_node": int(one.get("gpus") or 0),
        }
        for one in want["node_arrays"]
    }
    empty: Json = {"scheduler": {}, "login": [], "node_arrays": arrays}
    return {"name": want["name"], "state": "planned", "digest": digest, **empty}


def finish(cli: Cli, want: Json, server: Server, cluster: Cluster, result: Json, grace: float) -> list[str]:
    """Wait for nodes and Slurm, and see that every array has its GPUs."""
    waiter = Waiter(server, want["name"], want["wait"])
    status = server.status(want["name"])
    arrays, faults, warnings = ready.arrays(status, want["node_arrays"])
    if faults:
        raise CliError("; ".join(faults))
    seen = waiter.nodes(int(want["login"].get("count", 0)), grace)
    scheduler = Scheduler(cli, want, seen.scheduler)
    scheduler.await_slurm(waiter.limits["slurm"], waiter.limits["poll"])
    if "scale" in cluster.noted.get("pending", []):
        scheduler.scale()
        scheduler.await_slurm(waiter.limits["slurm"], waiter.limits["poll"])
        cluster.done("scale")
    result.update(
        state="ready",
        scheduler=ready.place(seen.scheduler),
        login=[ready.place(one) for one in seen.login],
        node_arrays=arrays,
    )
    return warnings


def absent(cli: Cli, want: Json, server: Server, check: bool) -> Json:
    """Terminate, wait until nothing of it runs, delete; what is gone already is done."""
    name = want["name"]
    refuse(want, wish.name_problems(name))
    there = server.exists(name)
    result = {"changed": there, "diff": [], "warnings": [], "cluster": {"name": name, "state": "absent"}}
    if not there or check:
        return result
    if server.started(name) or ready.left(server.status(name)):
        cli.read("terminate_cluster", name)
    waiter = Waiter(server, name, want["wait"])
    waiter.gone(waiter.limits["ready"])
    try:
        cli.read("delete_cluster", name)
    except CliError:
        if server.exists(name):
            raise
    waiter.deleted(waiter.limits["ready"])
    with contextlib.suppress(FileNotFoundError):
        Cluster(cli, want, server).notes.path.unlink()
    return result


def perform(want: Json, check: bool) -> Json:
    """Do what the module was asked for; in check mode also where nothing is installed yet."""
    cli = Cli(want)
    if check and not cli.ready():
        return _planned(cli, want)
    one = login(want["config"])
    cli.secrets = [one.password]
    server = Server(one, ca_file(want["state_dir"]))
    return (absent if want["state"] == "absent" else present)(cli, want, server, check)


def _planned(cli: Cli, want: Json) -> Json:
    """Earlier tasks of the play would have made the server; the wish is judged all the same."""
    if want["state"] == "absent":
        return {"changed": False, "diff": [], "warnings": [], "cluster": {"name": want["name"], "state": "absent"}}
    refuse(want, missing(want))
    cluster = Cluster(cli, want, None)
    refuse(want, cluster.prepare())
    diff = cluster.diff(Found(False, False, {}, True, [], []))
    return {"changed": True, "diff": diff, "warnings": [], "cluster": plain(want, cluster.digest())}
