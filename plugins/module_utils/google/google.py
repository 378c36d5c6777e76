# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Google Cloud: its command line, instances in bulk, and the resources that a cluster needs besides."""

from __future__ import annotations

import json
import re
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process

# Google Cloud's command line: asked for JSON, never for a decision.


TIMEOUT = 600.0
_ABSENT = ("was not found", "could not be found", "not_found", "notfound", "does not exist", "unknown service account")


# What a part of Google says that has not heard of a new service account yet.
_FRESH = re.compile(
    r"service ?accounts?\b.*(does not exist|not found)|does not have access to service account", re.IGNORECASE
)
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 15.0


class GcloudError(ValueError):
    """gcloud refuses; the text is fit for the user."""


class Repeated(t.NamedTuple):
    """The values of a flag that is given once for each."""

    values: t.Sequence[str]


Run = t.Callable[..., _process.Outcome]


class Gcloud:
    """One project, by the account that gcloud is logged in with on this host."""

    def __init__(self, project: str, program: str = "gcloud", run: Run = _process.run) -> None:
        self.project, self.program, self._run = project, program, run

    def argv(self, words: t.Sequence[str], flags: t.Mapping[str, t.Any]) -> list[str]:
        """Return the command; flags that are true stand alone, those that are false or empty are left out."""
        return [self.program, *words, *spelt(flags), f"--project={self.project}", "--format=json", "--quiet"]

    def ask(self, words: t.Sequence[str], flags: t.Mapping[str, t.Any]) -> t.Any:
        """Run a command and return what it prints; nothing is None."""
        done = self._run(self.argv(words, flags), TIMEOUT)
        if done.problem:
            raise GcloudError(f"gcloud {' '.join(words)}: {complaint(done.err) or done.problem}")
        try:
            return json.loads(done.out) if done.out.strip() else None
        except ValueError as exc:
            raise GcloudError(f"gcloud {' '.join(words)} printed no JSON: {done.out[:200]!r}") from exc

    def ask_soon(self, words: t.Sequence[str], flags: t.Mapping[str, t.Any], wait: float) -> t.Any:
        """Run a command that may name a new service account, which the parts of Google learn of one after the other."""
        end, pause = time.monotonic() + wait, _FIRST_PAUSE
        while True:
            try:
                return self.ask(words, flags)
            except GcloudError as exc:
                if not _FRESH.search(str(exc)):
                    raise
                if time.monotonic() + pause > end:
                    raise GcloudError(
                        f"{exc} (asked again for {wait:g} s, as a new account is not known at once)"
                    ) from exc
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def find(self, words: t.Sequence[str], flags: t.Mapping[str, t.Any]) -> t.Any:
        """Ask for one thing; None says that there is none."""
        try:
            return self.ask(words, flags)
        except GcloudError as exc:
            if any(word in str(exc).lower() for word in _ABSENT):
                return None
            raise


def spelt(flags: t.Mapping[str, t.Any]) -> list[str]:
    """Write flags: lists with commas, dictionaries as key=value."""
    words = []
    for name, value in flags.items():
        if isinstance(value, Repeated):
            words += [f"--{name}={item}" for item in value.values]
            continue
        if value is None or value is False or value in ("", [], {}):
            continue
        if isinstance(value, dict):
            value = ",".join(f"{key}={item}" for key, item in value.items())
        elif isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        words.append(f"--{name}" if value is True else f"--{name}={value}")
    return words


def complaint(text: str) -> str:
    """Return what gcloud complains of, without its own way of saying that it does."""
    lines = [line.strip() for line in text.splitlines()]
    start = next((index for index, line in enumerate(lines) if line.startswith("ERROR:")), None)
    if start is None:
        return ""
    return " ".join(line.lstrip("- ") for line in lines[start:] if line)[len("ERROR: ") :]


# Instances of Google Compute Engine, created in bulk. Private to this collection.


