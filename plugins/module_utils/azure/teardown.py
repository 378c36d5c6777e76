# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Teardown: what of a subscription belongs to a cluster, what forbids deleting it, deleting it, and when."""

from __future__ import annotations

import datetime
import re
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import ownership
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.client import AzureError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.ownership import (
    CLUSTER_TAG,
    CYCLECLOUD_TAG,
    OWN_TAG,
    Thing,
    below,
    made,
    marked,
    ours,
    tagged,
    thing,
)

# What of a subscription belongs to a cluster, what goes with it and what forbids that. No I/O.


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


class ObservedSubscription(t.NamedTuple):
    """What was read of a subscription: locks and role assignments as Azure writes them."""

    subscription: str
    groups: t.Sequence[Thing]
    resources: t.Sequence[Thing]
    locks: t.Sequence[t.Mapping[str, t.Any]] = ()
    assignments: t.Sequence[t.Mapping[str, t.Any]] = ()


class TeardownRequest(t.NamedTuple):
    """Whose cluster goes, and what the user knows about it."""

    cluster: str
    nodes_cluster: str
    also: t.Collection[str] = ()
    recorded: t.Collection[str] = ()
    principals: t.Collection[str] = ()


class TeardownPlan(t.NamedTuple):
    """Ids of what goes, in this order, and why it may not."""

    assignments: list[str]
    locks: list[str]
    resources: list[str]
    groups: list[str]
    contents: dict[str, list[str]]
    refusals: list[str]
    notes: list[str]


def plan(seen: ObservedSubscription, asked: TeardownRequest) -> TeardownPlan:
    """Say what goes: groups and resources with our tags, and what of theirs would outlive them."""
    groups = [group for group in seen.groups if ours(group, asked.cluster)]
    inside = [found for found in seen.resources if any(below(found.id, group.id) for group in groups)]
    loose = [found for found in seen.resources if found not in inside and mine(found, asked, groups)]
    going = [found.id for found in [*groups, *loose]]
    locks, refusals = _locks(seen, going, asked.cluster)
    refusals += _strangers(inside, asked, groups)
    contents = {group.name: sorted(found.label for found in inside if below(found.id, group.id)) for group in groups}
    return TeardownPlan(
        assignments=_owned_assignments(seen, asked),
        locks=locks,
        resources=_ordered(loose),
        groups=sorted(group.id for group in groups),
        contents=contents,
        refusals=refusals,
        notes=_notes(seen, asked, going),
    )


def mine(found: Thing, asked: TeardownRequest, groups: t.Sequence[Thing]) -> bool:
    """Say whether a resource is of the cluster."""
    return made(found, asked.cluster, asked.nodes_cluster, groups)


def _locks(seen: ObservedSubscription, going: t.Sequence[str], cluster: str) -> tuple[list[str], list[str]]:
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


def _strangers(inside: t.Sequence[Thing], asked: TeardownRequest, groups: t.Sequence[Thing]) -> list[str]:
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


def _belongs(found: Thing, asked: TeardownRequest, groups: t.Sequence[Thing]) -> bool:
    return found.tags.get(CYCLECLOUD_TAG) == asked.nodes_cluster or mine(found, asked, groups)


def _owner(found: Thing) -> set[str]:
    """Return what a resource hangs on: what manages it and what its name is below."""
    parts = found.id.lower().split("/")
    parents = {"/".join(parts[:end]) for end in range(9, len(parts), 2)}
    return parents | ({found.managed_by.lower()} if found.managed_by else set())


def _owned_assignments(seen: ObservedSubscription, asked: TeardownRequest) -> list[str]:
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


def _notes(seen: ObservedSubscription, asked: TeardownRequest, going: t.Sequence[str]) -> list[str]:
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


# Reads what there is of a cluster in a subscription.


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


class ArmReader(t.Protocol):
    """What of Azure is needed here; what is not there reads as None or as nothing."""

    subscription: str

    def get(self, path: str, version: str) -> dict[str, t.Any] | None:
        """Return a resource."""

    def items(self, path: str, version: str, **query: str) -> list[dict[str, t.Any]]:
        """Return all pages of a listing."""

    def delete(self, path: str, version: str) -> bool:
        """Delete a resource and wait; False says that it was gone."""


