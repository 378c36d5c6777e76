# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module cyclecloud_cluster: import, start, await, terminate, delete a cluster."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import cluster_request, cluster_state, rest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cluster_state import Scheduler, Waiter
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import (
    CLI_SPEC,
    Cli,
    CliError,
    Json,
    LocalServer,
    Notes,
    ca_file,
    fingerprint,
    folder,
    login,
    same_secret,
    told,
    unreached,
    write,
)

# A cluster in CycleCloud: looked at, imported, started, awaited, removed.


class ObservedCluster(t.NamedTuple):
    """``send`` means import; ``drift`` are parameters that somebody else changed."""

    there: bool
    started: bool
    exported: Json
    send: bool
    drift: list[str]
    pending: list[str]


class CycleCluster:
    """One cluster; ``want`` are the options of module cyclecloud_cluster."""

    def __init__(self, cli: Cli, want: Json, server: LocalServer | None) -> None:
        self.cli, self.want, self._server = cli, want, server
        self.name: str = want["name"]
        self.folder = Path(want["state_dir"])
        self.notes = Notes(want["state_dir"], f"cluster-{self.name}")
        self.noted: Json = {}
        self.values: Json = {}
        self.secret: Json = want.get("secret_parameters") or {}

    @property
    def server(self) -> LocalServer:
        if self._server is None:
            raise CliError("the server is not set up yet")
        return self._server

    def prepare(self) -> list[str]:
        """Make the parameters; return everything that is wrong, before anything is sent."""
        found = cluster_request.problems(self.want)
        text = self.want["template"]
        if not self.want["builtin"] and len(cluster_request.clusters(text)) != 1:
            found.append(f"the template has {len(cluster_request.clusters(text))} clusters, it must have one")
        known = None if self.want["builtin"] else cluster_request.declared(text)
        theirs = {**self.want["parameters"], **self.secret}
        if found:
            return found + cluster_request.unknown(theirs, known)
        self.values = {**cluster_request.build(self.want), **theirs}
        return cluster_request.unknown(self.values, known) + cluster_request.lacking(self.values, known)

    def digest(self) -> str:
        what = [self.want["builtin"] or self.want["template"], json.dumps(self._plain(), sort_keys=True)]
        return hashlib.sha256("\0".join(what).encode()).hexdigest()

    def _plain(self) -> Json:
        return {key: value for key, value in self.values.items() if key not in self.secret}

    def look(self) -> ObservedCluster:
        """Compare with the server and with what was sent before."""
        self.noted = self.notes.load()
        if not self.server.exists(self.name):
            return ObservedCluster(False, False, {}, True, [], ["start"])
        exported = self._exported()
        drift = cluster_request.drifted(self.values, exported, self.secret)
        secrets = (
            same_secret(json.dumps(self.secret, sort_keys=True), self.noted.get("secrets")) if self.secret else True
        )
        changed = self.noted.get("digest") != self.digest() or not secrets
        started = self.server.started(self.name)
        return ObservedCluster(
            True, started, exported, changed, [] if changed else drift, self.noted.get("pending", [])
        )

    def _exported(self) -> Json:
        text = self.cli.read("export_parameters", self.name)
        try:
            found = json.loads(text)
        except ValueError as exc:
            raise CliError(f"'export_parameters {self.name}' did not print JSON: {text.strip()[:200]!r}") from exc
        return found if isinstance(found, dict) else {}

    def diff(self, found: ObservedCluster) -> list[dict[str, str]]:
        """What changes, line by line."""
        after = self.want["builtin"] or self.want["template"]
        keys = set(self.values)
        diffs = [
            {
                "before_header": f"template of {self.name}",
                "after_header": f"template of {self.name}",
                "before": self.noted.get("template", "") if found.there else "",
                "after": after,
            },
            {
                "before_header": f"parameters of {self.name}",
                "after_header": f"parameters of {self.name}",
                "before": cluster_request.lines(found.exported, keys, self.secret),
                "after": cluster_request.lines(self.values, keys, self.secret),
            },
        ]
        return [one for one in diffs if one["before"] != one["after"]]

    def send(self, found: ObservedCluster) -> None:
        """Import; what has to follow is noted before, so that a run that is killed here is made good."""
        pending = [*(["start"] if self.want["state"] == "started" else []), *(["scale"] if found.started else [])]
        folder(self.folder)
        self._note(pending=sorted({*found.pending, *pending}), digest="")
        text, values = self.folder / f"{self.name}.txt", self.folder / f"{self.name}.json"
        try:
            write(text, self.want["template"])
            write(values, json.dumps(self.values))
            force = ["--force"] if found.there else []
            if self.want["builtin"]:
                words = ["create_cluster", self.want["builtin"], self.name, "-p", str(values), *force]
            else:
                section = cluster_request.clusters(self.want["template"])[0]
                words = ["import_cluster", self.name, "-c", section, "-f", str(text), "-p", str(values), *force]
            self._do(words, lambda: not cluster_request.drifted(self.values, self._exported(), self.secret))
        finally:
            for one in (text, values):
                with contextlib.suppress(FileNotFoundError):
                    one.unlink()
        self._confirm()

    def _confirm(self) -> None:
        """The server has to have what was sent: it takes unknown parameters without a word."""
        wrong = cluster_request.drifted(self.values, self._exported(), self.secret)
        if wrong:
            raise CliError(f"cluster {self.name} was imported, but the server did not take {', '.join(wrong)}")
        template_text = self.want["builtin"] or self.want["template"]
        secrets = fingerprint(json.dumps(self.secret, sort_keys=True)) if self.secret else ""
        self._note(digest=self.digest(), template=template_text, secrets=secrets)

    def start(self) -> None:
        """Start, also one that runs already: node arrays that are new wait for it."""
        self._do(["start_cluster", self.name], lambda: self.server.started(self.name))
        self.done("start")

    def _do(self, words: list[str], happened: t.Callable[[], bool]) -> None:
        """Run a command that changes something; where nobody knows its outcome, look before saying that it failed."""
        done = self.cli.try_cyclecloud(*words, timeout=600)
        if not done.problem:
            return
        if unreached(done):
            time.sleep(2)
            with contextlib.suppress(CliError, rest.CycleCloudError):
                if self.server.exists(self.name) and happened():
                    return
        raise CliError(self._hidden(f"'{' '.join(words)}' failed: {told(done)}"))

    def _hidden(self, text: str) -> str:
        for value in self.secret.values():
            text = text.replace(str(value), "********") if str(value) else text
        return self.cli.hidden(text)

    def done(self, what: str) -> None:
        """Note that something that had to follow an import has been done."""
        self._note(pending=[one for one in self.noted.get("pending", []) if one != what])

    def _note(self, **values: t.Any) -> None:
        self.noted.update(values)
        self.notes.save(self.noted)


