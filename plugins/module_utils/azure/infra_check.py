# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the inputs of role azure_infra cannot be meant. No I/O. Private."""

from __future__ import annotations

import datetime
import ipaddress
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import expiry, images
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.infra import subnet
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import TeardownError

# Azure itself writes some of these in lower case.
_THEIRS = r"(?i)(/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.{}/[^/]+{})?"
_RESERVED = "root|admin|administrator|guest|test|user|cyclecloud"
_PATTERNS = {
    "cluster": (r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", "1 to 32 lower-case letters, digits and inner dashes"),
    "subscription": (r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "an identifier (AZURE_SUBSCRIPTION_ID)"),
    "location": (r"[A-Za-z0-9 ]+", "the name of a region"),
    "resource_group": (r"[\w().-]{0,89}[\w()-]", "up to 90 letters, digits, dots, dashes and underscores"),
    "storage_account": (r"([a-z0-9]{3,24})?", "3 to 24 lower-case letters and digits"),
    "container": (r"[a-z0-9](-?[a-z0-9]){2,62}", "3 to 63 lower-case letters, digits and inner dashes"),
    "server_ssh_public_key": (r"(ssh-rsa|ssh-ed25519) [A-Za-z0-9+/=]+( .*)?", "one line of an RSA or Ed25519 key"),
    "server_user": (rf"(?!({_RESERVED})$)[a-z_][a-z0-9_-]{{0,31}}", "a Linux user that Azure does not reserve"),
    "server_zone": (r"[123]?", "1, 2, 3 or nothing"),
    "existing_subnet_id": (_THEIRS.format("Network/virtualNetworks", "/subnets/[^/]+"), "the identifier of a subnet"),
    "existing_storage_account_id": (_THEIRS.format("Storage/storageAccounts", ""), "the identifier of an account"),
    "existing_locker_identity_id": (
        _THEIRS.format("ManagedIdentity/userAssignedIdentities", ""),
        "the identifier of a user-assigned identity",
    ),
}
_GUID = re.compile(_PATTERNS["subscription"][0])
_PORTS = range(1, 65536)


def refusals(inputs: t.Mapping[str, t.Any], now: datetime.datetime) -> list[str]:
    """Return every problem, each with the input that has it."""
    told = []
    for name, (pattern, meant) in _PATTERNS.items():
        if not re.fullmatch(pattern, str(inputs[name])):
            told.append(f"azure_infra_{name} is {str(inputs[name])!r}, and has to be {meant}")
    if images.parse(str(inputs["server_image"])) is None:
        told.append(
            f"azure_infra_server_image is {inputs['server_image']!r}, and has to be publisher:offer:sku:version"
        )
    if inputs["existing_server_subnet_id"] and not subnet(str(inputs["existing_server_subnet_id"])):
        told.append("azure_infra_existing_server_subnet_id has to be the identifier of a subnet")
    if inputs["existing_server_subnet_id"] and not inputs["existing_subnet_id"]:
        told.append("azure_infra_existing_server_subnet_id needs azure_infra_existing_subnet_id, too")
    told += _network(inputs) + _sources(inputs) + _principal(inputs, now) + _expiry(inputs)
    return told


def _network(inputs: t.Mapping[str, t.Any]) -> list[str]:
    if inputs["existing_subnet_id"]:
        return []
    told = []
    parts = inputs["subnets"] or {}
    told += [f"azure_infra_subnets needs {name}" for name in ("server", "compute") if name not in parts]
    spaces = [(str(text), _range(text)) for text in inputs["address_space"]]
    subnets = [(str(name), str(text), _range(text)) for name, text in parts.items()]
    told += [f"azure_infra_address_space: {text} is no address range" for text, one in spaces if one is None]
    told += [f"azure_infra_subnets: {name} {text} is no address range" for name, text, one in subnets if one is None]
    good = [(name, one) for name, dummy, one in subnets if one is not None]
    inside = [one for dummy, one in spaces if one is not None]
    for index, (name, one) in enumerate(good):
        if not any(one.version == space.version and one.subnet_of(t.cast(t.Any, space)) for space in inside):
            told.append(f"azure_infra_subnets: {name} {one} is not inside azure_infra_address_space")
        told += [
            f"azure_infra_subnets: {name} and {other} overlap" for other, two in good[index + 1 :] if one.overlaps(two)
        ]
    return told


def _range(text: t.Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(str(text))
    except ValueError:
        return None


def _sources(inputs: t.Mapping[str, t.Any]) -> list[str]:
    told = []
    for text in inputs["allowed_sources"]:
        one = _range(text)
        if one is None:
            told.append(f"azure_infra_allowed_sources: {text} is no address range")
        elif one.prefixlen == 0:
            told.append(f"azure_infra_allowed_sources: {text} is the whole Internet; name the networks you come from")
    if inputs["public_address"] and not inputs["allowed_sources"]:
        told.append("azure_infra_public_address is of no use without azure_infra_allowed_sources")
    told += [f"azure_infra_https_ports: {port} is no port" for port in inputs["https_ports"] if int(port) not in _PORTS]
    return told


def _principal(inputs: t.Mapping[str, t.Any], now: datetime.datetime) -> list[str]:
    if inputs["orchestration"] != "service_principal":
        return []
    given = inputs["service_principal"] or {}
    told = [
        f"azure_infra_service_principal.{name} has to be an identifier"
        for name in ("client_id", "object_id")
        if not _GUID.fullmatch(str(given.get(name) or ""))
    ]
    try:
        if given.get("secret_expires") and expiry.read(str(given["secret_expires"])) <= now:
            told.append(f"the secret of the service principal expired on {given['secret_expires']}: make a new one")
    except TeardownError as exc:
        told.append(f"azure_infra_service_principal.secret_expires: {exc}")
    return told


def _expiry(inputs: t.Mapping[str, t.Any]) -> list[str]:
    try:
        expiry.read(str(inputs["expires_on"] or "2000-01-01"))
    except TeardownError as exc:
        return [f"azure_infra_expires_on: {exc}"]
    return []


def warnings(inputs: t.Mapping[str, t.Any], now: datetime.datetime) -> list[str]:
    """Return what should be known though it stops nothing."""
    if inputs["orchestration"] != "service_principal":
        return []
    expires = (inputs["service_principal"] or {}).get("secret_expires")
    if not expires:
        return ["When the secret of the service principal expires is not known; then CycleCloud stops making nodes."]
    left = (expiry.read(str(expires)) - now).days
    if left > int(inputs["secret_warning_days"]):
        return []
    return [
        f"The secret of the service principal expires on {expires}, in {left} days; then CycleCloud stops making nodes."
    ]
