# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH host keys of machines, read on them by Azure's agent: not by the network on which somebody else may answer."""

from __future__ import annotations

import concurrent.futures
import ipaddress
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _lines
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.client import Arm, AzureError, Json

_COMPUTE, _NETWORK = "2024-07-01", "2024-05-01"
_SET_INTERFACES = "2018-10-01"  # the one version that Azure documents for network interfaces of scale sets
# Run commands at a time, each on another machine; Azure's agent takes tens of seconds for one.
_AT_ONCE = 16
_SCRIPT = "cat /etc/ssh/ssh_host_*_key.pub"
_SHORT = re.compile(r"(?P<group>[^/]+)/(?P<network>[^/]+)/(?P<subnet>[^/]+)")
_SUBNET = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+",
    re.IGNORECASE,
)
_MACHINE = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/"
    r"(?:virtualMachines/[^/]+|virtualMachineScaleSets/[^/]+/virtualMachines/\d+)",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[0-9A-Za-z-]{1,64}")
# How the agent's extension for Linux words what a script printed.
_OUTPUT = re.compile(r"\[stdout\]\n(?P<out>.*?)\n?\[stderr\]\n?(?P<err>.*)", re.DOTALL)


def machine_id(text: str) -> str:
    """Return the resource ID of a virtual machine; raise AzureError for anything else."""
    if not _MACHINE.fullmatch(text):
        raise AzureError(
            f"{text!r} is no resource ID of a virtual machine (/subscriptions/../virtualMachines/NAME), alone or in a"
            " scale set"
        )
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


class Machine(t.NamedTuple):
    """A machine at an address, and the number that Azure gave this one machine and gives no other."""

    address: str
    id: str
    vm_id: str


def machine_at(interfaces: t.Iterable[Json], subnet: str, address: str) -> str:
    """Return the machine whose network interface has an address in a subnet; Azure gives each address there once."""
    for interface in interfaces:
        properties = interface.get("properties") or {}
        for configuration in properties.get("ipConfigurations") or []:
            address_properties = configuration.get("properties") or {}
            same = str((address_properties.get("subnet") or {}).get("id", "")).lower() == subnet.lower()
            if not same or address_properties.get("privateIPAddress") != address:
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
        " identity read Microsoft.Network/networkInterfaces and Microsoft.Compute/virtualMachineScaleSets there?"
    )


def _wanted(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError as exc:
        raise AzureError(f"{address!r} is no IP address; Azure knows machines by those") from exc


def subnets_of(scale_set: Json) -> set[str]:
    """Return the identifiers, in lower case, of the subnets in which a scale set puts its machines."""
    profile = (scale_set.get("properties") or {}).get("virtualMachineProfile") or {}
    subnets = set()
    for interface in (profile.get("networkProfile") or {}).get("networkInterfaceConfigurations") or []:
        for configuration in (interface.get("properties") or {}).get("ipConfigurations") or []:
            address_properties = configuration.get("properties") or {}
            subnets.add(str((address_properties.get("subnet") or {}).get("id", "")).lower())
    return subnets


def interfaces(arm: Arm, subnet: str, addresses: t.Collection[str]) -> list[Json]:
    """Return the network interfaces that may have the addresses; those of scale sets are listed by their sets alone."""
    providers = f"/subscriptions/{arm.subscription}/providers"
    nics = arm.items(f"{providers}/Microsoft.Network/networkInterfaces", _NETWORK)
    if set(addresses) <= set(_addresses(nics, subnet)):
        return nics
    for scale_set in arm.items(f"{providers}/Microsoft.Compute/virtualMachineScaleSets", _COMPUTE):
        if subnet.lower() in subnets_of(scale_set):
            nics += arm.items(f"{scale_set['id']}/networkInterfaces", _SET_INTERFACES)
    return nics


def _addresses(nics: t.Iterable[Json], subnet: str) -> t.Iterator[str]:
    for interface in nics:
        for configuration in (interface.get("properties") or {}).get("ipConfigurations") or []:
            address_properties = configuration.get("properties") or {}
            if str((address_properties.get("subnet") or {}).get("id", "")).lower() == subnet.lower():
                yield str(address_properties.get("privateIPAddress"))


def find(arm: Arm, subnet: str, address: str) -> str:
    """Return the resource ID of the machine with a private address in a subnet."""
    wanted, subnet_resource = _wanted(address), subnet_id(subnet, arm.subscription)
    return machine_at(interfaces(arm, subnet_resource, [wanted]), subnet_resource, wanted)


def _number(arm: Arm, machine: str) -> str:
    described = arm.get(machine, _COMPUTE) or {}
    number = str((described.get("properties") or {}).get("vmId") or "")
    if not _NUMBER.fullmatch(number):
        raise AzureError(f"Azure gives {machine} the vmId {number!r}, by which it cannot be told from others")
    return number


def find_all(arm: Arm, subnet: str, addresses: t.Sequence[str]) -> tuple[list[Machine], dict[str, str]]:
    """Return the machines with these addresses, and why there is none for the others."""
    subnet_resource, problems, machines = subnet_id(subnet, arm.subscription), {}, []
    wanted = []
    for address in dict.fromkeys(addresses):
        try:
            wanted.append(_wanted(address))
        except AzureError as exc:
            problems[address] = str(exc)
    listed = interfaces(arm, subnet_resource, wanted)
    for address in wanted:
        try:
            machine = machine_at(listed, subnet_resource, address)
            machines.append(Machine(address, machine, _number(arm, machine)))
        except AzureError as exc:
            problems[address] = str(exc)
    return machines, problems


def keys_of(answer: Json, machine: str) -> list[str]:
    """Return the keys in the answer to a run command; raise AzureError where it brought none."""
    entries = [entry for entry in answer.get("value") or [] if isinstance(entry, dict)]
    printed = "\n".join(str(entry.get("message") or "") for entry in entries)
    match = _OUTPUT.search(printed)
    keys = _lines.host_keys(match["out"]) if match else []
    if not keys:
        output = " ".join((match["err"] if match else printed).split())[:300] or "nothing"
        codes = ", ".join(str(entry.get("code")) for entry in entries) or "no status"
        raise AzureError(f"Azure's agent read no SSH host key with {_SCRIPT!r} on {machine} ({codes}): {output}")
    return keys


def read(arm: Arm, machine: str) -> list[str]:
    """Have Azure's agent print the host keys of a machine that runs; it changes nothing there."""
    path = f"{machine_id(machine)}/runCommand"
    return keys_of(arm.post(path, _COMPUTE, {"commandId": "RunShellScript", "script": [_SCRIPT]}), machine)


def read_all(arm: Arm, machines: t.Sequence[Machine]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Read the keys of several machines at a time, by address; and why those of the others cannot be read."""
    keys, problems = {}, {}
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        for machine, reading in [(vm, pool.submit(read, arm, vm.id)) for vm in machines]:
            try:
                keys[machine.address] = reading.result()
            except AzureError as exc:
                problems[machine.address] = str(exc)
    return keys, problems