# The work of module cyclecloud_cluster, from the options to its result.


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


def present(cli: Cli, want: Json, server: LocalServer, check: bool) -> Json:
    """Have the cluster, started if so wished."""
    refuse(want, missing(want))
    cluster = CycleCluster(cli, want, server)
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


def _failed(server: LocalServer, want: Json) -> bool:
    """Whether an earlier run ended with a node that failed."""
    return bool(cluster_state.look(server.status(want["name"]), 0).failed)


def _told_drift(found: ObservedCluster) -> list[str]:
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


def finish(cli: Cli, want: Json, server: LocalServer, cluster: CycleCluster, result: Json, grace: float) -> list[str]:
    """Wait for nodes and Slurm, and see that every array has its GPUs."""
    waiter = Waiter(server, want["name"], want["wait"])
    status = server.status(want["name"])
    arrays, faults, warnings = cluster_state.array_readiness(status, want["node_arrays"])
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
        scheduler=cluster_state.place(seen.scheduler),
        login=[cluster_state.place(one) for one in seen.login],
        node_arrays=arrays,
    )
    return warnings


def absent(cli: Cli, want: Json, server: LocalServer, check: bool) -> Json:
    """Terminate, wait until nothing of it runs, delete; what is gone already is done."""
    name = want["name"]
    refuse(want, cluster_request.name_problems(name))
    there = server.exists(name)
    result = {"changed": there, "diff": [], "warnings": [], "cluster": {"name": name, "state": "absent"}}
    if not there or check:
        return result
    if server.started(name) or cluster_state.nodes_left(server.status(name)):
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
        CycleCluster(cli, want, server).notes.path.unlink()
    return result


def perform(want: Json, check: bool) -> Json:
    """Do what the module was asked for; in check mode also where nothing is installed yet."""
    cli = Cli(want)
    if check and not cli.ready():
        return _planned(cli, want)
    one = login(want["config"])
    cli.secrets = [one.password]
    server = LocalServer(one, ca_file(want["state_dir"]))
    return (absent if want["state"] == "absent" else present)(cli, want, server, check)


def _planned(cli: Cli, want: Json) -> Json:
    """Earlier tasks of the play would have made the server; the wish is judged all the same."""
    if want["state"] == "absent":
        return {"changed": False, "diff": [], "warnings": [], "cluster": {"name": want["name"], "state": "absent"}}
    refuse(want, missing(want))
    cluster = CycleCluster(cli, want, None)
    refuse(want, cluster.prepare())
    diff = cluster.diff(ObservedCluster(False, False, {}, True, [], []))
    return {"changed": True, "diff": diff, "warnings": [], "cluster": plain(want, cluster.digest())}
