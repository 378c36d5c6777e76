# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster stands on in Azure: names, rules and roles that follow from the inputs, their faults, and the way out.

No I/O.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import assignments, ownership, skus, teardown
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.preflight import region
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import TeardownError

Json = t.Dict[str, t.Any]
SECRET_TAG = "hpcai-secret-expires"  # noqa: S105
SSH, CLUSTER_PORT = 22, 9443
_DIGEST, _ACCOUNT = 8, 24
_VERSIONS = {
    "group": "2021-04-01",
    "network": "2024-07-01",
    "storage": "2023-05-01",
    "identity": "2024-11-30",
    "compute": "2024-07-01",
}


def account_name(subscription: str, cluster: str) -> str:
    """Return a name that nobody else is likely to have, and always the same one."""
    digest = hashlib.sha256(f"{subscription.lower()}{cluster}".encode()).hexdigest()[:_DIGEST]
    return "".join(sign for sign in cluster.lower() if sign.isalnum())[: _ACCOUNT - _DIGEST] + digest


def plan(inputs: t.Mapping[str, t.Any]) -> Json:
    """Return names, identifiers and contents of all resources."""
    cluster, group = str(inputs["cluster"]), str(inputs["resource_group"])
    base = f"/subscriptions/{inputs['subscription']}/resourceGroups/{group}"
    network = not inputs["existing_subnet_id"]
    names = _names(inputs, cluster)
    ids = _ids(inputs, base, names, network)
    return {
        "base": base,
        "location": region(str(inputs["location"])),
        "own_network": network,
        "names": names,
        "ids": ids,
        "resources": _resources(inputs, ids, network),
        "tags": {name: tags(inputs, identifier) for name, identifier in ids.items()},
        "group_tags": {**tags(inputs, base), **_secret_tag(inputs)},
        "rules": rules(inputs),
        "server_subnet": subnet(ids["server_subnet"]),
    }


def _names(inputs: t.Mapping[str, t.Any], cluster: str) -> Json:
    return {
        "vnet": f"{cluster}-vnet",
        "server_nsg": f"{cluster}-server-nsg",
        "compute_nsg": f"{cluster}-compute-nsg",
        "nat": f"{cluster}-nat",
        "nat_address": f"{cluster}-nat-ip",
        "account": str(inputs["storage_account"] or account_name(str(inputs["subscription"]), cluster)),
        "locker_identity": f"{cluster}-locker",
        "address": f"{cluster}-cyclecloud-ip",
        "nic": f"{cluster}-cyclecloud-nic",
        "server": f"{cluster}-cyclecloud",
    }


def _ids(inputs: t.Mapping[str, t.Any], base: str, names: Json, network: bool) -> Json:
    inside = f"{base}/providers/Microsoft."
    vnet = f"{inside}Network/virtualNetworks/{names['vnet']}"
    identity = f"{inside}ManagedIdentity/userAssignedIdentities/{names['locker_identity']}"
    account = str(inputs["existing_storage_account_id"] or f"{inside}Storage/storageAccounts/{names['account']}")
    own = {
        "vnet": vnet,
        "server_nsg": f"{inside}Network/networkSecurityGroups/{names['server_nsg']}",
        "compute_nsg": f"{inside}Network/networkSecurityGroups/{names['compute_nsg']}",
        "nat": f"{inside}Network/natGateways/{names['nat']}",
        "nat_address": f"{inside}Network/publicIPAddresses/{names['nat_address']}",
        "compute_subnet": f"{vnet}/subnets/compute",
        "server_subnet": f"{vnet}/subnets/server",
    }
    theirs = {
        "compute_subnet": str(inputs["existing_subnet_id"]),
        "server_subnet": str(inputs["existing_server_subnet_id"] or inputs["existing_subnet_id"]),
    }
    return {
        "group": base,
        **(own if network else theirs),
        "account": account,
        "container": f"{account}/blobServices/default/containers/{inputs['container']}",
        "locker_identity": str(inputs["existing_locker_identity_id"] or identity),
        **({"address": f"{inside}Network/publicIPAddresses/{names['address']}"} if inputs["public_address"] else {}),
        "nic": f"{inside}Network/networkInterfaces/{names['nic']}",
        "server": f"{inside}Compute/virtualMachines/{names['server']}",
        **({"bastion": str(inputs["bastion_id"])} if inputs.get("bastion_id") else {}),
    }


