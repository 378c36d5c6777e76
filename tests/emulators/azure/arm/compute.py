# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Microsoft.Compute: virtual machines and their disks."""

from __future__ import annotations

import copy
import typing as t
import uuid

from . import ids
from .authorization import now
from .behaviour import Behaviour, Call, register
from .common import remove
from .faults import envelope, error
from .http import ArmError
from .managed import assign
from .state import State
from .vm_checks import bad, check_image, check_os, check_quota, check_size, without_secrets

C = "Microsoft.Compute/"
VM, DISK, NIC = f"{C}virtualMachines", f"{C}disks", "Microsoft.Network/networkInterfaces"


@register(VM)
class Vm(Behaviour):
    def prepare(self, call: Call) -> None:
        said = call.properties
        location, zones = call.new["location"], call.new.get("zones") or []
        name = (said.get("hardwareProfile") or {}).get("vmSize", "")
        if not call.old or name != call.old["properties"]["hardwareProfile"]["vmSize"]:
            size = check_size(call.state, name, location, zones)
            check_quota(call.state, size, 1, location, str(said.get("priority")).lower() == "spot")
            if size["name"] in call.state.settings["no_capacity"]:
                call.failure = envelope("ZonalAllocationFailed" if zones else "AllocationFailed")
        if call.old:
            self._unchanged(call, call.old)
        else:
            check_image(call.state, said.setdefault("storageProfile", {}), call.new.get("plan"), size)
            check_os(said.get("osProfile"))
            said.update({"vmId": str(uuid.uuid4()), "timeCreated": now()})
        self._nics(call)
        self._disks(call)
        assign(call)
        hidden = call.state.hidden_of(call.id)
        hidden.setdefault("customData", (said.get("osProfile") or {}).get("customData"))
        if said.get("osProfile"):
            said["osProfile"] = without_secrets(said["osProfile"])
            said["osProfile"].setdefault("secrets", [])
            said["osProfile"].update({"allowExtensionOperations": True, "requireGuestProvisionSignal": True})

    @staticmethod
    def _unchanged(call: Call, old: dict[str, t.Any]) -> None:
        said, before = call.properties, old["properties"]
        for path in ("osProfile.customData", "osProfile.adminUsername", "storageProfile.imageReference"):
            part, key = path.split(".")
            new = (said.get(part) or {}).get(key)
            stored = before.get(part, {}).get(key)
            if key == "imageReference" and new and stored:
                new, stored = new.get("sku"), stored.get("sku")
            if new is not None and new != stored:
                raise ArmError(
                    409, "PropertyChangeNotAllowed", f"Changing property '{path}' is not allowed.", target=path
                )
        for key in ("vmId", "timeCreated", "osProfile"):
            said.setdefault(key, before.get(key))
        for key, value in before.get("storageProfile", {}).items():
            said.setdefault("storageProfile", {}).setdefault(key, value)
        if "identity" not in call.new and "identity" in old:
            call.new["identity"] = copy.deepcopy(old["identity"])

    @staticmethod
    def _nics(call: Call) -> None:
        given = (call.properties.get("networkProfile") or {}).get("networkInterfaces") or []
        if not given:
            raise bad("InvalidParameter", "A virtual machine needs at least one network interface.", "networkProfile")
        for one in given:
            nic = call.state.get(one["id"])
            if not nic:
                raise error("InvalidResourceReference", other=one["id"], resource=call.id)
            owner = (nic["properties"].get("virtualMachine") or {}).get("id", call.id)
            if not ids.same(owner, call.id):
                message = f"Network Interface {nic['id']} is used by existing resource {owner}."
                raise bad("NicInUse", message)

    @staticmethod
    def _disks(call: Call) -> None:
        storage = call.properties["storageProfile"]
        storage.setdefault("dataDisks", [])
        disk = storage.setdefault("osDisk", {"createOption": "FromImage"})
        disk.setdefault("name", f"{call.name}_OsDisk_1_{uuid.uuid4().hex}")
        disk.setdefault("osType", "Linux")
        disk.setdefault("caching", "ReadWrite")
        disk.setdefault("deleteOption", "Detach")
        disk.setdefault("diskSizeGB", 30)
        if not disk.get("vhd"):
            disk.setdefault("managedDisk", {}).setdefault("storageAccountType", "Standard_LRS")
            disk["managedDisk"]["id"] = f"{ids.group(call.id)}/providers/{DISK}/{disk['name']}"
        for one in storage["dataDisks"]:
            if one.get("managedDisk") is not None and not one["managedDisk"].get("id"):
                one.setdefault("name", f"{call.name}_disk{one['lun']}_{uuid.uuid4().hex}")
                one["managedDisk"]["id"] = f"{ids.group(call.id)}/providers/{DISK}/{one['name']}"

    def stored(self, call: Call) -> None:
        for one in call.properties["networkProfile"]["networkInterfaces"]:
            nic = call.state.get(one["id"]) or {}
            nic["properties"]["virtualMachine"] = {"id": call.id}
        storage = call.properties["storageProfile"]
        for disk in [storage["osDisk"], *storage["dataDisks"]]:
            self._disk(call, disk)

    @staticmethod
    def _disk(call: Call, disk: dict[str, t.Any]) -> None:
        place = (disk.get("managedDisk") or {}).get("id")
        if not place:
            return
        known = call.state.get(place)
        if not known:
            said = {"diskSizeGB": disk.get("diskSizeGB", 30), "diskState": "Attached", "provisioningState": "Succeeded"}
            said["creationData"] = {"createOption": disk.get("createOption", "Empty")}
            known = {"id": place, "name": place.rsplit("/", 1)[-1], "type": DISK, "location": call.new["location"]}
            known.update({"sku": {"name": disk["managedDisk"].get("storageAccountType", "Standard_LRS")}})
            known.update({"properties": said, "tags": call.new.get("tags", {})})
            call.state.put(known)
        known["managedBy"] = call.id
        known["properties"]["diskState"] = "Attached"

    def show(self, state: State, resource: dict[str, t.Any], query: dict[str, str]) -> dict[str, t.Any]:
        shown = copy.deepcopy(resource)
        if query.get("$expand", "").lower() == "instanceview":
            shown["properties"]["instanceView"] = instance_view(shown)
        for key in ("powerState", "osState"):
            shown["properties"].pop(key, None)
        found = [one for one in state.under(resource["id"]) if one["type"] == f"{VM}/extensions"]
        return {**shown, "resources": found} if found else shown

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """A VM goes; what it used stays, unless its deleteOption says otherwise."""

    def deleted(self, state: State, resource: dict[str, t.Any]) -> None:
        state.directory.pop((resource.get("identity") or {}).get("principalId"), None)
        said = resource["properties"]
        for one in said["networkProfile"]["networkInterfaces"]:
            nic = state.get(one["id"])
            if nic:
                nic["properties"].pop("virtualMachine", None)
                if (one.get("properties") or {}).get("deleteOption") == "Delete":
                    remove(state, nic)
        for disk in [said["storageProfile"]["osDisk"], *said["storageProfile"]["dataDisks"]]:
            found = state.get((disk.get("managedDisk") or {}).get("id", ""))
            if found:
                found.pop("managedBy", None)
                found["properties"]["diskState"] = "Unattached"
                if disk.get("deleteOption") == "Delete":
                    remove(state, found)


