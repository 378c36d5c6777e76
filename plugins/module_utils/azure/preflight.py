# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything that would stop the bring-up, from what was read. No I/O. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import images, permissions, quota, skus
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.finding import Finding, as_dicts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.skus import Node, Sku

_HOURS = {"hour": 1, "day": 24, "month": 730}
_SIGNS = 8
_UNREADABLE = Finding(
    "provider",
    "Microsoft.Compute",
    "Sizes, quota and images cannot be read before it is registered.",
    "Once it is registered, ask again.",
    False,
)


class Seen(t.NamedTuple):
    """What was read of the subscription. None: Azure did not tell."""

    location: str
    skus: t.Mapping[str, Sku]
    usages: t.Sequence[quota.Usage]
    versions: t.Mapping[str, t.Sequence[str]]
    images: t.Mapping[str, images.Image]
    grants: t.Sequence[permissions.Grant] | None
    providers: t.Mapping[str, str]
    group_location: str = ""
    readable: bool = True


class Asked(t.NamedTuple):
    """What is to be brought up, and where the identity needs its rights."""

    nodes: t.Sequence[Node]
    location: str
    scope: str
    quota_blocks: bool = True
    currency: str = "USD"
    actions: t.Mapping[str, str] | None = None
    accept_terms: bool = False


def region(text: str) -> str:
    """Return the name that interfaces use: ``South Central US`` is ``southcentralus``."""
    return "".join(text.split()).lower()


def refusals(nodes: t.Sequence[Node]) -> list[str]:
    """Return what cannot be meant."""
    names = [node.name for node in nodes]
    told = [f"node group {name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]
    for node in nodes:
        if node.count < 0:
            told.append(f"node group {node.name} has count {node.count}")
        if node.price is not None and node.price < 0:
            told.append(f"node group {node.name} has price {node.price}")
        if node.image and not images.parse(node.image) and not node.image.startswith("/subscriptions/"):
            told.append(
                f"node group {node.name}: image {node.image} is neither publisher:offer:sku:version nor a resource id"
            )
    return told


def judge(asked: Asked, seen: Seen) -> dict[str, t.Any]:
    """Return findings and facts."""
    found = _sizes(asked, seen) if seen.readable else [_UNREADABLE]
    if asked.accept_terms:
        found = [one._replace(blocks=one.blocks and one.check != "terms") for one in found]
    found += permissions.judge(seen.grants, asked.scope, asked.actions)
    found += permissions.providers(seen.providers, seen.grants)
    if seen.group_location and region(seen.group_location) != asked.location:
        problem = f"The resource group exists in {seen.group_location}, not in {asked.location}."
        found.append(Finding("group", asked.scope, problem, "Choose that region, or another name for the group.", True))
    findings = as_dicts(found)
    return {
        "ready": not any(one["blocks"] for one in findings),
        "findings": findings,
        "unregistered": sorted(name for name, state in seen.providers.items() if state.lower() != "registered"),
        "nodes": [_facts(node, seen.skus.get(node.size.lower())) for node in asked.nodes],
        "images": {urn: _pin(image) for urn, image in sorted(seen.images.items())},
        "cost": cost(asked.nodes, asked.currency),
    }


def _sizes(asked: Asked, seen: Seen) -> list[Finding]:
    found: list[Finding] = []
    wants = []
    for node in asked.nodes:
        sku = seen.skus.get(node.size.lower())
        found += skus.judge(node, sku, asked.location) + _image(node, sku, seen)
        cores = sku.amount("vCPUs") if sku else None
        if sku and cores:
            wants.append(quota.Want(node.name, sku.family, cores * node.count, node.spot))
    return found + quota.headroom(wants, seen.usages, asked.location, asked.quota_blocks)


def _image(node: Node, sku: Sku | None, seen: Seen) -> list[Finding]:
    urn = images.parse(node.image)
    if urn is None:
        return []
    image = seen.images.get(node.image)
    if image is None:
        return [images.absent(urn, node.name, seen.location, seen.versions.get(node.image, ()))]
    known = skus.facts(sku) if sku else {"generations": [], "architecture": None}
    return images.judge(image, node.name, known["generations"], known["architecture"])


def _facts(node: Node, sku: Sku | None) -> dict[str, t.Any]:
    known = skus.facts(sku) if sku else {}
    cores = (known.get("vcpus") or 0) * node.count
    return {"name": node.name, "size": node.size, "count": node.count, "spot": node.spot, "cores": cores, **known}


def _pin(image: images.Image) -> dict[str, t.Any]:
    return {
        "urn": str(image.urn),
        **image.urn._asdict(),
        "plan": dict(image.plan) if image.plan else {},
        "terms_accepted": image.accepted,
        "generation": image.generation,
        "architecture": image.architecture,
    }


def cost(nodes: t.Iterable[Node], currency: str) -> dict[str, t.Any]:
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
