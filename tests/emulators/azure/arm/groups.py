# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Subscriptions, providers and their registration, resource groups, lists of resources, tags, batch."""

from __future__ import annotations

import re
import typing as t

from . import access, behaviour, ids, operations, schema
from .common import REGIONS, page, region, remove
from .faults import error
from .http import ArmError, Request, Response
from .state import SUBSCRIPTION, TENANT, State

GROUP = "Microsoft.Resources/resourceGroups"


def subscription_of(name: str) -> dict[str, t.Any]:
    return {
        "id": f"/subscriptions/{name}",
        "subscriptionId": name,
        "tenantId": TENANT,
        "displayName": "Emulated",
        "state": "Enabled",
        "authorizationSource": "RoleBased",
        "subscriptionPolicies": {"quotaId": "EnterpriseAgreement_2014-09-01", "spendingLimit": "Off"},
    }


def locations(request: Request) -> Response:
    base = "/".join(request.path.split("/")[:3])
    said = [
        {"id": f"{base}/locations/{name}", "name": name, "displayName": shown, "regionalDisplayName": shown,
         "type": "Region", "metadata": {"regionType": "Physical"}}
        for name, shown in REGIONS.items()
    ]  # fmt: skip
    return Response(200, {"value": said})


def provider(state: State, schemas: schema.Schemas, namespace: str) -> dict[str, t.Any]:
    """Return a provider as GET shows it; ARM knows many more namespaces than the emulator."""
    known = schemas.providers.get(namespace.lower())
    if not known:
        raise ArmError(404, "InvalidResourceNamespace", f"The resource namespace '{namespace}' is invalid.")
    types = [
        {
            "resourceType": name,
            "locations": list(REGIONS.values()),
            "apiVersions": rules["versions"],
            "capabilities": "",
        }
        for name, rules in known["types"].items()
    ]
    registered = state.registered.get(namespace.lower(), "Registered")
    base = f"/subscriptions/{SUBSCRIPTION}/providers/{known['namespace']}"
    more = {"registrationState": registered, "registrationPolicy": "RegistrationRequired", "resourceTypes": types}
    return {"id": base, "namespace": known["namespace"], **more}


def register(state: State, schemas: schema.Schemas, request: Request, namespace: str, undo: bool) -> Response:
    """POST …/register and …/unregister; takes its time."""
    access.allow(state, request, f"{namespace}/{'un' if undo else ''}register/action")
    provider(state, schemas, namespace)
    if undo:
        state.registered[namespace.lower()] = "NotRegistered"
    elif state.registered.get(namespace.lower(), "Registered") != "Registered":
        state.registered[namespace.lower()] = "Registering"
        where = f"/subscriptions/{SUBSCRIPTION}/providers/{namespace}"
        operations.begin(state, "registered", where, state.settings["registration_delay"])
    return Response(200, provider(state, schemas, namespace))


@operations.effect("registered")
def _registered(state: State, operation: dict[str, t.Any]) -> None:
    state.registered[operation["resource"].rsplit("/", 1)[-1].lower()] = "Registered"


def group(state: State, schemas: schema.Schemas, request: Request) -> Response:
    """Everything about one resource group."""
    kind = schemas.kind("Microsoft.Resources/resourceGroups", request.version)
    access.allow(state, request)
    found, name = state.get(request.path), request.path.rsplit("/", 1)[-1]
    if request.method == "PUT":
        return _put(state, request, kind, found, name)
    if request.method == "HEAD":
        return Response(204 if found else 404)
    if not found:
        raise error("ResourceGroupNotFound", name=name)
    if request.method == "PATCH":
        schema.check("ResourceGroup", kind.models, request.body, partial=True)
        found["tags"] = request.body.get("tags") or found.get("tags", {})
    if request.method == "DELETE":
        return _delete(state, request, found)
    return Response(200, found)


