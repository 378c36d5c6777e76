# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Microsoft.Authorization: roles, who has them, locks."""

from __future__ import annotations

import copy
import re
import time
import typing as t

from . import access, ids
from .behaviour import Behaviour, Call, register
from .common import page
from .faults import error
from .http import ArmError, Response
from .routes import Context, route
from .state import SUBSCRIPTION, TENANT, State

A = "Microsoft.Authorization/"
ASSIGNMENTS, DEFINITIONS, LOCKS = f"{A}roleAssignments", f"{A}roleDefinitions", f"{A}locks"
GUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.0000000Z", time.gmtime())


@register(ASSIGNMENTS)
class Assignment(Behaviour):
    located = False

    def prepare(self, call: Call) -> None:
        if not re.fullmatch(GUID, call.name):
            message = f"The role assignment ID '{call.name}' is not valid. The role assignment ID must be a GUID."
            raise ArmError(400, "InvalidRoleAssignmentId", message)
        said = call.properties
        self._role(call, said["roleDefinitionId"])
        said["scope"] = call.target.scope or "/"
        self._principal(call, said)
        self._compare(call, said)
        before = (call.old or {}).get("properties", {})
        said.setdefault("principalType", before.get("principalType", "ServicePrincipal"))
        said.update({"createdOn": before.get("createdOn", now()), "updatedOn": now()})
        said.update({"createdBy": call.request.principal, "updatedBy": call.request.principal})

    def stored(self, call: Call) -> None:
        """Every part of Azure learns of it in its own time."""
        if not call.old:
            call.state.hidden_of(call.new["id"])["since"] = time.time()

    @staticmethod
    def _role(call: Call, definition: str) -> None:
        name = definition.rsplit("/", 1)[-1]
        if not re.search("/roleDefinitions/[^/]+$", definition, re.IGNORECASE):
            raise ArmError(400, "InvalidRoleDefinitionId", f"The role definition ID '{definition}' is not valid.")
        if not access.role(call.state, definition):
            message = f"The specified role definition with ID '{name}' does not exist."
            raise ArmError(404, "RoleDefinitionDoesNotExist", message)
        base = f"/subscriptions/{SUBSCRIPTION}/providers/{DEFINITIONS}/{name}"
        call.properties["roleDefinitionId"] = base

    @staticmethod
    def _principal(call: Call, said: dict[str, t.Any]) -> None:
        principal = said["principalId"]
        if not re.fullmatch(GUID, principal):
            raise ArmError(400, "InvalidPrincipalId", f"A principal ID must be a GUID: '{principal}'.")
        if said.get("principalType"):
            return
        known = call.state.directory.get(principal)
        fresh = known and known["since"] + call.state.settings["replication_delay"] > time.time()
        if not known or fresh:
            raise error("PrincipalNotFound", principal=principal.replace("-", ""), tenant=TENANT)
        said["principalType"] = known["type"]

    @staticmethod
    def _compare(call: Call, said: dict[str, t.Any]) -> None:
        keys = ("roleDefinitionId", "principalId", "scope")
        for other in call.state.of_type(ASSIGNMENTS):
            same = [str(other["properties"][key]).lower() == str(said[key]).lower() for key in keys]
            if other["name"].lower() == call.name.lower() and not all(same):
                raise error("RoleAssignmentUpdateNotPermitted")
            if all(same) and other["name"].lower() != call.name.lower():
                raise error("RoleAssignmentExists", existing=other["name"].replace("-", ""))


@register(DEFINITIONS)
class Definition(Behaviour):
    located = False

    def prepare(self, call: Call) -> None:
        if not call.properties.get("permissions") or not call.properties.get("assignableScopes"):
            raise ArmError(400, "InvalidRoleDefinition", "A role needs permissions and assignableScopes.")
        call.properties["type"] = "CustomRole"

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        for one in state.of_type(ASSIGNMENTS):
            if one["properties"]["roleDefinitionId"].endswith(resource["name"]):
                message = "There are existing role assignments referencing role."
                raise ArmError(409, "RoleDefinitionHasAssignments", message)


@register(LOCKS)
class Lock(Behaviour):
    located = False

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """A lock does not lock itself."""


def _definition(name: str, scope: str, said: dict[str, t.Any]) -> dict[str, t.Any]:
    base = scope if scope else ""
    return {"id": f"{base}/providers/{DEFINITIONS}/{name}", "type": DEFINITIONS, "name": name, "properties": said}


@route("GET", f"(?P<scope>.*)/providers/{DEFINITIONS}", DEFINITIONS)
def _definitions(context: Context) -> Response:
    access.allow(context.state, context.request)
    found = [_definition(name, context.words["scope"], said) for name, said in access.ROLES.items()]
    found += context.state.of_type(DEFINITIONS)
    said = context.request.query.get("$filter", "")
    match = re.search("roleName eq '([^']+)'", said)
    if match:
        found = [one for one in found if one["properties"]["roleName"].lower() == match[1].lower()]
    return page(context.state, context.request, found)


@route("GET", f"(?P<scope>.*)/providers/{DEFINITIONS}/(?P<name>[^/]+)", DEFINITIONS)
def _role(context: Context) -> Response:
    said = access.role(context.state, context.words["name"])
    if not said:
        message = f"The specified role definition with ID '{context.words['name']}' does not exist."
        raise ArmError(404, "RoleDefinitionDoesNotExist", message)
    return Response(200, _definition(context.words["name"], context.words["scope"], said))


@route("GET", f"(?P<scope>.*)/providers/{ASSIGNMENTS}", ASSIGNMENTS)
def _assignments(context: Context) -> Response:
    access.allow(context.state, context.request)
    scope, said = context.words["scope"], context.request.query.get("$filter", "")
    group = ids.group(scope)
    if group and not context.state.get(group):
        raise error("ResourceGroupNotFound", name=group.rsplit("/", 1)[-1])
    found = []
    for one in context.state.of_type(ASSIGNMENTS):
        place = one["properties"]["scope"]
        above, below = ids.inside(place.rstrip("/"), scope), ids.inside(scope, place)
        if above or (below and "atScope()" not in said):
            found.append(one)
    principal = re.search(r"(?:principalId eq |assignedTo\()'([^']+)'", said)
    if principal:
        found = [one for one in found if one["properties"]["principalId"] == principal[1]]
    elif said and "atScope()" not in said:
        raise ArmError(400, "BadRequestFormat", f"The filter '{said}' is not supported.")
    return page(context.state, context.request, found)


@route("GET", f"(?P<scope>.*)/providers/{A}permissions", f"{A}permissions")
def _permissions(context: Context) -> Response:
    scope = context.words["scope"]
    if ids.group(scope) and not context.state.get(ids.group(scope)):
        raise error("ResourceGroupNotFound", name=ids.group(scope).rsplit("/", 1)[-1])
    found = copy.deepcopy(access.permissions(context.state, context.request.principal, scope))
    for rule in context.state.settings["denied"]:
        said = {"action": rule} if isinstance(rule, str) else rule
        if ids.inside(said.get("scope", ""), scope):
            for one in found:
                one["notActions"] = [*one["notActions"], said["action"]]
    return page(context.state, context.request, found)


@route("GET", f"(?P<scope>.*)/providers/{LOCKS}", LOCKS)
def _locks(context: Context) -> Response:
    access.allow(context.state, context.request)
    found = [one for one in context.state.of_type(LOCKS) if ids.inside(context.words["scope"], one["id"])]
    return page(context.state, context.request, found)
