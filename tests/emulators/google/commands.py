# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that the emulated gcloud knows: their flags (true: with a value) and what they do to the state."""

from __future__ import annotations

import re
import secrets
import typing as t

State = t.Dict[str, t.Any]
Flags = t.Dict[str, str]
Act = t.Callable[[State, t.List[str], Flags, State], t.Any]
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_MACHINES = {"n1-standard-2", "n1-standard-8", "n1-standard-16", "e2-standard-4", "a2-highgpu-8g", "a3-highgpu-8g"}
_MACHINES |= {"a4-highgpu-8g", "g2-standard-48"}
_WITH_GPUS, _ONLY_GVNIC = ("a2-", "a3-", "a4-", "g2-"), ("a3-", "a4-")
_INTERFACE = {"network": True, "subnet": True, "nic-type": True, "network-tier": True, "no-address": False}
_IMAGES = {("debian-12", "debian-cloud"), ("ubuntu-2404-lts-amd64", "ubuntu-os-cloud")}


class Refused(Exception):
    """What the real service says."""


class Command(t.NamedTuple):
    flags: dict[str, bool]
    needed: tuple[str, ...]
    arguments: int
    act: Act


def _of(state: State, table: str) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", state.setdefault(table, {}))


def _resource(table: str, key: tuple[str, ...] = ()) -> tuple[Act, Act, Act]:
    """Describe, create and delete for one kind of thing; ``key`` are flags that are part of its address."""

    def place(arguments: list[str], flags: Flags) -> str:
        return "/".join([*(flags[flag] for flag in key), arguments[0]])

    def describe(state: State, arguments: list[str], flags: Flags, faults: State) -> t.Any:
        del faults
        if place(arguments, flags) not in _of(state, table):
            raise Refused(f"The resource '{table}/{arguments[0]}' was not found")
        return _of(state, table)[place(arguments, flags)]

    def create(state: State, arguments: list[str], flags: Flags, faults: State) -> t.Any:
        del faults
        name = arguments[0]
        if not _NAME.fullmatch(name):
            raise Refused(
                f"Invalid value for field 'resource.name': '{name}'. Must be a match of regex '{_NAME.pattern}'"
            )
        if place(arguments, flags) in _of(state, table):
            raise Refused(f"The resource '{table}/{name}' already exists")
        _refers(state, flags)
        found = {"name": name, **{_camel(flag): _listed(flag, value) for flag, value in flags.items()}}
        _of(state, table)[place(arguments, flags)] = found
        return [found]

    def delete(state: State, arguments: list[str], flags: Flags, faults: State) -> t.Any:
        describe(state, arguments, flags, faults)
        _unused(state, table, arguments[0])
        del _of(state, table)[place(arguments, flags)]

    return describe, create, delete


def _refers(state: State, flags: Flags) -> None:
    region = flags.get("region", "")
    if "source-disk" in flags:
        _switched_off(state, flags["source-disk"], flags["source-disk-zone"])
    wanted = {
        "networks": flags.get("network", ""),
        "subnets": f"{region}/{flags['subnet']}" if flags.get("subnet") else "",
        "routers": f"{region}/{flags['router']}" if flags.get("router") else "",
    }
    for table, name in wanted.items():
        if name and name not in _of(state, table):
            raise Refused(f"The resource '{table}/{name}' was not found")


def _switched_off(state: State, disk: str, zone: str) -> None:
    """Google makes no image of a disk that is in use; an instance's disk has its name."""
    found = _of(state, "instances").get(disk, {})
    if found.get("zone") != zone:
        raise Refused(f"The resource 'zones/{zone}/disks/{disk}' was not found")
    if found["status"] != "TERMINATED":
        raise Refused(f"The disk resource 'zones/{zone}/disks/{disk}' is already being used by 'instances/{disk}'")


def _unused(state: State, table: str, name: str) -> None:
    """Google refuses to delete what something else refers to."""
    users = {
        "networks": ["subnets", "firewalls", "routers"],
        "subnets": ["instances"],
        "routers": ["nats"],
    }.get(table, [])
    field = table[:-1]
    for other in users:
        for item in _of(state, other).values():
            if item.get(field) == name:
                raise Refused(f"The {field} resource '{name}' is already being used by '{other}/{item['name']}'")