def _put(state: State, request: Request, kind: schema.Kind, found: t.Any, name: str) -> Response:
    schema.check("ResourceGroup", kind.models, request.body)
    if not re.fullmatch(r"[-\w._()]{1,90}(?<!\.)", name):
        raise ArmError(400, "InvalidResourceGroup", f"The resource group name '{name}' is invalid.")
    place = region(request.body["location"], "resourceGroups")
    if found and found["properties"]["provisioningState"] == "Deleting":
        raise error("ResourceGroupBeingDeleted", name=name)
    if found and found["location"] != place:
        raise error("InvalidResourceGroupLocation", location=place, existing=found["location"])
    access.unlocked(state, request.path, "write")
    access.by_policy(state, GROUP, name)
    made: dict[str, t.Any] = {"id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}", "name": name, "type": GROUP}
    if found:
        made.update({"id": found["id"], "name": found["name"]})
    made.update({"location": place, "properties": {"provisioningState": "Succeeded"}})
    if request.body.get("tags") is not None:
        made["tags"] = request.body["tags"]
    state.put(made)
    return Response(200 if found else 201, made)


def _delete(state: State, request: Request, found: dict[str, t.Any]) -> Response:
    if found["properties"]["provisioningState"] == "Deleting":
        raise error("ResourceGroupBeingDeleted", name=found["name"])
    access.unlocked(state, found["id"], "delete")
    found["properties"]["provisioningState"] = "Deleting"
    made = operations.begin(state, "group removed", found["id"], state.settings["group_delete_delay"])
    return Response(202, None, operations.headers(state, request, made, "location"))


@operations.effect("group removed")
def _group_removed(state: State, operation: dict[str, t.Any]) -> None:
    found = state.get(operation["resource"])
    if not found:
        return
    outside = [
        (one, user) for one in state.under(found["id"]) for user in behaviour.referrers(state, one["id"])
        if not ids.inside(found["id"], user["id"]) and ids.parse(one["id"])
    ]  # fmt: skip
    if outside:
        one, user = outside[0]
        message = f"{one['id']} is in use by {user['id']} and cannot be deleted."
        operation.update({"status": "Failed", "error": {"code": "ResourceGroupDeletionBlocked", "message": message}})
        found["properties"]["provisioningState"] = "Succeeded"
        return
    remove(state, found)


def tagged(found: list[dict[str, t.Any]], said: str) -> list[dict[str, t.Any]]:
    """Apply the $filter of lists; what it does not know is refused."""
    if not said:
        return found
    for part in re.split(r"\s+and\s+", said):
        tag = re.fullmatch(r"tagName eq '([^']*)'", part)
        value = re.fullmatch(r"tagValue eq '([^']*)'", part)
        plain = re.fullmatch(r"(resourceType|name|resourceGroup|location) eq '([^']*)'", part)
        if tag:
            key = tag[1]
            found = [one for one in found if key.lower() in {name.lower() for name in one.get("tags") or {}}]
        elif value:
            found = [one for one in found if value[1] in (one.get("tags") or {}).values()]
        elif plain:
            found = [one for one in found if _is(one, plain[1], plain[2])]
        else:
            raise ArmError(
                400, "InvalidFilterInQueryString", f"Invalid $filter '{said}' specified in the query string."
            )
    return found


def _is(one: dict[str, t.Any], key: str, value: str) -> bool:
    if key == "resourceGroup":
        return ids.group(one["id"]).rsplit("/", 1)[-1].lower() == value.lower()
    return str(one.get({"resourceType": "type"}.get(key, key), "")).lower() == value.lower()


def groups(state: State, request: Request) -> Response:
    found = [one for one in state.of_type(GROUP) if ids.inside(request.path.rsplit("/", 1)[0], one["id"])]
    return page(state, request, tagged(access.readable(state, request, found), request.query.get("$filter", "")))


def resources(state: State, request: Request) -> Response:
    """GET …/resources: top-level resources, briefly."""
    scope = re.sub(r"/resources$", "", request.path, flags=re.IGNORECASE)
    if ids.group(scope) and not state.get(scope):
        raise error("ResourceGroupNotFound", name=scope.rsplit("/", 1)[-1])
    kept = ("id", "name", "type", "location", "tags", "sku", "kind", "identity", "zones", "plan", "managedBy")
    found = []
    for one in state.under(scope):
        target = ids.parse(one["id"])
        if target and "location" in one and len(target.types) == 1:
            found.append({key: one[key] for key in kept if key in one})
    return page(state, request, tagged(access.readable(state, request, found), request.query.get("$filter", "")))
