# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a subscription belongs to a cluster, what goes with it and what forbids that. No I/O. Private."""

from __future__ import annotations

import typing as t

CREATOR = "hpcai.gpu_cluster"
CREATOR_TAG, CLUSTER_TAG = "created-by", "hpcai-cluster"
_LOCKS = "/providers/microsoft.authorization/locks/"
# First what holds others: a network interface goes after its machine, a network after everything in it.
_ORDER = (
    "microsoft.automation/automationaccounts",
    "microsoft.compute/virtualmachinescalesets",
    "microsoft.compute/virtualmachines",
    "microsoft.network/privateendpoints",
    "microsoft.network/bastionhosts",
    "microsoft.network/networkinterfaces",
    "microsoft.compute/disks",
    "microsoft.compute/snapshots",
    "microsoft.network/virtualnetworks",
    "microsoft.network/natgateways",
    "microsoft.network/publicipaddresses",
    "microsoft.network/networksecuritygroups",
    "microsoft.storage/storageaccounts",
    "microsoft.managedidentity/userassignedidentities",
)


class TeardownError(ValueError):
    """A cluster cannot be taken down as asked; the text is fit for the user."""


class Thing(t.NamedTuple):
    """A resource or a resource group as Azure lists it."""

    id: str
    type: str
    tags: t.Mapping[str, str]
    managed_by: str = ""

    @property
    def name(self) -> str:
        return self.id.rsplit("/", 1)[-1]

    @property
    def label(self) -> str:
        return f"{self.type} {self.name}"


class Seen(t.NamedTuple):
    """What was read of a subscription: locks and role assignments as Azure writes them."""

    subscription: str
    groups: t.Sequence[Thing]
    resources: t.Sequence[Thing]
    locks: t.Sequence[t.Mapping[str, t.Any]] = ()
    assignments: t.Sequence[t.Mapping[str, t.Any]] = ()


class Asked(t.NamedTuple):
    """Whose cluster goes, and what the user knows about it."""

    cluster: str
    nodes_cluster: str
    also: t.Collection[str] = ()
    recorded: t.Collection[str] = ()
    principals: t.Collection[str] = ()


class Plan(t.NamedTuple):
    """Ids of what goes, in this order, and why it may not."""

    assignments: list[str]
    locks: list[str]
    resources: list[str]
    groups: list[str]
    contents: dict[str, list[str]]
    refusals: list[str]
    notes: list[str]


def thing(found: t.Mapping[str, t.Any]) -> Thing:
    """Read one entry of a listing; tags that are null are none."""
    tags = {str(key).lower(): str(value) for key, value in (found.get("tags") or {}).items()}
    return Thing(str(found["id"]), str(found.get("type", "")), tags, str(found.get("managedBy") or ""))


def ours(found: Thing, cluster: str) -> bool:
    """Say whether the collection made it for this cluster."""
    return found.tags.get(CREATOR_TAG) == CREATOR and found.tags.get(CLUSTER_TAG) == cluster


def marked(text: str, cluster: str) -> bool:
    """Say whether a note or a description names the collection and this cluster; `gpu` is not `gpu-2`."""
    words = text.replace(",", " ").replace(";", " ").split()
    return CREATOR in words and cluster in words


def below(identifier: str, scope: str) -> bool:
    """Say whether something is at a scope or inside it."""
    return f"{identifier}/".lower().startswith(f"{scope.rstrip('/')}/".lower())


def plan(seen: Seen, asked: Asked) -> Plan:
    """Say what goes: groups and resources with our tags, and what of theirs would outlive them."""
    groups = [group for group in seen.groups if ours(group, asked.cluster)]
    inside = [found for found in seen.resources if any(below(found.id, group.id) for group in groups)]
    loose = [found for found in seen.resources if ours(found, asked.cluster) and found not in inside]
    going = [found.id for found in [*groups, *loose]]
    mine, refusals = _locks(seen, going, asked.cluster)
    refusals += _strangers(inside, asked)
    contents = {group.name: sorted(found.label for found in inside if below(found.id, group.id)) for group in groups}
    return Plan(
        assignments=_assignments(seen, asked),
        locks=mine,
        resources=_ordered(loose),
        groups=sorted(group.id for group in groups),
        contents=contents,
        refusals=refusals,
        notes=_notes(seen, going, asked),
    )


