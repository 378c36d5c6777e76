# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Microsoft.Compute/virtualMachineScaleSets and the instances in them."""

from __future__ import annotations

import copy
import typing as t
import uuid

from . import access, operations
from .authorization import now
from .behaviour import Behaviour, Call, register
from .common import page
from .faults import envelope, error
from .http import ArmError, Response
from .managed import assign
from .routes import RG, SUB, Context, route
from .state import State
from .vm_checks import bad, check_image, check_os, check_quota, check_size, without_secrets

SET = "Microsoft.Compute/virtualMachineScaleSets"
ONE = f"{RG}/providers/{SET}/(?P<name>[^/]+)"


@register(SET)
class ScaleSet(Behaviour):
    def prepare(self, call: Call) -> None:
        sku, said = call.new.get("sku") or {}, call.properties
        if not sku.get("name"):
            raise bad("InvalidParameter", "The value of parameter sku.name is missing.", "sku")
        sku["tier"], sku["capacity"] = "Standard", int(sku.get("capacity") or 0)
        size = check_size(call.state, sku["name"], call.new["location"], call.new.get("zones") or [])
        before = int(((call.old or {}).get("sku") or {}).get("capacity", 0))
        profile = said.get("virtualMachineProfile") or {}
        spot = str(profile.get("priority")).lower() == "spot"
        more = sku["capacity"] - before
        if more > 0:
            check_quota(call.state, size, more, call.new["location"], spot)
            if size["name"] in call.state.settings["no_capacity"]:
                call.failure = envelope("AllocationFailed")
        if profile and not call.old:
            check_image(call.state, profile.setdefault("storageProfile", {}), call.new.get("plan"), size)
            os = dict(profile.get("osProfile") or {})
            check_os({**os, "computerName": os.pop("computerNamePrefix", "").rstrip("-")})
            said.update({"uniqueId": str(uuid.uuid4()), "timeCreated": now()})
        if profile.get("osProfile"):
            profile["osProfile"] = without_secrets(profile["osProfile"])
        said.setdefault("orchestrationMode", "Uniform")
        said.setdefault("singlePlacementGroup", True)
        assign(call)

    def stored(self, call: Call) -> None:
        hidden = call.state.hidden_of(call.id)
        hidden.setdefault("next", 0)
        kept = hidden.setdefault("instances", [])
        while len(kept) < call.new["sku"]["capacity"]:
            kept.append({"instanceId": str(hidden["next"]), "vmId": str(uuid.uuid4())})
            hidden["next"] += 1
        del kept[call.new["sku"]["capacity"] :]

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """A scale set goes with its instances."""

    def deleted(self, state: State, resource: dict[str, t.Any]) -> None:
        state.directory.pop((resource.get("identity") or {}).get("principalId"), None)


def _instance(found: dict[str, t.Any], one: dict[str, str]) -> dict[str, t.Any]:
    number = one["instanceId"]
    place = {"id": f"{found['id']}/virtualMachines/{number}", "name": f"{found['name']}_{number}", "instanceId": number}
    said = {
        "vmId": one["vmId"],
        "provisioningState": found["properties"]["provisioningState"],
        "latestModelApplied": True,
    }
    more = {"location": found["location"], "sku": copy.deepcopy(found["sku"]), "tags": found.get("tags", {})}
    return {**place, **more, "type": f"{SET}/virtualMachines", "properties": said}


def _find(context: Context) -> dict[str, t.Any]:
    path = context.request.path.split(context.words["name"])[0] + context.words["name"]
    found: dict[str, t.Any] | None = context.state.get(path)
    if not found:
        raise error("ResourceNotFound", resource=f"{SET}/{context.words['name']}", group=context.words["group"])
    access.allow(context.state, context.request)
    return found


@route("GET", f"{ONE}/virtualMachines", SET)
def _instances(context: Context) -> Response:
    found = _find(context)
    kept = context.state.hidden_of(found["id"]).get("instances", [])
    return page(context.state, context.request, [_instance(found, one) for one in kept])


@route("DELETE", f"{ONE}/virtualMachines/(?P<number>\\d+)", SET)
def _remove(context: Context) -> Response:
    return _shrink(context, [context.words["number"]])


@route("POST", f"{ONE}/delete", SET)
def _remove_many(context: Context) -> Response:
    wanted = (context.request.body or {}).get("instanceIds")
    if not isinstance(wanted, list):
        raise ArmError(400, "InvalidParameter", "instanceIds is missing.")
    return _shrink(context, wanted)


def _shrink(context: Context, numbers: list[str]) -> Response:
    found = _find(context)
    access.unlocked(context.state, found["id"], "delete")
    hidden = context.state.hidden_of(found["id"])
    hidden["instances"] = [one for one in hidden.get("instances", []) if one["instanceId"] not in numbers]
    found["sku"]["capacity"] = len(hidden["instances"])
    made = operations.begin(context.state, "written", found["id"])
    return Response(202, None, operations.headers(context.state, context.request, made, "both"))


@route("GET", f"{SUB}/providers/{SET}", SET)
def _all(context: Context) -> Response:
    access.allow(context.state, context.request)
    return page(context.state, context.request, context.state.of_type(SET))
