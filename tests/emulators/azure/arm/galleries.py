# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Microsoft.Compute/galleries: definitions of images, and their versions, which are made of generalized machines."""

from __future__ import annotations

import re
import typing as t

from . import ids
from .authorization import now
from .behaviour import Behaviour, Call, register
from .common import region
from .faults import error
from .http import ArmError
from .state import State
from .vm_checks import bad

GALLERY = "Microsoft.Compute/galleries"
IMAGE, VERSION = f"{GALLERY}/images", f"{GALLERY}/images/versions"
FIXED = ("osType", "osState", "hyperVGeneration", "architecture", "identifier")
TRUSTED = ("TrustedLaunch", "TrustedLaunchSupported", "TrustedLaunchAndConfidentialVmSupported")


class InGallery(Behaviour):
    """What a gallery and its images have in common: a name, a place, and no end before that of what lies below."""

    name = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,78}[A-Za-z0-9])?"

    def prepare(self, call: Call) -> None:
        if not re.fullmatch(self.name, call.name):
            message = f"The entity name '{call.name}' is invalid according to its validation rule: ^{self.name}$."
            raise bad("InvalidParameter", message, call.kind.name.rsplit("/", 1)[-1])
        if not call.new.get("location"):
            raise ArmError(400, "LocationRequired", "The location property is required for this definition.")
        call.new["location"] = region(call.new["location"], call.kind.name)
        self.check(call)

    def check(self, call: Call) -> None:
        """Check what is this type's own."""

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        below = state.under(resource["id"])
        if below:
            message = "Cannot delete resource while nested resources exist. Some existing nested resource IDs include:"
            raise ArmError(409, "CannotDeleteResource", f"{message} '{below[0]['id']}'.")
        self.unused(state, resource)


@register(GALLERY)
class Gallery(InGallery):
    name = r"[A-Za-z0-9]([A-Za-z0-9._]{0,78}[A-Za-z0-9])?"

    def check(self, call: Call) -> None:
        subscription = ids.subscription(call.id)
        call.properties["identifier"] = {"uniqueName": f"{subscription}-{call.name.upper()}"}


@register(IMAGE)
class Definition(InGallery):
    def check(self, call: Call) -> None:
        missing = [key for key in ("osType", "osState", "identifier") if not call.properties.get(key)]
        if missing:
            raise bad("InvalidParameter", f"Required parameter 'galleryImage.properties.{missing[0]}' is missing.")
        call.properties.setdefault("hyperVGeneration", "V1")
        call.properties.setdefault("architecture", "x64")
        gallery = call.state.get(call.target.parent) or {}
        if call.new["location"] != gallery["location"]:
            message = f"The location of gallery image '{call.name}' is not that of its gallery, {gallery['location']}."
            raise bad("InvalidParameter", message, "location")
        for key in FIXED if call.old else ():
            if call.properties[key] != (call.old or {})["properties"][key]:
                message = f"Changing property 'galleryImage.properties.{key}' is not allowed."
                raise ArmError(409, "PropertyChangeNotAllowed", message, target=f"galleryImage.properties.{key}")
        for other in call.state.under(call.target.parent):
            same = other["type"] == IMAGE and other["properties"]["identifier"] == call.properties["identifier"]
            if same and not ids.same(other["id"], call.id):
                message = f"The identifier of '{call.name}' is that of another gallery image, '{other['name']}'."
                raise ArmError(409, "Conflict", message)


@register(VERSION)
class Version(InGallery):
    name = r"\d{1,10}\.\d{1,10}\.\d{1,10}"

    def check(self, call: Call) -> None:
        definition = (call.state.get(call.target.parent) or {})["properties"]
        source = (call.properties.get("storageProfile") or {}).get("source") or {}
        if len(source) != 1:
            message = "Required parameter 'galleryImageVersion.properties.storageProfile.source' is missing."
            raise bad("InvalidParameter", message, "galleryImageVersion.properties.storageProfile.source")
        if call.old and call.old["properties"]["storageProfile"]["source"] != source:
            path = "galleryImageVersion.properties.storageProfile.source"
            raise ArmError(409, "PropertyChangeNotAllowed", f"Changing property '{path}' is not allowed.", target=path)
        if not call.old:
            self._machine(call, definition, next(iter(source.values())))
        profile = call.properties.setdefault("publishingProfile", {})
        regions = profile.setdefault("targetRegions", [{"name": call.new["location"]}])
        places = [region(one["name"], VERSION) for one in regions]
        if call.new["location"] not in places:
            message = f"The target regions {', '.join(places)} lack the image version's own, {call.new['location']}."
            raise bad("InvalidParameter", message, "galleryImageVersion.properties.publishingProfile.targetRegions")
        for one in regions:
            one.setdefault("regionalReplicaCount", profile.get("replicaCount", 1))
            one.setdefault("storageAccountType", "Standard_LRS")
        profile.setdefault("publishedDate", now())

    @staticmethod
    def _machine(call: Call, definition: dict[str, t.Any], source: str) -> None:
        """Refuse a machine that nothing but a broken image could be made of."""
        vm = call.state.get(source)
        if not vm or vm["type"] != "Microsoft.Compute/virtualMachines":
            raise error("InvalidResourceReference", other=source, resource=call.id)
        if vm["location"] != call.new["location"]:
            raise bad("InvalidParameter", f"The source '{source}' is in {vm['location']}, not in the version's region.")
        generalized = vm["properties"].get("osState") == "Generalized"
        if generalized != (definition["osState"] == "Generalized"):
            said = "generalized" if generalized else "not generalized"
            raise ArmError(409, "OperationNotAllowed", f"The virtual machine '{source}' is {said}, its image is not.")
        if vm["properties"].get("powerState", "running") not in ("stopped", "deallocated"):
            raise ArmError(409, "OperationNotAllowed", f"The virtual machine '{source}' is not stopped.")
        security = (vm["properties"].get("securityProfile") or {}).get("securityType", "")
        features = {one["name"]: one["value"] for one in definition.get("features") or []}
        if security == "TrustedLaunch" and features.get("SecurityType") not in TRUSTED:
            message = f"The security type of '{source}', {security}, is not among the features of the gallery image."
            raise bad("InvalidParameter", message, "galleryImageVersion.properties.storageProfile.source")
