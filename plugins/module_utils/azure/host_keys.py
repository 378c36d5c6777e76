# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SSH host keys of a machine, read on it by Azure's agent: not by the network on which somebody else may answer."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _host_keys
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.client import Arm, AzureError, Json

_COMPUTE, _NETWORK = "2024-07-01", "2024-05-01"
_SCRIPT = "cat /etc/ssh/ssh_host_*_key.pub"
_SHORT = re.compile(r"(?P<group>[^/]+)/(?P<network>[^/]+)/(?P<subnet>[^/]+)")
_SUBNET = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+",
    re.IGNORECASE,
)
_MACHINE = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/virtualMachines/[^/]+", re.IGNORECASE
)
# How the agent's extension for Linux words what a script printed.
_OUTPUT = re.compile(r"\[stdout\]\n(?P<out>.*?)\n?\[stderr\]\n?(?P<err>.*)", re.DOTALL)


def machine_id(text: str) -> str:
    """Return the resource ID of a virtual machine; raise AzureError for anything else."""
    if not _MACHINE.fullmatch(text):
        raise AzureError(f"{text!r} is no resource ID of a virtual machine (/subscriptions/../virtualMachines/NAME)")
    return text


def subnet_id(text: str, subscription: str) -> str:
    """Return the resource ID of a subnet, which may be given as <resource group>/<network>/<subnet>."""
    short = _SHORT.fullmatch(text)
    if short:
        network = f"{short['group']}/providers/Microsoft.Network/virtualNetworks/{short['network']}"
        return f"/subscriptions/{subscription}/resourceGroups/{network}/subnets/{short['subnet']}"
    if _SUBNET.fullmatch(text):
        return text
    raise AzureError(f"{text!r} is neither <resource group>/<network>/<subnet> nor the resource ID of a subnet")


def machine_at(interfaces: t.Iterable[Json], subnet: str, address: str) -> str:
    """Return the machine whose network interface has an address in a subnet; Azure gives each address there once."""
    for interface in interfaces:
        properties = interface.get("properties") or {}
        for configuration in properties.get("ipConfigurations") or []:
            place = configuration.get("properties") or {}
            same = str((place.get("subnet") or {}).get("id", "")).lower() == subnet.lower()
            if not same or place.get("privateIPAddress") != address:
                continue
            machine = str((properties.get("virtualMachine") or {}).get("id", ""))
            if not _MACHINE.fullmatch(machine):
                raise AzureError(
                    f"{address} in {subnet} belongs to {interface.get('id')}, which is no interface of a virtual"
                    f" machine (it has {machine or 'none'}); its host keys have to be given by hand"
                )
            return machine
    raise AzureError(
        f"no network interface of this subscription has {address} in {subnet}: does the machine run, and may the"
        " identity read Microsoft.Network/networkInterfaces there?"
    )


def find(arm: Arm, subnet: str, address: str) -> str:
    """Return the resource ID of the machine with a private address in a subnet."""
    try:
        wanted = str(ipaddress.ip_address(address))
    except ValueError as exc:
        raise AzureError(f"{address!r} is no IP address; Azure knows machines by those") from exc
    path = f"/subscriptions/{arm.subscription}/providers/Microsoft.Network/networkInterfaces"
    return machine_at(arm.items(path, _NETWORK), subnet_id(subnet, arm.subscription), wanted)


def keys_of(answer: Json, machine: str) -> list[str]:
    """Return the keys in the answer to a run command; raise AzureError where it brought none."""
    entries = [entry for entry in answer.get("value") or [] if isinstance(entry, dict)]
    printed = "\n".join(str(entry.get("message") or "") for entry in entries)
    found = _OUTPUT.search(printed)
    keys = _host_keys.read(found["out"]) if found else []
    if not keys:
        said = " ".join((found["err"] if found else printed).split())[:300] or "nothing"
        codes = ", ".join(str(entry.get("code")) for entry in entries) or "no status"
        raise AzureError(f"Azure's agent read no SSH host key with {_SCRIPT!r} on {machine} ({codes}): {said}")
    return keys


def read(arm: Arm, machine: str) -> list[str]:
    """Have Azure's agent print the host keys of a machine that runs; it changes nothing there."""
    path = f"{machine_id(machine)}/runCommand"
    return keys_of(arm.post(path, _COMPUTE, {"commandId": "RunShellScript", "script": [_SCRIPT]}), machine)