def _resources(inputs: t.Mapping[str, t.Any], ids: Json, network: bool) -> Json:
    """Return what to read, by name and with its API version (`look`), and which of it is ours to make (`own`)."""
    kinds = {
        "account": "storage",
        "container": "storage",
        "locker_identity": "identity",
        "server": "compute",
        "group": "group",
    }
    theirs = {
        "compute_subnet": not network,
        "server_subnet": not network,
        "account": bool(inputs["existing_storage_account_id"]),
        "locker_identity": bool(inputs["existing_locker_identity_id"]),
        "bastion": bool(inputs.get("bastion_id")),
    }
    look = {
        name: {"id": identifier, "api_version": _VERSIONS[kinds.get(name, "network")]}
        for name, identifier in ids.items()
    }
    return {
        "look": look,
        "own": [name for name in ids if not theirs.get(name)],
        "theirs": sorted(k for k in theirs if theirs[k]),
    }


def tags(inputs: t.Mapping[str, t.Any], identifier: str) -> Json:
    """Return the tags of a resource."""
    ours = {
        ownership.CLUSTER_TAG: str(inputs["cluster"]),
        ownership.CREATOR_TAG: ownership.CREATOR,
        ownership.OWN_TAG: ownership.own_name(identifier),
    }
    return {**(inputs["tags"] or {}), **ours}


def _secret_tag(inputs: t.Mapping[str, t.Any]) -> Json:
    expires = (inputs["service_principal"] or {}).get("secret_expires")
    used = inputs["orchestration"] == "service_principal"
    return {SECRET_TAG: str(expires)} if expires and used else {}


def subnet(identifier: str) -> Json:
    """Return group, network and name from the identifier of a subnet; empty where it is none."""
    parts = identifier.split("/")
    return {"resource_group": parts[4], "vnet": parts[8], "name": parts[10]} if len(parts) == 11 else {}


def rules(inputs: t.Mapping[str, t.Any]) -> Json:
    """Return the inbound rules of both security groups; the last denies all, as Azure's own admit the whole network."""
    sources, cluster = list(inputs["allowed_sources"]), str(inputs["cluster"])
    clusters = sorted(str(prefix) for name, prefix in (inputs["subnets"] or {}).items() if name != "server")
    server = [_rule("cyclecloud-from-nodes", 100, clusters, [CLUSTER_PORT])]
    compute = [_rule("ssh-from-cyclecloud", 100, [str((inputs["subnets"] or {}).get("server", ""))], [SSH])]
    if sources:
        server += [_rule("ssh", 110, sources, [SSH]), _rule("https", 120, sources, inputs["https_ports"])]
        compute.append(_rule("ssh", 110, sources, [SSH]))
    compute.append(_rule("cluster", 200, clusters, ["*"], "*"))
    closed = _rule("closed", 4096, ["*"], ["*"], "*", "Deny")
    return {
        side: [{**rule, "description": rule_mark(cluster, rule["name"])} for rule in [*opened, closed]]
        for side, opened in (("server", server), ("compute", compute))
    }


def rule_mark(cluster: str, name: str) -> str:
    """Return the description by which a rule is known as made by the role; it holds the rule's own name."""
    return f"{ownership.CREATOR} {cluster} rule {name}"


def _rule(
    name: str,
    priority: int,
    sources: t.Sequence[str],
    ports: t.Iterable[t.Any],
    protocol: str = "Tcp",
    access: str = "Allow",
) -> Json:
    listed = [str(port) for port in ports]
    return {
        "name": name,
        "priority": priority,
        "direction": "Inbound",
        "access": access,
        "protocol": protocol,
        "source_address_prefix": sources[0] if len(sources) == 1 else list(sources),
        "destination_port_range": listed[0] if len(listed) == 1 else listed,
    }


def rule_review(inputs: t.Mapping[str, t.Any], observed: t.Mapping[str, t.Any]) -> dict[str, list[str]]:
    """Compare the rules of both security groups with ours; `observed` are the resources that were read, by name.

    Returns `stale`, ids of rules that an earlier run of the role made and that are not wanted any more; `opened`, what
    rules of others let in that ours keep out; and `conflicts`, rules of others in the place of one of ours.
    """
    review: dict[str, list[str]] = {"stale": [], "opened": [], "conflicts": []}
    for side, requested in rules(inputs).items():
        document = observed.get(f"{side}_nsg") or {}
        names = {rule["name"].lower() for rule in requested}
        priorities = {rule["priority"]: rule["name"] for rule in requested}
        for rule in (document.get("properties") or {}).get("securityRules") or []:
            name, properties = str(rule["name"]), rule.get("properties") or {}
            inbound = properties.get("direction") == "Inbound"
            if name.lower() in names:
                continue
            if properties.get("description") == rule_mark(str(inputs["cluster"]), name):
                review["stale"].append(str(rule["id"]))
                continue
            if inbound and properties.get("priority") in priorities:
                rival = priorities[properties["priority"]]
                review["conflicts"].append(
                    f"rule {name} of {document.get('name')} has priority {properties['priority']}, which rule {rival}"
                    " of role azure_infra needs: give it another one"
                )
            elif inbound and properties.get("access") == "Allow":
                review["opened"].append(_opening(str(document.get("name")), name, properties))
    return review