def asked(params: t.Mapping[str, t.Any]) -> TeardownRequest:
    """Read the options that the modules share."""
    name = params["cluster"]
    return TeardownRequest(name, params["nodes_cluster"] or name, params["also"], params["role_assignments"])


def groups(arm: ArmReader) -> list[Thing]:
    """Return all resource groups of the subscription."""
    return [thing(found) for found in arm.items(f"/subscriptions/{arm.subscription}/resourcegroups", RESOURCES)]


def read_subscription(arm: ArmReader, wanted: TeardownRequest) -> tuple[ObservedSubscription, TeardownRequest]:
    """Return what there is, and what is asked completed by the principals of the cluster."""
    base = f"/subscriptions/{arm.subscription}"
    known = [group for group in groups(arm) if ours(group, wanted.cluster)]
    resources = _resources(arm, known, wanted)
    principals = _principals(arm, resources, known, wanted)
    locks = arm.items(f"{base}/providers/Microsoft.Authorization/locks", LOCKS)
    seen = ObservedSubscription(arm.subscription, known, resources, locks, _listed_assignments(arm, base, principals))
    return seen, wanted._replace(principals=frozenset(principals))


def _resources(arm: ArmReader, known: t.Iterable[Thing], wanted: TeardownRequest) -> list[Thing]:
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


def _principals(
    arm: ArmReader, resources: t.Iterable[Thing], known: t.Sequence[Thing], wanted: TeardownRequest
) -> set[str]:
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


def _listed_assignments(arm: ArmReader, base: str, principals: t.Iterable[str]) -> list[dict[str, t.Any]]:
    """Return the subscription's, and those of our principals also above it; none twice."""
    path = f"{base}/providers/Microsoft.Authorization/roleAssignments"
    listed = arm.items(path, ASSIGNMENTS)
    for principal in sorted(principals):
        listed += arm.items(path, ASSIGNMENTS, **{"$filter": f"principalId eq '{principal}'"})
    return list({str(found["id"]).lower(): found for found in listed}.values())


# Deletes what a plan names, one by one; what is gone already counts as done.


# In this order: an assignment outlives its identity as an orphan, and a lock keeps everything.
PARTS = ("locks", "role_assignments", "resources", "groups")
_NEWEST_LISTED = "2021-04-01"
_PAUSE, _PATIENCE = 5.0, 720
# Codes of Azure for what is used by something that goes, too.
_BUSY = ("InUse", "CannotBeDeleted", "OperationNotAllowed", "AttachedDisk", "AnotherOperationInProgress", "Conflict:")
_STABLE = re.compile(r"\d{4}-\d\d-\d\d")


class DeletedResource(t.NamedTuple):
    """Ids by what became of them; `failed` says why, `left` was not tried any more."""

    deleted: list[str]
    gone: list[str]
    failed: str
    left: list[str]


def targets(plan: TeardownPlan, parts: t.Collection[str]) -> list[str]:
    """Return what goes, in order."""
    by_part = {
        "locks": plan.locks,
        "role_assignments": plan.assignments,
        "resources": plan.resources,
        "groups": plan.groups,
    }
    return [identifier for part in PARTS if part in parts for identifier in by_part[part]]


def run(arm: ArmReader, identifiers: t.Sequence[str], pause: t.Callable[[float], None] = time.sleep) -> DeletedResource:
    """Delete in order. What others still use is tried again after them; anything else that fails ends it."""
    deleted: list[str] = []
    gone: list[str] = []
    left = list(identifiers)
    while left:
        tried, busy, left = left, "", []
        for index, identifier in enumerate(tried):
            try:
                (deleted if _delete(arm, identifier, pause) else gone).append(identifier)
            except (AzureError, TeardownError) as exc:
                if not any(code in str(exc) for code in _BUSY):
                    return DeletedResource(deleted, gone, f"{identifier}: {exc}", [*left, *tried[index:]])
                busy = busy or f"{identifier}: {exc}"
                left.append(identifier)
        if len(left) == len(tried):
            return DeletedResource(deleted, gone, busy, left)
    return DeletedResource(deleted, gone, "", [])


def _delete(arm: ArmReader, identifier: str, pause: t.Callable[[float], None]) -> bool:
    """Delete and wait; a group that somebody is deleting already is only waited for."""
    try:
        return arm.delete(identifier, version(arm, identifier))
    except AzureError as exc:
        if "ResourceGroupBeingDeleted" not in str(exc):
            raise
    for dummy in range(_PATIENCE):
        if arm.get(identifier, RESOURCES) is None:
            return True
        pause(_PAUSE)
    raise TeardownError(f"still being deleted after {_PATIENCE * _PAUSE / 60:.0f} min: look at its activity log")


