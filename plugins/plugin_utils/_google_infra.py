# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster on Google Cloud consists of before Slurm creates its nodes. Pure; private."""

from __future__ import annotations

import typing as t

Record = t.Dict[str, t.Any]
Inputs = t.Mapping[str, t.Any]
_EVERYTHING = "cloud-platform"  # the scope; what the controller may do is its service account's roles


def resources(inputs: Inputs) -> list[Record]:
    """Return the resources in the order in which they need each other; they are removed the other way round."""
    cluster = str(inputs["cluster"])
    network, router, region = f"{cluster}-net", f"{cluster}-router", str(inputs["zone"]).rpartition("-")[0]
    inside = {"network": network, "direction": "INGRESS", "allow": ["all"]}
    subnet = {"network": network, "region": region, "range": inputs["address_range"]}
    nat = {"router": router, "region": region, "nat-all-subnet-ip-ranges": True}
    return [
        _resource("network", network, {"subnet-mode": "custom"}),
        _resource("subnet", f"{cluster}-subnet", {**subnet, "enable-private-ip-google-access": True}),
        _resource(
            "firewall_rule", f"{cluster}-internal", {**inside, "source-tags": [cluster], "target-tags": [cluster]}
        ),
        _resource("router", router, {"network": network, "region": region}),
        _resource("nat", f"{cluster}-nat", {**nat, "auto-allocate-nat-external-ips": True}),
        _resource("service_account", f"{cluster}-control", {"display-name": "Slurm controller"}),
        _resource("service_account", f"{cluster}-nodes", {"display-name": "Slurm nodes"}),
        *_ssh(inputs, cluster, network),
        *(
            _resource("role_binding", f"serviceAccount:{_account(inputs, account)}", {"role": role})
            for account, roles in (("control", inputs["controller_roles"]), ("nodes", inputs["node_roles"]))
            for role in roles
        ),
    ]


def _resource(kind: str, name: str, properties: Record) -> Record:
    return {"kind": kind, "name": name, "properties": properties}


def _ssh(inputs: Inputs, cluster: str, network: str) -> list[Record]:
    """Return the rule that lets SSH in; a cluster that is removed may have had one, whatever the inputs are now."""
    if not inputs["allowed_sources"] and inputs["state"] != "absent":
        return []
    rule = {"network": network, "direction": "INGRESS", "allow": ["tcp:22"]}
    sources = {"source-ranges": list(inputs["allowed_sources"]), "target-tags": [cluster]}
    return [_resource("firewall_rule", f"{cluster}-ssh", {**rule, **sources})]


def _account(inputs: Inputs, account: str) -> str:
    return f"{inputs['cluster']}-{account}@{inputs['project']}.iam.gserviceaccount.com"


def groups(inputs: Inputs) -> list[Record]:
    """Return the machines that do not come and go with jobs, by inventory group."""
    cluster = str(inputs["cluster"])
    common = {
        "image_family": inputs["image_family"],
        "image_project": inputs["image_project"],
        "subnet": f"{cluster}-subnet",
        "address": bool(inputs["public_address"]),
        "tags": [cluster],
        "metadata": {"ssh-keys": inputs["ssh_key"]} if inputs["ssh_key"] else {},
    }
    controller = {**common, "service_account": _account(inputs, "control"), "scopes": [_EVERYTHING]}
    login = {**common, "service_account": _account(inputs, "nodes")}
    logins = [f"{cluster}-login{number}" for number in range(1, int(inputs["login_count"]) + 1)]
    return [
        {
            "name": "slurm_controller",
            "hosts": [f"{cluster}-controller"],
            "machine": {**controller, **inputs["controller"]},
        },
        {"name": "slurm_login", "hosts": logins, "machine": {**login, **inputs["login"]}},
    ]