def _opening(group: str, name: str, properties: t.Mapping[str, t.Any]) -> str:
    """Say what a rule lets in that the role keeps out."""
    sources = _both(properties, "sourceAddressPrefix")
    sources += [str(entry.get("id")) for entry in properties.get("sourceApplicationSecurityGroups") or []]
    anybody = {"*", "internet", "0.0.0.0/0", "::/0"} & {source.lower() for source in sources}
    protocol = "any protocol" if properties.get("protocol") == "*" else str(properties.get("protocol"))
    return (
        f"rule {name} of {group} (priority {properties.get('priority')}) lets {', '.join(sources) or 'nobody'} in, port"
        f" {', '.join(_both(properties, 'destinationPortRange'))}, {protocol}"
        f"{': that is the whole Internet' if anybody else ''}. Role azure_infra did not make it and leaves it"
    )


def _both(properties: t.Mapping[str, t.Any], name: str) -> list[str]:
    """Return a property that Azure has in two forms, for one value and for several."""
    single, several = properties.get(name), properties.get(f"{name}es" if name.endswith("Prefix") else f"{name}s")
    return [str(value) for value in [*([single] if single else []), *(several or [])]]


class Bastion(t.NamedTuple):
    """``subnet`` is what to read of the network it is in; with its prefixes among the sources the way is open."""

    subnet: dict[str, dict[str, str]]
    refused: list[str]
    warnings: list[str]


_TUNNELS = ("Standard", "Premium")  # the tiers that let a native client in


def bastion(inputs: t.Mapping[str, t.Any], observed: t.Mapping[str, t.Any]) -> Bastion:
    """Judge the Bastion that is to be the way in; `observed` are the resources that were read, by name."""
    resource = observed.get("bastion") or {}
    if not inputs.get("bastion_id") or not resource:
        return Bastion({}, [], [])
    name, properties = f"Azure Bastion {resource.get('id')}", resource.get("properties") or {}
    tier, refused, warnings = str((resource.get("sku") or {}).get("name") or "Basic"), [], []
    if tier not in _TUNNELS or properties.get("enableTunneling") is not True:
        refused.append(
            f"{name} lets no SSH client in: its tier is {tier}, and native client support is"
            f" {'on' if properties.get('enableTunneling') else 'off'}. It needs tier Standard or Premium, and that"
            f" support: az network bastion update --ids {resource.get('id')} --sku Standard --enable-tunneling true"
        )
    of_bastion = [
        (configuration.get("properties") or {}).get("subnet") or {}
        for configuration in properties.get("ipConfigurations") or []
    ]
    identifier = next((str(entry["id"]) for entry in of_bastion if entry.get("id")), "")
    there = identifier.rpartition("/subnets/")[0].lower()
    network = observed.get("vnet") or {}
    if there and network and there != str(network.get("id")).lower():
        peered = [
            peering.get("properties") or {}
            for peering in (network.get("properties") or {}).get("virtualNetworkPeerings") or []
        ]
        states = {
            str((peering.get("remoteVirtualNetwork") or {}).get("id")).lower(): str(peering.get("peeringState"))
            for peering in peered
        }
        if states.get(there) != "Connected":
            warnings.append(
                f"{name} is in another network, to which {network.get('name')} has no peering that is connected (it is"
                f" {states.get(there, 'not there')}): make one in each direction (az network vnet peering create), or"
                " nobody gets in"
            )
    subnets = {"bastion_subnet": {"id": identifier, "api_version": _VERSIONS["network"]}} if identifier else {}
    return Bastion(subnets, refused, warnings)


def bastion_sources(subnet: t.Mapping[str, t.Any] | None) -> list[str]:
    """Return the addresses from which a Bastion in this subnet connects."""
    return sorted(set(_both((subnet or {}).get("properties") or {}, "addressPrefix")))


