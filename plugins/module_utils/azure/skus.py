# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VM sizes, images, quota and permissions: what stands against a group of nodes. No I/O."""

from __future__ import annotations

import dataclasses
import re
import typing as t


class PreflightFinding(t.NamedTuple):
    """One thing that would stop the bring-up, or that a person should know."""

    check: str
    subject: str
    problem: str
    action: str
    blocks: bool


def as_dicts(findings: t.Iterable[PreflightFinding]) -> list[dict[str, t.Any]]:
    """Return the findings as dictionaries, first those that block."""
    return [
        finding._asdict() for finding in sorted(set(findings), key=lambda entry: (not entry.blocks, *map(str, entry)))
    ]


def text(findings: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """Return one line for each finding."""
    form = "{weight}: {check} of {subject}: {problem} {action}"
    return [form.format(weight="BLOCKS" if finding["blocks"] else "warns", **finding) for finding in findings]


# VM sizes.


class Restriction(t.NamedTuple):
    """Why a size cannot be had, everywhere here or in some zones."""

    kind: str
    reason: str
    zones: tuple[str, ...] = ()


class Sku(t.NamedTuple):
    """A VM size of one region. Capabilities are texts; one that is missing is unknown, not zero."""

    name: str
    family: str
    capabilities: t.Mapping[str, str]
    zones: tuple[str, ...] = ()
    restrictions: tuple[Restriction, ...] = ()

    def amount(self, capability: str) -> int | None:
        try:
            return int(float(self.capabilities[capability]))
        except (KeyError, ValueError):
            return None

    def flag(self, capability: str) -> bool | None:
        value = self.capabilities.get(capability, "").lower()
        return {"true": True, "false": False}.get(value)


@dataclasses.dataclass(frozen=True)
class NodeGroup:
    """A requested group of equal nodes."""

    name: str
    size: str
    count: int = 1
    spot: bool = False
    image: str = ""
    zone: str = ""
    gpus: int | None = None
    rdma: bool | None = None
    nvme: bool | None = None
    price: float | None = None
    bundle: bool = True


_REASONS = {
    "NotAvailableForSubscription": "Ask Microsoft for access (a support request for quota), or choose another region.",
    "QuotaId": "This kind of subscription (such as a free trial) does not get it: use another kind.",
}


def zones_left(sku: Sku) -> list[str]:
    """Return the zones that no restriction closes."""
    closed = {zone for restriction in sku.restrictions if restriction.kind == "Zone" for zone in restriction.zones}
    return sorted(set(sku.zones) - closed)


def facts(sku: Sku) -> dict[str, t.Any]:
    """Return the capabilities of a size that matter to a cluster; None is unknown."""
    nvme = sku.amount("NvmeDiskSizeInMiB")
    return {
        "family": sku.family,
        "vcpus": sku.amount("vCPUs"),
        "gpus": sku.amount("GPUs"),
        "rdma": sku.flag("RdmaEnabled"),
        "nvme": None if nvme is None else nvme > 0,
        "memory_gb": sku.amount("MemoryGB"),
        "architecture": sku.capabilities.get("CpuArchitectureType"),
        "generations": [part for part in sku.capabilities.get("HyperVGenerations", "").split(",") if part],
        "zones": zones_left(sku),
    }


def judge_size(node: NodeGroup, sku: Sku | None, location: str) -> list[PreflightFinding]:
    """Return the findings against a group of nodes of this size."""

    def finding(problem: str, action: str, blocks: bool = True) -> PreflightFinding:
        return PreflightFinding("size", node.name, f"{node.size} in {location} {problem}", action, blocks)

    if sku is None:
        return [finding("is not offered.", "Check how it is written (az vm list-skus), or choose another region.")]
    findings = []
    for restriction in sku.restrictions:
        if restriction.kind == "Location":
            action = _REASONS.get(restriction.reason, "Choose another region.")
            findings.append(finding(f"is closed to this subscription ({restriction.reason}).", action))
    findings += [finding(*pair) for pair in _zones(node, sku)]
    findings += [finding(*triple) for triple in _capabilities(node, sku)]
    return findings


def _zones(node: NodeGroup, sku: Sku) -> t.Iterator[tuple[str, str]]:
    left = zones_left(sku)
    listed = ", ".join(left) or "none"
    if node.zone and node.zone not in left:
        yield f"cannot be had in zone {node.zone}; zones left: {listed}.", "Choose one of these, or no zone."
    elif not node.zone and sku.zones and not left:
        yield "is closed to this subscription in every zone.", _REASONS["NotAvailableForSubscription"]


def _capabilities(node: NodeGroup, sku: Sku) -> t.Iterator[tuple[str, str, bool]]:
    known = facts(sku)
    for name in ("gpus", "rdma", "nvme"):
        expected, actual = getattr(node, name), known[name]
        if expected is None or expected == actual:
            continue
        if actual is None:
            yield (
                f"does not say what {name} it has; expected was {expected}.",
                "Look at its page in Azure's documentation.",
                False,
            )
        else:
            yield (
                f"has {name} {actual}; expected was {expected}.",
                "Choose another size, or correct what is expected.",
                True,
            )
    if node.spot and sku.flag("LowPriorityCapable") is False:
        yield "cannot be had as Spot.", "Leave Spot out, or choose another size.", True
    if not known["vcpus"]:
        yield "does not say how many cores it has, so quota is not checked.", "Compare it with the portal.", False


# Marketplace images.


_URN = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+:[\w.-]+")


class Urn(t.NamedTuple):
    """A marketplace image."""

    publisher: str
    offer: str
    sku: str
    version: str

    def __str__(self) -> str:
        return ":".join(self)


class Image(t.NamedTuple):
    """What Azure says about one version of an image."""

    urn: Urn
    plan: t.Mapping[str, str] | None = None
    generation: str = ""
    architecture: str = ""
    accepted: bool | None = None


def parse(text: str) -> Urn | None:
    """Read publisher:offer:sku:version; anything else, such as a resource id, is not a marketplace image."""
    return Urn(*text.split(":")) if _URN.fullmatch(text) else None


def order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key for versions that compares numbers as numbers, so 9 comes before 10."""
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in version.split("."))


def resolve(urn: Urn, versions: t.Iterable[str]) -> str | None:
    """Return the version that a URN names, the newest for `latest`, or None where Azure does not have it."""
    known = sorted(versions, key=order)
    if urn.version.lower() == "latest":
        return known[-1] if known else None
    return urn.version if urn.version in known else None


def absent(urn: Urn, subject: str, location: str, versions: t.Iterable[str]) -> PreflightFinding:
    """Return the finding for an image version that does not exist."""
    newest = sorted(versions, key=order)[-3:]
    if not newest:
        action = "Check publisher, offer and sku (az vm image list-skus)."
    else:
        action = f"The newest are {', '.join(newest)}; the very newest is meant by latest."
    return PreflightFinding("image", subject, f"There is no image {urn} in {location}.", action, True)


def judge_image(
    image: Image, subject: str, generations: t.Sequence[str], architecture: str | None
) -> list[PreflightFinding]:
    """Return the findings against an image on a size."""
    findings = []
    urn = str(image.urn)
    if image.architecture and architecture and image.architecture.lower() != architecture.lower():
        problem = f"{urn} is for {image.architecture}, the size is {architecture}."
        findings.append(PreflightFinding("image", subject, problem, "Choose an image of that architecture.", True))
    if image.generation and generations and image.generation.upper() not in {name.upper() for name in generations}:
        problem = f"{urn} is of generation {image.generation}, the size starts only {', '.join(generations)}."
        findings.append(PreflightFinding("image", subject, problem, "Choose the other generation of the image.", True))
    if image.plan and not image.accepted:
        offer = f"{image.plan['publisher']}:{image.plan['product']}:{image.plan['name']}"
        known = "are not accepted" if image.accepted is False else "cannot be read"
        action = (
            f"Accept them (az vm image terms accept --urn {urn}), or let the role do it where it has an option for it."
        )
        findings.append(PreflightFinding("terms", subject, f"The terms of {offer} {known}.", action, True))
    return findings


# What a node needs to configure itself from the bundle of role node_bundle.


class ImageFamily(t.NamedTuple):
    """Images of one operating system, by publisher:offer:sku; ``blocks`` where no node of them can work."""

    pattern: str
    problem: str
    blocks: bool


_UNKNOWN_TO_ROLES = "has no Debian or Ubuntu, for which the roles of this collection are made"
IMAGE_FAMILIES = (
    ImageFamily(
        r"almalinux:almalinux[\w-]*:8(?!\d).*",
        f"has Python 3.6 as /usr/bin/python3, with which no module of Ansible runs, and {_UNKNOWN_TO_ROLES}",
        True,
    ),
    ImageFamily(
        r"(almalinux|azure-hpc|microsoftcblmariner|redhat|rockylinux|resf|suse|openlogic|oracle):.*",
        _UNKNOWN_TO_ROLES,
        True,
    ),
    ImageFamily(
        r".*ubuntu.*:(1[68]|20)[._-]?04.*", "has a Python older than 3.9, and Ansible on the node needs 3.11", True
    ),
    ImageFamily(
        r".*ubuntu.*:22[._-]?04.*",
        "has Python 3.10, and Ansible on the node needs 3.11: it works only where CycleCloud's healthagent has"
        " installed that before, which it fetches from Ubuntu's archive",
        False,
    ),
)
_WORKS = "Take microsoft-dsvm:ubuntu-hpc:2404:latest, or another image of Ubuntu 24.04 or Debian 12"
# Azure's word for the machine of a bundle.
_ARCHITECTURES = {"x86_64": "x64", "aarch64": "Arm64"}


def judge_bundle(node: NodeGroup, machine: str, architecture: str | None) -> list[PreflightFinding]:
    """Return the findings against a node that configures itself from a bundle for this machine."""
    findings = []
    wanted = _ARCHITECTURES.get(machine, machine)
    if architecture and architecture.lower() != wanted.lower():
        problem = (
            f"{node.size} is {architecture}, the bundle with which its nodes configure themselves is for {machine}."
        )
        action = f"Choose a size of {wanted}: the bundle's wheels and programs run on nothing else."
        findings.append(PreflightFinding("bundle", node.name, problem, action, True))
    urn = parse(node.image)
    family = urn and _family(":".join(urn[:3]))
    if family:
        findings.append(PreflightFinding("bundle", node.name, f"{urn} {family.problem}.", f"{_WORKS}.", family.blocks))
    return findings


def _family(name: str) -> ImageFamily | None:
    return next((family for family in IMAGE_FAMILIES if re.fullmatch(family.pattern, name, re.IGNORECASE)), None)


# Quota of cores.


REGIONAL, SPOT = "cores", "lowprioritycores"
_ASK = "Ask for at least {need} more in the portal (Subscriptions, Usage + quotas, {what}), or ask for fewer nodes."


class Usage(t.NamedTuple):
    """One line of the usages of a region."""

    name: str
    shown: str
    used: int
    limit: int


class CoreDemand(t.NamedTuple):
    """Cores that a group of nodes needs; the family is that of its size."""

    group: str
    family: str
    cores: int
    spot: bool


def key(name: str) -> str:
    """Return a family's name without blanks and in lower case: two of Azure's interfaces write it differently."""
    return "".join(name.split()).lower()


def number(value: t.Any) -> int:
    """Read a limit; numbers, fractions and texts have been seen."""
    try:
        return int(float(str(value)))
    except (ValueError, OverflowError):
        return 0


def headroom(
    demands: t.Sequence[CoreDemand], usages: t.Iterable[Usage], location: str, block: bool
) -> list[PreflightFinding]:
    """Compare the demand with each limit that applies: the family's and the region's, or that of Spot."""
    known = {key(usage.name): usage for usage in usages}
    totals: dict[str, tuple[str, int, list[str]]] = {}
    for demand in demands:
        limits = [(SPOT, "Total Regional Spot vCPUs")] if demand.spot else [(key(demand.family), demand.family)]
        for limit, shown in limits + ([] if demand.spot else [(REGIONAL, "Total Regional vCPUs")]):
            dummy, cores, groups = totals.get(limit, ("", 0, []))
            totals[limit] = (shown, cores + demand.cores, [*groups, demand.group])
    findings = []
    for limit, (shown, cores, groups) in sorted(totals.items()):
        finding = _judge(known.get(limit), shown, cores, groups, location)
        if finding:
            findings.append(finding._replace(blocks=finding.blocks and block))
    return findings


def _judge(
    usage: Usage | None, shown: str, cores: int, groups: t.Sequence[str], location: str
) -> PreflightFinding | None:
    subject = ", ".join(dict.fromkeys(groups))
    if usage is None:
        problem = f"Azure does not say what quota of {shown} there is in {location}; {cores} cores are needed."
        action = (
            "Look it up in the portal (Subscriptions, Usage + quotas); what is not listed there has to be asked for."
        )
        return PreflightFinding("quota", subject, problem, action, False)
    free = usage.limit - usage.used
    if cores <= free:
        return None
    what = usage.shown or usage.name
    state = f"{max(free, 0)} are free ({usage.used} of {usage.limit} used)"
    problem = f"{what} in {location}: {cores} cores are needed and {state}."
    return PreflightFinding("quota", subject, problem, _ASK.format(need=cores - free, what=what), True)


# Permissions and resource providers.


ASSIGN = "Microsoft.Authorization/roleAssignments/write"
# What the bring-up does, each with the smallest built-in role that allows it.
NEEDED: dict[str, str] = {
    "Microsoft.Resources/subscriptions/resourceGroups/write": "Contributor",
    "Microsoft.Compute/virtualMachines/write": "Virtual Machine Contributor",
    "Microsoft.Compute/virtualMachines/runCommand/action": "Virtual Machine Contributor",
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
    return [Grant(tuple(entry.get("actions") or ()), tuple(entry.get("notActions") or ())) for entry in items]


def matches(pattern: str, action: str) -> bool:
    """Say whether a pattern such as ``Microsoft.Compute/*/read`` covers an action."""
    return re.fullmatch(re.escape(pattern).replace("\\*", ".*"), action, re.IGNORECASE) is not None


def allowed(action: str, granted: t.Iterable[Grant]) -> bool:
    """Say whether any grant allows the action: what one grant excludes, another may still give."""
    return any(
        any(matches(pattern, action) for pattern in grant.actions)
        and not any(matches(pattern, action) for pattern in grant.without)
        for grant in granted
    )


def judge_permissions(
    granted: t.Sequence[Grant] | None, scope: str, needed: t.Mapping[str, str] | None = None
) -> list[PreflightFinding]:
    """Return a finding for each missing permission. `granted` is None where Azure does not list the grants."""
    if granted is None:
        problem = f"Azure does not tell what the identity may do on {scope}."
        return [
            PreflightFinding(
                "permissions", scope, problem, "Nothing has to be done; a missing right shows when it is needed.", False
            )
        ]
    findings = []
    for action, role in sorted((NEEDED if needed is None else needed).items()):
        if not allowed(action, granted):
            findings.append(_missing(action, role, scope, granted))
    return findings


def _missing(action: str, role: str, scope: str, granted: t.Sequence[Grant]) -> PreflightFinding:
    excluded = sorted({pattern for grant in granted for pattern in grant.without if matches(pattern, action)})
    why = (
        f" ({', '.join(excluded)} is taken out of the role it has)" if excluded and _grants_any(action, granted) else ""
    )
    advice = f"Have the role {role}, or Owner, assigned on {scope}."
    if action == ASSIGN:
        advice += " Contributor lacks it. Or have somebody make them, and set azure_infra_role_assignments: false."
    return PreflightFinding("permissions", scope, f"The identity may not do {action}{why}.", advice, True)


def _grants_any(action: str, granted: t.Sequence[Grant]) -> bool:
    return any(matches(pattern, action) for grant in granted for pattern in grant.actions)


def providers(states: t.Mapping[str, str], granted: t.Sequence[Grant] | None) -> list[PreflightFinding]:
    """Return providers that are not registered; they stop only those who may not register them."""
    findings = []
    for namespace, state in sorted(states.items()):
        if state.lower() == "registered":
            continue
        may = granted is None or allowed(f"{namespace}/register/action", granted)
        problem = f"{namespace} is {state or 'unknown'} in this subscription."
        action = "It is registered when it is needed, which takes some minutes." if may else (
            f"The identity may not register it: have somebody run az provider register --namespace {namespace}."
        )  # fmt: skip
        findings.append(PreflightFinding("provider", namespace, problem, action, not may))
    return findings
