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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _lines
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import (
    cluster_request,
    cluster_state,
    rest,
    slurm_project,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.account import MachineTypes
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cluster_state import Scheduler, Waiter
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import (
    CLI_SPEC,
    Cli,
    CliError,
    Json,
    LocalServer,
    Notes,
    alone,
    ca_file,
    failure_text,
    fingerprint,
    folder,
    login,
    same_secret,
    unreached,
    write,
)

# One cluster on the server: compare, import, start.


class ObservedCluster(t.NamedTuple):
    """``send`` means import; ``drift`` are parameters that somebody else changed."""

    exists: bool
    started: bool
    exported: Json
    send: bool
    drift: list[str]
    pending: list[str]


class CycleCluster:
    """One cluster; ``request`` are the options of module cyclecloud_cluster."""

    def __init__(self, cli: Cli, request: Json, server: LocalServer | None) -> None:
        self.cli, self.request, self._server = cli, request, server
        self.name: str = request["name"]
        self.project = slurm_project.SlurmProject()
        self.folder = Path(request["state_dir"])
        self.notes = Notes(request["state_dir"], f"cluster-{self.name}")
        self.noted: Json = {}
        self.values: Json = {}
        self.secret: Json = dict(request.get("secret_parameters") or {})
        if request.get("accounting_password"):
            self.secret["configuration_slurm_accounting_password"] = request["accounting_password"]

    @property
    def server(self) -> LocalServer:
        if self._server is None:
            raise CliError("the server is not set up yet")
        return self._server

    def prepare(self) -> list[str]:
        """Make the parameters; return everything that is wrong, before anything is sent."""
        faults = cluster_request.problems(self.request)
        text = self.request["template"]
        if not self.request["builtin"] and len(cluster_request.clusters(text)) != 1:
            faults.append(f"the template has {len(cluster_request.clusters(text))} clusters, it must have one")
        if not faults:
            self._use_project()
            text = self.request["template"]
        known = self.project.declared if self.request["builtin"] else cluster_request.declared_parameters(text)
        user_values = {**self.request["parameters"], **self.secret}
        lines = "additional_slurm_config"
        if lines in user_values and (self.request.get("accounting") or {}).get("url"):
            user_values[lines] = f"{cluster_request.GATHERED}\n{user_values[lines]}"
        if faults:
            return faults + cluster_request.unknown(user_values, known)
        self.values = {**cluster_request.build(self.request), **user_values}
        return cluster_request.unknown(self.values, known) + cluster_request.lacking(self.values, known)

    def _use_project(self) -> None:
        """Complete the request by the server's Slurm project; one that is not set up yet has nothing to read."""
        if self._server is None:
            version = self.request["slurm"].get("version") or "the server's"
            self.request = {**self.request, "slurm": {**self.request["slurm"], "version": version}}
            return
        self.noted = self.notes.load() if self.server.exists(self.name) else {}
        project = self.project = slurm_project.resolve(self.cli, self.request, self.noted)
        if not project.version:
            return
        request = {**self.request, "template": slurm_project.with_version(self.request["template"], project.version)}
        if request["builtin"] == slurm_project.BUILTIN:
            request["builtin"] = f"{slurm_project.BUILTIN}_{project.version}"
        request["slurm"] = {**request["slurm"], "version": project.slurm}
        self.request = request

    def digest(self) -> str:
        parts = [self.request["builtin"] or self.request["template"], json.dumps(self._plain(), sort_keys=True)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _plain(self) -> Json:
        return {key: value for key, value in self.values.items() if key not in self.secret}

    def look(self) -> ObservedCluster:
        """Compare with the server and with what was sent before."""
        self.noted = self.notes.load()
        if not self.server.exists(self.name):
            return ObservedCluster(False, False, {}, True, [], ["start"])
        exported = self._exported()
        drift = self._drifted(exported)
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
            parameters = json.loads(text)
        except ValueError as exc:
            raise CliError(f"'export_parameters {self.name}' did not print JSON: {text.strip()[:200]!r}") from exc
        return parameters if isinstance(parameters, dict) else {}

    def diff(self, observed: ObservedCluster) -> list[dict[str, str]]:
        """What changes, line by line."""
        after = self.request["builtin"] or self.request["template"]
        keys = set(self.values)
        diffs = [
            {
                "before_header": f"template of {self.name}",
                "after_header": f"template of {self.name}",
                "before": self.noted.get("template", "") if observed.exists else "",
                "after": after,
            },
            {
                "before_header": f"parameters of {self.name}",
                "after_header": f"parameters of {self.name}",
                "before": cluster_request.lines(observed.exported, keys, self.secret),
                "after": cluster_request.lines(self.values, keys, self.secret),
            },
        ]
        return [part for part in diffs if part["before"] != part["after"]]

    def send(self, observed: ObservedCluster) -> list[str]:
        """Import, and return warnings.

        The steps that have to follow are noted first, so that the next run completes a killed one.
        """
        pending = [*(["start"] if self.request["state"] == "started" else []), *(["scale"] if observed.started else [])]
        folder(self.folder)
        slurm_project.stage(self.cli, self.project)
        self._note(pending=sorted({*observed.pending, *pending}), digest="")
        text, values = self.folder / f"{self.name}.txt", self.folder / f"{self.name}.json"
        try:
            write(text, self.request["template"])
            write(values, json.dumps(self.values))
            force = ["--force"] if observed.exists else []
            if self.request["builtin"]:
                argv = ["create_cluster", self.request["builtin"], self.name, "-p", str(values), *force]
            else:
                section = cluster_request.clusters(self.request["template"])[0]
                argv = ["import_cluster", self.name, "-c", section, "-f", str(text), "-p", str(values), *force]
            self._do(argv, lambda: not cluster_request.drifted(self.values, self._exported(), self.secret))
        finally:
            for path in (text, values):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
        return self._confirm()

    def _drifted(self, exported: Json) -> list[str]:
        """Return which parameters somebody changed: those that are neither what was sent nor what came back then."""
        returned = self.noted.get("returned", {})
        return [
            key
            for key in cluster_request.drifted(self.values, exported, self.secret)
            if key not in returned or not cluster_request.same(returned[key], exported.get(key))
        ]

    def _confirm(self) -> list[str]:
        """Note what the server made of the parameters; return a warning where it is not what was sent.

        Nothing documented says in which form they are exported, so a difference is no failure: the server drops unknown
        parameters without an error, and may write others differently.
        """
        exported = self._exported()
        returned = {key: exported.get(key) for key in cluster_request.drifted(self.values, exported, self.secret)}
        template_text = self.request["builtin"] or self.request["template"]
        secrets = fingerprint(json.dumps(self.secret, sort_keys=True)) if self.secret else ""
        self._note(
            digest=self.digest(),
            template=template_text,
            secrets=secrets,
            returned=returned,
            project=self.project.version,
            slurm=self.project.slurm,
        )
        if not returned:
            return []
        shown = ", ".join(
            f"{key} ({json.dumps(self.values[key])[:80]} was sent, {json.dumps(value)[:80]} is exported)"
            for key, value in returned.items()
        )
        return [f"CycleCloud exports other values than cluster {self.name} was imported with: {shown}"]

    def start(self) -> None:
        """Start the cluster, also one that runs: new node arrays become active by it."""
        self._do(["start_cluster", self.name], lambda: self.server.started(self.name))
        self.done("start")

    def _do(self, argv: list[str], happened: t.Callable[[], bool]) -> None:
        """Run a command that changes something; where nobody knows its outcome, look before saying that it failed."""
        done = self.cli.try_cyclecloud(*argv, timeout=600)
        if not done.problem:
            return
        if unreached(done):
            time.sleep(2)
            with contextlib.suppress(CliError, rest.CycleCloudError):
                if self.server.exists(self.name) and happened():
                    return
        raise CliError(self._hidden(f"'{' '.join(argv)}' failed: {failure_text(done)}"))

    def _hidden(self, text: str) -> str:
        for value in self.secret.values():
            text = text.replace(str(value), "********") if str(value) else text
        return self.cli.hidden(text)

    def done(self, step: str) -> None:
        """Note that a step that had to follow an import is done."""
        self._note(pending=[pending for pending in self.noted.get("pending", []) if pending != step])

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
    "accounting": _MAP,
    "accounting_password": {"type": "str", "default": "", "no_log": True},
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
    "until": {"type": "str", "choices": ["nodes", "slurm"], "default": "slurm"},
    "scheduler_host_keys": {"type": "list", "elements": "str", "default": [], "no_log": False},
    "wait": _MAP,
    **CLI_SPEC,
}
# What a cluster needs beyond its defaults, by option.
_MEMBERS = {"scheduler": ("machine_type",), "shared": ("size_gb", "sched_size_gb"), "slurm": ("node_prefix",)}


def missing(request: Json) -> list[str]:
    """Say which options and members of options are missing."""
    faults = [f"{name} is needed" for name in ("region", "subnet_id") if not request.get(name)]
    faults += [
        f"{name}.{member} is needed"
        for name, members in _MEMBERS.items()
        for member in members
        if request[name].get(member) in (None, "")
    ]
    faults += [
        f"scheduler_host_keys has {key[:40]!r}, which is no public key of a host (type and key in base64)"
        for key in request.get("scheduler_host_keys") or []
        if not _lines.is_host_key(key)
    ]
    if not request["template"] and not request["builtin"]:
        faults.append("either template or builtin is needed")
    return faults


def refuse(request: Json, problems: list[str]) -> None:
    if problems:
        action = "deleted" if request["state"] == "absent" else "sent"
        raise CliError(f"cluster {request['name']} is not {action}: " + "; ".join(problems))


def present(cli: Cli, request: Json, server: LocalServer, check: bool) -> Json:
    """Import the cluster where it differs, and start it and wait for it if requested."""
    refuse(request, missing(request))
    cluster = CycleCluster(cli, request, server)
    with alone(request["state_dir"], check):
        result, retried = _changed(cli, cluster, request, server, check)
    if request["state"] == "started" and not check:
        result["warnings"] += finish(cli, request, server, cluster, result["cluster"], RETRY if retried else 0)
    return result


def _changed(cli: Cli, cluster: CycleCluster, request: Json, server: LocalServer, check: bool) -> tuple[Json, bool]:
    """Import, start and try again what is needed; return the result, and whether nodes were tried again."""
    refuse(request, cluster.prepare())
    observed = cluster.look()
    send = observed.send or bool(observed.drift and request["drift"] == "correct")
    begin = request["state"] == "started" and (not observed.started or send or "start" in observed.pending)
    retry = request["state"] == "started" and observed.exists and not begin and _failed(server, request)
    scale = (
        request["state"] == "started"
        and request["until"] == "slurm"
        and ("scale" in observed.pending or (send and observed.started))
    )
    result: Json = {
        "changed": bool(send or begin or retry or scale),
        "diff": cluster.diff(observed) if send or observed.drift else [],
        "warnings": [*cluster.project.warnings, *(_drift_warnings(observed) if not send else [])],
        "cluster": plain(request, cluster.digest()),
    }
    if check:
        return result, False
    if send or begin:
        # A cluster that is started before has arrays without a machine type, and no GPUs for Slurm.
        limit = Waiter(server, request["name"], request["wait"]).limits["machine_types"]
        MachineTypes(cli, request["region"]).wait(machine_types(request), limit)
    if send:
        result["warnings"] += cluster.send(observed)
    if begin:
        cluster.start()
    if retry:
        cli.read("retry", request["name"])
    return result, retry


def machine_types(request: Json) -> list[str]:
    """Return the machine types that the cluster uses."""
    login = request["login"].get("machine_type") if int(request["login"].get("count") or 0) else ""
    used = [
        request["scheduler"].get("machine_type"),
        login,
        *(array["machine_type"] for array in request["node_arrays"]),
    ]
    return sorted({str(name) for name in used if name})


def _failed(server: LocalServer, request: Json) -> bool:
    """Whether an earlier run ended with a node that failed."""
    return bool(cluster_state.head_readiness(server.status(request["name"]), 0).failed)


def _drift_warnings(observed: ObservedCluster) -> list[str]:
    if not observed.drift:
        return []
    return [f"somebody changed {', '.join(observed.drift)} in CycleCloud; drift: correct puts them back"]


def plain(request: Json, digest: str) -> Json:
    """Return the result for a cluster that does not exist yet."""
    arrays = {
        array["name"]: {
            "machine_type": array["machine_type"],
            "max_nodes": int(array["max_nodes"]),
            "gpus_per_node": int(array.get("gpus") or 0),
        }
        for array in request["node_arrays"]
    }
    empty: Json = {"scheduler": {}, "login": [], "node_arrays": arrays}
    return {"name": request["name"], "state": "planned", "digest": digest, **empty}


def finish(
    cli: Cli, request: Json, server: LocalServer, cluster: CycleCluster, result: Json, grace: float
) -> list[str]:
    """Check that every array has its GPUs, and wait for nodes and then for Slurm if requested; return warnings."""
    waiter = Waiter(server, request["name"], request["wait"])
    arrays, warnings = waiter.arrays(request["node_arrays"])
    heads = waiter.nodes(int(request["login"].get("count", 0)), grace)
    result.update(
        state="started",
        scheduler=cluster_state.name_and_address(heads.scheduler),
        login=[cluster_state.name_and_address(node) for node in heads.login],
        node_arrays=arrays,
    )
    if request["until"] == "nodes":
        return warnings
    scheduler = Scheduler(cli, request, heads.scheduler)
    scheduler.await_slurm(waiter.limits["slurm"], waiter.limits["poll"])
    warnings += [text for text in [scheduler.first_key()] if text]
    if "scale" in cluster.noted.get("pending", []):
        scheduler.scale()
        scheduler.await_slurm(waiter.limits["slurm"], waiter.limits["poll"])
        cluster.done("scale")
    result["state"] = "ready"
    return warnings


def absent(cli: Cli, request: Json, server: LocalServer, check: bool) -> Json:
    """Terminate the cluster, wait until no node is left, and delete it; steps that are done already are left out."""
    name = request["name"]
    refuse(request, cluster_request.name_problems(name))
    exists = server.exists(name)
    result = {"changed": exists, "diff": [], "warnings": [], "cluster": {"name": name, "state": "absent"}}
    if not exists or check:
        return result
    if server.started(name) or cluster_state.nodes_left(server.status(name)):
        cli.read("terminate_cluster", name)
    waiter = Waiter(server, name, request["wait"])
    waiter.gone(waiter.limits["ready"])
    try:
        cli.read("delete_cluster", name)
    except CliError:
        if server.exists(name):
            raise
    waiter.deleted(waiter.limits["ready"])
    with contextlib.suppress(FileNotFoundError):
        CycleCluster(cli, request, server).notes.path.unlink()
    return result


def perform(request: Json, check: bool) -> Json:
    """Return the module's result; check mode works also where no server is installed yet."""
    cli = Cli(request)
    if not cli.ready() and (check or (request["state"] == "absent" and not _noted(request))):
        return _planned(cli, request)
    credentials = login(request["config"])
    cli.secrets = [credentials.password]
    server = LocalServer(credentials, ca_file(request["state_dir"]))
    return (absent if request["state"] == "absent" else present)(cli, request, server, check)


def _noted(request: Json) -> bool:
    """Whether an import of the cluster was begun here; without one, and without a command line, there is no cluster."""
    return Notes(request["state_dir"], f"cluster-{request['name']}").path.exists()


def _planned(cli: Cli, request: Json) -> Json:
    """Judge the request where earlier tasks of the play would have made the server."""
    if request["state"] == "absent":
        return {"changed": False, "diff": [], "warnings": [], "cluster": {"name": request["name"], "state": "absent"}}
    refuse(request, missing(request))
    cluster = CycleCluster(cli, request, None)
    refuse(request, cluster.prepare())
    diff = cluster.diff(ObservedCluster(False, False, {}, True, [], []))
    return {"changed": True, "diff": diff, "warnings": [], "cluster": plain(request, cluster.digest())}