def version(arm: ArmReader, identifier: str) -> str:
    """Return the api-version to delete something with: of other types the newest that Azure names."""
    provider = identifier.rsplit("/providers/", 1)[-1] if "/providers/" in identifier else ""
    namespace, *rest = provider.split("/")
    kind = "/".join(rest[::2])
    known = {
        ("", ""): RESOURCES,
        ("microsoft.authorization", "locks"): LOCKS,
        ("microsoft.authorization", "roleassignments"): ASSIGNMENTS,
    }.get((namespace.lower(), kind.lower()))
    if known:
        return known
    listed = arm.get(f"/subscriptions/{arm.subscription}/providers/{namespace}", _NEWEST_LISTED) or {}
    for entry in listed.get("resourceTypes") or []:
        stable = [one for one in entry.get("apiVersions") or [] if _STABLE.fullmatch(one)]
        if str(entry.get("resourceType", "")).lower() == kind.lower() and stable:
            return max(stable)
    raise TeardownError(f"Azure names no api-version of {namespace}/{kind}: delete it in the portal, then start again")


# What people see of a teardown: the list beforehand, where CycleCloud is, what is left afterwards.


_MACHINE = "2024-07-01"
_NETWORK = "2024-05-01"


def listing(plan: TeardownPlan) -> list[str]:
    """Return a plan as lines, what goes first coming first."""
    lines = [f"lock {found}" for found in plan.locks]
    lines += [f"role assignment {found}" for found in plan.assignments]
    lines += [f"resource {found}" for found in plan.resources]
    for group in plan.groups:
        lines.append(f"resource group {group} with everything in it")
        lines += [f"  {found}" for found in plan.contents.get(group.rsplit("/", 1)[-1], [])]
    return lines


def server(arm: ArmReader, seen: ObservedSubscription, cluster: str) -> dict[str, str]:
    """Return name, user and addresses of the CycleCloud machine, as far as it was ever made."""
    wanted = f"{cluster}-cyclecloud"
    for found in seen.resources:
        if found.name != wanted or found.type.lower() != "microsoft.compute/virtualmachines":
            continue
        machine = (arm.get(found.id, _MACHINE) or {}).get("properties") or {}
        cards = (machine.get("networkProfile") or {}).get("networkInterfaces") or []
        private, public = _addresses(arm, str(cards[0]["id"])) if cards else ("", "")
        user = str((machine.get("osProfile") or {}).get("adminUsername") or "")
        answer = {"name": wanted, "user": user, "address": public or private}
        return {**answer, "private_address": private, "public_address": public}
    return {}


def _addresses(arm: ArmReader, card: str) -> tuple[str, str]:
    configurations = ((arm.get(card, _NETWORK) or {}).get("properties") or {}).get("ipConfigurations") or []
    for configuration in configurations:
        said = configuration.get("properties") or {}
        private = str(said.get("privateIPAddress") or "")
        place = str((said.get("publicIPAddress") or {}).get("id") or "")
        public = ((arm.get(place, _NETWORK) or {}).get("properties") or {}) if place else {}
        return private, str(public.get("ipAddress") or "")
    return "", ""


def vaults(arm: ArmReader, seen: ObservedSubscription, cluster: str) -> tuple[list[str], list[str]]:
    """Return deleted key vaults of ours, which keep their names until they are purged, and why none could be read."""
    path = f"/subscriptions/{seen.subscription}/providers/Microsoft.KeyVault/deletedVaults"
    try:
        found = arm.items(path, VAULTS)
    except AzureError as exc:
        if "MissingSubscriptionRegistration" in str(exc) or "not registered" in str(exc):
            return [], []  # no vault was ever made here
        return [], [f"deleted key vaults could not be listed: {exc}"]
    listed = [thing({**vault, "tags": (vault.get("properties") or {}).get("tags")}) for vault in found]
    return sorted(vault.id for vault in listed if tagged(vault, cluster)), []


# When a cluster is to be taken down: the tag of its resource groups. No I/O.


