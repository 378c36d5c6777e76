# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what there is of a cluster in a subscription. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.ownership import (
    CLUSTER_TAG,
    Thing,
    below,
    ours,
    thing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import Asked, Seen, mine

RESOURCES = "2021-04-01"
LOCKS = "2016-09-01"
ASSIGNMENTS = "2022-04-01"
VAULTS = "2023-07-01"
# Those that can have an identity of their own, or are one.
_PRINCIPALS = {
    "microsoft.compute/virtualmachines": "2024-07-01",
    "microsoft.compute/virtualmachinescalesets": "2024-07-01",
    "microsoft.managedidentity/userassignedidentities": "2024-11-30",
    "microsoft.automation/automationaccounts": "2023-11-01",
}


class Arm(t.Protocol):
    """What of Azure is needed here; what is not there reads as None or as nothing."""

    subscription: str

    def get(self, path: str, version: str) -> dict[str, t.Any] | None:
        """Return a resource."""

    def items(self, path: str, version: str, **query: str) -> list[dict[str, t.Any]]:
        """Return all pages of a listing."""

    def delete(self, path: str, version: str) -> bool:
        """Delete a resource and wait; False says that it was gone."""


def asked(params: t.Mapping[str, t.Any]) -> Asked:
    """Read the options that the modules share."""
    name = params["cluster"]
    return Asked(name, params["nodes_cluster"] or name, params["also"], params["role_assignments"])


def groups(arm: Arm) -> list[Thing]:
    """Return all resource groups of the subscription."""
    return [thing(found) for found in arm.items(f"/subscriptions/{arm.subscription}/resourcegroups", RESOURCES)]


def read(arm: Arm, wanted: Asked) -> tuple[Seen, Asked]:
    """Return what there is, and what is asked completed by the principals of the cluster."""
    base = f"/subscriptions/{arm.subscription}"
    known = [group for group in groups(arm) if ours(group, wanted.cluster)]
    resources = _resources(arm, known, wanted)
    principals = _principals(arm, resources, known, wanted)
    locks = arm.items(f"{base}/providers/Microsoft.Authorization/locks", LOCKS)
    seen = Seen(arm.subscription, known, resources, locks, _assignments(arm, base, principals))
    return seen, wanted._replace(principals=frozenset(principals))


def _resources(arm: Arm, known: t.Iterable[Thing], wanted: Asked) -> list[Thing]:
    """Return what is in our groups, and what has our tag or CycleCloud's anywhere."""
    base = f"/subscriptions/{arm.subscription}"
    listed = [found for group in known for found in arm.items(f"{group.id}/resources", RESOURCES)]
    for tag, value in ((CLUSTER_TAG, wanted.cluster), ("ClusterName", wanted.nodes_cluster)):
        quoted = value.replace("'", "''")
        query = {"$filter": f"tagName eq '{tag}' and tagValue eq '{quoted}'"}
        listed += arm.items(f"{base}/resources", RESOURCES, **query)
    # A listing by tag may leave out tags and owners; the entry with more of both is the better one.
    found: dict[str, Thing] = {}
    for entry in map(thing, listed):
        before = found.get(entry.id.lower())
        if before is None or len(entry.tags) > len(before.tags):
            found[entry.id.lower()] = entry._replace(
                managed_by=entry.managed_by or (before.managed_by if before else "")
            )
    return list(found.values())


def _principals(arm: Arm, resources: t.Iterable[Thing], known: t.Sequence[Thing], wanted: Asked) -> set[str]:
    """Return the identities that go with the cluster: a group of ours takes all in it along."""
    principals = set()
    for found in resources:
        going = any(below(found.id, group.id) for group in known) or mine(found, wanted, known)
        version = _PRINCIPALS.get(found.type.lower())
        if not (going and version):
            continue
        whole = arm.get(found.id, version) or {}
        for place in (whole.get("identity") or {}, whole.get("properties") or {}):
            principals.add(str(place.get("principalId") or ""))
    return principals - {""}


def _assignments(arm: Arm, base: str, principals: t.Iterable[str]) -> list[dict[str, t.Any]]:
    """Return the subscription's, and those of our principals also above it; none twice."""
    path = f"{base}/providers/Microsoft.Authorization/roleAssignments"
    listed = arm.items(path, ASSIGNMENTS)
    for principal in sorted(principals):
        listed += arm.items(path, ASSIGNMENTS, **{"$filter": f"principalId eq '{principal}'"})
    return list({str(found["id"]).lower(): found for found in listed}.values())
