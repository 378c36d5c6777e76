# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What CycleCloud does in Azure: it checks credentials, makes the locker, VMs, scale sets and disks, and deletes them.

Heads become VMs with a network interface, node arrays become one scale set each whose capacity is the number of nodes.
Disks of persistent volumes stay when a node goes. Without `emulator.json` everything is allowed and nothing is made.
"""

from __future__ import annotations

import re
import typing as t

from . import arm
from .store import Json, Store, UserError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEmuLatedCycleCloudKeyForNodesThatAreNotThere cyclecloud"
IMAGE = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204", "version": "latest"}
OWNERS = {"8e3af657-a8ff-443c-a75c-2fe8c4bcb635", "b24988ac-6180-42a0-ab88-20f7382dd24c"}
BLOB = {"ba92f5b4-2d11-453d-a403-e96b0029c9fe", "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"}
BLOB_READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"


def credentials_problem(store: Store, account: Json) -> str:
    try:
        azure = arm.connect(store, account)
        if azure and azure.get(azure.subscription) is None:
            return f"SubscriptionNotFound: {azure.subscription}"
        if azure and not _roles(azure, azure.principal, azure.subscription) & OWNERS:
            return "AuthorizationFailed: the identity is no Contributor of the subscription"
    except UserError as exc:
        return str(exc)
    return ""


def _roles(azure: arm.Arm, principal: str, scope: str) -> set[str]:
    """Role definitions that a principal has on a scope, by assignments there or above."""
    path = f"{scope}/providers/Microsoft.Authorization/roleAssignments"
    found = azure.ask("GET", path, **{"$filter": f"principalId eq '{principal}'"})["value"]
    held = [
        one["properties"] for one in found if scope.lower().startswith(one["properties"]["scope"].lower().rstrip("/"))
    ]
    return {one["roleDefinitionId"].rpartition("/")[2] for one in held}


def locker_problem(store: Store, account: Json) -> str:
    try:
        azure = arm.connect(store, account)
        return _locker(azure, account) if azure else ""
    except UserError as exc:
        return str(exc)


def _locker(azure: arm.Arm, account: Json) -> str:
    """Make what is missing of the locker, and say why it cannot be used."""
    name = account["RMStorageAccount"]
    listed = azure.ask("GET", f"{azure.subscription}/providers/Microsoft.Storage/storageAccounts")["value"]
    storage = next((one for one in listed if one["name"] == name), None) or _storage(azure, account, name)
    said = storage["properties"]
    if said.get("isHnsEnabled"):
        return f"Storage account {name} has a hierarchical namespace, which lockers do not support"
    if _shared(account):
        if said.get("allowSharedKeyAccess") is False:
            return f"KeyBasedAuthenticationNotPermitted: storage account {name} has no shared keys; use ManagedIdentity"
    else:
        problem = _identity_problem(azure, account, storage["id"])
        if problem:
            return problem
    azure.put(f"{storage['id']}/blobServices/default/containers/{account['RMStorageContainer']}", {"properties": {}})
    return ""


def _identity_problem(azure: arm.Arm, account: Json, storage: str) -> str:
    if not _roles(azure, azure.principal, storage) & BLOB:
        return "AuthorizationPermissionMismatch: CycleCloud is no Storage Blob Data Contributor of the storage account"
    if not account.get("LockerIdentity"):
        return ""
    identity = azure.get(account["LockerIdentity"])
    if identity is None:
        return f"ResourceNotFound: {account['LockerIdentity']}"
    if not _roles(azure, identity["properties"]["principalId"], storage) & {*BLOB, BLOB_READER}:
        return "AuthorizationPermissionMismatch: the locker's identity is no Storage Blob Data Reader of the account"
    return ""


def _shared(account: Json) -> bool:
    """Whether the locker is met with the account's keys."""
    mode = account.get("LockerAuthMode") or ("ManagedIdentity" if account.get("LockerIdentity") else "SharedAccessKey")
    return bool(mode == "SharedAccessKey")


