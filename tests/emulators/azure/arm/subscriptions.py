# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The routes of Microsoft.Resources."""

from __future__ import annotations

from . import access, groups, ids
from .common import page
from .http import ArmError, Request, Response
from .routes import RG, SUB, Context, route
from .state import SUBSCRIPTION, TENANT

SUBSCRIPTIONS, PROVIDERS = "Microsoft.Resources/subscriptions", "Microsoft.Resources/providers"
GROUPS, RESOURCES = "Microsoft.Resources/resourceGroups", "Microsoft.Resources/resources"


@route("GET", "/subscriptions", SUBSCRIPTIONS)
def _subscriptions(context: Context) -> Response:
    return Response(200, {"value": [groups.subscription_of(SUBSCRIPTION)]})


@route("GET", "/tenants", SUBSCRIPTIONS)
def _tenants(context: Context) -> Response:
    one = {"id": f"/tenants/{TENANT}", "tenantId": TENANT, "displayName": "Emulated", "tenantCategory": "Home"}
    return Response(200, {"value": [one]})


@route("GET", SUB, SUBSCRIPTIONS)
def _subscription(context: Context) -> Response:
    access.allow(context.state, context.request)
    return Response(200, groups.subscription_of(context.words["sub"]))


@route("GET", f"{SUB}/locations", SUBSCRIPTIONS)
def _locations(context: Context) -> Response:
    return groups.locations(context.request)


@route("GET", f"{SUB}/providers", PROVIDERS)
def _providers(context: Context) -> Response:
    access.allow(context.state, context.request)
    found = [groups.provider(context.state, context.schemas, name) for name in context.schemas.providers]
    return page(context.state, context.request, found)


@route("GET", f"{SUB}/providers/(?P<namespace>[^/]+)", PROVIDERS)
def _provider(context: Context) -> Response:
    access.allow(context.state, context.request, "Microsoft.Resources/subscriptions/providers/read")
    return Response(200, groups.provider(context.state, context.schemas, context.words["namespace"]))


@route("POST", f"{SUB}/providers/(?P<namespace>[^/]+)/(?P<verb>register|unregister)", PROVIDERS)
def _register(context: Context) -> Response:
    undo = context.words["verb"].lower() == "unregister"
    return groups.register(context.state, context.schemas, context.request, context.words["namespace"], undo)


@route("GET", f"{SUB}/resourceGroups", GROUPS)
def _groups(context: Context) -> Response:
    return groups.groups(context.state, context.request)


@route("GET HEAD PUT PATCH DELETE", RG, GROUPS)
def _group(context: Context) -> Response:
    return groups.group(context.state, context.schemas, context.request)


@route("GET", f"(?:{SUB}|{RG.replace('?P<sub>', '')})/resources", RESOURCES)
def _resources(context: Context) -> Response:
    if ids.group(context.request.path):
        access.allow(context.state, context.request)
    return groups.resources(context.state, context.request)


def batch(context: Context) -> list[Request]:
    """Take POST /batch apart."""
    body = context.request.body
    if not isinstance(body, dict) or not isinstance(body.get("requests"), list) or len(body["requests"]) > 500:
        raise ArmError(400, "InvalidBatchRequest", "A batch needs 1 to 500 requests.")
    return [context.request._replace(method=one["httpMethod"], path=one["url"], body=one.get("content"))
            for one in body["requests"]]  # fmt: skip
