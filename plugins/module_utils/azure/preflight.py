# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight: read quota, SKUs, images and permissions, and list everything that would stop the bring-up."""

from __future__ import annotations

import traceback
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, skus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.skus import (
    Grant,
    Image,
    NodeGroup,
    PreflightFinding,
    Restriction,
    Sku,
    Usage,
    as_dicts,
)

_HOURS = {"hour": 1, "day": 24, "month": 730}
_SIGNS = 8
_UNREADABLE = PreflightFinding(
    "provider",
    "Microsoft.Compute",
    "Sizes, quota and images cannot be read before it is registered.",
    "Once it is registered, ask again.",
    False,
)


class ObservedLocation(t.NamedTuple):
    """What was read of the subscription and one region. Grants are None where Azure does not list them."""

    location: str
    skus: t.Mapping[str, Sku]
    usages: t.Sequence[Usage]
    versions: t.Mapping[str, t.Sequence[str]]
    images: t.Mapping[str, Image]
    grants: t.Sequence[Grant] | None
    providers: t.Mapping[str, str]
    group_location: str = ""
    readable: bool = True


class PreflightRequest(t.NamedTuple):
    """What is to be brought up, and where the identity needs its rights."""

    nodes: t.Sequence[NodeGroup]
    location: str
    scope: str
    quota_blocks: bool = True
    currency: str = "USD"
    actions: t.Mapping[str, str] | None = None
    accept_terms: bool = False
    bundle_machine: str = ""


def region(text: str) -> str:
    """Return the name that interfaces use: ``South Central US`` is ``southcentralus``."""
    return "".join(text.split()).lower()


def refusals(nodes: t.Sequence[NodeGroup]) -> list[str]:
    """Return what is wrong with the options themselves."""
    names = [node.name for node in nodes]
    messages = [
        f"node group {name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})
    ]
    for node in nodes:
        if node.count < 0:
            messages.append(f"node group {node.name} has count {node.count}")
        if node.price is not None and node.price < 0:
            messages.append(f"node group {node.name} has price {node.price}")
        if node.image and not skus.parse(node.image) and not node.image.startswith("/subscriptions/"):
            messages.append(
                f"node group {node.name}: image {node.image} is neither publisher:offer:sku:version nor a resource id"
            )
    return messages


def judge(request: PreflightRequest, observed: ObservedLocation) -> dict[str, t.Any]:
    """Return findings, and facts about node groups, images and cost."""
    findings = _sizes(request, observed) if observed.readable else [_UNREADABLE]
    if request.accept_terms:
        findings = [finding._replace(blocks=finding.blocks and finding.check != "terms") for finding in findings]
    findings += skus.judge_permissions(observed.grants, request.scope, request.actions)
    findings += skus.providers(observed.providers, observed.grants)
    if observed.group_location and region(observed.group_location) != request.location:
        problem = f"The resource group exists in {observed.group_location}, not in {request.location}."
        findings.append(
            PreflightFinding(
                "group", request.scope, problem, "Choose that region, or another name for the group.", True
            )
        )
    records = as_dicts(findings)
    return {
        "ready": not any(finding["blocks"] for finding in records),
        "findings": records,
        "unregistered": sorted(name for name, state in observed.providers.items() if state.lower() != "registered"),
        "nodes": [_facts(node, observed.skus.get(node.size.lower())) for node in request.nodes],
        "images": {urn: _pin(image) for urn, image in sorted(observed.images.items())},
        "cost": cost(request.nodes, request.currency),
    }


def _sizes(request: PreflightRequest, observed: ObservedLocation) -> list[PreflightFinding]:
    findings: list[PreflightFinding] = []
    demands = []
    for node in request.nodes:
        sku = observed.skus.get(node.size.lower())
        findings += skus.judge_size(node, sku, request.location) + _image_findings(node, sku, observed)
        if request.bundle_machine and node.bundle:
            architecture = skus.facts(sku)["architecture"] if sku else None
            findings += skus.judge_bundle(node, request.bundle_machine, architecture)
        cores = sku.amount("vCPUs") if sku else None
        if sku and cores:
            demands.append(skus.CoreDemand(node.name, sku.family, cores * node.count, node.spot))
    return findings + skus.headroom(demands, observed.usages, request.location, request.quota_blocks)


def _image_findings(node: NodeGroup, sku: Sku | None, observed: ObservedLocation) -> list[PreflightFinding]:
    urn = skus.parse(node.image)
    if urn is None:
        return []
    image = observed.images.get(node.image)
    if image is None:
        return [skus.absent(urn, node.name, observed.location, observed.versions.get(node.image, ()))]
    known = skus.facts(sku) if sku else {"generations": [], "architecture": None}
    return skus.judge_image(image, node.name, known["generations"], known["architecture"])