def _camel(flag: str) -> str:
    first, *rest = flag.split("-")
    return first + "".join(word.capitalize() for word in rest)


def _listed(flag: str, value: str) -> t.Any:
    return value.split(",") if flag in ("source-ranges", "source-tags", "target-tags", "allow") else value or True


def _update_firewall(state: State, arguments: list[str], flags: Flags, faults: State) -> t.Any:
    found = describe_firewall(state, arguments, flags, faults)
    changes = {_camel(flag): _listed(flag, value) for flag, value in flags.items() if flag in _FIREWALL}
    found.update(changes)
    return [found]


def _account(state: State, arguments: list[str], flags: Flags, faults: State, delete: bool = False) -> t.Any:
    del faults
    name, at, domain = arguments[0].partition("@")
    if name not in _of(state, "accounts") or not at or domain != f"{flags['project']}.iam.gserviceaccount.com":
        raise Refused(f"NOT_FOUND: Unknown service account {arguments[0]}")
    found = _of(state, "accounts")[name]
    if delete:
        del _of(state, "accounts")[name]
    return found


def _create_account(state: State, arguments: list[str], flags: Flags, faults: State) -> t.Any:
    del faults
    if not re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", arguments[0]):
        raise Refused(f"INVALID_ARGUMENT: The account ID {arguments[0]!r} does not have a length between 6 and 30.")
    if arguments[0] in _of(state, "accounts"):
        raise Refused(f"Service account {arguments[0]} already exists within project")
    mail = f"{arguments[0]}@{flags['project']}.iam.gserviceaccount.com"
    # The next part of Google that is asked about it has not heard of it yet.
    _of(state, "accounts")[arguments[0]] = {"name": mail, "email": mail, "unheard": 1}
    return {"email": mail}


def _heard(state: State, name: str) -> bool:
    """Whether the part that is asked knows an account by now."""
    account = _of(state, "accounts").get(name)
    if account is None:
        return False
    account["unheard"] = max(account.get("unheard", 0) - 1, -1)
    return bool(account["unheard"] < 0)


def _policy(state: State, arguments: list[str], flags: Flags, faults: State) -> t.Any:
    del flags, faults
    roles = _of(state, "bindings").get(arguments[0], {})
    return {"bindings": [{"role": role, "members": members} for role, members in roles.items()], "version": 1}


def _bind(state: State, arguments: list[str], flags: Flags, faults: State, add: bool = True) -> t.Any:
    roles = _of(state, "bindings").setdefault(arguments[0], {})
    members = roles.setdefault(flags["role"], [])
    name = flags["member"].partition(":")[2].partition("@")[0]
    if add and not _heard(state, name):
        raise Refused(f"INVALID_ARGUMENT: Service account {flags['member']} does not exist.")
    if add and flags["member"] not in members:
        members.append(flags["member"])
    elif not add and flags["member"] not in members:
        raise Refused(f"Policy binding with the specified principal {flags['member']} and role not found!")
    elif not add:
        members.remove(flags["member"])
    return _policy(state, arguments, flags, faults)


def _list(state: State, arguments: list[str], flags: Flags, faults: State) -> t.Any:
    del arguments, faults
    match = re.fullmatch(r"labels\.([a-z0-9_-]+)=(\S+)", flags.get("filter", ""))
    if not match:
        raise Refused(f"Could not parse filter {flags.get('filter')!r}")
    label, value = match.groups()
    instances = _of(state, "instances").values()
    found = [item for item in instances if item["labels"].get(label) == value and item["zone"] == flags["zones"]]
    answer = [dict(item) for item in found]
    for item in found:
        if item["status"] == "STAGING":
            item["status"] = "RUNNING"
    return answer


