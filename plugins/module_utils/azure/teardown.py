# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a subscription belongs to a cluster, what goes with it and what forbids that. No I/O. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.ownership import (
    CYCLECLOUD_TAG,
    OWN_TAG,
    Thing,
    below,
    made,
    marked,
    ours,
    tagged,
)

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


def plan(seen: Seen, asked: Asked) -> Plan:
    """Say what goes: groups and resources with our tags, and what of theirs would outlive them."""
    groups = [group for group in seen.groups if ours(group, asked.cluster)]
    inside = [found for found in seen.resources if any(below(found.id, group.id) for group in groups)]
    loose = [found for found in seen.resources if found not in inside and mine(found, asked, groups)]
    going = [found.id for found in [*groups, *loose]]
    locks, refusals = _locks(seen, going, asked.cluster)
    refusals += _strangers(inside, asked, groups)
    contents = {group.name: sorted(found.label for found in inside if below(found.id, group.id)) for group in groups}
    return Plan(
        assignments=_assignments(seen, asked),
        locks=locks,
        resources=_ordered(loose),
        groups=sorted(group.id for group in groups),
        contents=contents,
        refusals=refusals,
        notes=_notes(seen, asked, going),
    )


def mine(found: Thing, asked: Asked, groups: t.Sequence[Thing]) -> bool:
    """Say whether a resource is of the cluster."""
    return made(found, asked.cluster, asked.nodes_cluster, groups)


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


def _strangers(inside: t.Sequence[Thing], asked: Asked, groups: t.Sequence[Thing]) -> list[str]:
    known = {found.id.lower() for found in inside if _belongs(found, asked, groups)}
    for dummy in range(3):  # a disk of a machine of a scale set
        known |= {found.id.lower() for found in inside if _owner(found) & known}
    allowed = {one.lower() for one in asked.also}
    left = [found for found in inside if found.id.lower() not in known | allowed]
    return [_stranger(found, asked.cluster) for found in sorted(left, key=lambda one: one.id)]


def _stranger(found: Thing, cluster: str) -> str:
    why = "neither we nor CycleCloud made it"
    what = "move it elsewhere, or add its id to azure_teardown_also to have it deleted, too"
    if tagged(found, cluster):
        why = f"of our tags it has all but its own name in {OWN_TAG}, as if a policy had copied them"
        what += "; what provision.yml made in an earlier version gets that tag from its next run"
    return f"{found.id} ({found.type}) is in a group that would be deleted, but {why}: {what}"


def _belongs(found: Thing, asked: Asked, groups: t.Sequence[Thing]) -> bool:
    return found.tags.get(CYCLECLOUD_TAG) == asked.nodes_cluster or mine(found, asked, groups)


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


def _notes(seen: Seen, asked: Asked, going: t.Sequence[str]) -> list[str]:
    """Say what has tags of the cluster elsewhere: CycleCloud's is its to delete, and costs money if it does not."""
    told = []
    for found in sorted(seen.resources, key=lambda one: one.id):
        if any(below(found.id, one) for one in going):
            continue
        if found.tags.get(CYCLECLOUD_TAG) == asked.nodes_cluster:
            who = f"CycleCloud's tag of {asked.nodes_cluster}, outside our groups: gone with the cluster, or left"
        else:
            who = f"tags of {asked.cluster}, but not its own name in {OWN_TAG}: left, as somebody else's"
        if found.tags.get(CYCLECLOUD_TAG) == asked.nodes_cluster or tagged(found, asked.cluster):
            told.append(f"{found.id} has {who}")
    return told