Record = t.Mapping[str, t.Any]
LABEL = "hpcai-cluster"
KIND = "hpcai-kind"
# Metadata with the names of all instances that one request made. A copy of an instance keeps labels and metadata, but
# has a name of its own. A bulk request gives all instances the same labels, so no label can hold the name.
NAMES = "hpcai-instances"
# What a machine may say, each with whether it has to.
MACHINE = {
    "machine_type": True,
    "image": False,
    "image_family": False,
    "image_project": False,
    "boot_disk_gb": False,
    "boot_disk_type": False,
    "subnet": False,
    "address": False,
    "service_account": False,
    "scopes": False,
    "tags": False,
    "labels": False,
    "metadata": False,
    "accelerator": False,
    "spot": False,
    "nic_type": False,
    "more_subnets": False,
    "resource_policies": False,
    "reservation": False,
    "local_ssds": False,
}
# Families whose machine types come with their GPUs, so that no accelerator is named.
_WITH_GPUS = re.compile(r"(a[2-9]x?|g[24])-")
_NIC_TYPES = ("GVNIC", "VIRTIO_NET", "IDPF", "IRDMA", "MRDMA")
WAIT = 300.0
# Less for instances: a lasting lack of rights reads the same, and Slurm waits for its nodes.
_WAIT_FOR_ACCOUNT = 60.0
STATES = {
    "PROVISIONING": "starting",
    "STAGING": "starting",
    "REPAIRING": "starting",
    "RUNNING": "running",
    "STOPPING": "stopping",
    "SUSPENDING": "stopping",
}
_WORDS = ("compute", "instances")
_AT_ONCE = 500  # names have to fit on a command line


def instance_faults(machine: Record) -> list[str]:
    """Say all that is wrong with a machine."""
    problems = [f"{name} is missing" for name, needed in MACHINE.items() if needed and not machine.get(name)]
    problems += [f"{name} is unknown" for name in sorted(set(machine) - set(MACHINE))]
    if bool(machine.get("image")) == bool(machine.get("image_family")):
        problems.append("either image or image_family is needed")
    accelerator = machine.get("accelerator")
    if accelerator and (not isinstance(accelerator, dict) or set(accelerator) != {"type", "count"}):
        problems.append("accelerator is no dictionary of type and count")
    if machine.get("nic_type") and machine["nic_type"] not in _NIC_TYPES:
        problems.append(f"nic_type is none of {', '.join(_NIC_TYPES)}")
    if machine.get("reservation") and machine.get("spot"):
        problems.append("a Spot VM takes nothing from a reservation")
    return problems


def has_gpus(machine: Record) -> bool:
    """Whether an instance has GPUs: such a machine cannot be moved while it runs."""
    return bool(machine.get("accelerator")) or bool(_WITH_GPUS.match(str(machine.get("machine_type") or "")))


def network_flags(machine: Record) -> dict[str, t.Any]:
    """Return the flags of the network. Machine types with GPUs of their own want Google's own network card."""
    kind = machine.get("nic_type") or ("GVNIC" if _WITH_GPUS.match(str(machine["machine_type"])) else "")
    more = list(machine.get("more_subnets") or [])
    if not kind and not more:
        return {"subnet": machine.get("subnet"), "no-address": not machine.get("address")}
    card = f",nic-type={kind}" if kind else ""
    first = f"subnet={machine['subnet']}" if machine.get("subnet") else "network=default"
    public = "" if machine.get("address") else ",no-address"
    return {
        "network-interface": Repeated([f"{first}{card}{public}", *(f"subnet={name}{card},no-address" for name in more)])
    }


def flags(
    machine: Record, cluster: str, zone: str, script: str = "", kind: str = "", names: t.Sequence[str] = ()
) -> dict[str, t.Any]:
    """Return the flags of ``gcloud compute instances bulk create`` but the names; these are in the metadata as well."""
    spot = bool(machine.get("spot"))
    return {
        "zone": zone,
        "machine-type": machine["machine_type"],
        "image": machine.get("image"),
        "image-family": machine.get("image_family"),
        "image-project": machine.get("image_project"),
        "boot-disk-size": f"{machine['boot_disk_gb']}GB" if machine.get("boot_disk_gb") else "",
        "boot-disk-type": machine.get("boot_disk_type"),
        **network_flags(machine),
        "service-account": machine.get("service_account"),
        "scopes": machine.get("scopes"),
        "tags": machine.get("tags"),
        "labels": {**(machine.get("labels") or {}), LABEL: cluster, **({KIND: kind} if kind else {})},
        "metadata": {**(machine.get("metadata") or {}), NAMES: " ".join(names)},
        "metadata-from-file": {"startup-script": script} if script else {},
        "accelerator": machine.get("accelerator"),
        "on-host-maintenance": "TERMINATE" if has_gpus(machine) or spot else "",
        "resource-policies": machine.get("resource_policies"),
        "reservation-affinity": "specific" if machine.get("reservation") else "",
        "reservation": machine.get("reservation"),
        "local-ssd": Repeated(["interface=nvme"] * int(machine.get("local_ssds") or 0)),
        "provisioning-model": "SPOT" if spot else "",
        "instance-termination-action": "DELETE" if spot else "",
    }


