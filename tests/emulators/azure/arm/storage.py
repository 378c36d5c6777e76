# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Microsoft.Storage: accounts, their keys, blob services and containers as ARM sees them."""

from __future__ import annotations

import base64
import hashlib
import re
import typing as t

from . import access, ids
from .authorization import now
from .behaviour import Behaviour, Call, register
from .faults import error
from .http import ArmError, Response
from .managed import assign
from .routes import RG, SUB, Context, route
from .state import State

S = "Microsoft.Storage/storageAccounts"
FIXED = ("isHnsEnabled", "isNfsV3Enabled")
ACCOUNT = f"{RG}/providers/{S}/(?P<name>[^/]+)"


def free(state: State, name: str) -> tuple[str, str]:
    """Return reason and message where a name cannot be had."""
    if not re.fullmatch(r"[a-z0-9]{3,24}", name):
        message = (
            f"{name} is not a valid storage account name. Storage account name must be between 3 and 24 characters"
        )
        return "AccountNameInvalid", f"{message} in length and use numbers and lower-case letters only."
    if name in state.settings["taken_names"] or any(one["name"] == name for one in state.of_type(S)):
        return "AlreadyExists", f"The storage account named {name} is already taken."
    return "", ""


@register(S)
class Account(Behaviour):
    def prepare(self, call: Call) -> None:
        if not call.old:
            reason, message = free(call.state, call.name)
            if reason == "AlreadyExists":
                raise error("StorageAccountAlreadyTaken", name=call.name)
            if reason:
                raise ArmError(400, reason, message)
        before = (call.old or {}).get("properties", {})
        for key in FIXED:
            if call.old and key in call.properties and call.properties[key] != before.get(key, False):
                message = f"The property '{key}' cannot be updated on account {call.name}."
                raise ArmError(400, "AccountPropertyCannotBeUpdated", message)
        call.new["properties"] = {**self._defaults(call), **before, **call.properties}
        call.new["sku"] = {**call.new["sku"], "tier": call.new["sku"]["name"].partition("_")[0]}
        self._subnets(call)
        assign(call)

    @staticmethod
    def _defaults(call: Call) -> dict[str, t.Any]:
        ends = {
            key: f"https://{call.name}.{key}.core.windows.net/" for key in ("blob", "file", "queue", "table", "dfs")
        }
        services = {key: {"enabled": True, "keyType": "Account", "lastEnabledTime": now()} for key in ("blob", "file")}
        acls = {"bypass": "AzureServices", "defaultAction": "Allow", "virtualNetworkRules": [], "ipRules": []}
        return {
            "primaryEndpoints": ends,
            "provisioningState": "Creating",
            "primaryLocation": call.new["location"],
            "statusOfPrimary": "available",
            "creationTime": now(),
            "supportsHttpsTrafficOnly": True,
            "minimumTlsVersion": "TLS1_0",
            "allowBlobPublicAccess": False,
            "accessTier": "Hot",
            "encryption": {"keySource": "Microsoft.Storage", "services": services},
            "networkAcls": acls,
            "privateEndpointConnections": [],
            "publicNetworkAccess": "Enabled",
        }

    @staticmethod
    def _subnets(call: Call) -> None:
        rules = call.properties["networkAcls"]
        for key, value in (("virtualNetworkRules", []), ("ipRules", []), ("bypass", "AzureServices")):
            rules.setdefault(key, value)
        for rule in rules["virtualNetworkRules"]:
            subnet = call.state.get(rule["id"]) or {}
            if "Microsoft.Storage" not in str(subnet.get("properties", {}).get("serviceEndpoints")):
                message = f"Subnets {rule['id'].rsplit('/', 1)[-1]} of virtual network do not have ServiceEndpoints for"
                raise ArmError(
                    400, "SubnetsHaveNoServiceEndpointsConfigured", f"{message} Microsoft.Storage resources."
                )
            rule.setdefault("action", "Allow")
            rule["state"] = "Succeeded"

    def stored(self, call: Call) -> None:
        for kind in ("blobServices", "fileServices"):
            service = f"{call.id}/{kind}/default"
            if not call.state.get(service):
                call.state.put({"id": service, "name": "default", "type": f"{S}/{kind}", "properties": {}})

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """An account goes with what it holds."""


@register(f"{S}/blobServices/containers")
class Container(Behaviour):
    located = False

    def prepare(self, call: Call) -> None:
        if not re.fullmatch(r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*|\$root", call.name):
            message = "The specified resource name contains invalid characters."
            raise ArmError(400, "InvalidResourceName", message)
        said = {"leaseStatus": "Unlocked", "leaseState": "Available", "publicAccess": "None", "deleted": False}
        said.update({"hasImmutabilityPolicy": False, "hasLegalHold": False, "lastModifiedTime": now()})
        call.new["properties"] = {**said, **call.properties}


def keys(name: str) -> list[dict[str, str]]:
    """Return the account's keys: always the same ones, so that they need not be kept."""
    made = [base64.b64encode(hashlib.sha512(f"{name}/{number}".encode()).digest()).decode() for number in (1, 2)]
    return [{"keyName": f"key{number}", "value": key, "permissions": "FULL", "creationTime": now()}
            for number, key in enumerate(made, 1)]  # fmt: skip


@route("POST", f"{ACCOUNT}/(?P<verb>listKeys|regenerateKey)", S)
def _keys(context: Context) -> Response:
    path = context.request.path.rsplit("/", 1)[0]
    found = context.state.get(path)
    if not found:
        group = ids.group(path).rsplit("/", 1)[-1]
        raise error("ResourceNotFound", resource=f"{S}/{context.words['name']}", group=group)
    access.allow(context.state, context.request, f"{S}/{context.words['verb']}/action")
    access.unlocked(context.state, path, "write")
    return Response(200, {"keys": keys(found["name"])})


@route("POST", f"{SUB}/providers/Microsoft.Storage/checkNameAvailability", "Microsoft.Storage/checkNameAvailability")
def _available(context: Context) -> Response:
    body = context.request.body or {}
    if body.get("type") != S or set(body) - {"name", "type"}:
        raise ArmError(400, "InvalidRequestContent", f"The body is to be name and type {S}.")
    reason, message = free(context.state, body["name"])
    more = {"reason": reason, "message": message} if reason else {}
    return Response(200, {"nameAvailable": not reason, **more})
