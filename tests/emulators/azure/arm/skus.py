# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sizes, quota, images: what the preflight asks, and what a VM is checked against."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

from . import access
from .common import REGIONS, page, region
from .http import ArmError, Request, Response
from .routes import SUB, Context, route
from .state import State

HERE = Path(__file__).parents[1] / "data"
_DATA = json.loads((HERE / "sizes.json").read_text())
FAMILIES: dict[str, dict[str, t.Any]] = _DATA["families"]
SIZES: dict[str, dict[str, t.Any]] = {one["name"].lower(): one for one in _DATA["sizes"]}
IMAGES: dict[str, dict[str, t.Any]] = json.loads((HERE / "images.json").read_text())
PLACE = f"{SUB}/providers/Microsoft.Compute/locations/(?P<location>[^/]+)"
KIND = "Microsoft.Compute/locations"


def offered(size: dict[str, t.Any], location: str) -> bool:
    return size["locations"] == "all" or location in size["locations"]


def restrictions(state: State, size: str, location: str) -> list[dict[str, t.Any]] | None:
    """Return the restrictions of a size as tests set them; None where it is absent altogether."""
    said: t.Any = next(
        (value for key, value in state.settings["sku_restrictions"].items() if key.lower() == size.lower()), []
    )
    if said == "absent":
        return None
    found = []
    for one in said:
        zones = one.get("zones", [])
        info = {"locations": [location], **({"zones": zones} if zones else {})}
        kind, reason = (
            one.get("type", "Zone" if zones else "Location"),
            one.get("reason", "NotAvailableForSubscription"),
        )
        found.append({"type": kind, "values": [location], "restrictionInfo": info, "reasonCode": reason})
    return found


def _sku(state: State, size: dict[str, t.Any], location: str) -> dict[str, t.Any] | None:
    limits = restrictions(state, size["name"], location)
    if limits is None or not offered(size, location):
        return None
    info = {"location": location, "zones": size["zones"], "zoneDetails": []}
    capabilities = [{"name": key, "value": value} for key, value in size["capabilities"].items()]
    return {
        "resourceType": "virtualMachines",
        "name": size["name"],
        "tier": size["tier"],
        "size": size["size"],
        "family": size["family"],
        "locations": [location],
        "locationInfo": [info],
        "capabilities": capabilities,
        "restrictions": limits,
    }


@route("GET", f"{SUB}/providers/Microsoft.Compute/skus", "Microsoft.Compute/skus")
def _skus(context: Context) -> Response:
    access.allow(context.state, context.request)
    said = context.request.query.get("$filter", "")
    match = re.fullmatch(r"\s*location eq '([^']+)'\s*", said)
    if said and not match:
        raise ArmError(400, "InvalidParameter", "The filter is not supported: only location can be filtered on.")
    places = [region(match[1], "skus")] if match else list(REGIONS)
    found = [_sku(context.state, size, place) for place in places for size in SIZES.values()]
    disk = {"resourceType": "disks", "name": "Premium_LRS", "tier": "Premium", "size": "P30", "locations": places[:1],
            "locationInfo": [{"location": places[0], "zones": []}], "capabilities": [], "restrictions": []}  # fmt: skip
    return page(context.state, context.request, [one for one in found if one] + [disk], 1000)


def used(state: State, location: str) -> dict[str, int]:
    """Count the vCPUs of what runs here, by usage name."""
    found: dict[str, int] = dict(state.settings["usage"])
    for one in state.resources.values():
        kind = one["type"]
        if kind not in ("Microsoft.Compute/virtualMachines", "Microsoft.Compute/virtualMachineScaleSets"):
            continue
        scaled, said = kind.endswith("Sets"), one["properties"]
        if one.get("location") != location or said.get("powerState") == "deallocated":
            continue
        name = one["sku"]["name"] if scaled else said["hardwareProfile"]["vmSize"]
        count = int(one["sku"].get("capacity", 0)) if scaled else 1
        profile = said.get("virtualMachineProfile", {}) if scaled else said
        add(found, name, count, str(profile.get("priority")).lower() == "spot")
    return found


def add(found: dict[str, int], size: str, count: int, spot: bool) -> None:
    """Count some VMs of one size."""
    known = SIZES[size.lower()]
    cores = int(known["capabilities"]["vCPUs"]) * count
    names = ["lowPriorityCores"] if spot else ["cores", FAMILIES[known["family"]]["usage"]]
    for name in names:
        found[name] = found.get(name, 0) + cores
    found["virtualMachines"] = found.get("virtualMachines", 0) + count


