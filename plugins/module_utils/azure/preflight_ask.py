# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the options of the preflight to its answer. Private."""

from __future__ import annotations

import traceback
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import (
    client,
    failure,
    finding,
    permissions,
    preflight,
    preflight_read,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.skus import Node

MISSING = ""
try:
    from azure.core.exceptions import AzureError as LibraryError
    from azure.mgmt.compute import ComputeManagementClient
except ImportError:
    MISSING = traceback.format_exc()

PROVIDERS = ["Microsoft.Compute", "Microsoft.Network", "Microsoft.Storage", "Microsoft.ManagedIdentity"]
NODE: dict[str, dict[str, t.Any]] = {
    "name": {"type": "str", "required": True},
    "size": {"type": "str", "required": True},
    "count": {"type": "int", "default": 1},
    "spot": {"type": "bool", "default": False},
    "image": {"type": "str", "default": ""},
    "zone": {"type": "str", "default": ""},
    "gpus": {"type": "int"},
    "rdma": {"type": "bool"},
    "nvme": {"type": "bool"},
    "price": {"type": "float"},
}
OPTIONS: dict[str, dict[str, t.Any]] = {
    "location": {"type": "str", "required": True},
    "resource_group": {"type": "str", "default": ""},
    "nodes": {"type": "list", "elements": "dict", "default": [], "options": NODE},
    "providers": {"type": "list", "elements": "str", "default": PROVIDERS},
    "assignments": {"type": "bool", "default": True},
    "quota_blocks": {"type": "bool", "default": True},
    "accept_terms": {"type": "bool", "default": False},
    "currency": {"type": "str", "default": "USD"},
}


def ask(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the answer of the module."""
    nodes = [Node(**{name: node[name] for name in NODE}) for node in params["nodes"]]
    refused = preflight.refusals(nodes)
    if refused:
        raise client.AzureError("; ".join(refused))
    location = preflight.region(params["location"])
    arm = client.connect(params)
    compute = arm.library(ComputeManagementClient)
    try:
        seen = preflight_read.read(arm, compute, location, nodes, params)
    except LibraryError as exc:
        raise client.AzureError(failure.explain(str(exc))) from exc
    scope = f"/subscriptions/{arm.subscription}"
    if seen.group_location:
        scope += f"/resourceGroups/{params['resource_group']}"
    needed = {
        action: role
        for action, role in permissions.NEEDED.items()
        if params["assignments"] or action != permissions.ASSIGN
    }
    asked = preflight.Asked(
        nodes, location, scope, params["quota_blocks"], params["currency"], needed, params["accept_terms"]
    )
    result = preflight.judge(asked, seen)
    return {**result, "text": finding.text(result["findings"])}
