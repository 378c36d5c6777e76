# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of virtual machines beyond reading and writing them: power, their view from inside, all of them."""

from __future__ import annotations

from . import access, operations
from .common import page
from .compute import VM, Vm, instance_view
from .faults import error
from .http import Response
from .routes import RG, SUB, Context, route


@route("POST", f"{RG}/providers/{VM}/(?P<name>[^/]+)/(?P<verb>start|powerOff|restart|deallocate|generalize)", VM)
def _power(context: Context) -> Response:
    path, verb = context.request.path.rsplit("/", 1)[0], context.words["verb"].lower()
    found = context.state.get(path)
    if not found:
        raise error("ResourceNotFound", resource=f"{VM}/{context.words['name']}", group=context.words["group"])
    access.allow(context.state, context.request)
    if verb == "generalize":
        return Response(200)
    after = {"start": "running", "restart": "running", "poweroff": "stopped", "deallocate": "deallocated"}[verb]
    found["properties"]["powerState"] = after
    made = operations.begin(context.state, "written", path)
    return Response(202, None, operations.headers(context.state, context.request, made, "both"))


@route("GET", f"{RG}/providers/{VM}/(?P<name>[^/]+)/instanceView", VM)
def _view(context: Context) -> Response:
    found = context.state.get(context.request.path.rsplit("/", 1)[0])
    if not found:
        raise error("ResourceNotFound", resource=f"{VM}/{context.words['name']}", group=context.words["group"])
    return Response(200, instance_view(found))


@route("GET", f"{SUB}/providers/{VM}", VM)
def _all(context: Context) -> Response:
    listed = access.readable(context.state, context.request, context.state.of_type(VM))
    found = [Vm().show(context.state, one, {}) for one in listed]
    return page(context.state, context.request, found)
