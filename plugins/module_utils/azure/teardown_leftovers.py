# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people see of a teardown: the list beforehand, where CycleCloud is, what is left afterwards. Private."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.arguments import AzureError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.ownership import tagged, thing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import Plan, Seen
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown_read import VAULTS, Arm

_MACHINE = "2024-07-01"
_NETWORK = "2024-05-01"


def listing(plan: Plan) -> list[str]:
    """Return a plan as lines, what goes first coming first."""
    lines = [f"lock {found}" for found in plan.locks]
    lines += [f"role assignment {found}" for found in plan.assignments]
    lines += [f"resource {found}" for found in plan.resources]
    for group in plan.groups:
        lines.append(f"resource group {group} with everything in it")
        lines += [f"  {found}" for found in plan.contents.get(group.rsplit("/", 1)[-1], [])]
    return lines


def server(arm: Arm, seen: Seen, cluster: str) -> dict[str, str]:
    """Return name, user and addresses of the CycleCloud machine, as far as it was ever made."""
    wanted = f"{cluster}-cyclecloud"
    for found in seen.resources:
        if found.name != wanted or found.type.lower() != "microsoft.compute/virtualmachines":
            continue
        machine = (arm.get(found.id, _MACHINE) or {}).get("properties") or {}
        cards = (machine.get("networkProfile") or {}).get("networkInterfaces") or []
        private, public = _addresses(arm, str(cards[0]["id"])) if cards else ("", "")
        user = str((machine.get("osProfile") or {}).get("adminUsername") or "")
        answer = {"name": wanted, "user": user, "address": public or private}
        return {**answer, "private_address": private, "public_address": public}
    return {}


def _addresses(arm: Arm, card: str) -> tuple[str, str]:
    configurations = ((arm.get(card, _NETWORK) or {}).get("properties") or {}).get("ipConfigurations") or []
    for configuration in configurations:
        said = configuration.get("properties") or {}
        private = str(said.get("privateIPAddress") or "")
        place = str((said.get("publicIPAddress") or {}).get("id") or "")
        public = ((arm.get(place, _NETWORK) or {}).get("properties") or {}) if place else {}
        return private, str(public.get("ipAddress") or "")
    return "", ""


def vaults(arm: Arm, seen: Seen, cluster: str) -> tuple[list[str], list[str]]:
    """Return deleted key vaults of ours, which keep their names until they are purged, and why none could be read."""
    path = f"/subscriptions/{seen.subscription}/providers/Microsoft.KeyVault/deletedVaults"
    try:
        found = arm.items(path, VAULTS)
    except AzureError as exc:
        if "MissingSubscriptionRegistration" in str(exc) or "not registered" in str(exc):
            return [], []  # no vault was ever made here
        return [], [f"deleted key vaults could not be listed: {exc}"]
    listed = [thing({**vault, "tags": (vault.get("properties") or {}).get("tags")}) for vault in found]
    return sorted(vault.id for vault in listed if tagged(vault, cluster)), []
