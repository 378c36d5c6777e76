# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Typed resources: PUT, PATCH, GET, HEAD, DELETE and lists, with every check that is the same for all types."""

from __future__ import annotations

import json
import typing as t
import uuid

from . import access, behaviour, ids, operations, schema
from .behaviour import Call
from .common import merge, page, region, remove
from .faults import error
from .http import ArmError, Request, Response
from .state import State

FREE = {"microsoft.resources", "microsoft.authorization", "microsoft.commerce", "microsoft.marketplaceordering"}


class Resources:
    """All typed resources of a state."""

    def __init__(self, state: State, schemas: schema.Schemas) -> None:
        self.state, self.schemas = state, schemas

    def handle(self, request: Request, target: ids.Target) -> Response:
        kind = self.schemas.kind(target.type, request.version)
        if kind.rules.get("read"):
            raise ArmError(405, "MethodNotAllowed", f"There is no {request.method} of {kind.name} here.")
        self._scope_exists(target, kind)
        if target.is_collection and not target.names and not ids.group(target.scope):
            return self._list(request, target)  # of a whole subscription: what may not be read is left out
        access.allow(self.state, request)
        if target.is_collection:
            return self._list(request, target)
        call = Call(self.state, request, target, kind, self.state.get(target.id), kinds=self.schemas.kinds)
        verb = {"PUT": self._put, "PATCH": self._patch, "DELETE": self._delete}.get(request.method, self._get)
        if request.method in ("PUT", "PATCH"):
            self._registered(target.namespace)
            self._unlocked(call, "write")
        return verb(call)

    def _scope_exists(self, target: ids.Target, kind: schema.Kind) -> None:
        group = ids.group(target.scope)
        if group and not self.state.get(group):
            raise error("ResourceGroupNotFound", name=group.rsplit("/", 1)[-1])
        if kind.rules.get("extension"):
            if ids.parse(target.scope) and not self.state.get(target.scope):
                raise error("ResourceNotFound", resource=target.scope, group=group.rsplit("/", 1)[-1])
        elif ids.parse(target.scope) or (not group and not target.is_collection):
            raise ArmError(404, "InvalidResourceType", f"{kind.name} cannot be at {target.scope}.")

    def _registered(self, namespace: str) -> None:
        if namespace.lower() in FREE:
            return
        if self.state.registered.get(namespace.lower(), "Registered") != "Registered":
            raise error("MissingSubscriptionRegistration", namespace=namespace)

    def _unlocked(self, call: Call, what: str) -> None:
        """A lock stops everything but changes of locks."""
        if not call.kind.name.endswith("/locks"):
            access.unlocked(self.state, call.id, what)

    def _list(self, request: Request, target: ids.Target) -> Response:
        if request.method != "GET":
            raise ArmError(405, "MethodNotAllowed", f"The method '{request.method}' is not allowed here.")
        if target.names and not self.state.get(target.parent):
            raise error("ParentResourceNotFound", parent=target.parent)
        scope = target.parent if target.names else target.scope
        found = [one for one in self.state.under(scope) if one["type"].lower() == target.type.lower()]
        found = access.readable(self.state, request, found)
        shown = [behaviour.of(one["type"]).show(self.state, one, request.query) for one in found]
        return page(self.state, request, shown)

    def _get(self, call: Call) -> Response:
        if call.request.method not in ("GET", "HEAD"):
            raise ArmError(405, "MethodNotAllowed", f"The method '{call.request.method}' is not allowed here.")
        found = self._must_exist(call)
        shown = behaviour.of(call.kind.name).show(self.state, found, call.request.query)
        return Response(200 if call.request.method == "GET" else 204, shown if call.request.method == "GET" else None)

    def _must_exist(self, call: Call) -> dict[str, t.Any]:
        if call.old:
            return call.old
        if len(call.target.types) > 1 and not self.state.get(call.target.parent):
            raise error("ParentResourceNotFound", parent=call.target.parent)
        short = f"{call.kind.name}/{call.target.names[-1]}"
        raise error("ResourceNotFound", resource=short, group=ids.group(call.id).rsplit("/", 1)[-1])

    def _put(self, call: Call) -> Response:
        call.body = self._body(call, call.kind.rules["model"], partial=False)
        self._parent(call)
        call.new = schema.read_only(call.kind.rules["model"], call.kind.models, call.body)
        self._complete(call)
        return self._keep(call)

    def _patch(self, call: Call) -> Response:
        old = self._must_exist(call)
        call.body = self._body(call, call.kind.rules.get("patch", call.kind.rules["model"]), partial=True)
        new = json.loads(json.dumps(old))
        for key, value in call.body.items():
            if key == "properties":
                merge(new.setdefault("properties", {}), value)
            elif value is not None:
                new[key] = value
        call.new = new
        self._complete(call)
        return self._keep(call)

    def _body(self, call: Call, model: str, partial: bool) -> dict[str, t.Any]:
        body = call.request.body
        if body is None:
            raise ArmError(400, "InvalidRequestContent", "The request content was invalid: a body is required.")
        schema.check(model, call.kind.models, body, partial)
        return dict(body)

    def _parent(self, call: Call) -> None:
        group = call.group
        if group and group["properties"]["provisioningState"] == "Deleting":
            raise error("ResourceGroupBeingDeleted", name=group["name"])
        if len(call.target.types) > 1 and not self.state.get(call.target.parent):
            raise error("ParentResourceNotFound", parent=call.target.parent)
        if ((call.old or {}).get("properties") or {}).get("provisioningState") == "Deleting":
            raise error("AnotherOperationInProgress", uri=call.id)
        access.by_policy(self.state, call.kind.name, call.target.names[-1])

    def _complete(self, call: Call) -> None:
        hooks, old = behaviour.of(call.kind.name), call.old
        call.new.update({"id": old["id"] if old else call.id, "name": call.target.names[-1], "type": call.kind.name})
        if len(call.target.types) == 1 and hooks.located and not call.kind.rules.get("extension"):
            self._locate(call, old)
            access.inherit_tags(self.state, call.group, call.new)
        if old:
            self._carry(call.kind.rules["model"], call.kind.models, old, call.new)
        behaviour.check_references(call, self.schemas.kinds)
        for said in ids.references(call.new.get("properties", {})):
            access.linked(self.state, call.request, said)
        hooks.prepare(call)

    def _locate(self, call: Call, old: dict[str, t.Any] | None) -> None:
        if not call.new.get("location"):
            raise ArmError(400, "LocationRequired", "The location property is required for this definition.")
        call.new["location"] = region(call.new["location"], call.kind.name)
        if old and old["location"] != call.new["location"]:
            words = {"existing": old["location"], "location": call.new["location"]}
            raise error("InvalidResourceLocation", name=call.target.names[-1], group=call.group["name"], **words)

    def _carry(self, model: t.Any, models: dict[str, t.Any], old: dict[str, t.Any], new: dict[str, t.Any]) -> None:
        """Keep what only the service sets."""
        said = models[model] if isinstance(model, str) else model
        for key, value in said.items():
            if isinstance(value, dict) and isinstance(old.get(key), dict):
                self._carry(value, models, old[key], new.setdefault(key, {}))
            elif isinstance(value, str) and value.endswith("~") and key in old and key not in new:
                new[key] = old[key]

    def _keep(self, call: Call) -> Response:
        style, hooks = call.kind.rules["put"], behaviour.of(call.kind.name)
        long = style != "sync"
        if "provisioningState" in json.dumps(call.kind.models[call.kind.rules["model"]]):
            first = "Creating" if not call.old and not call.kind.name.startswith("Microsoft.Network") else "Updating"
            call.properties["provisioningState"] = first if long else "Succeeded"
        if "etag" in call.kind.models[call.kind.rules["model"]]:
            call.new["etag"] = f'W/"{uuid.uuid4()}"'
        self.state.put(call.new)
        hooks.stored(call)
        headers: dict[str, str] = {}
        if long:
            failing = call.failure or self.state.data.get("failing")
            made = operations.begin(self.state, "written", call.id, call.delay, error=failing)
            headers = operations.headers(self.state, call.request, made, "async" if style == "async" else "location")
        created = 202 if style == "location202" else call.kind.rules.get("created", 201)
        status = 200 if call.old else created
        shown = hooks.show(self.state, call.new, {})
        if style == "location202" and status == 202:
            return Response(202, None, headers)
        return Response(status, shown, headers)

    def _delete(self, call: Call) -> Response:
        group = call.group
        if group and group["properties"]["provisioningState"] == "Deleting":
            raise error("ResourceGroupBeingDeleted", name=group["name"])
        if not call.old:
            return Response(204)
        self._unlocked(call, "delete")
        hooks = behaviour.of(call.kind.name)
        hooks.deletable(self.state, call.old)
        if call.kind.rules["delete"] == "none":
            raise ArmError(405, "MethodNotAllowed", f"{call.kind.name} cannot be deleted.")
        if call.kind.rules["delete"] == "sync":
            removed = remove(self.state, call.old)
            return Response(200, removed if call.kind.rules.get("extension") else None)
        call.old.setdefault("properties", {})["provisioningState"] = "Deleting"
        made = operations.begin(self.state, "removed", call.id, call.delay)
        return Response(202, None, operations.headers(self.state, call.request, made, "both"))