def _bulk(state: State, arguments: list[str], flags: Flags, faults: State) -> t.Any:
    del arguments
    names, zone = flags["predefined-names"].split(","), flags["zone"]
    _machine(state, flags)
    there = _of(state, "instances")
    taken = [name for name in names if name in there]
    if taken or len(set(names)) != len(names):
        raise Refused(f"The resource 'instances/{(taken or names)[0]}' already exists")
    room = faults.get("quota", 10_000) - len(there)
    new = [name for name in names if name not in faults.get("no_room", [])][: max(room, 0)]
    if len(new) < int(flags.get("min-count", len(names))):
        quota = f"Quota 'CPUS' exceeded.  Limit: {faults.get('quota')}.0 in region {zone[:-2]}."
        raise Refused(quota if room <= 0 else f"ZONE_RESOURCE_POOL_EXHAUSTED: The zone '{zone}' has no room")
    labels = dict(pair.split("=", 1) for pair in flags.get("labels", "").split(",") if pair)
    metadata = [pair.split("=", 1) for pair in flags.get("metadata", "").split(",") if pair]
    for name in new:
        address = f"10.0.0.{len(there) + 2}"
        interface: State = {"networkIP": address}
        if "no-address" not in flags:
            interface["accessConfigs"] = [{"natIP": f"203.0.113.{len(there) + 2}"}]
        there[name] = {
            "id": str(secrets.randbits(63)),
            "name": name,
            "status": "STAGING",
            "metadata": {
                "items": [{"key": key, "value": value} for key, value in metadata],
                "kind": "compute#metadata",
            },
            "zone": zone,
            "labels": labels,
            "subnet": flags.get("subnet") or flags["network-interface"].split(",")[0].partition("=")[2],
            "cards": flags.get("network-interface", ""),
            "machineType": flags["machine-type"],
            "serviceAccounts": flags.get("service-account"),
            "provisioningModel": flags.get("provisioning-model", "STANDARD"),
            "accelerator": flags.get("accelerator"),
            "networkInterfaces": [interface],
        }
    return {"created": len(new)}


def _machine(state: State, flags: Flags) -> None:
    zone = flags["zone"]
    if not re.fullmatch(r"[a-z]+-[a-z]+\d-[a-f]", zone):
        raise Refused(f"Invalid value for field 'zone': '{zone}'. Unknown zone.")
    if flags["machine-type"] not in _MACHINES:
        raise Refused(f"Invalid value for field 'resource.machineType': '{flags['machine-type']}'. It does not exist.")
    if "image" not in flags and (flags.get("image-family"), flags.get("image-project")) not in _IMAGES:
        raise Refused(f"The resource 'images/family/{flags.get('image-family')}' was not found")
    _interfaces(state, flags)
    account = flags.get("service-account", "").partition("@")[0]
    if account and not _heard(state, account):
        raise Refused(f"The user does not have access to service account '{flags['service-account']}'.")
    kind = flags["machine-type"]
    if (flags.get("accelerator") or kind.startswith(_WITH_GPUS)) and flags.get("on-host-maintenance") != "TERMINATE":
        raise Refused("Instances with guest accelerators do not support live migration.")
    _placed(flags)
    if flags.get("instance-termination-action") and flags.get("provisioning-model") != "SPOT":
        raise Refused("You cannot specify an instanceTerminationAction for a STANDARD instance.")
    if not re.fullmatch(r"(startup-script=/\S+)?", flags.get("metadata-from-file", "")):
        raise Refused("Bad syntax for dict arg --metadata-from-file")


def _interfaces(state: State, flags: Flags) -> None:
    """One interface by --subnet, or any number by --network-interface, which excludes it."""
    if "network-interface" in flags and "subnet" in flags:
        raise Refused("argument --network-interface: At most one of --network-interface | --subnet can be specified.")
    subnets, cards = [flags.get("subnet", "")], [""]
    if "network-interface" in flags:
        subnets, cards = [], []
        for text in flags["network-interface"].split(";"):
            said = dict(part.partition("=")[::2] for part in text.split(","))
            wrong = [key for key, value in said.items() if key not in _INTERFACE or bool(value) != _INTERFACE[key]]
            if wrong or said.get("nic-type", "GVNIC") not in ("GVNIC", "VIRTIO_NET", "IDPF", "IRDMA", "MRDMA"):
                raise Refused(f"argument --network-interface: Bad syntax for dict arg: [{text}].")
            subnets.append(said.get("subnet", ""))
            cards.append(said.get("nic-type", ""))
    for name in subnets:
        if f"{flags['zone'][:-2]}/{name}" not in _of(state, "subnets"):
            raise Refused(f"The resource 'subnetworks/{name}' was not found")
    if flags["machine-type"].startswith(_ONLY_GVNIC) and set(cards) - {"GVNIC", "IDPF", "MRDMA"}:
        raise Refused(f"Machine type {flags['machine-type']} needs the network interface card type GVNIC.")


