# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VM sizes, images, quota and permissions: what stands against a group of nodes. No I/O."""

from __future__ import annotations

import dataclasses
import re
import typing as t

# What is wrong before it is tried. No I/O.


class PreflightFinding(t.NamedTuple):
    """One thing that would stop the bring-up, or that a person should know."""

    check: str
    subject: str
    problem: str
    action: str
    blocks: bool


def as_dicts(findings: t.Iterable[PreflightFinding]) -> list[dict[str, t.Any]]:
    """Return them for the user, first those that block."""
    return [finding._asdict() for finding in sorted(set(findings), key=lambda one: (not one.blocks, *map(str, one)))]


def text(findings: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """Return one line for each."""
    form = "{weight}: {check} of {subject}: {problem} {action}"
    return [form.format(weight="BLOCKS" if one["blocks"] else "warns", **one) for one in findings]


# What a VM size is and whether it can be had here. No I/O.


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
        said = self.capabilities.get(capability, "").lower()
        return {"true": True, "false": False}.get(said)


@dataclasses.dataclass(frozen=True)
class NodeGroup:
    """A group of equal nodes, as asked for."""

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


_REASONS = {
    "NotAvailableForSubscription": "Ask Microsoft for access (a support request for quota), or choose another region.",
    "QuotaId": "This kind of subscription (such as a free trial) does not get it: use another kind.",
}


def zones_left(sku: Sku) -> list[str]:
    """Return the zones in which it can be had."""
    gone = {zone for one in sku.restrictions if one.kind == "Zone" for zone in one.zones}
    return sorted(set(sku.zones) - gone)


def facts(sku: Sku) -> dict[str, t.Any]:
    """Return what a cluster wants to know of a size; None is unknown."""
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
    """Return what stands against a group of nodes of this size."""

    def finding(problem: str, action: str, blocks: bool = True) -> PreflightFinding:
        return PreflightFinding("size", node.name, f"{node.size} in {location} {problem}", action, blocks)

    if sku is None:
        return [finding("is not offered.", "Check how it is written (az vm list-skus), or choose another region.")]
    found = []
    for one in sku.restrictions:
        if one.kind == "Location":
            action = _REASONS.get(one.reason, "Choose another region.")
            found.append(finding(f"is closed to this subscription ({one.reason}).", action))
    found += [finding(*pair) for pair in _zones(node, sku)]
    found += [finding(*triple) for triple in _capabilities(node, sku)]
    return found


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
        wanted, real = getattr(node, name), known[name]
        if wanted is None or wanted == real:
            continue
        if real is None:
            yield (
                f"does not say what {name} it has; expected was {wanted}.",
                "Look at its page in Azure's documentation.",
                False,
            )
        else:
            yield (
                f"has {name} {real}; expected was {wanted}.",
                "Choose another size, or correct what is expected.",
                True,
            )
    if node.spot and sku.flag("LowPriorityCapable") is False:
        yield "cannot be had as Spot.", "Leave Spot out, or choose another size.", True
    if not known["vcpus"]:
        yield "does not say how many cores it has, so quota is not checked.", "Compare it with the portal.", False


# Names and versions of marketplace images. No I/O.


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
    """Return what versions are sorted by: as numbers where they are numbers, so 9 comes before 10."""
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in version.split("."))


def resolve(urn: Urn, versions: t.Iterable[str]) -> str | None:
    """Return the version that is meant, or None where there is none."""
    known = sorted(versions, key=order)
    if urn.version.lower() == "latest":
        return known[-1] if known else None
    return urn.version if urn.version in known else None


def absent(urn: Urn, subject: str, location: str, versions: t.Iterable[str]) -> PreflightFinding:
    """Return what is told when there is no such version."""
    newest = sorted(versions, key=order)[-3:]
    if not newest:
        action = "Check publisher, offer and sku (az vm image list-skus)."
    else:
        action = f"The newest are {', '.join(newest)}; the very newest is meant by latest."
    return PreflightFinding("image", subject, f"There is no image {urn} in {location}.", action, True)