TAG = "expires-on"
# Who wrote that, and what: where the two differ, somebody changed the day by hand.
BY_TAG = "expires-on-by"
PROVISION, EXPIRE, NEVER = "provision.yml", "expire.yml", "never"
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_FORMATS = ("%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z", "%Y-%m-%d %H:%M:%S%z")
UTC = datetime.timezone.utc


class Due(t.NamedTuple):
    """A cluster with an expiry; `problem` says why its tag says nothing."""

    cluster: str
    expires: str
    due: bool
    problem: str = ""


def read_time(text: str) -> datetime.datetime:
    """Read a time with its offset; a mere date is its midnight in UTC."""
    said = text.strip()
    for form in _FORMATS:
        try:
            return datetime.datetime.strptime(said, form).astimezone(UTC)
        except ValueError:
            continue
    try:
        return datetime.datetime.strptime(said, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise TeardownError(
            f"{text!r} is no time: write 2026-12-01, 2026-12-01T18:00:00Z or 2026-12-01T18:00:00+01:00"
        ) from None


def write(moment: datetime.datetime) -> str:
    """Write a time as the tag has it."""
    return moment.astimezone(UTC).strftime(_FORMAT)


def wanted(before: str, now: datetime.datetime, expires_on: str, days: float) -> str:
    """Return the tag's new value: a time, or so many days from now. What is past already is refused."""
    moment = read_time(expires_on) if expires_on else now + datetime.timedelta(days=days)
    if moment <= now and expires_on != before:
        raise TeardownError(f"{write(moment)} is past already (it is {write(now)}): use destroy.yml at once")
    return write(moment)


def clusters(groups: t.Iterable[ownership.Thing], now: datetime.datetime) -> list[Due]:
    """Return every cluster of ours that has an expiry; the earliest of its groups counts."""
    found: dict[str, list[str]] = {}
    for group in groups:
        name = group.tags.get(ownership.CLUSTER_TAG, "")
        if name and ownership.ours(group, name) and TAG in group.tags:
            found.setdefault(name, []).append(group.tags[TAG])
    return [_due(name, texts, now) for name, texts in sorted(found.items())]


def _due(name: str, texts: t.Iterable[str], now: datetime.datetime) -> Due:
    try:
        first = min(read_time(text) for text in texts)
    except TeardownError as exc:
        return Due(name, "", False, f"{TAG} of {name}: {exc}; nothing is deleted")
    return Due(name, write(first), first <= now)


def tags(known: t.Mapping[str, str], expires: str, who: str = EXPIRE) -> dict[str, str]:
    """Return all tags of a group with a new expiry: writing tags replaces those that are not named."""
    kept = {name: value for name, value in known.items() if name.lower() not in (TAG, BY_TAG)}
    return {**kept, **({TAG: expires} if expires else {}), BY_TAG: by(who, expires)}


def by(who: str, expires: str) -> str:
    """Return what says who chose a day."""
    return f"{who} {expires or NEVER}"


class Provisioned(t.NamedTuple):
    """What provision.yml does with its day: the tags to set, what to tell of another day that stays, why it cannot."""

    tags: dict[str, str]
    told: str = ""
    refused: str = ""


def provisioned(known: t.Mapping[str, str], wanted: str, again: bool, now: datetime.datetime) -> Provisioned:
    """Change only a day that provision.yml set itself: any other was chosen later, by expire.yml or by hand."""
    if not wanted:
        return Provisioned({})
    lower = {name.lower(): value for name, value in known.items()}
    there, mark = lower.get(TAG, ""), lower.get(BY_TAG, "")
    if again or mark == by(PROVISION, there) or (not mark and (not there or _same(there, wanted))):
        passed = read_time(wanted) <= now
        refused = f"azure_infra_expires_on {wanted} has passed: write a later day, or use expire.yml" if passed else ""
        return Provisioned({TAG: wanted, BY_TAG: by(PROVISION, wanted)}, "", refused)
    if _same(there, wanted):
        return Provisioned({})
    chooser = mark.partition(" ")[0]
    who = chooser if mark == by(chooser, there) else "somebody"
    return Provisioned(
        {},
        f"{TAG} stays {there or NEVER}, which {who} chose. azure_infra_expires_on ({wanted}) is not written;"
        " azure_infra_expires_on_again=true writes it.",
    )


def _same(one: str, other: str) -> bool:
    try:
        return read_time(one) == read_time(other)
    except TeardownError:
        return one == other
