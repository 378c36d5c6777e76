# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses: network interfaces, public addresses, NAT gateways, bastions."""

from __future__ import annotations

import copy
import ipaddress
import itertools
import typing as t
import uuid

from . import behaviour, ids
from .behaviour import Behaviour, Call, register
from .http import ArmError
from .network import SUBNET, N, prefixes, users
from .state import State

NIC, PIP, NAT = f"{N}networkInterfaces", f"{N}publicIPAddresses", f"{N}natGateways"
VM = "Microsoft.Compute/virtualMachines"
STANDARD = {"name": "Standard", "tier": "Regional"}


def machine(state: State, nic: dict[str, t.Any]) -> str:
    """Return the address that a test gave to the VM of an interface."""
    vm = (nic["properties"].get("virtualMachine") or {}).get("id", "")
    return str(state.machines().get(vm.rsplit("/", 1)[-1], "")) if vm else ""


def taken(state: State, subnet: str, but: str) -> set[str]:
    found = set()
    for one in state.of_type(NIC):
        for part in one["properties"].get("ipConfigurations", []) if not ids.same(one["id"], but) else []:
            if ids.same(part["properties"].get("subnet", {}).get("id", ""), subnet):
                found.add(part["properties"].get("privateIPAddress"))
    return found


@register(NIC)
class Nic(Behaviour):
    def prepare(self, call: Call) -> None:
        given = call.properties.get("ipConfigurations") or []
        if not given:
            raise ArmError(400, "NetworkInterfaceMustHaveAtLeastOneIpConfiguration", f"{call.name} has none.")
        old = {one["name"]: one for one in (call.old or {}).get("properties", {}).get("ipConfigurations", [])}
        for number, one in enumerate(given):
            self._configure(call, one, old.get(one.get("name")), number)
        said = call.properties
        said.setdefault("dnsSettings", {"dnsServers": [], "appliedDnsServers": []})
        said.setdefault("enableAcceleratedNetworking", False)
        said.setdefault("enableIPForwarding", False)
        said.update({"primary": True, "macAddress": "00-0D-3A-00-00-01", "nicType": "Standard"})

    def _configure(self, call: Call, one: dict[str, t.Any], old: dict[str, t.Any] | None, number: int) -> None:
        said = one.setdefault("properties", {})
        subnet = call.state.get((said.get("subnet") or {}).get("id", ""))
        if not one.get("name") or not subnet:
            raise ArmError(400, "InvalidRequestFormat", "An IP configuration needs a name and a subnet.")
        vnet = call.state.get(subnet["id"].rsplit("/", 2)[0]) or {}
        if vnet.get("location") != call.new["location"]:
            message = f"Resource {subnet['id']} referenced by resource {call.id} was not found in its region."
            raise ArmError(400, "InvalidResourceReference", message)
        one.update({"id": f"{call.id}/ipConfigurations/{one['name']}", "type": f"{NIC}/ipConfigurations"})
        said.setdefault("privateIPAllocationMethod", "Dynamic")
        said.setdefault("privateIPAddressVersion", "IPv4")
        said.setdefault("primary", number == 0)
        said["provisioningState"] = "Succeeded"
        used = taken(call.state, subnet["id"], call.id)
        if said["privateIPAllocationMethod"].lower() == "dynamic":
            before = (old or {}).get("properties", {})
            same = ids.same(before.get("subnet", {}).get("id", "-"), subnet["id"])
            said["privateIPAddress"] = before.get("privateIPAddress") if same else _free(subnet, used)
        elif said.get("privateIPAddress") in used:
            raise ArmError(400, "PrivateIPAddressInUse", f"IP address {said['privateIPAddress']} is in use.")
        self._public(call, said)

    def _public(self, call: Call, said: dict[str, t.Any]) -> None:
        pip = (said.get("publicIPAddress") or {}).get("id")
        for other in behaviour.referrers(call.state, pip) if pip else ():
            if not ids.same(other["id"], call.id):
                message = f"Resource {call.id} is referencing public IP address {pip} that is already allocated to"
                raise ArmError(400, "PublicIPAddressInUse", f"{message} resource {other['id']}.")

    def show(self, state: State, resource: dict[str, t.Any], query: dict[str, str]) -> dict[str, t.Any]:
        shown, address = copy.deepcopy(resource), machine(state, resource)
        for one in shown["properties"]["ipConfigurations"]:
            one["properties"]["privateIPAddress"] = address or one["properties"]["privateIPAddress"]
        return shown

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        vm = (resource["properties"].get("virtualMachine") or {}).get("id")
        if vm:
            message = f"Network Interface {resource['id']} is used by existing resource {vm}. In order to delete the"
            message += " network interface, it must be dissociated from the resource."
            raise ArmError(400, "NicInUse", message)