def instance_view(vm: dict[str, t.Any]) -> dict[str, t.Any]:
    state, power = vm["properties"]["provisioningState"], vm["properties"].get("powerState", "running")
    codes = [f"ProvisioningState/{state.lower()}", *([f"PowerState/{power}"] if state == "Succeeded" else [])]
    codes += ["OSState/generalized"] if vm["properties"].get("osState") == "Generalized" else []
    said = [{"code": code, "level": "Info", "displayStatus": code.split("/")[1]} for code in codes]
    agent = {"vmAgentVersion": "2.9", "statuses": []}
    made = {"computerName": vm["name"], "statuses": said, "hyperVGeneration": "V2", "vmAgent": agent}
    diagnostics = (vm["properties"].get("diagnosticsProfile") or {}).get("bootDiagnostics") or {}
    return {**made, "bootDiagnostics": {}} if diagnostics.get("enabled") else made


@register(DISK)
class Disk(Behaviour):
    def prepare(self, call: Call) -> None:
        if not (call.properties.get("creationData") or {}).get("createOption"):
            raise bad(
                "InvalidParameter", "Required parameter 'disk.creationData' is missing (null).", "disk.creationData"
            )
        call.properties.setdefault("diskState", "Unattached")
        call.properties.setdefault("timeCreated", now())
        call.new.setdefault("sku", {"name": "Standard_LRS"})

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        if resource.get("managedBy"):
            message = f"Disk {resource['name']} is attached to VM {resource['managedBy']}."
            raise ArmError(409, "OperationNotAllowed", message)
