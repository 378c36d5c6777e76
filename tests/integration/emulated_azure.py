# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the emulated Azure share: a deployment in a few calls."""

from __future__ import annotations

import typing as t
import uuid

from running import Answer, Azure

__all__ = ["Answer", "Azure", "assign", "fresh", "machine", "network"]
NET, RG, ROLE, VM = "2024-01-01", "2022-09-01", "2022-04-01", "2024-07-01"
GROUP = "resourceGroups/c1-rg"
N, C = f"{GROUP}/providers/Microsoft.Network", f"{GROUP}/providers/Microsoft.Compute"
CONTRIBUTOR = "providers/Microsoft.Authorization/roleDefinitions/b24988ac-6180-42a0-ab88-20f7382dd24c"
PLACE = {"location": "southcentralus"}
KEY = "ssh-ed25519 " + "A" * 68


def fresh(running: Azure) -> Azure:
    """Return the emulator with nothing but a resource group."""
    settings = {"delay": 0.02, "group_delete_delay": 0.05, "replication_delay": 60}
    running.control("reset", {"settings": {**settings, "unregistered": [], "assignment_delay": 0}})
    running.token = ""
    assert running.arm("PUT", GROUP, RG, PLACE).status == 201
    return running


def network(azure: Azure) -> str:
    """Make a network with a subnet and an interface; return the interface's id."""
    space = {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}
    azure.done("PUT", f"{N}/virtualNetworks/v", NET, {**PLACE, "properties": space})
    subnet = azure.done(
        "PUT", f"{N}/virtualNetworks/v/subnets/s", NET, {"properties": {"addressPrefix": "10.0.1.0/24"}}
    )
    one = {"name": "a", "properties": {"subnet": {"id": subnet.body["id"]}}}
    made = azure.done("PUT", f"{N}/networkInterfaces/n", NET, {**PLACE, "properties": {"ipConfigurations": [one]}})
    assert made.body["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"] == "10.0.1.4"
    return str(made.body["id"])


def machine(nic: str, **changes: t.Any) -> dict[str, t.Any]:
    user = {"computerName": "cc", "adminUsername": "hpc", "customData": "I2Nsb3VkLWNvbmZpZw=="}
    ssh = {"publicKeys": [{"path": "/home/hpc/.ssh/authorized_keys", "keyData": KEY}]}
    image = {"publisher": "Debian", "offer": "debian-12", "sku": "12-gen2", "version": "latest"}
    said = {
        "hardwareProfile": {"vmSize": "Standard_D4s_v5"},
        "storageProfile": {"imageReference": image},
        "osProfile": {**user, "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": ssh}},
        "networkProfile": {"networkInterfaces": [{"id": nic}]},
    }
    return {**PLACE, "identity": {"type": "SystemAssigned"}, "properties": {**said, **changes}}


def assign(azure: Azure, principal: str, name: str = "", **more: str) -> Answer:
    body = {"roleDefinitionId": f"{azure.subscription}/{CONTRIBUTOR}", "principalId": principal, **more}
    path = f"providers/Microsoft.Authorization/roleAssignments/{name or uuid.uuid4()}"
    return azure.arm("PUT", path, ROLE, {"properties": body})