def _facts(node: NodeGroup, sku: Sku | None) -> dict[str, t.Any]:
    known = skus.facts(sku) if sku else {}
    cores = (known.get("vcpus") or 0) * node.count
    return {"name": node.name, "size": node.size, "count": node.count, "spot": node.spot, "cores": cores, **known}


def _pin(image: skus.Image) -> dict[str, t.Any]:
    return {
        "urn": str(image.urn),
        **image.urn._asdict(),
        "plan": dict(image.plan) if image.plan else {},
        "terms_accepted": image.accepted,
        "generation": image.generation,
        "architecture": image.architecture,
    }


def cost(nodes: t.Iterable[NodeGroup], currency: str) -> dict[str, t.Any]:
    """Return what the nodes cost while all of them run; groups without a price are named, not guessed."""
    items: list[dict[str, t.Any]] = []
    unknown = []
    for node in nodes:
        if node.price is None:
            unknown.append(node.name)
        else:
            items.append(
                {
                    "name": node.name,
                    "count": node.count,
                    "price": node.price,
                    "hour": round(node.count * node.price, _SIGNS),
                }
            )
    hour = sum(item["hour"] for item in items)
    total = {unit: round(hour * hours, 2) for unit, hours in _HOURS.items()}
    return {**total, "currency": currency, "items": items, "without_price": unknown}


# Reading, with what all releases of azure-mgmt-compute have in common.


COMPUTE = "Microsoft.Compute"
PROVIDERS_API, PERMISSIONS_API, TERMS_API = "2021-04-01", "2022-04-01", "2021-01-01"
_UNKNOWN = (400, 404, 405)


def read(
    arm: t.Any, compute: t.Any, location: str, nodes: t.Sequence[NodeGroup], params: t.Mapping[str, t.Any]
) -> ObservedLocation:
    """Read sizes, quota, images, permissions and providers; nothing is changed."""
    providers = {namespace: _provider(arm, namespace) for namespace in params["providers"]}
    group = _group(arm, params["resource_group"])
    grants = _grants(arm, params["resource_group"] if group else "")
    # The library would register the provider by itself, which is a change.
    readable = providers.get(COMPUTE, "Registered").lower() in ("registered", "")
    if not nodes or not readable:
        return ObservedLocation(location, {}, [], {}, {}, grants, providers, group, readable)
    sizes = _skus(compute, location, {node.size.lower() for node in nodes})
    usages = [_usage(usage) for usage in compute.usage.list(location)]
    return ObservedLocation(location, sizes, usages, *_images(arm, compute, location, nodes), grants, providers, group)


def _images(
    arm: t.Any, compute: t.Any, location: str, nodes: t.Iterable[NodeGroup]
) -> tuple[dict[str, list[str]], dict[str, skus.Image]]:
    versions: dict[str, list[str]] = {}
    images: dict[str, skus.Image] = {}
    for text in sorted({node.image for node in nodes}):
        urn = skus.parse(text)
        if urn:
            versions[text] = _versions(compute, location, urn)
            number = skus.resolve(urn, versions[text])
            if number:
                images[text] = _read_image(arm, compute, location, urn._replace(version=number))
    return versions, images


def _usage(usage: t.Any) -> skus.Usage:
    shown = usage.name.localized_value or usage.name.value
    return skus.Usage(usage.name.value, shown, skus.number(usage.current_value), skus.number(usage.limit))


def _skus(compute: t.Any, location: str, names: set[str]) -> dict[str, Sku]:
    if not names:
        return {}
    listed = compute.resource_skus.list(filter=f"location eq '{location}'")
    sizes = (sku for sku in listed if sku.resource_type == "virtualMachines" and sku.name.lower() in names)
    return {sku.name.lower(): _sku(sku, location) for sku in sizes}


def _sku(sku: t.Any, location: str) -> Sku:
    infos = [info for info in sku.location_info or [] if (info.location or "").lower() == location]
    zones = {zone for info in infos for zone in info.zones or []}
    capabilities = {pair.name: str(pair.value) for pair in sku.capabilities or []}
    return Sku(
        sku.name, sku.family or "", capabilities, tuple(sorted(zones)), tuple(map(_restriction, sku.restrictions or []))
    )


def _restriction(restriction: t.Any) -> Restriction:
    info = restriction.restriction_info
    kind, reason = (str(getattr(value, "value", value) or "") for value in (restriction.type, restriction.reason_code))
    return Restriction(kind, reason, tuple((info.zones if info else None) or ()))


def _versions(compute: t.Any, location: str, urn: skus.Urn) -> list[str]:
    try:
        return [
            image.name for image in compute.virtual_machine_images.list(location, urn.publisher, urn.offer, urn.sku)
        ]
    except Exception as exc:
        # A publisher, offer or sku that does not exist is a finding, not a failure.
        if getattr(exc, "status_code", None) in _UNKNOWN:
            return []
        raise