def _free(subnet: dict[str, t.Any], used: set[str]) -> str:
    hosts = ipaddress.ip_network(prefixes(subnet)[0]).hosts()
    for address in itertools.islice(hosts, 3, None):
        if str(address) not in used:
            return str(address)
    raise ArmError(400, "SubnetIsFull", f"Subnet {subnet['name']} does not have enough capacity for 1 IP addresses.")


@register(PIP)
class Pip(Behaviour):
    def prepare(self, call: Call) -> None:
        call.new.setdefault("sku", {"name": "Basic", "tier": "Regional"}).setdefault("tier", "Regional")
        said = call.properties
        said.setdefault("publicIPAllocationMethod", "Dynamic")
        said.setdefault("publicIPAddressVersion", "IPv4")
        said.setdefault("idleTimeoutInMinutes", 4)
        if call.new["sku"].get("name", "Basic") == "Basic":
            message = (
                "Cannot create more than 0 IPv4 Basic SKU public IP addresses for this subscription in this region."
            )
            raise ArmError(400, "IPv4BasicSkuPublicIpCountLimitReached", message)
        if said["publicIPAllocationMethod"] != "Static":
            message = f"Standard sku publicIp {call.id} must have AllocationMethod set to Static."
            raise ArmError(400, "StandardSkuPublicIPAddressMustBeStatic", message)
        used = {one["properties"].get("ipAddress") for one in call.state.of_type(PIP)}
        free = (str(one) for one in ipaddress.ip_network("203.0.113.0/24").hosts())
        said.setdefault("ipAddress", next(one for one in free if one not in used))
        label = (said.get("dnsSettings") or {}).get("domainNameLabel")
        if label:
            said["dnsSettings"]["fqdn"] = f"{label}.{call.new['location']}.cloudapp.azure.com"
        said.setdefault("ipTags", [])

    def show(self, state: State, resource: dict[str, t.Any], query: dict[str, str]) -> dict[str, t.Any]:
        shown = copy.deepcopy(resource)
        for other in behaviour.referrers(state, resource["id"]):
            if other["type"] == NAT:
                shown["properties"]["natGateway"] = {"id": other["id"]}
                continue
            for part in other["properties"].get("ipConfigurations", []):
                if resource["id"].lower() in str(part.get("properties")).lower():
                    shown["properties"]["ipConfiguration"] = {"id": f"{other['id']}/ipConfigurations/{part['name']}"}
            if other["type"] == NIC:
                shown["properties"]["ipAddress"] = machine(state, other) or shown["properties"]["ipAddress"]
        return shown

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        used = [one["id"] for one in behaviour.referrers(state, resource["id"])]
        if used:
            message = f"Public IP address {resource['id']} can not be deleted since it is still allocated to resource"
            raise ArmError(400, "PublicIPAddressCannotBeDeleted", f"{message} {used[0]}.")


@register(NAT)
class Nat(Behaviour):
    def prepare(self, call: Call) -> None:
        if (call.new.get("sku") or {}).get("name", "").lower() not in ("standard", "standardv2"):
            raise ArmError(400, "InvalidRequestFormat", "A NAT gateway needs sku.name Standard.")
        for one in call.properties.get("publicIpAddresses") or []:
            used = [
                other["id"]
                for other in behaviour.referrers(call.state, one["id"])
                if not ids.same(other["id"], call.id)
            ]
            if used:
                message = (
                    f"Resource {call.id} is referencing public IP address {one['id']} that is already allocated to"
                )
                raise ArmError(400, "PublicIPAddressInUse", f"{message} resource {used[0]}.")
        call.properties.setdefault("idleTimeoutInMinutes", 4)
        call.properties.setdefault("resourceGuid", str(uuid.uuid4()))

    def show(self, state: State, resource: dict[str, t.Any], query: dict[str, str]) -> dict[str, t.Any]:
        shown, found = copy.deepcopy(resource), users(state, resource, SUBNET)
        if found:
            shown["properties"]["subnets"] = found
        return shown

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        self.unused(state, resource, "InUseNatGatewayCannotBeDeleted")


@register(f"{N}bastionHosts")
class Bastion(Behaviour):
    def prepare(self, call: Call) -> None:
        for one in call.properties.get("ipConfigurations") or [{}]:
            subnet = ((one.get("properties") or {}).get("subnet") or {}).get("id", "")
            if not subnet.lower().endswith("/subnets/azurebastionsubnet"):
                message = "A bastion host needs an IP configuration in a subnet called AzureBastionSubnet."
                raise ArmError(400, "BastionHostSubnetNameInvalid", message)
            one["id"] = f"{call.id}/bastionHostIpConfigurations/{one['name']}"
        call.properties.setdefault("dnsName", f"bst-{uuid.uuid4()}.bastion.azure.com")
