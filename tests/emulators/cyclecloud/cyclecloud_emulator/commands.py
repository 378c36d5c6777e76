# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the server does for the `cyclecloud` command. Texts are for people; some failures exit with 0, as there."""

from __future__ import annotations

import json
import typing as t

from . import accounts, machine, projects, records, rest, template
from .rows import builtin, builtin_template
from .store import Json, Store, UserError

if t.TYPE_CHECKING:
    from .server import Home


def run(home: Home, request: Json) -> Json:
    """Do one command; what goes wrong is text and an exit status."""
    store = home.store
    try:
        out = COMMANDS[request["command"]](home, store, request["options"])
    except UserError as exc:
        store.ignored(f"cyclecloud {request['command']}: {exc}")
        return {"rc": 1, "out": "", "err": f"Error: {exc}\n"}
    return {"rc": 0, "out": out if not out or out.endswith("\n") else f"{out}\n", "err": ""}


def _parameters(options: Json) -> Json:
    given = template.read_parameters(options["parameters"]) if options.get("parameters") else {}
    for one in options.get("override") or []:
        name, sign, value = one.partition("=")
        if not sign:
            raise UserError(f"Parameter override {one!r} is not NAME=VALUE")
        given[name] = template.plain(value)
    return given


def _specs(store: Store, cluster: Json) -> None:
    """Cluster-init specs that no locker has make nodes fail; CycleCloud says so only then."""
    values = [value for key, value in cluster["parameters"].items() if key.endswith("ClusterInitSpecs")]
    projects = {(one["Name"], one["Version"]) for one in store.find("Cloud.Project")}
    for name in [name for value in values if isinstance(value, dict) for name in value]:
        parts = name.split(":")
        if len(parts) != 3 or (parts[0], parts[2]) not in projects:
            store.ignored(f"cluster {cluster['name']}: no project for cluster-init spec {name}")


def _import_cluster(dummy: Home, store: Store, options: Json) -> str:
    name, section = options.get("name") or options.get("cluster"), options.get("cluster")
    if not options.get("text"):
        raise UserError("prompts are not emulated: give -f FILE")
    if options.get("as_template"):
        return _import_template(dummy, store, {**options, "name": name})
    cluster = machine.make(store, name, options["text"], section, _parameters(options), bool(options.get("force")))
    _specs(store, cluster)
    return f"Importing cluster {section or name} and creating cluster {name}....\n{summary(cluster)}"


def _import_template(dummy: Home, store: Store, options: Json) -> str:
    if options["name"] in store.state["templates"] and not options.get("force"):
        raise UserError(f"Template {options['name']} already exists")
    sections = template.parse(options["text"])
    top = template.cluster(sections, options.get("cluster"))
    store.state["templates"][options["name"]] = {"text": options["text"], "section": top.name}
    return f"Importing default template in {options['name']}..."


def _create_cluster(dummy: Home, store: Store, options: Json) -> str:
    found = {builtin_template(store): {"text": builtin(), "section": "Slurm"}, **store.state["templates"]}.get(
        options["template"]
    )
    if found is None:
        raise UserError(f"Template {options['template']} not found")
    force = bool(options.get("force"))
    cluster = machine.make(store, options["name"], found["text"], found["section"], _parameters(options), force)
    cluster["template"] = options["template"]
    _specs(store, cluster)
    return f"Creating cluster {options['name']}....\n{summary(cluster)}"


def _start(home: Home, store: Store, options: Json) -> str:
    cluster = machine.start(store, options["name"])
    return f"Starting cluster {options['name']}....\n{summary(cluster)}"


def _terminate(dummy: Home, store: Store, options: Json) -> str:
    cluster = machine.terminate(store, options["name"])
    return f"Terminating cluster {options['name']}....\n{summary(cluster)}"


def _delete(dummy: Home, store: Store, options: Json) -> str:
    machine.delete(store, options["name"], bool(options.get("force")))
    return f"Deleting cluster {options['name']}...."


def _retry(dummy: Home, store: Store, options: Json) -> str:
    for node in machine.get(store, options["name"])["nodes"].values():
        if node["Status"] == "Failed":
            node.update(Status="Acquiring", StatusMessage="", _since=store.now())
    return f"Retrying failed operations for cluster {options['name']}...."


def _show_cluster(dummy: Home, store: Store, options: Json) -> str:
    if options.get("name"):
        return summary(machine.get(store, options["name"]))
    return "\n".join(summary(one) for one in store.state["clusters"].values()) or "No clusters found."


def summary(cluster: Json) -> str:
    state, target = machine.state(cluster).lower(), cluster["target"].lower()
    title = f"{cluster['name']} : {state if state == target else f'{state} -> {target}'}"
    lines = ["-" * len(title), title, "-" * len(title), "Resource group:", "Cluster nodes:"]
    nodes = list(cluster["nodes"].values())
    for node in [one for one in nodes if one["Fixed"]]:
        lines.append(
            f"    {node['Name']}: {node['Status']} {node.get('InstanceId') or '--'} {node.get('PrivateIp') or '--'}"
        )
    return "\n".join([*lines, f"Total nodes: {len(nodes)}"]) + "\n"


def _show_nodes(dummy: Home, store: Store, options: Json) -> str:
    chosen = [machine.get(store, options["cluster"])] if options.get("cluster") else store.state["clusters"].values()
    nodes = [rest.record(node) for cluster in chosen for node in cluster["nodes"].values()]
    if options.get("names"):
        nodes = [node for node in nodes if node["Name"] in options["names"]]
    if options.get("filter"):
        nodes = [node for node in nodes if records.condition(options["filter"])(node)]
    if options.get("states"):
        nodes = [node for node in nodes if node["Status"] in options["states"].split(",")]
    if options.get("attrs"):
        nodes = [{key: node.get(key) for key in options["attrs"].split(",")} for node in nodes]
    if options.get("format") == "json":
        return json.dumps(nodes, indent=2)
    return "\n".join(f"{node.get('Name')}: {node.get('Status')}" for node in nodes)


def _export(dummy: Home, store: Store, options: Json) -> str:
    parameters = machine.get(store, options["name"])["parameters"]
    if store.state["settings"]["export"] == "texts":
        # Numbers and switches as texts, records as records; nothing documented promises more.
        parameters = {key: _exported(value) for key, value in parameters.items()}
    return json.dumps(parameters, indent=2, sort_keys=True)


def _exported(value: t.Any) -> t.Any:
    return (
        value
        if value is None or isinstance(value, (dict, list))
        else f"{value:g}.0"
        if _is_number(value)
        else str(value)
    )


def _is_number(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


COMMANDS: dict[str, t.Callable[[t.Any, Store, Json], str]] = {
    "ping": lambda home, store, options: "initial account" if store.state["accounts"] else "",
    "account list": accounts.list,
    "account show": accounts.show,
    "account create": accounts.create,
    "account edit": accounts.edit,
    "account delete": accounts.delete,
    "locker list": accounts.lockers,
    "locker show": accounts.locker,
    "project upload": projects.upload,
    "import_cluster": _import_cluster,
    "import_template": _import_template,
    "create_cluster": _create_cluster,
    "start_cluster": _start,
    "terminate_cluster": _terminate,
    "delete_cluster": _delete,
    "retry": _retry,
    "show_cluster": _show_cluster,
    "show_nodes": _show_nodes,
    "export_parameters": _export,
}
