# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is refused before a virtual machine or a scale set is made: size, quota, image, plan, operating system."""

from __future__ import annotations

import base64
import binascii
import re
import typing as t

from . import skus
from .faults import error
from .http import ArmError
from .state import State


def bad(code: str, message: str, target: str = "") -> ArmError:
    return ArmError(400, code, message, **({"target": target} if target else {}))


def check_size(state: State, name: str, location: str, zones: list[str]) -> dict[str, t.Any]:
    """Refuse a size that this place does not have or that the subscription may not use there."""
    size, limits = skus.SIZES.get(name.lower()), skus.restrictions(state, name, location)
    if not size or not skus.offered(size, location) or limits is None:
        message = f"The value {name} provided for the VM size is not valid. The valid sizes in the current region are: "
        raise bad("InvalidParameter", message + ", ".join(one["name"] for one in skus.SIZES.values()) + ".", "vmSize")
    shut = {zone for one in limits for zone in one["restrictionInfo"].get("zones", [])}
    if any(one["type"] == "Location" for one in limits) or shut & set(zones):
        raise error("SkuNotAvailable", size=size["name"], location=location)
    if set(zones) - set(size["zones"]):
        message = f"The zone(s) '{', '.join(zones)}' for resource is not supported for {size['name']}."
        raise bad("AvailabilityZoneNotSupported", message)
    return size


def check_quota(state: State, size: dict[str, t.Any], count: int, location: str, spot: bool) -> None:
    """Refuse what exceeds the quota of the region, the family, or Spot."""
    before, after = skus.used(state, location), skus.used(state, location)
    skus.add(after, size["name"], count, spot)
    for name, value in after.items():
        shown, limit = skus.limits(state).get(name, (name, 10**9))
        if value > limit and value > before.get(name, 0):
            words = {
                "limit": limit,
                "usage": before.get(name, 0),
                "required": value - before.get(name, 0),
                "new": value,
            }
            code = "QuotaExceeded" if name not in ("cores", "lowPriorityCores") else "OperationNotAllowed"
            raise error(code, family=shown.replace(" vCPUs", ""), location=location, **words)


def check_image(state: State, storage: dict[str, t.Any], plan: dict[str, t.Any] | None, size: dict[str, t.Any]) -> None:
    """Refuse an image that is not there, does not fit the size, or whose plan was not named or bought."""
    said = storage.get("imageReference") or {}
    if said.get("id"):
        if not state.get(said["id"]):
            raise ArmError(404, "NotFound", f"The image {said['id']} was not found.")
        return
    missing = [key for key in ("publisher", "offer", "sku", "version") if not said.get(key)]
    if missing:
        raise bad(
            "InvalidParameter", f"The value of parameter imageReference.{missing[0]} is missing.", "imageReference"
        )
    found = skus.image(state, said["publisher"], said["offer"], said["sku"])
    version = found["versions"][-1] if said["version"] == "latest" else said["version"]
    if version not in found["versions"]:
        message = f"The platform image '{said['publisher']}:{said['offer']}:{said['sku']}:{version}' is not available."
        raise ArmError(404, "PlatformImageNotFound", message, target="imageReference")
    said["exactVersion"] = version
    if found["architecture"] != size["capabilities"]["CpuArchitectureType"]:
        message = f"The architecture of the image, {found['architecture']}, is not that of {size['name']}."
        raise bad("BadRequest", message)
    if found["hyperVGeneration"] not in size["capabilities"]["HyperVGenerations"]:
        raise bad("BadRequest", f"{size['name']} cannot boot Hypervisor Generation '{found['hyperVGeneration']}'.")
    check_plan(state, found["plan"], plan)


def check_plan(state: State, wanted: dict[str, str] | None, given: dict[str, t.Any] | None) -> None:
    if not wanted:
        if given:
            raise bad(
                "VMMarketplaceInvalidInput", "The platform image of this VM is not published with plan information."
            )
        return
    if not given or any(given.get(key) != value for key, value in wanted.items()):
        message = "Creating a virtual machine from Marketplace image or a custom image sourced from a Marketplace image"
        raise bad("VMMarketplaceInvalidInput", f"{message} requires Plan information in the request.", "plan")
    words = {"publisher": wanted["publisher"], "offer": wanted["product"]}
    if wanted["publisher"] in state.settings["not_purchasable"]:
        raise error("MarketplacePurchaseEligibilityFailed", **words)
    accepted = state.data.setdefault("agreements", {}).get("/".join(wanted.values()), {})
    if not accepted.get("accepted"):
        raise error("MarketplacePurchaseEligibilityFailed", **words)


def check_os(profile: dict[str, t.Any] | None) -> None:
    """Refuse an OS profile that no Linux would come up with."""
    if not profile:
        raise bad("InvalidParameter", "Required parameter 'osProfile' is missing (null).", "osProfile")
    for key in ("computerName", "adminUsername"):
        if not profile.get(key):
            raise bad("InvalidParameter", f"Required parameter '{key}' is missing (null).", key)
    if not re.fullmatch(r"(?!-)[A-Za-z0-9-]{1,64}(?<!-)", profile["computerName"]):
        raise bad("InvalidParameter", "Linux host name cannot exceed 64 characters in length or contain other than"
                  " letters, numbers and -.", "computerName")  # fmt: skip
    if profile["adminUsername"].lower() in ("root", "admin", "administrator", "test"):
        raise bad("InvalidParameter", "The Admin Username specified is not allowed.", "adminUsername")
    try:
        data = base64.b64decode(profile.get("customData") or "", validate=True)
    except binascii.Error:
        raise bad("InvalidParameter", "Custom data in OSProfile must be in Base64 encoding.", "customData") from None
    if len(data) > 65535:
        raise bad("InvalidParameter", "Custom data in OSProfile must be at most 64 KB.", "customData")
    _login(profile)


def _login(profile: dict[str, t.Any]) -> None:
    """Refuse a user who could not come in."""
    linux = profile.get("linuxConfiguration") or {}
    keys = (linux.get("ssh") or {}).get("publicKeys") or []
    for key in keys:
        if not re.match(r"(ssh-rsa|ssh-ed25519) [A-Za-z0-9+/=]{40,}", key.get("keyData") or ""):
            message = "The value of parameter linuxConfiguration.ssh.publicKeys.keyData is invalid."
            raise bad("InvalidParameter", message, "linuxConfiguration.ssh.publicKeys.keyData")
        if key.get("path") != f"/home/{profile['adminUsername']}/.ssh/authorized_keys":
            message = "Destination path for SSH public keys is currently limited to its default value"
            raise bad("InvalidParameter", f"{message} /home/{profile['adminUsername']}/.ssh/authorized_keys.", "path")
    if not keys and (linux.get("disablePasswordAuthentication") or not profile.get("adminPassword")):
        raise bad("InvalidParameter", "Authentication using either SSH or by user name and password must be enabled in"
                  " Linux profile.", "linuxConfiguration")  # fmt: skip


def without_secrets(profile: dict[str, t.Any]) -> dict[str, t.Any]:
    return {key: value for key, value in profile.items() if key not in ("customData", "adminPassword")}