class Instances:
    """The instances of one cluster in one zone; with a kind only those that were created as such."""

    def __init__(self, gcloud: Gcloud, cluster: str, zone: str, kind: str = "") -> None:
        self.gcloud, self.cluster, self.zone, self.kind = gcloud, cluster, zone, kind

    def listed(self) -> dict[str, Record]:
        """Every instance that carries the cluster's label, and the kind's, as Google describes it."""
        wanted = {"filter": f"labels.{LABEL}={self.cluster}", "zones": self.zone}
        listed = self.gcloud.ask([*_WORDS, "list"], wanted) or []
        return {item["name"]: item for item in listed if not self.kind or _kind(item) == self.kind}

    def create(self, names: t.Sequence[str], machine: Record, script: str = "") -> dict[str, str]:
        """Create instances in bulk; what Google has no room for does not keep the others from coming."""
        wrong, why = instance_faults(machine), ""
        if wrong:
            raise GcloudError("; ".join(wrong))
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            wanted = flags(machine, self.cluster, self.zone, script, self.kind, some)
            bulk = {"predefined-names": some, "min-count": "1", **wanted}
            try:
                self.gcloud.ask_soon([*_WORDS, "bulk", "create"], bulk, _WAIT_FOR_ACCOUNT)
            except GcloudError as exc:
                why = str(exc)
        # Whatever the command said: only the list tells what there is now.
        there = self.listed()
        return {name: "" if name in there else why or "Google made fewer instances than asked" for name in names}

    def delete(self, names: t.Sequence[str]) -> dict[str, str]:
        """Delete instances made for the cluster; one without its label is as good as gone, a copy is refused."""
        there, why = self.listed(), ""
        refused = {name: unproven(there[name], self.zone) for name in names if name in there}
        mine = [name for name in names if name in there and not refused[name]]
        for start in range(0, len(mine), _AT_ONCE):
            try:
                self.gcloud.ask([*_WORDS, "delete", *mine[start : start + _AT_ONCE]], {"zone": self.zone})
            except GcloudError as exc:
                why = str(exc)
        left = self.listed() if why else {}
        return {name: refused.get(name) or (why if name in left else "") for name in names}


def unproven(item: Record, zone: str) -> str:
    """Return why an instance with our labels does not prove that we made it, empty where it does."""
    entries = (item.get("metadata") or {}).get("items") or []
    names = " ".join(str(entry.get("value") or "") for entry in entries if entry.get("key") == NAMES).split()
    if item["name"] in names:
        return ""
    what = f"its metadata {NAMES} names {' '.join(names[:3])}" if names else f"it has no metadata {NAMES}"
    return (
        f"{what}, so it may be somebody's copy of an instance of the cluster: delete it yourself, or, if it is the"
        f" cluster's, run gcloud compute instances add-metadata {item['name']} --zone={zone}"
        f" --metadata={NAMES}={item['name']}"
    )


def _kind(item: Record) -> str:
    return str((item.get("labels") or {}).get(KIND) or "")


def state(item: Record) -> str:
    """What an instance does, in the words of `power.provider`."""
    return STATES.get(str(item.get("status")), "stopped")


def address(item: Record, public: bool) -> str:
    """The address of the first interface."""
    first: Record = next(iter(item.get("networkInterfaces") or []), {})
    access: Record = next(iter(first.get("accessConfigs") or []), {})
    return str((access.get("natIP") if public else first.get("networkIP")) or "")


def described(name: str, item: Record) -> dict[str, str]:
    """What the module returns of an instance."""
    addresses = {"address": address(item, public=False), "public_address": address(item, public=True)}
    return {"name": name, "state": state(item), **addresses}


