# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role assignments: found where they exist, else made under names that are the same in every run."""

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
_PROVIDER = "providers/Microsoft.Authorization"


class AssignmentRequest(t.NamedTuple):
    """Which principal shall have which role at which scope. In check mode one that does not exist yet is empty."""

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
        """Return a name that follows from scope, role and principal: an assignment cannot get another principal."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.scope}|{self.definition}|{self.principal}".lower()))

    @property
    def path(self) -> str:
        return f"{self.scope}/{_PROVIDER}/roleAssignments/{self.name}"

    def body(self, subscription: str) -> dict[str, t.Any]:
        properties = {
            "roleDefinitionId": f"/subscriptions/{subscription}/{_PROVIDER}/roleDefinitions/{self.definition}",
            "principalId": self.principal,
            "principalType": self.kind,
        }
        return {"properties": {**properties, **({"description": self.description} if self.description else {})}}


def refusals(requests: t.Iterable[AssignmentRequest]) -> list[str]:
    """Return roles that are neither known by name nor given as an identifier."""
    messages = []
    for request in requests:
        try:
            uuid.UUID(request.definition)
        except ValueError:
            messages.append(
                f"role {request.role} is not known: give the identifier of its definition, or one of {', '.join(ROLES)}"
            )
    return sorted(set(messages))


def match(request: AssignmentRequest, listed: t.Iterable[t.Mapping[str, t.Any]]) -> str:
    """Return the id of the listed assignment that fulfils the request, under whatever name; empty without one."""
    for assignment in listed:
        properties = assignment.get("properties") or {}
        if (
            str(properties.get("scope", "")).rstrip("/").lower() == request.scope.rstrip("/").lower()
            and str(properties.get("roleDefinitionId", "")).rsplit("/", 1)[-1].lower() == request.definition
            and str(properties.get("principalId", "")).lower() == request.principal.lower()
        ):
            return str(assignment.get("id") or "")
    return ""


def find(arm: t.Any, request: AssignmentRequest) -> str:
    """Return the id of the assignment that Azure has already, or an empty text."""
    if not request.principal:
        return ""
    query = {"$filter": f"principalId eq '{request.principal}'"}
    return match(request, arm.items(f"{request.scope}/{_PROVIDER}/roleAssignments", VERSION, **query))


def make(arm: t.Any, request: AssignmentRequest, wait: t.Callable[[], bool]) -> str:
    """Make the assignment. A new principal may not be known everywhere yet; wait() says whether to try again."""
    while True:
        status, document = arm.send("PUT", request.path, VERSION, request.body(arm.subscription))
        if status < 400:
            return str(document.get("id") or request.path)
        error = client.error_text(document)
        if "RoleAssignmentExists" in error:
            existing = find(arm, request)
            if existing:
                return existing
        if "PrincipalNotFound" not in error or not wait():
            subject = f"{request.role} for {request.principal} on {request.scope}"
            raise AzureError(client.explain(f"{subject} was answered {status}: {error}"))
