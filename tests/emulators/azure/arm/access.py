# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""May this principal do that here: role assignments, denials that a test asks for, locks, policies."""

from __future__ import annotations

import fnmatch
import json
import time
import typing as t
from pathlib import Path

from . import ids
from .faults import error
from .http import Request
from .state import OBJECT, SUBSCRIPTION, State

ROLES: dict[str, dict[str, t.Any]] = json.loads((Path(__file__).parents[1] / "data/roles.json").read_text())
VERBS = {"GET": "read", "HEAD": "read", "PUT": "write", "PATCH": "write", "DELETE": "delete"}


def action_of(method: str, path: str) -> str:
    """Name what a request does, as in role definitions."""
    target = ids.parse(path)
    if not target:
        parts = path.strip("/").split("/")
        kind = "/subscriptions/resourceGroups" if len(parts) > 2 and parts[2].lower() == "resourcegroups" else ""
        name, last = f"Microsoft.Resources{kind or '/subscriptions'}", parts[-1] if len(parts) > 4 else ""
        return f"{name}/{VERBS[method]}" if method in VERBS else f"{name}/{last}/action"
    if method == "POST":
        return f"{target.type}/action"
    return f"{target.type}/{VERBS[method]}"


def covers(permission: dict[str, t.Any], action: str) -> bool:
    """Tell whether one permission of a role allows an action."""

    def hit(key: str) -> bool:
        return any(fnmatch.fnmatchcase(action.lower(), said.lower()) for said in permission.get(key, []))

    return hit("actions") and not hit("notActions")


def assignments(state: State, principal: str, scope: str) -> list[dict[str, t.Any]]:
    """Return what is assigned to a principal at a scope or above it."""
    found = []
    for one in state.of_type("Microsoft.Authorization/roleAssignments"):
        said = one["properties"]
        fresh = state.hidden_of(one["id"]).get("since", 0) + state.settings["assignment_delay"] > time.time()
        if said["principalId"] == principal and ids.inside(said["scope"], scope) and not fresh:
            found.append(one)
    return found


def role(state: State, definition: str) -> dict[str, t.Any] | None:
    """Return the properties of a role definition, built in or made here."""
    name = definition.rstrip("/").rsplit("/", 1)[-1].lower()
    if name in ROLES:
        return ROLES[name]
    made = [one for one in state.of_type("Microsoft.Authorization/roleDefinitions") if one["name"].lower() == name]
    return made[0]["properties"] if made else None


def permissions(state: State, principal: str, scope: str) -> list[dict[str, t.Any]]:
    found: list[dict[str, t.Any]] = []
    for one in assignments(state, principal, scope):
        said = role(state, one["properties"]["roleDefinitionId"])
        found += said["permissions"] if said else []
    return found


def _denied(state: State, principal: str, action: str, scope: str) -> bool:
    for rule in state.settings["denied"]:
        said = {"action": rule} if isinstance(rule, str) else rule
        if not fnmatch.fnmatchcase(action.lower(), said["action"].lower()):
            continue
        if said.get("principal", principal) == principal and ids.inside(said.get("scope", ""), scope):
            return True
    return False


def allow(state: State, request: Request, action: str = "", scope: str = "") -> None:
    """Refuse what the principal has no right to."""
    action = action or action_of(request.method, request.path)
    scope = scope or request.path
    granted = permissions(state, request.principal, scope)
    if _denied(state, request.principal, action, scope) or not any(covers(one, action) for one in granted):
        raise error("AuthorizationFailed", client=request.principal, action=action, scope=scope)


def readable(state: State, request: Request, found: list[dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Leave out of a listing what the principal may not read; the listing itself needs no right."""
    kept = []
    for one in found:
        granted = permissions(state, request.principal, one["id"])
        action = (
            f"{one['type'].replace('Microsoft.Resources/resource', 'Microsoft.Resources/subscriptions/resource')}/read"
        )
        if any(covers(each, action) for each in granted) and not _denied(state, request.principal, action, one["id"]):
            kept.append(one)
    return kept


# What else somebody needs who points a resource at one of these.
LINKED = {
    "microsoft.network/virtualnetworks/subnets": "join",
    "microsoft.network/networkinterfaces": "join",
    "microsoft.network/networksecuritygroups": "join",
    "microsoft.network/publicipaddresses": "join",
    "microsoft.network/natgateways": "join",
    "microsoft.managedidentity/userassignedidentities": "assign",
}


def linked(state: State, request: Request, scope: str) -> None:
    """Refuse to use what the principal may not use."""
    target = ids.parse(scope)
    verb = LINKED.get(target.type.lower()) if target else None
    if not target or not verb:
        return
    action = f"{target.type}/{verb}/action"
    granted = permissions(state, request.principal, scope)
    if _denied(state, request.principal, action, scope) or not any(covers(one, action) for one in granted):
        words = {"client": request.principal, "linked": action, "other": scope}
        raise error(
            "LinkedAuthorizationFailed", action=action_of(request.method, request.path), scope=request.path, **words
        )


def unlocked(state: State, scope: str, what: str) -> None:
    """Refuse to write or delete what is locked: at the scope, above it, or (for a delete) below it."""
    hit = []
    for lock in state.of_type("Microsoft.Authorization/locks"):
        level, place = (
            lock["properties"]["level"],
            lock["id"].lower().rsplit("/providers/microsoft.authorization", 1)[0],
        )
        if what == "write" and level != "ReadOnly":
            continue
        if ids.inside(place, scope) or (what == "delete" and ids.inside(scope, place)):
            hit.append(lock["id"].rsplit("/providers/", 1)[0])
    if hit:
        raise error("ScopeLocked", scope=scope, what=what, locked=",".join(hit))


def by_policy(state: State, kind: str, name: str) -> None:
    for policy in state.settings["policies"]:
        if policy.get("type", kind).lower() == kind.lower() and fnmatch.fnmatch(name, policy.get("name", "*")):
            raise error("RequestDisallowedByPolicy", name=name, target=name)


def inherit_tags(state: State, group: dict[str, t.Any], made: dict[str, t.Any]) -> None:
    """Do what Azure's policies "Inherit a tag from the resource group if missing" do."""
    given = group.get("tags") or {}
    copied = {name: given[name] for name in state.settings["inherited_tags"] if name in given}
    if copied:
        made["tags"] = {**copied, **(made.get("tags") or {})}


def seed(state: State) -> None:
    """The emulated service principal owns the subscription; this is not something a deployment made."""
    scope = f"/subscriptions/{SUBSCRIPTION}"
    name = "55555555-5555-4555-8555-555555555555"
    base = f"{scope}/providers/Microsoft.Authorization"
    owner = f"{base}/roleDefinitions/8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
    said = {"roleDefinitionId": owner, "principalId": OBJECT, "principalType": "ServicePrincipal", "scope": scope}
    kind = "Microsoft.Authorization/roleAssignments"
    if not state.get(f"{base}/roleAssignments/{name}"):
        state.put({"id": f"{base}/roleAssignments/{name}", "name": name, "type": kind, "properties": said})
        state.hidden_of(f"{base}/roleAssignments/{name}")["seeded"] = True