def judge_image(
    image: Image, subject: str, generations: t.Sequence[str], architecture: str | None
) -> list[PreflightFinding]:
    """Return what stands against an image on a size."""
    found = []
    urn = str(image.urn)
    if image.architecture and architecture and image.architecture.lower() != architecture.lower():
        problem = f"{urn} is for {image.architecture}, the size is {architecture}."
        found.append(PreflightFinding("image", subject, problem, "Choose an image of that architecture.", True))
    if image.generation and generations and image.generation.upper() not in {one.upper() for one in generations}:
        problem = f"{urn} is of generation {image.generation}, the size starts only {', '.join(generations)}."
        found.append(PreflightFinding("image", subject, problem, "Choose the other generation of the image.", True))
    if image.plan and not image.accepted:
        place = f"{image.plan['publisher']}:{image.plan['product']}:{image.plan['name']}"
        known = "are not accepted" if image.accepted is False else "cannot be read"
        action = (
            f"Accept them (az vm image terms accept --urn {urn}), or let the role do it where it has an option for it."
        )
        found.append(PreflightFinding("terms", subject, f"The terms of {place} {known}.", action, True))
    return found


# Numbers of cores: what is asked for, what is free, and what that means. No I/O.


REGIONAL, SPOT = "cores", "lowprioritycores"
_ASK = "Ask for at least {need} more in the portal (Subscriptions, Usage + quotas, {what}), or ask for fewer nodes."


class Usage(t.NamedTuple):
    """One line of the usages of a region."""

    name: str
    shown: str
    used: int
    limit: int


class Want(t.NamedTuple):
    """Cores that a group of nodes needs; the family is that of its size."""

    group: str
    family: str
    cores: int
    spot: bool


def key(name: str) -> str:
    """Return what names of families have in common: two interfaces write them with other blanks and cases."""
    return "".join(name.split()).lower()


def number(value: t.Any) -> int:
    """Read a limit; numbers, fractions and texts have been seen."""
    try:
        return int(float(str(value)))
    except (ValueError, OverflowError):
        return 0


def headroom(wants: t.Sequence[Want], usages: t.Iterable[Usage], location: str, block: bool) -> list[PreflightFinding]:
    """Compare what is wanted with every limit that applies: the family's, the region's, and that of all Spot."""
    known = {key(usage.name): usage for usage in usages}
    asked: dict[str, tuple[str, int, list[str]]] = {}
    for want in wants:
        limits = [(SPOT, "Total Regional Spot vCPUs")] if want.spot else [(key(want.family), want.family)]
        for limit, shown in limits + ([] if want.spot else [(REGIONAL, "Total Regional vCPUs")]):
            dummy, cores, groups = asked.get(limit, ("", 0, []))
            asked[limit] = (shown, cores + want.cores, [*groups, want.group])
    found = []
    for limit, (shown, cores, groups) in sorted(asked.items()):
        finding = _judge(known.get(limit), shown, cores, groups, location)
        if finding:
            found.append(finding._replace(blocks=finding.blocks and block))
    return found


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


# Whether an identity may do what is planned. No I/O.


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


def judge_permissions(
    given: t.Sequence[Grant] | None, scope: str, needed: t.Mapping[str, str] | None = None
) -> list[PreflightFinding]:
    """Return what is missing. None says that Azure did not tell what there is."""
    if given is None:
        problem = f"Azure does not tell what the identity may do on {scope}."
        return [
            PreflightFinding(
                "permissions", scope, problem, "Nothing has to be done; a missing right shows when it is needed.", False
            )
        ]
    found = []
    for action, role in sorted((NEEDED if needed is None else needed).items()):
        if not allowed(action, given):
            found.append(_missing(action, role, scope, given))
    return found


def _missing(action: str, role: str, scope: str, given: t.Sequence[Grant]) -> PreflightFinding:
    taken = sorted({pattern for one in given for pattern in one.without if matches(pattern, action)})
    why = f" ({', '.join(taken)} is taken out of the role it has)" if taken and _given(action, given) else ""
    advice = f"Have the role {role}, or Owner, assigned on {scope}."
    if action == ASSIGN:
        advice += " Contributor lacks it. Or have somebody make them, and set azure_infra_role_assignments: false."
    return PreflightFinding("permissions", scope, f"The identity may not do {action}{why}.", advice, True)


def _given(action: str, given: t.Sequence[Grant]) -> bool:
    return any(matches(pattern, action) for one in given for pattern in one.actions)


def providers(states: t.Mapping[str, str], given: t.Sequence[Grant] | None) -> list[PreflightFinding]:
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
        found.append(PreflightFinding("provider", namespace, problem, action, not may))
    return found