def _read_image(arm: t.Any, compute: t.Any, location: str, urn: skus.Urn) -> skus.Image:
    image = compute.virtual_machine_images.get(location, *urn)
    plan = image.plan and {"name": image.plan.name, "product": image.plan.product, "publisher": image.plan.publisher}
    generation, architecture = (
        str(getattr(value, "value", value) or "") for value in (image.hyper_v_generation, image.architecture)
    )
    return skus.Image(urn, plan, generation, architecture, _accepted(arm, plan) if plan else None)


def terms(subscription: str, plan: t.Mapping[str, str]) -> str:
    """Return the path of the agreement to a plan."""
    return (
        f"/subscriptions/{subscription}/providers/Microsoft.MarketplaceOrdering/offerTypes/virtualmachine/publishers/"
        f"{plan['publisher']}/offers/{plan['product']}/plans/{plan['name']}/agreements/current"
    )


def _accepted(arm: t.Any, plan: t.Mapping[str, str]) -> bool | None:
    status, document = arm.send("GET", terms(arm.subscription, plan), TERMS_API)
    return bool((document.get("properties") or {}).get("accepted")) if status < min(_UNKNOWN) else None


def _group(arm: t.Any, name: str) -> str:
    """Return the location of the resource group, empty if there is none yet."""
    group = arm.get(f"/subscriptions/{arm.subscription}/resourcegroups/{name}", PROVIDERS_API) if name else None
    return str((group or {}).get("location") or "")


def _grants(arm: t.Any, group: str) -> list[skus.Grant] | None:
    base = f"/subscriptions/{arm.subscription}" + (f"/resourceGroups/{group}" if group else "")
    path = f"{base}/providers/Microsoft.Authorization/permissions"
    status, page = arm.send("GET", path, PERMISSIONS_API)
    entries: list[t.Mapping[str, t.Any]] = []
    while status < min(_UNKNOWN):
        entries += page.get("value") or []
        if not page.get("nextLink"):
            return skus.grants(entries)
        status, page = arm.send("GET", page["nextLink"], "")
    return None


def _provider(arm: t.Any, namespace: str) -> str:
    status, document = arm.send("GET", f"/subscriptions/{arm.subscription}/providers/{namespace}", PROVIDERS_API)
    return str(document.get("registrationState") or "") if status < min(_UNKNOWN) else ""


# The options of the preflight, and its result.


MISSING = ""
try:
    from azure.core.exceptions import AzureError as LibraryError
    from azure.mgmt.compute import ComputeManagementClient
except ImportError:
    MISSING = traceback.format_exc()

PROVIDERS = ["Microsoft.Compute", "Microsoft.Network", "Microsoft.Storage", "Microsoft.ManagedIdentity"]
NODE: dict[str, dict[str, t.Any]] = {
    "name": {"type": "str", "required": True},
    "size": {"type": "str", "required": True},
    "count": {"type": "int", "default": 1},
    "spot": {"type": "bool", "default": False},
    "image": {"type": "str", "default": ""},
    "zone": {"type": "str", "default": ""},
    "gpus": {"type": "int"},
    "rdma": {"type": "bool"},
    "nvme": {"type": "bool"},
    "price": {"type": "float"},
    "bundle": {"type": "bool", "default": True},
}
SPEC: dict[str, dict[str, t.Any]] = {
    **client.SPEC,
    "location": {"type": "str", "required": True},
    "resource_group": {"type": "str", "default": ""},
    "nodes": {"type": "list", "elements": "dict", "default": [], "options": NODE},
    "providers": {"type": "list", "elements": "str", "default": PROVIDERS},
    "assignments": {"type": "bool", "default": True},
    "quota_blocks": {"type": "bool", "default": True},
    "accept_terms": {"type": "bool", "default": False},
    "currency": {"type": "str", "default": "USD"},
    "bundle_machine": {"type": "str", "default": ""},
}


def run_preflight(params: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the result of module azure_compute_preflight."""
    nodes = [NodeGroup(**{name: node[name] for name in NODE}) for node in params["nodes"]]
    refused = refusals(nodes)
    if refused:
        raise client.AzureError("; ".join(refused))
    location = region(params["location"])
    arm = client.connect(params)
    compute = arm.library(ComputeManagementClient)
    try:
        observed = read(arm, compute, location, nodes, params)
    except LibraryError as exc:
        raise client.AzureError(client.explain(str(exc))) from exc
    scope = f"/subscriptions/{arm.subscription}"
    if observed.group_location:
        scope += f"/resourceGroups/{params['resource_group']}"
    needed = {action: role for action, role in skus.NEEDED.items() if params["assignments"] or action != skus.ASSIGN}
    request = PreflightRequest(
        nodes,
        location,
        scope,
        params["quota_blocks"],
        params["currency"],
        needed,
        params["accept_terms"],
        params["bundle_machine"],
    )
    result = judge(request, observed)
    return {**result, "text": skus.text(result["findings"])}
