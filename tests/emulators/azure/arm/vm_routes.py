# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of virtual machines beyond reading and writing them: power, their view from inside, all of them."""

from __future__ import annotations

import base64
import hashlib
import struct
import typing as t

from . import access, operations
from .common import page
from .compute import VM, Vm, instance_view
from .faults import error
from .http import ArmError, Response
from .routes import RG, SUB, Context, route


@route("POST", f"{RG}/providers/{VM}/(?P<name>[^/]+)/(?P<verb>start|powerOff|restart|deallocate|generalize)", VM)
def _power(context: Context) -> Response:
    path, verb = context.request.path.rsplit("/", 1)[0], context.words["verb"].lower()
    found = context.state.get(path)
    if not found:
        raise error("ResourceNotFound", resource=f"{VM}/{context.words['name']}", group=context.words["group"])
    access.allow(context.state, context.request)
    now = found["properties"].get("powerState", "running")
    if verb == "generalize":
        if now not in ("stopped", "deallocated"):
            message = f"The Virtual Machine '{context.words['name']}' has to be stopped before it is generalized."
            raise ArmError(409, "OperationNotAllowed", message)
        found["properties"]["osState"] = "Generalized"
        return Response(200)
    if verb in ("start", "restart") and found["properties"].get("osState") == "Generalized":
        message = f"Operation '{verb}' is not allowed on VM '{context.words['name']}' since the VM is generalized."
        raise ArmError(409, "OperationNotAllowed", message)
    after = {"start": "running", "restart": "running", "poweroff": "stopped", "deallocate": "deallocated"}[verb]
    found["properties"]["powerState"] = now if (now, after) == ("deallocated", "stopped") else after
    made = operations.begin(context.state, "written", path)
    return Response(202, None, operations.headers(context.state, context.request, made, "both"))


@route("GET", f"{RG}/providers/{VM}/(?P<name>[^/]+)/instanceView", VM)
def _view(context: Context) -> Response:
    found = context.state.get(context.request.path.rsplit("/", 1)[0])
    if not found:
        raise error("ResourceNotFound", resource=f"{VM}/{context.words['name']}", group=context.words["group"])
    return Response(200, instance_view(found))


def host_keys(context: Context, vm: dict[str, t.Any]) -> list[str]:
    """Return what a test said of this machine, or a key of its own; one that is made again has another."""
    given: dict[str, list[str]] = context.state.settings["host_keys"]
    digest = hashlib.sha256(vm["properties"]["vmId"].encode()).digest()
    kind = b"ssh-ed25519"
    blob = struct.pack(">I", len(kind)) + kind + struct.pack(">I", len(digest)) + digest
    return given.get(vm["name"], [f"ssh-ed25519 {base64.b64encode(blob).decode()} root@{vm['name']}"])


# What a script does on these machines, which are none: its output, and nothing for any other.
SCRIPTS = {"cat /etc/ssh/ssh_host_*_key.pub": host_keys}


@route("POST", f"{RG}/providers/{VM}/(?P<name>[^/]+)/runCommand", VM)
def _run_command(context: Context) -> Response:
    path = context.request.path.rsplit("/", 1)[0]
    found = context.state.get(path)
    access.allow(context.state, context.request)
    if not found:
        raise error("ResourceNotFound", resource=f"{VM}/{context.words['name']}", group=context.words["group"])
    return run_command(context, found)


def run_command(context: Context, found: dict[str, t.Any]) -> Response:
    """Run a script on a machine, alone or in a scale set."""
    body = context.request.body or {}
    unknown = sorted(set(body) - {"commandId", "script", "parameters"})
    if unknown or body.get("commandId") != "RunShellScript" or not isinstance(body.get("script"), list):
        message = f"The entity was not found: commandId {body.get('commandId')!r}, {unknown}."
        raise ArmError(400, "BadRequest", message)
    if found["properties"].get("powerState", "running") != "running":
        raise ArmError(409, "OperationNotAllowed", "Cannot modify extensions in the VM when the VM is not running.")
    running = [one for one in context.state.operations.values() if one.get("machine") == found["id"]]
    if any(one["status"] == "InProgress" for one in running):
        text = (
            "Run command extension execution is in progress. Please wait for completion before invoking a run command."
        )
        raise ArmError(409, "Conflict", text)
    script = "\n".join(body["script"])
    printed = SCRIPTS[script](context, found) if script in SCRIPTS else []
    out = "".join(f"{line}\n" for line in printed)
    err = "" if script in SCRIPTS else "no such script is emulated\n"
    status = {"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded"}
    # The agent keeps the last 4096 bytes of either.
    message = f"Enable succeeded: \n[stdout]\n{out[-4096:]}\n[stderr]\n{err[-4096:]}"
    result = {"value": [{**status, "message": message}]}
    path = context.request.path.rsplit("/", 1)[0]
    made = operations.begin(context.state, "written", path, result=result, machine=found["id"])
    return Response(202, None, operations.headers(context.state, context.request, made, "both"))


@route("GET", f"{SUB}/providers/{VM}", VM)
def _all(context: Context) -> Response:
    listed = access.readable(context.state, context.request, context.state.of_type(VM))
    found = [Vm().show(context.state, one, {}) for one in listed]
    return page(context.state, context.request, found)
