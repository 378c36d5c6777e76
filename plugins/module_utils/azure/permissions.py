# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an identity may do what is planned. No I/O. Private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.finding import Finding

ASSIGN = "Microsoft.Authorization/roleAssignments/write"
# What the bring-up does, each with the smallest built-in role that allows it.
NEEDED: dict[str, str] = {
    "Microsoft.Resources/subscriptions/resourceGroups/write": "Contributor",
    "Microsoft.Compute/virtualMachines/write": "Virtual Machine Contributor",
    "Microsoft.ManagedIdentity/userAssignedIdentities/write": "Managed Identity Contributor",
    "Microsoft.Network/natGateways/write": "Network Contributor",
    "Microsoft.Network/networkInterfaces/write": "Network Contributor",
    "Microsoft.Network/networkSecurityGroups/write": "Network Contributor",
    "Microsoft.Network/publicIPAddresses/write": "Network Contributor",
    "Microsoft.Network/virtualNetworks/write": "Network Contributor",
    "Microsoft.Storage/storageAccounts/write": "Storage Account Contributor",
    ASSIGN: "Role Based Access Control Administrator",
}


class Grant(t.NamedTuple):
    """What one role assignment allows."""

    actions: tuple[str, ...]
    without: tuple[str, ...] = ()


def grants(items: t.Iterable[t.Mapping[str, t.Any]]) -> list[Grant]:
    """Read the listing of permissions."""
    return [Grant(tuple(item.get("actions") or ()), tuple(item.get("notActions") or ())) for item in items]


def matches(pattern: str, action: str) -> bool:
    """Say whether a pattern such as ``Microsoft.Compute/*/read`` covers an action."""
    return re.fullmatch(re.escape(pattern).replace("\\*", ".*"), action, re.IGNORECASE) is not None


def allowed(action: str, given: t.Iterable[Grant]) -> bool:
    """Say whether one grant allows it: what a grant takes out, another may still give."""
    return any(
        any(matches(pattern, action) for pattern in one.actions)
        and not any(matches(pattern, action) for pattern in one.without)
        for one in given
    )


def judge(given: t.Sequence[Grant] | None, scope: str, needed: t.Mapping[str, str] | None = None) -> list[Finding]:
    """Return what is missing. None says that Azure did not tell what there is."""
    if given is None:
        problem = f"Azure does not tell what the identity may do on {scope}."
        return [
            Finding(
                "permissions", scope, problem, "Nothing has to be done; a missing right shows when it is needed.", False
            )
        ]
    found = []
    for action, role in sorted((NEEDED if needed is None else needed).items()):
        if not allowed(action, given):
            found.append(_missing(action, role, scope, given))
    return found


def _missing(action: str, role: str, scope: str, given: t.Sequence[Grant]) -> Finding:
    taken = sorted({pattern for one in given for pattern in one.without if matches(pattern, action)})
    why = f" ({', '.join(taken)} is taken out of the role it has)" if taken and _given(action, given) else ""
    advice = f"Have the role {role}, or Owner, assigned on {scope}."
    if action == ASSIGN:
        advice += " Contributor lacks it. Or have somebody make them, and set azure_infra_role_assignments: false."
    return Finding("permissions", scope, f"The identity may not do {action}{why}.", advice, True)


def _given(action: str, given: t.Sequence[Grant]) -> bool:
    return any(matches(pattern, action) for one in given for pattern in one.actions)


def providers(states: t.Mapping[str, str], given: t.Sequence[Grant] | None) -> list[Finding]:
    """Return providers that are not registered; they stop only those who may not register them."""
    found = []
    for namespace, state in sorted(states.items()):
        if state.lower() == "registered":
            continue
        may = given is None or allowed(f"{namespace}/register/action", given)
        problem = f"{namespace} is {state or 'unknown'} in this subscription."
        action = "It is registered when it is needed, which takes some minutes." if may else (
            f"The identity may not register it: have somebody run az provider register --namespace {namespace}."
        )  # fmt: skip
        found.append(Finding("provider", namespace, problem, action, not may))
    return found
