# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network security groups: their rules, the default ones too."""

from __future__ import annotations

import typing as t

from . import embedded
from .behaviour import Behaviour, Call, register
from .http import ArmError
from .network import SUBNET, N, users
from .state import State

GROUP, RULE = f"{N}networkSecurityGroups", f"{N}networkSecurityGroups/securityRules"
DEFAULTS = [
    ("AllowVnetInBound", 65000, "Inbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
    ("AllowAzureLoadBalancerInBound", 65001, "Inbound", "Allow", "AzureLoadBalancer", "*"),
    ("DenyAllInBound", 65500, "Inbound", "Deny", "*", "*"),
    ("AllowVnetOutBound", 65000, "Outbound", "Allow", "VirtualNetwork", "VirtualNetwork"),
    ("AllowInternetOutBound", 65001, "Outbound", "Allow", "*", "Internet"),
    ("DenyAllOutBound", 65500, "Outbound", "Deny", "*", "*"),
]
MANY = ("sourceAddressPrefixes", "destinationAddressPrefixes", "sourcePortRanges", "destinationPortRanges")
# A rule names each of these once, in one of its forms.
SIDES = [
    ("sourceAddressPrefix", "sourceAddressPrefixes", "sourceApplicationSecurityGroups"),
    ("destinationAddressPrefix", "destinationAddressPrefixes", "destinationApplicationSecurityGroups"),
    ("sourcePortRange", "sourcePortRanges"),
    ("destinationPortRange", "destinationPortRanges"),
]


def _refuse(code: str, rule: dict[str, t.Any], why: str) -> ArmError:
    return ArmError(400, code, f"Security rule {rule['name']} {why}.")


def check_rule(rule: dict[str, t.Any], others: list[dict[str, t.Any]]) -> None:
    """Refuse a rule that Azure would refuse; complete it."""
    said = rule["properties"]
    for key in ("protocol", "access", "direction", "priority"):
        if said.get(key) is None:
            raise _refuse("SecurityRuleParameterMissing", rule, f"needs {key}")
    if not 100 <= said["priority"] <= 4096:
        raise _refuse("SecurityRuleInvalidPriority", rule, f"has priority {said['priority']}, not 100 to 4096")
    for side in SIDES:
        given = [key for key in side if said.get(key)]
        if len(given) != 1:
            raise _refuse("SecurityRuleInvalidParameters", rule, f"is to have exactly one of {', '.join(side)}")
    for other in others:
        same = ("priority", "direction")
        if all(other["properties"][key] == said[key] for key in same):
            why = f"conflicts with rule {other['name']}: rules cannot have the same Priority and Direction"
            raise _refuse("SecurityRuleConflict", rule, why)
    for key in MANY:
        said.setdefault(key, [])


@register(RULE)
class Rule(Behaviour):
    located = False

    def prepare(self, call: Call) -> None:
        siblings = [one for one in call.state.under(call.target.parent) if one["id"].lower() != call.id.lower()]
        check_rule(call.new, siblings)


@register(GROUP)
class Group(embedded.Parent):
    lists: t.ClassVar[dict[str, str]] = {"securityRules": RULE}

    def check_child(self, call: Call, child: Call) -> None:
        check_rule(child.new, [one.new for one in call.children if one is not child])

    def show(self, state: State, resource: dict[str, t.Any], query: dict[str, str]) -> dict[str, t.Any]:
        shown = super().show(state, resource, query)
        shown["properties"]["defaultSecurityRules"] = [_default(resource["id"], *one) for one in DEFAULTS]
        for key, kind in {"subnets": SUBNET, "networkInterfaces": f"{N}networkInterfaces"}.items():
            found = users(state, resource, kind)
            if found:
                shown["properties"][key] = found
        return shown

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        used = users(state, resource, SUBNET, f"{N}networkInterfaces")
        if used:
            message = f"Network security group {resource['id']} cannot be deleted because it is in use by"
            message += f" the following resources: {used[0]['id']}. In order to delete it, remove the association."
            raise ArmError(400, "InUseNetworkSecurityGroupCannotBeDeleted", message)


def _default(
    group: str, name: str, priority: int, direction: str, access: str, source: str, to: str
) -> dict[str, t.Any]:
    said: dict[str, t.Any] = {"protocol": "*", "sourcePortRange": "*", "destinationPortRange": "*"}
    said.update({"sourceAddressPrefix": source, "destinationAddressPrefix": to, "access": access})
    said.update({"priority": priority, "direction": direction, "provisioningState": "Succeeded"})
    said.update({key: [] for key in MANY})
    kind = f"{N}networkSecurityGroups/defaultSecurityRules"
    return {"id": f"{group}/defaultSecurityRules/{name}", "name": name, "type": kind, "properties": said}
