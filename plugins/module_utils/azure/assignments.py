# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role assignments: looked for first, made under names that are the same in every run. Private."""

from __future__ import annotations

import typing as t
import uuid

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.client import AzureError

VERSION = "2022-04-01"
OPERATOR = "Managed Identity Operator"
ROLES = {
    OPERATOR: "f1a07417-d97a-45cb-824c-7a7467783830",
    "Contributor": "b24988ac-6180-42a0-ab88-20f7382dd24c",
    "Network Contributor": "4d97b98b-1d4f-4787-a291-c67834d212e7",
    "Reader": "acdd72a7-3385-48ef-bd42-f606fba81ae7",
    "Storage Blob Data Contributor": "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
    "Storage Blob Data Reader": "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
}
_PLACE = "providers/Microsoft.Authorization"


class WantedAssignment(t.NamedTuple):
    """Who shall have which role where. In check mode a principal that does not exist yet is empty."""

    scope: str
    role: str
    principal: str
    kind: str = "ServicePrincipal"
    description: str = ""

    @property
    def definition(self) -> str:
        return ROLES.get(self.role, self.role).lower()

    @property
    def name(self) -> str:
        """The same for the same wish; another principal gets another, for an assignment cannot change hands."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.scope}|{self.definition}|{self.principal}".lower()))

    @property
    def path(self) -> str:
        return f"{self.scope}/{_PLACE}/roleAssignments/{self.name}"

    def body(self, subscription: str) -> dict[str, t.Any]:
        properties = {
            "roleDefinitionId": f"/subscriptions/{subscription}/{_PLACE}/roleDefinitions/{self.definition}",
            "principalId": self.principal,
            "principalType": self.kind,
        }
        return {"properties": {**properties, **({"description": self.description} if self.description else {})}}


def refusals(wishes: t.Iterable[WantedAssignment]) -> list[str]:
    """Return roles that are neither known by name nor given as an identifier."""
    told = []
    for wish in wishes:
        try:
            uuid.UUID(wish.definition)
        except ValueError:
            told.append(
                f"role {wish.role} is not known: give the identifier of its definition, or one of {', '.join(ROLES)}"
            )
    return sorted(set(told))


def match(wish: WantedAssignment, listed: t.Iterable[t.Mapping[str, t.Any]]) -> str:
    """Return the assignment that fulfils a wish, under whatever name; nothing if there is none."""
    for one in listed:
        properties = one.get("properties") or {}
        if (
            str(properties.get("scope", "")).rstrip("/").lower() == wish.scope.rstrip("/").lower()
            and str(properties.get("roleDefinitionId", "")).rsplit("/", 1)[-1].lower() == wish.definition
            and str(properties.get("principalId", "")).lower() == wish.principal.lower()
        ):
            return str(one.get("id") or "")
    return ""


def find(arm: t.Any, wish: WantedAssignment) -> str:
    """Ask for it."""
    if not wish.principal:
        return ""
    query = {"$filter": f"principalId eq '{wish.principal}'"}
    return match(wish, arm.items(f"{wish.scope}/{_PLACE}/roleAssignments", VERSION, **query))


def make(arm: t.Any, wish: WantedAssignment, wait: t.Callable[[], bool]) -> str:
    """Make it. A principal that was made just now may not be known everywhere yet; wait() says whether to try again."""
    while True:
        status, document = arm.send("PUT", wish.path, VERSION, wish.body(arm.subscription))
        if status < 400:
            return str(document.get("id") or wish.path)
        told = client.told(document)
        if "RoleAssignmentExists" in told:
            there = find(arm, wish)
            if there:
                return there
        if "PrincipalNotFound" not in told or not wait():
            what = f"{wish.role} for {wish.principal} on {wish.scope}"
            raise AzureError(client.explain(f"{what} was answered {status}: {told}"))