# What a cluster needs of Google besides instances: which command makes it, and whether it is as wanted.


class ResourceKind(t.NamedTuple):
    """``place``: flags that find it. ``flags``: what it may be made with. ``update``: flags that can be changed later,
    with the field of Google's description that they show in."""

    words: tuple[str, ...]
    flags: tuple[str, ...]
    scope: tuple[str, ...] = ()
    update: t.Mapping[str, str] = {}


KINDS: dict[str, ResourceKind] = {
    "network": ResourceKind(("compute", "networks"), ("subnet-mode",)),
    "subnet": ResourceKind(
        ("compute", "networks", "subnets"),
        ("network", "range", "region", "enable-private-ip-google-access"),
        ("region",),
    ),
    "firewall_rule": ResourceKind(
        ("compute", "firewall-rules"),
        ("network", "direction", "allow", "source-ranges", "source-tags", "target-tags"),
        update={"source-ranges": "sourceRanges", "source-tags": "sourceTags", "target-tags": "targetTags"},
    ),
    "router": ResourceKind(("compute", "routers"), ("network", "region"), ("region",)),
    "nat": ResourceKind(
        ("compute", "routers", "nats"),
        ("router", "region", "nat-all-subnet-ip-ranges", "auto-allocate-nat-external-ips"),
        ("router", "region"),
    ),
    "image": ResourceKind(("compute", "images"), ("source-disk", "source-disk-zone", "family")),
    "service_account": ResourceKind(("iam", "service-accounts"), ("display-name",)),
    "role_binding": ResourceKind(("projects",), ("role",)),
}


def resource_faults(kind: str, properties: Record) -> list[str]:
    """Say all that is wrong with a resource."""
    known = KINDS[kind]
    problems = [f"{name} is no property of a {kind}" for name in sorted(set(properties) - set(known.flags))]
    needed = known.scope if kind != "role_binding" else ("role",)
    return problems + [f"a {kind} needs {name}" for name in needed if not properties.get(name)]


def perform(
    gcloud: Gcloud, kind: str, name: str, properties: Record, state: str, check: bool, wait: float = WAIT
) -> dict[str, t.Any]:
    """Bring one resource to its state; return what an Ansible module returns. A new account is waited for."""
    wrong = resource_faults(kind, properties)
    if wrong:
        raise GcloudError("; ".join(wrong))
    if kind == "role_binding":
        words, flags = _binding(gcloud, name, str(properties["role"]), state)
    else:
        words, flags = _resource(gcloud, KINDS[kind], name, properties, state)
    if words and not check:
        gcloud.ask_soon(words, flags, wait)
    return {"changed": bool(words), "command": gcloud.argv(words, flags)[1:] if words else []}


Step = t.Tuple[t.List[str], t.Dict[str, t.Any]]


def _resource(gcloud: Gcloud, kind: ResourceKind, name: str, properties: Record, state: str) -> Step:
    address = f"{name}@{gcloud.project}.iam.gserviceaccount.com" if kind.words[0] == "iam" else name
    scope = {key: properties[key] for key in kind.scope}
    now = gcloud.find([*kind.words, "describe", address], scope)
    if state == "absent":
        return ([*kind.words, "delete", address], scope) if now is not None else ([], {})
    if now is None:
        return [*kind.words, "create", name], dict(properties)
    changes = {
        flag: properties[flag]
        for flag, field in kind.update.items()
        if flag in properties and sorted(properties[flag]) != sorted(now.get(field) or [])
    }
    return ([*kind.words, "update", address], {**scope, **changes}) if changes else ([], {})


def _binding(gcloud: Gcloud, member: str, role: str, state: str) -> Step:
    policy = gcloud.ask(["projects", "get-iam-policy", gcloud.project], {}) or {}
    bindings = policy.get("bindings") or []
    held = any(binding.get("role") == role and member in binding.get("members", []) for binding in bindings)
    if held == (state == "present"):
        return [], {}
    verb = "add-iam-policy-binding" if state == "present" else "remove-iam-policy-binding"
    return ["projects", verb, gcloud.project], {"member": member, "role": role, "condition": "None"}
