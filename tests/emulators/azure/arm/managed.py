# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Managed identities: user-assigned ones as resources, system-assigned ones as part of a VM or an account."""

from __future__ import annotations

import copy
import typing as t

from . import access
from .behaviour import Behaviour, Call, register
from .http import ArmError
from .state import TENANT, State


@register("Microsoft.ManagedIdentity/userAssignedIdentities")
class Identity(Behaviour):
    def prepare(self, call: Call) -> None:
        before = (call.old or {}).get("properties") or {}
        if not before:
            principal, client = call.state.principal("ServicePrincipal", call.name)
            before = {"tenantId": TENANT, "principalId": principal, "clientId": client}
        call.properties.update({key: before[key] for key in ("tenantId", "principalId", "clientId")})

    def show(self, state: State, resource: dict[str, t.Any], query: dict[str, str]) -> dict[str, t.Any]:
        """Azure writes these ids with a small g."""
        return {**copy.deepcopy(resource), "id": resource["id"].replace("/resourceGroups/", "/resourcegroups/")}

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """Azure lets an identity go that is in use."""

    def deleted(self, state: State, resource: dict[str, t.Any]) -> None:
        state.directory.pop(resource["properties"]["principalId"], None)


def assign(call: Call) -> None:
    """Complete ``identity`` of a VM or an account: principals are made, user-assigned ones looked up."""
    said = call.new.get("identity")
    before = (call.old or {}).get("identity") or {}
    if not said or said.get("type") == "None":
        call.new.pop("identity", None)
        call.state.directory.pop(before.get("principalId"), None)
        return
    kind = said.get("type", "")
    if "SystemAssigned" in kind:
        said["principalId"] = before.get("principalId") or call.state.principal("ServicePrincipal", call.name)[0]
        said["tenantId"] = TENANT
    elif before.get("principalId"):
        call.state.directory.pop(before["principalId"], None)
        said.pop("principalId", None)
    found = {}
    for key in said.get("userAssignedIdentities") or {}:
        known = call.state.get(key)
        if not known:
            message = f"Resource '{key}' was not found. The user assigned identity does not exist."
            raise ArmError(400, "FailedIdentityOperation", message)
        access.linked(call.state, call.request, key)
        found[key] = {name: known["properties"][name] for name in ("principalId", "clientId")}
    if "UserAssigned" in kind and not found:
        raise ArmError(400, "InvalidIdentityValues", "A user assigned identity is missing.")
    if found:
        said["userAssignedIdentities"] = found