def _storage(azure: arm.Arm, account: Json, name: str) -> Json:
    group = account.get("AzureResourceGroup")
    if not group:
        raise UserError(f"There is no storage account {name}")
    properties = {"isHnsEnabled": False, "allowSharedKeyAccess": _shared(account), "minimumTlsVersion": "TLS1_2"}
    path = f"{azure.subscription}/resourceGroups/{group}/providers/Microsoft.Storage/storageAccounts/{name}"
    body = {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": azure.location, "properties": properties}
    azure.put(path, body)
    return azure.ask("GET", path)


# Nodes


class _Place(t.NamedTuple):
    """Where the resources of a cluster are."""

    azure: arm.Arm
    group: str
    tags: dict[str, str]
    location: str


def _place(store: Store, cluster: Json) -> _Place | None:
    account = store.state["accounts"].get(cluster["account"])
    azure = arm.connect(store, account) if account else None
    if azure is None or account is None:
        return None
    attributes = next(iter({**cluster["heads"], **cluster["arrays"]}.values()))["attributes"]
    tags = attributes.get("Tags") if isinstance(attributes.get("Tags"), dict) else {}
    every = {"ClusterName": cluster["name"], "CycleOwner": "emulator", **{k: str(v) for k, v in tags.items()}}
    location = attributes.get("Region") or azure.location
    name = account.get("AzureResourceGroup") or f"{cluster['name']}-{cluster.get('section', 'cc').lower()}"
    group = f"{azure.subscription}/resourceGroups/{name}"
    if not account.get("AzureResourceGroup") and azure.get(group) is None:
        azure.put(group, {"location": location, "tags": every})
    return _Place(azure, group, every, location)


def made(store: Store, cluster: Json, node: Json) -> str:
    """Make the machine of a node; return why it cannot be."""
    try:
        place = _place(store, cluster)
        if place is None:
            return ""
        definition = {**cluster["heads"], **cluster["arrays"]}[node["Template"]]
        _way_out(place.azure, _subnet(place.azure, definition["attributes"]))
        if node["Template"] in cluster["heads"]:
            node["_address"], node["_machine"] = _vm(place, cluster, node, cluster["heads"][node["Template"]])
        else:
            node["_address"], node["_machine"] = _grow(place, cluster, node)
    except UserError as exc:
        gone(store, cluster, node)
        return str(exc)
    return ""


def _subnet(azure: arm.Arm, attributes: Json) -> str:
    text = str(attributes.get("SubnetId") or "")
    if text.startswith("/"):
        return text
    parts = text.split("/")
    if len(parts) != 3:
        raise UserError(f"SubnetId {text!r} is not <resource group>/<network>/<subnet>")
    network = f"{azure.subscription}/resourceGroups/{parts[0]}/providers/Microsoft.Network/virtualNetworks/{parts[1]}"
    return f"{network}/subnets/{parts[2]}"


def _way_out(azure: arm.Arm, subnet: str) -> None:
    """Nodes have no public address, and CycleCloud's Slurm project installs packages on each when it boots."""
    said = (azure.get(subnet) or {}).get("properties") or {}
    if said.get("defaultOutboundAccess") is False and not said.get("natGateway") and not said.get("routeTable"):
        raise UserError("Software Installation Failure: Could not resolve 'packages.microsoft.com'")


def _image(attributes: Json) -> Json:
    text = str(attributes.get("ImageName") or attributes.get("Image") or "")
    if text.startswith("/"):
        return {"id": text}
    parts = text.split(":")
    return dict(zip(("publisher", "offer", "sku", "version"), parts)) if len(parts) == 4 else dict(IMAGE)


def machine(cluster: Json, node: Json) -> str:
    """Return the name that Azure has for the machine of a node."""
    if node["Template"] in cluster["heads"]:
        return _name(cluster, node["Name"])
    parts = str(node.get("_machine", "")).split("/")
    return f"{parts[-3]}_{parts[-1]}" if len(parts) > 3 else ""


def _os(computer: str, field: str = "computerName") -> Json:
    keys = [{"path": "/home/cyclecloud/.ssh/authorized_keys", "keyData": KEY}]
    linux = {"disablePasswordAuthentication": True, "ssh": {"publicKeys": keys}}
    return {field: computer, "adminUsername": "cyclecloud", "linuxConfiguration": linux}


def _name(cluster: Json, name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", f"{cluster['name']}-{name}")


def _vm(place: _Place, cluster: Json, node: Json, definition: Json) -> tuple[str, str]:
    """Make a machine; return the address that its interface got, and its id."""
    name, attributes = _name(cluster, node["Name"]), definition["attributes"]
    azure, tags = place.azure, {**place.tags, "Name": node["Name"]}
    common = {"location": place.location, "tags": tags}
    address = {"subnet": {"id": _subnet(azure, attributes)}, "privateIPAllocationMethod": "Dynamic"}
    nic = f"{place.group}/providers/Microsoft.Network/networkInterfaces/{name}-nic"
    azure.put(nic, {**common, "properties": {"ipConfigurations": [{"name": "ip", "properties": address}]}})
    disks = [_disk(place, f"{name}-{volume}", values, tags) for volume, values in _volumes(definition)]
    data = [{"lun": n, "createOption": "Attach", "managedDisk": {"id": one}} for n, one in enumerate(disks)]
    system = {
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "managedDisk": {"storageAccountType": "Premium_LRS"},
    }
    properties = {
        "hardwareProfile": {"vmSize": node["MachineType"]},
        "storageProfile": {"imageReference": _image(attributes), "osDisk": system, "dataDisks": data},
        "osProfile": _os(node["Name"]),
        "networkProfile": {"networkInterfaces": [{"id": nic, "properties": {"primary": True}}]},
    }
    vm = f"{place.group}/providers/Microsoft.Compute/virtualMachines/{name}"
    azure.put(vm, {**common, **_identities(attributes), "properties": properties})
    return azure.ask("GET", nic)["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"], vm


def host_keys(store: Store, cluster: Json, node: Json) -> list[str] | None:
    """Return the lines of /etc/ssh/ssh_host_*_key.pub of a head; None where it is no machine of Azure."""
    place = _place(store, cluster) if node.get("_machine") else None
    if place is None:
        return None
    script = {"commandId": "RunShellScript", "script": ["cat /etc/ssh/ssh_host_*_key.pub"]}
    message: str = place.azure.result(f"{node['_machine']}/runCommand", script)["value"][0]["message"]
    return message.partition("[stdout]\n")[2].partition("\n[stderr]")[0].splitlines()


def _identities(attributes: Json) -> Json:
    ident = attributes.get("Azure.Identities")
    return {"identity": {"type": "UserAssigned", "userAssignedIdentities": {ident: {}}}} if ident else {}


def _volumes(definition: Json) -> list[tuple[str, Json]]:
    every = definition.get("volumes", {}).items()
    return [(name, one) for name, one in every if one.get("Persistent") is True and one.get("Disabled") is not True]


def _disk(place: _Place, name: str, values: Json, tags: dict[str, str]) -> str:
    """A disk of before is used again."""
    path = f"{place.group}/providers/Microsoft.Compute/disks/{name}"
    if place.azure.get(path) is None:
        properties = {"creationData": {"createOption": "Empty"}, "diskSizeGB": int(values.get("Size") or 32)}
        place.azure.put(path, {"location": place.location, "tags": tags, "properties": properties})
    return path


def _set(place: _Place, cluster: Json, array: str) -> str:
    return f"{place.group}/providers/Microsoft.Compute/virtualMachineScaleSets/{_name(cluster, array)}"


def _grow(place: _Place, cluster: Json, node: Json) -> tuple[str, str]:
    """Have one machine more in the scale set; return the address and the identifier of the one that is new."""
    array, path = node["Template"], _set(place, cluster, node["Template"])
    known = {one.get("_machine", "").lower() for one in cluster["nodes"].values()}
    there = _machines(place, path)
    _scale(place, cluster, array, len(there) + 1)
    for machine, address in _machines(place, path).items():
        if machine.lower() not in known:
            return address, machine
    raise UserError(f"AllocationFailed: {path} did not grow")


def _machines(place: _Place, path: str) -> dict[str, str]:
    """Return address by identifier of the machines of a scale set."""
    if place.azure.get(path) is None:
        return {}
    found = {}
    for one in place.azure.ask("GET", f"{path}/networkInterfaces", **{"api-version": "2018-10-01"})["value"]:
        said = one["properties"]
        found[said["virtualMachine"]["id"]] = said["ipConfigurations"][0]["properties"]["privateIPAddress"]
    return found


def _shrink(place: _Place, cluster: Json, node: Json) -> None:
    """Delete the machine of a node, and the scale set after the last."""
    path = _set(place, cluster, node["Template"])
    there = _machines(place, path)
    if set(there) <= {node.get("_machine")}:
        place.azure.delete(path)
    elif node.get("_machine") in there:
        place.azure.result(f"{path}/delete", {"instanceIds": [node["_machine"].rpartition("/")[2]]})


def _scale(place: _Place, cluster: Json, array: str, count: int) -> None:
    """Set the number of machines."""
    attributes, path = cluster["arrays"][array]["attributes"], _set(place, cluster, array)
    address = {"name": "ip", "properties": {"subnet": {"id": _subnet(place.azure, attributes)}}}
    network = {"name": "nic", "properties": {"primary": True, "ipConfigurations": [address]}}
    disk = {"createOption": "FromImage", "managedDisk": {"storageAccountType": "Premium_LRS"}}
    profile = {
        "storageProfile": {"imageReference": _image(attributes), "osDisk": disk},
        "osProfile": _os(_name(cluster, array)[:50], "computerNamePrefix"),
        "networkProfile": {"networkInterfaceConfigurations": [network]},
        **({"priority": "Spot", "evictionPolicy": "Delete"} if attributes.get("Interruptible") is True else {}),
    }
    kind = str(attributes.get("MachineType")).partition(",")[0].strip()
    body: Json = {
        "location": place.location,
        "tags": {**place.tags, "Name": array},
        "sku": {"name": kind, "capacity": count},
    }
    zone = {"zones": [str(attributes["Zone"])]} if attributes.get("Zone") else {}
    upgrade = {"upgradePolicy": {"mode": "Manual"}, "virtualMachineProfile": profile}
    place.azure.put(path, {**body, **zone, **_identities(attributes), "properties": upgrade})


def gone(store: Store, cluster: Json, node: Json) -> None:
    """Delete the machine of a node, not its persistent disks."""
    try:
        place = _place(store, cluster)
        if place is None:
            return
        if node["Template"] in cluster["arrays"]:
            _shrink(place, cluster, node)
            return
        name = _name(cluster, node["Name"])
        place.azure.delete(f"{place.group}/providers/Microsoft.Compute/virtualMachines/{name}")
        place.azure.delete(f"{place.group}/providers/Microsoft.Network/networkInterfaces/{name}-nic")
    except UserError as exc:
        store.ignored(f"deleting {node['Name']}: {exc}")
