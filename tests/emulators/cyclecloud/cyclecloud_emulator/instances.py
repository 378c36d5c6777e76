# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real machines behind the nodes: instances of the lab's cloud (role lab_cloud), each of which runs node.py at boot.

`emulator.json` in CycleCloud's home names the cloud: "instances": {"url", "ca", "token", "server" (this server, as
nodes reach it), "addresses" (of instances by host name)}. Without it nodes are only numbers, and ready after a while.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import ssl
import typing as t
import urllib.error
import urllib.request
from pathlib import Path

from . import azure, limits, slurm_conf
from .arm import configuration
from .store import Json, Store, UserError

FIRST_UID = 20001
WAIT = 120  # seconds that the cloud may take to make or remove an instance


def configured(store: Store) -> Json | None:
    return t.cast("Json | None", (configuration(store) or {}).get("instances"))


def address(store: Store, host: str) -> str:
    """The address that an instance of this host name will have, empty where there are none."""
    return str(((configured(store) or {}).get("addresses") or {}).get(host, ""))


def created(store: Store, cluster: Json, node: Json) -> str:
    """Have the machine of a node boot; return why it cannot."""
    cloud = configured(store)
    if cloud is None:
        return ""
    node.pop("_report", None)
    cluster.setdefault("secret", secrets.token_hex(24))
    source = (Path(__file__).parent / "node.py").read_text()
    try:
        told = json.dumps(_told(store, cloud, cluster, node))
    except OSError as exc:  # what the locker has not
        return f"Software Installation Failure: {exc}"
    program = source.replace('CONFIG = "{}"', f"CONFIG = {told!r}", 1)
    body = {"cluster": slurm_conf.escaped(cluster["name"]), "user_data": f"#!/usr/bin/python3 -B\n{program}"}
    return _ask(cloud, "POST", node["Hostname"], body)


def deleted(store: Store, cluster: Json, node: Json) -> None:
    cloud = configured(store)
    if cloud is not None and node.get("Hostname"):
        problem = _ask(cloud, "DELETE", node["Hostname"], {"cluster": slurm_conf.escaped(cluster["name"])})
        if problem:
            store.ignored(f"deleting {node['Name']}: {problem}")


def _ask(cloud: Json, method: str, name: str, body: Json) -> str:
    headers = {"Authorization": f"Bearer {cloud['token']}", "Content-Type": "application/json"}
    url = f"{cloud['url']}/instances/{name}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)
    handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_trust(cloud["ca"]))]
    try:
        urllib.request.build_opener(*handlers).open(request, timeout=WAIT).close()
    except urllib.error.HTTPError as exc:
        return f"AllocationFailed: {json.loads(exc.read()).get('error')}"
    except OSError as exc:
        return f"AllocationFailed: {exc}"
    return ""


def _trust(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)


# What a node is told when it boots


def _told(store: Store, cloud: Json, cluster: Json, node: Json) -> Json:
    definition = {**cluster["heads"], **cluster["arrays"]}[node["Template"]]
    role = (definition["configuration"].get("slurm") or {}).get("role", "")
    told = {
        "server": cloud["server"],
        "secret": cluster["secret"],
        "cluster": cluster["name"],
        "prefix": slurm_conf.escaped(cluster["name"]),
        "node": node["Name"],
        "role": role,
        # The disk that the scheduler exports to all: another one for each scheduler.
        "disk": next(one["NodeId"] for name, one in cluster["nodes"].items() if name in cluster["heads"]),
        "users": _users(store),
        "key": (store.path.parent.parent / ".ssh/cyclecloud.pem.pub").read_text(),
        "specs": [{**one, "scripts": _scripts(store, one)} for one in _specs(definition)],
    }
    if role == "scheduler":
        return {**told, "files": files(cluster, node)}
    return {**told, "squash": (Path(__file__).parent / "squash.py").read_text()}


