# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Microsoft.Compute/virtualMachineScaleSets and the instances in them."""

from __future__ import annotations

import copy
import ipaddress
import typing as t
import uuid

from . import access, ids, operations
from .authorization import now
from .behaviour import Behaviour, Call, register
from .common import page
from .faults import envelope, error
from .http import ArmError, Response
from .interfaces import taken
from .managed import assign
from .network import prefixes
from .routes import RG, SUB, Context, route
from .state import State
from .vm_checks import bad, check_image, check_os, check_quota, check_size, without_secrets
from .vm_routes import run_command

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
            one = {"instanceId": str(hidden["next"]), "vmId": str(uuid.uuid4())}
            kept.append({**one, "address": _free(call.state, _subnet(call.new))})
            hidden["next"] += 1
        del kept[call.new["sku"]["capacity"] :]

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """A scale set goes with its instances."""

    def deleted(self, state: State, resource: dict[str, t.Any]) -> None:
        state.directory.pop((resource.get("identity") or {}).get("principalId"), None)


def _subnet(found: dict[str, t.Any]) -> str:
    """Return the subnet of the first address of a scale set's machines."""
    profile = (found["properties"].get("virtualMachineProfile") or {}).get("networkProfile") or {}
    for interface in profile.get("networkInterfaceConfigurations") or []:
        for one in interface["properties"].get("ipConfigurations") or []:
            return str(((one.get("properties") or {}).get("subnet") or {}).get("id", ""))
    return ""


def _free(state: State, subnet: str) -> str:
    """Return the next address of a subnet; Azure keeps the first four and the last."""
    known = state.get(subnet)
    if not known:
        return ""
    used = taken(state, subnet, "")
    for found in state.of_type(SET):
        if ids.same(_subnet(found), subnet):
            used |= {one.get("address", "") for one in state.hidden_of(found["id"]).get("instances", [])}
    hosts = ipaddress.ip_network(prefixes(known)[0])
    return next(str(one) for one in list(hosts)[4:-1] if str(one) not in used)


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


@route("GET", f"{ONE}/virtualMachines/(?P<number>\\d+)", SET)
def _one(context: Context) -> Response:
    found = _find(context)
    return Response(200, _instance(found, _numbered(context, found)))


def _numbered(context: Context, found: dict[str, t.Any]) -> dict[str, str]:
    kept: list[dict[str, str]] = context.state.hidden_of(found["id"]).get("instances", [])
    for one in kept:
        if one["instanceId"] == context.words["number"]:
            return one
    name = f"{SET}/{context.words['name']}/virtualMachines/{context.words['number']}"
    raise error("ResourceNotFound", resource=name, group=context.words["group"])


@route("POST", f"{ONE}/virtualMachines/(?P<number>\\d+)/runCommand", SET)
def _run(context: Context) -> Response:
    found = _find(context)
    return run_command(context, _instance(found, _numbered(context, found)))


@route("GET", f"{ONE}/networkInterfaces", SET)
def _interfaces(context: Context) -> Response:
    """The interfaces of all machines, which the subscription's list of interfaces does not have."""
    if context.request.version != "2018-10-01":
        raise ArmError(400, "NoRegisteredProviderFound", "Interfaces of scale sets are asked for by 2018-10-01.")
    found = _find(context)
    kept = context.state.hidden_of(found["id"]).get("instances", [])
    return page(context.state, context.request, [_interface(context.state, found, one) for one in kept])


def _interface(state: State, found: dict[str, t.Any], one: dict[str, str]) -> dict[str, t.Any]:
    machine = f"{found['id']}/virtualMachines/{one['instanceId']}"
    address = state.settings["instance_addresses"].get(machine.lower()) or one.get("address", "")
    place = {"privateIPAddress": address, "privateIPAllocationMethod": "Dynamic", "subnet": {"id": _subnet(found)}}
    said = {
        "ipConfigurations": [{"name": "ip", "properties": {**place, "primary": True}}],
        "virtualMachine": {"id": machine},
        "provisioningState": "Succeeded",
    }
    return {"id": f"{machine}/networkInterfaces/nic", "name": "nic", "properties": said}


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