def roles(inputs: t.Mapping[str, t.Any], principal: str, locker: str) -> list[Json]:
    """Return who needs which role where."""
    planned = plan(inputs)
    above = f"/subscriptions/{inputs['subscription']}"
    narrow = inputs["role_scope"] == "resource_group"
    scope = planned["base"] if narrow else above
    needed = [(scope, "Contributor", principal), (scope, "Storage Blob Data Contributor", principal)]
    if narrow:
        needed.append((above, "Reader", principal))
        outside = (
            sorted({planned["ids"]["compute_subnet"], planned["ids"]["server_subnet"]})
            if not planned["own_network"]
            else []
        )
        needed += [(target, "Network Contributor", principal) for target in outside]
        account = planned["ids"]["account"]
        if not account.lower().startswith(planned["base"].lower() + "/"):
            needed.append((account, "Storage Blob Data Contributor", principal))
        identity = planned["ids"]["locker_identity"]
        if not identity.lower().startswith(planned["base"].lower() + "/"):
            needed.append((identity, assignments.OPERATOR, principal))
    needed.append((planned["ids"]["account"], "Storage Blob Data Reader", locker))
    # By this description a teardown finds the assignment even when its principal is gone.
    note = f"{ownership.CREATOR} {inputs['cluster']}"
    return [
        {"scope": target, "role": role, "principal": holder, "description": note} for target, role, holder in needed
    ]


# What is wrong with the inputs of role azure_infra.


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
    "bastion_id": (_THEIRS.format("Network/bastionHosts", ""), "the identifier of an Azure Bastion"),
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
    messages = []
    for name, (pattern, accepted) in _PATTERNS.items():
        if not re.fullmatch(pattern, str(inputs.get(name, ""))):
            messages.append(f"azure_infra_{name} is {str(inputs.get(name, ''))!r}, and has to be {accepted}")
    if skus.parse(str(inputs["server_image"])) is None:
        messages.append(
            f"azure_infra_server_image is {inputs['server_image']!r}, and has to be publisher:offer:sku:version"
        )
    if inputs["existing_server_subnet_id"] and not subnet(str(inputs["existing_server_subnet_id"])):
        messages.append("azure_infra_existing_server_subnet_id has to be the identifier of a subnet")
    if inputs["existing_server_subnet_id"] and not inputs["existing_subnet_id"]:
        messages.append("azure_infra_existing_server_subnet_id needs azure_infra_existing_subnet_id, too")
    messages += _network(inputs) + _sources(inputs) + _principal(inputs, now) + _expiry(inputs)
    return messages


def _network(inputs: t.Mapping[str, t.Any]) -> list[str]:
    if inputs["existing_subnet_id"]:
        return []
    messages = []
    parts = inputs["subnets"] or {}
    messages += [f"azure_infra_subnets needs {name}" for name in ("server", "compute") if name not in parts]
    spaces = [(str(text), _range(text)) for text in inputs["address_space"]]
    subnets = [(str(name), str(text), _range(text)) for name, text in parts.items()]
    messages += [
        f"azure_infra_address_space: {text} is no address range" for text, network in spaces if network is None
    ]
    messages += [
        f"azure_infra_subnets: {name} {text} is no address range" for name, text, network in subnets if network is None
    ]
    good = [(name, network) for name, dummy, network in subnets if network is not None]
    inside = [network for dummy, network in spaces if network is not None]
    for index, (name, network) in enumerate(good):
        if not any(network.version == space.version and network.subnet_of(t.cast(t.Any, space)) for space in inside):
            messages.append(f"azure_infra_subnets: {name} {network} is not inside azure_infra_address_space")
        messages += [
            f"azure_infra_subnets: {name} and {other} overlap"
            for other, other_network in good[index + 1 :]
            if network.overlaps(other_network)
        ]
    return messages


