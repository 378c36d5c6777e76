# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what the preflight judges, by what all releases of azure-mgmt-compute have in common. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import images, permissions, quota
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.preflight import Seen
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.skus import Node, Restriction, Sku

COMPUTE = "Microsoft.Compute"
PROVIDERS, PERMISSIONS, TERMS = "2021-04-01", "2022-04-01", "2021-01-01"
_UNKNOWN = (400, 404, 405)


def read(arm: t.Any, compute: t.Any, location: str, nodes: t.Sequence[Node], asked: t.Mapping[str, t.Any]) -> Seen:
    """Ask for all of it; nothing is changed."""
    providers = {namespace: _provider(arm, namespace) for namespace in asked["providers"]}
    group = _group(arm, asked["resource_group"])
    grants = _grants(arm, asked["resource_group"] if group else "")
    # The library would register the provider by itself, which is a change.
    readable = providers.get(COMPUTE, "Registered").lower() in ("registered", "")
    if not nodes or not readable:
        return Seen(location, {}, [], {}, {}, grants, providers, group, readable)
    sizes = _skus(compute, location, {node.size.lower() for node in nodes})
    usages = [_usage(one) for one in compute.usage.list(location)]
    return Seen(location, sizes, usages, *_images(arm, compute, location, nodes), grants, providers, group)


def _images(
    arm: t.Any, compute: t.Any, location: str, nodes: t.Iterable[Node]
) -> tuple[dict[str, list[str]], dict[str, images.Image]]:
    versions: dict[str, list[str]] = {}
    found: dict[str, images.Image] = {}
    for text in sorted({node.image for node in nodes}):
        urn = images.parse(text)
        if urn:
            versions[text] = _versions(compute, location, urn)
            number = images.resolve(urn, versions[text])
            if number:
                found[text] = _image(arm, compute, location, urn._replace(version=number))
    return versions, found


def _usage(one: t.Any) -> quota.Usage:
    shown = one.name.localized_value or one.name.value
    return quota.Usage(one.name.value, shown, quota.number(one.current_value), quota.number(one.limit))


def _skus(compute: t.Any, location: str, wanted: set[str]) -> dict[str, Sku]:
    if not wanted:
        return {}
    listed = compute.resource_skus.list(filter=f"location eq '{location}'")
    sizes = (one for one in listed if one.resource_type == "virtualMachines" and one.name.lower() in wanted)
    return {one.name.lower(): _sku(one, location) for one in sizes}


def _sku(one: t.Any, location: str) -> Sku:
    places = [place for place in one.location_info or [] if (place.location or "").lower() == location]
    zones = {zone for place in places for zone in place.zones or []}
    capabilities = {pair.name: str(pair.value) for pair in one.capabilities or []}
    return Sku(
        one.name, one.family or "", capabilities, tuple(sorted(zones)), tuple(map(_restriction, one.restrictions or []))
    )


def _restriction(one: t.Any) -> Restriction:
    info = one.restriction_info
    kind, reason = (str(getattr(said, "value", said) or "") for said in (one.type, one.reason_code))
    return Restriction(kind, reason, tuple((info.zones if info else None) or ()))


def _versions(compute: t.Any, location: str, urn: images.Urn) -> list[str]:
    try:
        return [one.name for one in compute.virtual_machine_images.list(location, urn.publisher, urn.offer, urn.sku)]
    except Exception as exc:
        # A publisher, offer or sku that does not exist is a finding, not a failure.
        if getattr(exc, "status_code", None) in _UNKNOWN:
            return []
        raise


def _image(arm: t.Any, compute: t.Any, location: str, urn: images.Urn) -> images.Image:
    one = compute.virtual_machine_images.get(location, *urn)
    plan = one.plan and {"name": one.plan.name, "product": one.plan.product, "publisher": one.plan.publisher}
    generation, architecture = (
        str(getattr(said, "value", said) or "") for said in (one.hyper_v_generation, one.architecture)
    )
    return images.Image(urn, plan, generation, architecture, _accepted(arm, plan) if plan else None)


def terms(subscription: str, plan: t.Mapping[str, str]) -> str:
    """Return where the agreement to a plan is."""
    return (
        f"/subscriptions/{subscription}/providers/Microsoft.MarketplaceOrdering/offerTypes/virtualmachine/publishers/"
        f"{plan['publisher']}/offers/{plan['product']}/plans/{plan['name']}/agreements/current"
    )


def _accepted(arm: t.Any, plan: t.Mapping[str, str]) -> bool | None:
    status, document = arm.send("GET", terms(arm.subscription, plan), TERMS)
    return bool((document.get("properties") or {}).get("accepted")) if status < min(_UNKNOWN) else None


def _group(arm: t.Any, name: str) -> str:
    """Return where the resource group is, or nothing if there is none yet."""
    found = arm.get(f"/subscriptions/{arm.subscription}/resourcegroups/{name}", PROVIDERS) if name else None
    return str((found or {}).get("location") or "")


def _grants(arm: t.Any, group: str) -> list[permissions.Grant] | None:
    base = f"/subscriptions/{arm.subscription}" + (f"/resourceGroups/{group}" if group else "")
    path = f"{base}/providers/Microsoft.Authorization/permissions"
    status, page = arm.send("GET", path, PERMISSIONS)
    found: list[t.Mapping[str, t.Any]] = []
    while status < min(_UNKNOWN):
        found += page.get("value") or []
        if not page.get("nextLink"):
            return permissions.grants(found)
        status, page = arm.send("GET", page["nextLink"], "")
    return None


def _provider(arm: t.Any, namespace: str) -> str:
    status, document = arm.send("GET", f"/subscriptions/{arm.subscription}/providers/{namespace}", PROVIDERS)
    return str(document.get("registrationState") or "") if status < min(_UNKNOWN) else ""