def _users(store: Store) -> list[Json]:
    """Users of CycleCloud are users of its clusters, and those who administer it are administrators there."""
    found = []
    for number, user in enumerate(store.find("AuthenticatedUser")):
        keys = [one["PublicKey"] for one in store.find("Credential", Name=f"{user['Name']}/public")]
        admin = bool(user.get("Superuser"))
        found.append({"name": user["Name"], "uid": FIRST_UID + number, "keys": keys, "admin": admin})
    return found


def _specs(definition: Json) -> list[Json]:
    every = [definition["attributes"].get(name) for name in ("ClusterInitSpecs", "AdditionalClusterInitSpecs")]
    chosen = [one for specs in every if isinstance(specs, dict) for one in specs.values()]
    return sorted(chosen, key=lambda one: int(one.get("Order") or 0))


def _project(store: Store, spec: Json) -> Path:
    return store.path.parent / "lockers" / spec["Locker"] / "projects" / spec["Project"] / spec["Version"]


def _scripts(store: Store, spec: Json) -> Json:
    folder = _project(store, spec) / spec["Spec"] / "cluster-init/scripts"
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def files(cluster: Json, node: Json) -> dict[str, str]:
    """Return Slurm's files as the project makes them on the scheduler."""
    head = slurm_conf.Head(cluster["name"], node["Hostname"], node["PrivateIp"])
    return slurm_conf.files(cluster["heads"][node["Template"]], cluster["arrays"], head, limits.machine)


# What a node asks and says


def user(store: Store, name: str, password: str) -> Json | None:
    """What azslurm signs in as: it may use the REST interface."""
    for cluster in store.state["clusters"].values():
        if name == f"{cluster['name']}-autoscale" and secrets.compare_digest(cluster.get("secret", ""), password):
            return {"Name": name, "Superuser": True} if password else None
    return None


def asked(store: Store, secret: str, request: Json) -> Json:
    cluster = store.state["clusters"].get(request["cluster"]) or {}
    node = (cluster.get("nodes") or {}).get(request["node"])
    if node is None or not secret or not secrets.compare_digest(cluster.get("secret", ""), secret):
        raise UserError(f"{request['node']} is no node of a cluster here")
    if request["ask"] == "files":
        return files(cluster, node)
    if request["ask"] == "blob":
        return _blob(store, cluster, node, request["project"], request["blob"])
    if request["ask"] != "report":
        raise UserError(f"no {request['ask']}")
    node["_report"] = {"problem": request["problem"]}
    if request["host_keys"]:
        _seen_by_azure(store, azure.machine(cluster, node), node, request["host_keys"])
    return {}


def _blob(store: Store, cluster: Json, node: Json, project: str, name: str) -> Json:
    definition = {**cluster["heads"], **cluster["arrays"]}[node["Template"]]
    for spec in _specs(definition):
        path = _project(store, spec) / "blobs" / name
        if spec["Project"] == project and re.fullmatch(r"[\w][\w.-]*", name) and path.is_file():
            return {"data": base64.b64encode(path.read_bytes()).decode()}
    raise UserError(f"project {project} has no blob {name}")


def _seen_by_azure(store: Store, machine: str, node: Json, keys: list[str]) -> None:
    """Azure's agent in a machine can read its host keys, and its interface has the address of the instance."""
    given = t.cast(Json, configuration(store))
    headers = {"X-Emulator": "1", "Content-Type": "application/json"}
    handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_trust(given["ca"]))]
    opener = urllib.request.build_opener(*handlers)
    url = f"{given['url']}/_emulator/settings"
    with opener.open(urllib.request.Request(url, headers=headers), timeout=100) as answer:
        known = json.load(answer)
    said = {"host_keys": {**known["host_keys"], machine: keys}}
    if "_" in machine:
        own = {str(node["_machine"]).lower(): node["PrivateIp"]}
        said["instance_addresses"] = {**known["instance_addresses"], **own}
    body = json.dumps(said).encode()
    opener.open(urllib.request.Request(url, body, headers), timeout=100).close()