def _locks(seen: Seen, going: t.Sequence[str], cluster: str) -> tuple[list[str], list[str]]:
    """Split the locks in our way into those that are ours and refusals for all others."""
    mine, refusals = [], []
    for lock in seen.locks:
        identifier = str(lock["id"])
        scope = identifier[: identifier.lower().rindex(_LOCKS)]
        if not any(below(one, scope) or below(scope, one) for one in going):
            continue
        said = lock.get("properties") or {}
        if marked(str(said.get("notes") or ""), cluster):
            mine.append(identifier)
            continue
        kind, note = said.get("level", "a lock"), said.get("notes") or "no note"
        refusals.append(
            f"{kind} lock {identifier.rsplit('/', 1)[-1]} on {scope} is not ours ({note}): ask who set it; it goes with"
            f" az lock delete --ids {identifier}"
        )
    return sorted(mine), sorted(refusals)


def _strangers(inside: t.Sequence[Thing], asked: Asked) -> list[str]:
    known = {found.id.lower() for found in inside if _belongs(found, asked)}
    for dummy in range(3):  # a disk of a machine of a scale set
        known |= {found.id.lower() for found in inside if _owner(found) & known}
    allowed = {one.lower() for one in asked.also}
    return [
        f"{found.id} ({found.type}) is in a group that would be deleted, but neither we nor CycleCloud made it: move it"
        " elsewhere, or add its id to azure_teardown_also to have it deleted, too"
        for found in sorted(inside, key=lambda one: one.id)
        if found.id.lower() not in known | allowed
    ]


def _belongs(found: Thing, asked: Asked) -> bool:
    return ours(found, asked.cluster) or found.tags.get("clustername") == asked.nodes_cluster


def _owner(found: Thing) -> set[str]:
    """Return what a resource hangs on: what manages it and what its name is below."""
    parts = found.id.lower().split("/")
    parents = {"/".join(parts[:end]) for end in range(9, len(parts), 2)}
    return parents | ({found.managed_by.lower()} if found.managed_by else set())


def _assignments(seen: Seen, asked: Asked) -> list[str]:
    """Return those of our principals, those that say they are ours, and those that were recorded; none twice."""
    recorded = {one.lower() for one in asked.recorded}
    wanted = []
    for found in seen.assignments:
        said = found.get("properties") or {}
        known = said.get("principalId") in asked.principals or str(found["id"]).lower() in recorded
        if known or marked(str(said.get("description") or ""), asked.cluster):
            wanted.append(str(found["id"]))
    return sorted(set(wanted))


def _ordered(loose: t.Iterable[Thing]) -> list[str]:
    """Return ids so that what uses something goes before it; children go with their parents."""
    rank = {kind: index for index, kind in enumerate(_ORDER)}
    ids = {found.id.lower() for found in loose}
    alone = [found for found in loose if not _owner(found._replace(managed_by="")) & ids]
    return [found.id for found in sorted(alone, key=lambda one: (rank.get(one.type.lower(), -1), one.id))]


def _notes(seen: Seen, going: t.Sequence[str], asked: Asked) -> list[str]:
    """Say what CycleCloud made elsewhere: it is CycleCloud's to delete, and costs money if it does not."""
    return [
        f"{found.id} has CycleCloud's tag of {asked.nodes_cluster}, outside our groups: gone with the cluster, or left"
        for found in sorted(seen.resources, key=lambda one: one.id)
        if found.tags.get("clustername") == asked.nodes_cluster and not any(below(found.id, one) for one in going)
    ]