def limits(state: State) -> dict[str, tuple[str, int]]:
    """Return name -> (shown name, limit) of every usage."""
    found = {
        "availabilitySets": ("Availability Sets", 2500),
        "cores": ("Total Regional vCPUs", 4000),
        "virtualMachines": ("Virtual Machines", 25000),
        "virtualMachineScaleSets": ("Virtual Machine Scale Sets", 2500),
        "lowPriorityCores": ("Total Regional Spot vCPUs", 800),
    }
    for family in FAMILIES.values():
        found[family["usage"]] = (family["shown"], family["limit"])
    for name, limit in state.settings["quota"].items():
        plain = name.replace(" ", "").lower()
        same = next((key for key in found if key.replace(" ", "").lower() == plain), name)
        found[same] = (found.get(same, (name, 0))[0], limit)
    return found


@route("GET", f"{PLACE}/usages", f"{KIND}/usages")
def _usages(context: Context) -> Response:
    access.allow(context.state, context.request)
    place = context.words["location"]
    if place.lower() not in REGIONS:
        message = f"No registered resource provider found for location '{place}' for type 'locations/usages'."
        raise ArmError(400, "NoRegisteredProviderFound", message)
    now = used(context.state, place.lower())
    found = [
        {"unit": "Count", "currentValue": now.get(name, 0), "limit": limit,
         "name": {"value": name, "localizedValue": shown}}
        for name, (shown, limit) in limits(context.state).items()
    ]  # fmt: skip
    return page(context.state, context.request, found, 1000)


@route("GET", f"{PLACE}/vmSizes", f"{KIND}/vmSizes")
def _vm_sizes(context: Context) -> Response:
    place = region(context.words["location"], "vmSizes")
    said = [one for one in SIZES.values() if offered(one, place)]
    return Response(200, {"value": [
        {"name": one["name"], "numberOfCores": int(one["capabilities"]["vCPUs"]), "osDiskSizeInMB": 1047552,
         "resourceDiskSizeInMB": int(one["capabilities"]["MaxResourceVolumeMB"]), "maxDataDiskCount": 32,
         "memoryInMB": int(one["capabilities"]["MemoryGB"]) * 1024} for one in said]})  # fmt: skip


def image(state: State, publisher: str, offer: str, sku: str) -> dict[str, t.Any]:
    """Return an image of the marketplace, or refuse."""
    name = f"{publisher}:{offer}:{sku}"
    found = next((value for key, value in IMAGES.items() if key.lower() == name.lower()), None)
    if not found or name in state.settings["images_gone"]:
        message = f"Artifact: VMImage was not found: {publisher}, {offer}, {sku}."
        raise ArmError(404, "NotFound", message)
    gone = [urn.rsplit(":", 1)[1] for urn in state.settings["images_gone"] if urn.startswith(f"{name}:")]
    return {**found, "versions": [one for one in found["versions"] if one not in gone]}


IMAGE = "publishers/(?P<publisher>[^/]+)/artifacttypes/vmimage/offers/(?P<offer>[^/]+)/skus/(?P<sku>[^/]+)/versions"


def _base(request: Request, version: str) -> dict[str, t.Any]:
    path = request.path if request.path.endswith(f"/{version}") else f"{request.path}/{version}"
    return {"id": path, "name": version, "location": request.path.split("/")[6]}


@route("GET", f"{PLACE}/{IMAGE}", f"{KIND}/publishers")
def _versions(context: Context) -> Response:
    access.allow(context.state, context.request)
    words, query = context.words, context.request.query
    found = image(context.state, words["publisher"], words["offer"], words["sku"])["versions"]
    if "desc" in query.get("$orderby", ""):
        found = sorted(found, reverse=True)
    found = found[: int(query.get("$top", len(found)))]
    return Response(200, [_base(context.request, one) for one in found])


@route("GET", f"{PLACE}/{IMAGE}/(?P<version>[^/]+)", f"{KIND}/publishers")
def _version(context: Context) -> Response:
    access.allow(context.state, context.request)
    words = context.words
    found = image(context.state, words["publisher"], words["offer"], words["sku"])
    if words["version"] not in found["versions"]:
        raise ArmError(404, "NotFound", f"Artifact: VMImage was not found: version {words['version']}.")
    said = {"hyperVGeneration": found["hyperVGeneration"], "architecture": found["architecture"], "features": []}
    disks = [{"lun": number, "sizeInGb": 256} for number in range(found["dataDisks"])]
    said.update({"osDiskImage": {"operatingSystem": "Linux", "sizeInGb": 30}, "dataDiskImages": disks})
    if found["plan"]:
        said["plan"] = found["plan"]
    return Response(200, {**_base(context.request, words["version"]), "properties": said})