def _placed(flags: Flags) -> None:
    """Reservations and disks, as gcloud checks them before it asks anybody."""
    if ("reservation" in flags) != (flags.get("reservation-affinity") == "specific"):
        raise Refused("The name the specific reservation must be specified: --reservation, --reservation-affinity")
    if flags.get("reservation") and flags.get("provisioning-model") == "SPOT":
        raise Refused("Spot VMs cannot consume reservations.")
    if any(disk != "interface=nvme" for disk in flags.get("local-ssd", "interface=nvme").split(";")):
        raise Refused("Unexpected local SSD interface")


def _delete(state: State, arguments: list[str], flags: Flags, faults: State) -> t.Any:
    del faults
    there = _of(state, "instances")
    absent = [name for name in arguments if name not in there or there[name]["zone"] != flags["zone"]]
    for name in arguments:
        there.pop(name, None)
    if absent:
        raise Refused(
            f"The resource 'projects/{flags['project']}/zones/{flags['zone']}/instances/{absent[0]}' was not found"
        )


_FIREWALL = {"source-ranges": True, "source-tags": True, "target-tags": True, "allow": True}
_BULK = (
    "predefined-names min-count zone machine-type image image-family image-project boot-disk-size boot-disk-type subnet"
    " service-account scopes tags labels metadata metadata-from-file accelerator on-host-maintenance provisioning-model"
    " instance-termination-action network-interface resource-policies reservation reservation-affinity local-ssd"
).split()

COMMANDS: dict[str, Command] = {
    "compute instances list": Command({"filter": True, "zones": True}, (), 0, _list),
    "compute instances bulk create": Command(
        {**dict.fromkeys(_BULK, True), "no-address": False}, ("predefined-names", "zone", "machine-type"), 0, _bulk
    ),
    "compute instances delete": Command({"zone": True}, ("zone",), 1, _delete),
    "projects get-iam-policy": Command({}, (), 1, _policy),
    "iam service-accounts describe": Command({}, (), 1, _account),
    "iam service-accounts create": Command({"display-name": True}, (), 1, _create_account),
    "iam service-accounts delete": Command({}, (), 1, lambda s, a, f, x: _account(s, a, f, x, delete=True) and None),
}
for _verb in ("add", "remove"):
    COMMANDS[f"projects {_verb}-iam-policy-binding"] = Command(
        {"member": True, "role": True, "condition": True},
        ("member", "role"),
        1,
        lambda s, a, f, x, add=_verb == "add": _bind(s, a, f, x, add),  # type: ignore[misc]
    )
_TABLES: list[tuple[str, str, tuple[str, ...], dict[str, bool], tuple[str, ...]]] = [
    ("compute networks", "networks", (), {"subnet-mode": True}, ()),
    (
        "compute networks subnets",
        "subnets",
        ("region",),
        {"network": True, "range": True, "enable-private-ip-google-access": False},
        ("network", "range"),
    ),
    ("compute firewall-rules", "firewalls", (), {"network": True, "direction": True, **_FIREWALL}, ("allow",)),
    ("compute routers", "routers", ("region",), {"network": True}, ("network",)),
    (
        "compute images",
        "images",
        (),
        {"source-disk": True, "source-disk-zone": True, "family": True},
        ("source-disk", "source-disk-zone"),
    ),
    (
        "compute routers nats",
        "nats",
        ("router", "region"),
        {"nat-all-subnet-ip-ranges": False, "auto-allocate-nat-external-ips": False},
        (),
    ),
]
for _words, _table, _key, _flags, _needed in _TABLES:
    _describe, _create, _remove = _resource(_table, _key)
    _where = dict.fromkeys(_key, True)
    COMMANDS[f"{_words} describe"] = Command(_where, _key, 1, _describe)
    COMMANDS[f"{_words} create"] = Command({**_where, **_flags}, (*_key, *_needed), 1, _create)
    COMMANDS[f"{_words} delete"] = Command(_where, _key, 1, _remove)
    if _table == "firewalls":
        describe_firewall = _describe
COMMANDS["compute firewall-rules update"] = Command(dict(_FIREWALL), (), 1, _update_firewall)