def _range(text: t.Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(str(text))
    except ValueError:
        return None


def _sources(inputs: t.Mapping[str, t.Any]) -> list[str]:
    messages = []
    for text in inputs["allowed_sources"]:
        network = _range(text)
        if network is None:
            messages.append(f"azure_infra_allowed_sources: {text} is no address range")
        elif network.prefixlen == 0:
            messages.append(
                f"azure_infra_allowed_sources: {text} is the whole Internet; name the networks you come from"
            )
    if inputs["public_address"] and not inputs["allowed_sources"]:
        messages.append("azure_infra_public_address is of no use without azure_infra_allowed_sources")
    messages += [
        f"azure_infra_https_ports: {port} is no port" for port in inputs["https_ports"] if int(port) not in _PORTS
    ]
    return messages


def _principal(inputs: t.Mapping[str, t.Any], now: datetime.datetime) -> list[str]:
    if inputs["orchestration"] != "service_principal":
        return []
    principal = inputs["service_principal"] or {}
    messages = [
        f"azure_infra_service_principal.{name} has to be an identifier"
        for name in ("client_id", "object_id")
        if not _GUID.fullmatch(str(principal.get(name) or ""))
    ]
    try:
        if principal.get("secret_expires") and teardown.read_time(str(principal["secret_expires"])) <= now:
            messages.append(
                f"the secret of the service principal expired on {principal['secret_expires']}: make a new one"
            )
    except TeardownError as exc:
        messages.append(f"azure_infra_service_principal.secret_expires: {exc}")
    return messages


def _expiry(inputs: t.Mapping[str, t.Any]) -> list[str]:
    try:
        teardown.read_time(str(inputs["expires_on"] or "2000-01-01"))
    except TeardownError as exc:
        return [f"azure_infra_expires_on: {exc}"]
    return []


def warnings(inputs: t.Mapping[str, t.Any], now: datetime.datetime) -> list[str]:
    """Return what the user should know though it stops nothing."""
    if inputs["orchestration"] != "service_principal":
        return []
    expires = (inputs["service_principal"] or {}).get("secret_expires")
    if not expires:
        return ["When the secret of the service principal expires is not known; then CycleCloud stops making nodes."]
    days = (teardown.read_time(str(expires)) - now).days
    if days > int(inputs["secret_warning_days"]):
        return []
    return [
        f"The secret of the service principal expires on {expires}, in {days} days; then CycleCloud stops making nodes."
    ]


# Whether machines in a subnet of somebody else reach the Internet, as far as Azure describes it.


# Who needs what: CycleCloud stages its projects, and they install Slurm and DCGM on every node when it boots.
NEEDED = (
    "the CycleCloud machine reaches packages.microsoft.com, github.com and Azure's own endpoints, and each node"
    " packages.microsoft.com and the package sources of its image"
)
_DEFAULTS = ("0.0.0.0/0", "::/0")
_AWAY = ("VirtualAppliance", "VirtualNetworkGateway")


class WaysOut(t.NamedTuple):
    """``tables`` are route tables to read; with them ``refused`` and ``warnings`` are complete."""

    tables: dict[str, dict[str, str]]
    refused: list[str]
    warnings: list[str]


def ways_out(
    subnets: t.Mapping[str, t.Mapping[str, t.Any] | None],
    tables: t.Mapping[str, t.Mapping[str, t.Any] | None],
    public: t.Collection[str] = (),
    confirmed: bool = False,
) -> WaysOut:
    """Judge subnets by name; `tables` are the route tables that were read, `public` subnets whose machine has a public
    address.

    `confirmed` is the word of a person that there is a way that Azure does not show.
    """
    needed: dict[str, dict[str, str]] = {}
    refused: list[str] = []
    warnings: list[str] = []
    for name, subnet in subnets.items():
        properties = (subnet or {}).get("properties") or {}
        table = str((properties.get("routeTable") or {}).get("id") or "")
        if not subnet or properties.get("natGateway") or name in public:
            continue
        if table:
            needed[table.lower()] = {"id": table, "api_version": _VERSIONS["network"]}
        hop = _default_route(tables.get(table.lower()) or {})
        label = f"subnet {subnet.get('id')}"
        if hop in _AWAY:
            warnings.append(f"{label} sends everything to a {hop}, which has to let it through: {NEEDED}")
        elif confirmed:
            continue
        elif hop == "None":
            refused.append(f"{label} has a route to nowhere for all addresses, in {table}. {_advice()}")
        elif properties.get("defaultOutboundAccess") is False:
            refused.append(f"{label} is private and has no NAT gateway. {_advice()}")
        else:
            warnings.append(
                f"{label} has no NAT gateway and counts on Azure's default outbound access, which networks made since"
                " April 2026 do not have: attach a NAT gateway before it ends"
            )
    return WaysOut(needed, sorted(set(refused)), sorted(set(warnings)))


def _default_route(table: t.Mapping[str, t.Any]) -> str:
    """Return where a route table sends what no other route is for."""
    for route in (table.get("properties") or {}).get("routes") or []:
        properties = route.get("properties") or {}
        if properties.get("addressPrefix") in _DEFAULTS:
            return str(properties.get("nextHopType") or "")
    return ""


def _advice() -> str:
    return (
        f"A cluster needs a way out: {NEEDED}. Attach a NAT gateway, route to a firewall, or, where a way is"
        " there that Azure does not show (a gateway's route by BGP, a virtual hub), set azure_infra_outbound_confirmed"
    )
