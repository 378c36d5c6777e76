# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Microsoft.Network: virtual networks and what is in them."""

from __future__ import annotations

import copy
import ipaddress
import typing as t

from . import behaviour, embedded, ids
from .behaviour import Behaviour, Call, register
from .http import ArmError
from .state import State

# Since this api-version a new subnet is private unless it says otherwise.
PRIVATE = "2025-07-01"
N = "Microsoft.Network/"
VNET, SUBNET, PEERING = (
    f"{N}virtualNetworks",
    f"{N}virtualNetworks/subnets",
    f"{N}virtualNetworks/virtualNetworkPeerings",
)


def network(text: str, what: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as problem:
        raise ArmError(400, "InvalidAddressPrefixFormat", f"Address prefix {text} of resource {what} is not formatted"
                       f" correctly: {problem}.") from problem  # fmt: skip


def prefixes(subnet: dict[str, t.Any]) -> list[str]:
    said = subnet["properties"]
    found: list[str] = said.get("addressPrefixes") or [said.get("addressPrefix")]
    return [one for one in found if one]


def users(state: State, resource: dict[str, t.Any], *kinds: str) -> list[dict[str, str]]:
    """Return ids of what refers to a resource."""
    return [{"id": one["id"]} for one in behaviour.referrers(state, resource["id"]) if one["type"] in kinds]


def check_subnet(new: dict[str, t.Any], space: list[str], others: list[dict[str, t.Any]]) -> None:
    """Refuse a subnet that is outside of its network or overlaps a sibling."""
    given = [network(one, new["id"]) for one in prefixes(new)]
    if not given:
        message = f"Subnet {new['name']} needs an addressPrefix or addressPrefixes."
        raise ArmError(400, "NoAddressPrefixOrPoolProvided", message)
    for one in given:
        inside = [net for net in map(ipaddress.ip_network, space) if net.version == one.version]
        if not any(one.subnet_of(net) for net in inside):  # type: ignore[arg-type]
            message = f"Subnet '{new['name']}' is not valid in virtual network '{new['id'].split('/')[-3]}'."
            raise ArmError(400, "NetcfgInvalidSubnet", message)
        for other in others:
            if any(one.overlaps(ipaddress.ip_network(net)) for net in prefixes(other)):
                message = f"Subnet '{new['name']}' is not valid because its IP address range overlaps with that of an"
                raise ArmError(400, "NetcfgSubnetRangesOverlap", f"{message} existing subnet '{other['name']}'.")


@register(VNET)
class Vnet(embedded.Parent):
    lists: t.ClassVar[dict[str, str]] = {"subnets": SUBNET, "virtualNetworkPeerings": PEERING}

    def check(self, call: Call) -> None:
        space = (call.properties.get("addressSpace") or {}).get("addressPrefixes") or []
        if not space:
            raise ArmError(400, "InvalidRequestFormat", "Cannot parse the request: addressSpace is missing.")
        for one in space:
            network(one, call.id)
        call.properties.setdefault("enableDdosProtection", False)

    def check_child(self, call: Call, child: Call) -> None:
        if child.kind.name == SUBNET:
            others = [one.new for one in call.children if one is not child and one.kind.name == SUBNET]
            check_subnet(child.new, call.properties["addressSpace"]["addressPrefixes"], others)
            complete_subnet(child.new, call.request.version)

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        for one in state.under(resource["id"]):
            if one["type"] == SUBNET:
                Subnet().deletable(state, one)


def complete_subnet(new: dict[str, t.Any], version: str) -> None:
    said = new["properties"]
    if version >= PRIVATE:
        said.setdefault("defaultOutboundAccess", False)
    said.setdefault("delegations", [])
    said.setdefault("privateEndpointNetworkPolicies", "Disabled")
    said.setdefault("privateLinkServiceNetworkPolicies", "Enabled")
    for one in said.get("serviceEndpoints") or []:
        one.setdefault("locations", ["*"])
        one["provisioningState"] = "Succeeded"


@register(SUBNET)
class Subnet(Behaviour):
    located = False

    def prepare(self, call: Call) -> None:
        vnet = call.state.get(call.target.parent) or {}
        siblings = [one for one in call.state.under(call.target.parent) if one["type"] == SUBNET]
        others = [one for one in siblings if not ids.same(one["id"], call.id)]
        check_subnet(call.new, vnet["properties"]["addressSpace"]["addressPrefixes"], others)
        complete_subnet(call.new, call.request.version)

    def show(self, state: State, resource: dict[str, t.Any], query: dict[str, str]) -> dict[str, t.Any]:
        shown = copy.deepcopy(resource)
        found = list(ip_configurations(state, resource["id"]))
        if found:
            shown["properties"]["ipConfigurations"] = [{"id": one} for one in found]
        return shown

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        used = list(ip_configurations(state, resource["id"]))
        if used:
            message = f"Subnet {resource['name']} is in use by {used[0]} and cannot be deleted. In order to delete the"
            message += " subnet, delete all the resources within the subnet. See aka.ms/deletesubnet."
            raise ArmError(400, "InUseSubnetCannotBeDeleted", message)


def ip_configurations(state: State, subnet: str) -> t.Iterator[str]:
    """Yield the ids of the IP configurations that lie in a subnet."""
    for one in state.resources.values():
        if one["type"] in (f"{N}networkInterfaces", f"{N}bastionHosts"):
            for part in one["properties"].get("ipConfigurations", []):
                if ids.same(part.get("properties", {}).get("subnet", {}).get("id", ""), subnet):
                    yield f"{one['id']}/ipConfigurations/{part['name']}"
        elif one["type"] == "Microsoft.Compute/virtualMachineScaleSets" and subnet.lower() in str(one).lower():
            yield f"{one['id']}/virtualMachines/0/networkInterfaces/nic/ipConfigurations/ipconfig"


@register(PEERING)
class Peering(Behaviour):
    located = False

    def prepare(self, call: Call) -> None:
        remote = (call.properties.get("remoteVirtualNetwork") or {}).get("id", "")
        if not remote:
            raise ArmError(400, "InvalidRequestFormat", "remoteVirtualNetwork.id is missing.")
        for name, value in {"allowVirtualNetworkAccess": True, "allowForwardedTraffic": False,
                            "allowGatewayTransit": False, "useRemoteGateways": False}.items():  # fmt: skip
            call.properties.setdefault(name, value)

    def show(self, state: State, resource: dict[str, t.Any], query: dict[str, str]) -> dict[str, t.Any]:
        shown = copy.deepcopy(resource)
        remote, own = shown["properties"]["remoteVirtualNetwork"]["id"], resource["id"].rsplit("/", 2)[0]
        back = [one for one in state.under(remote) if one["type"] == PEERING
                and ids.same(one["properties"]["remoteVirtualNetwork"]["id"], own)]  # fmt: skip
        there = "Connected" if back else "Initiated" if state.get(remote) else "Disconnected"
        space = ((state.get(remote) or {}).get("properties") or {}).get("addressSpace") or {"addressPrefixes": []}
        shown["properties"].update({"remoteAddressSpace": space, "remoteVirtualNetworkAddressSpace": space})
        shown["properties"].update({"peeringState": there, "peeringSyncLevel": "FullyInSync"})
        return shown
