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
    CREATOR_TAG,
    CYCLECLOUD_TAG,
    OWN_TAG,
    AzureResource,
    below,
    made_by_cyclecloud,
    made_for,
    marked,
    ours,
    own_name,
    read_resource,
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


class ObservedSubscription(t.NamedTuple):
    """What was read of a subscription: all its groups, and locks and role assignments as Azure writes them."""

    subscription: str
    groups: t.Sequence[AzureResource]
    resources: t.Sequence[AzureResource]
    locks: t.Sequence[t.Mapping[str, t.Any]] = ()
    assignments: t.Sequence[t.Mapping[str, t.Any]] = ()


class TeardownRequest(t.NamedTuple):
    """The cluster to remove: its names in our tags and in CycleCloud's, ids allowed or recorded, principals."""

    cluster: str
    nodes_cluster: str
    also: t.Collection[str] = ()
    recorded: t.Collection[str] = ()
    principals: t.Collection[str] = ()


class TeardownPlan(t.NamedTuple):
    """Ids of what is deleted, contents of the groups, and refusals that forbid the teardown."""

    assignments: list[str]
    locks: list[str]
    resources: list[str]
    groups: list[str]
    contents: dict[str, list[str]]
    refusals: list[str]
    notes: list[str]


def plan(observed: ObservedSubscription, request: TeardownRequest) -> TeardownPlan:
    """Plan the teardown: groups and resources with our tags, and locks and role assignments that would outlive them."""
    groups = going_groups(observed.groups, request)
    inside = [resource for resource in observed.resources if any(below(resource.id, group.id) for group in groups)]
    loose = [
        resource
        for resource in observed.resources
        if resource not in inside and of_cluster(resource, request, observed.groups)
    ]
    going = [resource.id for resource in [*groups, *loose]]
    locks, refusals = _locks(observed, going, request.cluster)
    refusals += _unnamed_groups(observed.groups, request) + _strangers(inside, request, observed.groups)
    contents = {
        group.name: sorted(resource.label for resource in inside if below(resource.id, group.id)) for group in groups
    }
    return TeardownPlan(
        assignments=_owned_assignments(observed, request),
        locks=locks,
        resources=_ordered(loose),
        groups=sorted(group.id for group in groups),
        contents=contents,
        refusals=refusals,
        notes=_notes(observed, request, going),
    )


def going_groups(groups: t.Iterable[AzureResource], request: TeardownRequest) -> list[AzureResource]:
    """Return the groups that go with everything in them: ours, and those with the cluster's tags that were allowed."""
    allowed = {identifier.lower() for identifier in request.also}
    return [
        group
        for group in groups
        if ours(group, request.cluster) or (tagged(group, request.cluster) and group.id.lower() in allowed)
    ]


def _unnamed_groups(groups: t.Iterable[AzureResource], request: TeardownRequest) -> list[str]:
    """Refuse groups that have the cluster's tags and no own name, as an earlier version made them: or a policy did."""
    allowed = {identifier.lower() for identifier in request.also}
    return [
        f"{group.id} has the tags of {request.cluster}, but not its own name in {OWN_TAG}, so it does not prove that we"
        f" made it: run provision.yml again, which writes {OWN_TAG}, or add its id to azure_teardown_also to have it"
        f" deleted; if it is somebody else's, take off its tags {CREATOR_TAG} and {CLUSTER_TAG}"
        for group in sorted(groups, key=lambda entry: entry.id)
        if tagged(group, request.cluster) and not group.tags.get(OWN_TAG) and group.id.lower() not in allowed
    ]


def of_cluster(resource: AzureResource, request: TeardownRequest, groups: t.Sequence[AzureResource]) -> bool:
    """Say whether a resource belongs to the cluster."""
    return made_for(resource, request.cluster, request.nodes_cluster, groups)


def _locks(observed: ObservedSubscription, going: t.Sequence[str], cluster: str) -> tuple[list[str], list[str]]:
    """Split the locks in our way into those that are ours and refusals for all others."""
    own, refusals = [], []
    for lock in observed.locks:
        identifier = str(lock["id"])
        scope = identifier[: identifier.lower().rindex(_LOCKS)]
        if not any(below(target, scope) or below(scope, target) for target in going):
            continue
        properties = lock.get("properties") or {}
        if marked(str(properties.get("notes") or ""), cluster):
            own.append(identifier)
            continue
        kind, note = properties.get("level", "a lock"), properties.get("notes") or "no note"
        refusals.append(
            f"{kind} lock {identifier.rsplit('/', 1)[-1]} on {scope} is not ours ({note}): ask who set it; it goes with"
            f" az lock delete --ids {identifier}"
        )
    return sorted(own), sorted(refusals)


def _strangers(
    inside: t.Sequence[AzureResource], request: TeardownRequest, groups: t.Sequence[AzureResource]
) -> list[str]:
    known = {resource.id.lower() for resource in inside if _belongs(resource, request, groups)}
    for dummy in range(3):  # a disk of a machine of a scale set
        known |= {resource.id.lower() for resource in inside if _owner(resource) & known}
    allowed = {identifier.lower() for identifier in request.also}
    strangers = [resource for resource in inside if resource.id.lower() not in known | allowed]
    return [_stranger(resource, request.cluster) for resource in sorted(strangers, key=lambda entry: entry.id)]


def _stranger(resource: AzureResource, cluster: str) -> str:
    why = "neither we nor CycleCloud made it"
    advice = "move it elsewhere, or add its id to azure_teardown_also to have it deleted, too"
    if tagged(resource, cluster):
        why = f"of our tags it has all but its own name in {OWN_TAG}, as if a policy had copied them"
        advice += (
            f"; where an earlier version made it, the next run of provision.yml writes {own_name(resource.id)} there"
        )
    return f"{resource.id} ({resource.type}) is in a group that would be deleted, but {why}: {advice}"


def _belongs(resource: AzureResource, request: TeardownRequest, groups: t.Sequence[AzureResource]) -> bool:
    return made_by_cyclecloud(resource, request.nodes_cluster, groups) or of_cluster(resource, request, groups)


def _owner(resource: AzureResource) -> set[str]:
    """Return the ids of what a resource depends on: what manages it, and its parents."""
    parts = resource.id.lower().split("/")
    parents = {"/".join(parts[:end]) for end in range(9, len(parts), 2)}
    return parents | ({resource.managed_by.lower()} if resource.managed_by else set())


def _owned_assignments(observed: ObservedSubscription, request: TeardownRequest) -> list[str]:
    """Return assignments of our principals, with our description, or recorded by an earlier run; none twice."""
    recorded = {identifier.lower() for identifier in request.recorded}
    owned = []
    for assignment in observed.assignments:
        properties = assignment.get("properties") or {}
        known = properties.get("principalId") in request.principals or str(assignment["id"]).lower() in recorded
        if known or marked(str(properties.get("description") or ""), request.cluster):
            owned.append(str(assignment["id"]))
    return sorted(set(owned))


def _ordered(loose: t.Iterable[AzureResource]) -> list[str]:
    """Return ids so that what uses something goes before it; children go with their parents."""
    rank = {kind: index for index, kind in enumerate(_ORDER)}
    ids = {resource.id.lower() for resource in loose}
    alone = [resource for resource in loose if not _owner(resource._replace(managed_by="")) & ids]
    return [resource.id for resource in sorted(alone, key=lambda entry: (rank.get(entry.type.lower(), -1), entry.id))]


def _notes(observed: ObservedSubscription, request: TeardownRequest, going: t.Sequence[str]) -> list[str]:
    """Say what has tags of the cluster and stays; what CycleCloud leaves elsewhere goes on costing money."""
    notes = [
        f"{group.id} has the tags of {request.cluster}, but in {OWN_TAG} not its own name ({group.tags[OWN_TAG]}): it"
        " is left, as somebody else's"
        for group in sorted(observed.groups, key=lambda entry: entry.id)
        if tagged(group, request.cluster) and group.tags.get(OWN_TAG) and group.id not in going
    ]
    for resource in sorted(observed.resources, key=lambda entry: entry.id):
        if any(below(resource.id, entry) for entry in going):
            continue
        if resource.tags.get(CYCLECLOUD_TAG) == request.nodes_cluster:
            description = (
                f"CycleCloud's tag of {request.nodes_cluster}, outside our groups: gone with the cluster, or left"
            )
        else:
            description = f"tags of {request.cluster}, but not its own name in {OWN_TAG}: left, as somebody else's"
        if resource.tags.get(CYCLECLOUD_TAG) == request.nodes_cluster or tagged(resource, request.cluster):
            notes.append(f"{resource.id} has {description}")
    return notes


# Reading what a subscription has of a cluster.


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
    """The calls to Azure that a teardown needs; what does not exist reads as None or as an empty list."""

    subscription: str

    def get(self, path: str, version: str) -> dict[str, t.Any] | None:
        """Return a resource."""

    def items(self, path: str, version: str, **query: str) -> list[dict[str, t.Any]]:
        """Return all pages of a listing."""

    def delete(self, path: str, version: str) -> bool:
        """Delete a resource and wait; False where it did not exist."""


def teardown_request(params: t.Mapping[str, t.Any]) -> TeardownRequest:
    """Return the request that the options of the teardown modules make."""
    name = params["cluster"]
    return TeardownRequest(name, params["nodes_cluster"] or name, params["also"], params["role_assignments"])


def groups(arm: ArmReader) -> list[AzureResource]:
    """Return all resource groups of the subscription."""
    return [read_resource(entry) for entry in arm.items(f"/subscriptions/{arm.subscription}/resourcegroups", RESOURCES)]


def read_subscription(
    arm: ArmReader, request: TeardownRequest, narrow: bool = False
) -> tuple[ObservedSubscription, TeardownRequest]:
    """Return what the subscription has of the cluster, and the request completed by the cluster's principals.

    With `narrow` nothing is asked that needs rights above the cluster's own groups: no role assignments, and of the
    locks those of the groups. The other listings leave out what the identity may not read.
    """
    base = f"/subscriptions/{arm.subscription}"
    all_groups = groups(arm)
    own_groups = going_groups(all_groups, request)
    resources = _resources(arm, own_groups, request)
    principals = _principals(arm, resources, own_groups, all_groups, request)
    places = [group.id for group in own_groups] if narrow else [base]
    locks = [lock for place in places for lock in arm.items(f"{place}/providers/Microsoft.Authorization/locks", LOCKS)]
    assignments = [] if narrow else _listed_assignments(arm, base, principals)
    observed = ObservedSubscription(arm.subscription, all_groups, resources, locks, assignments)
    return observed, request._replace(principals=frozenset(principals))


def _resources(arm: ArmReader, own_groups: t.Iterable[AzureResource], request: TeardownRequest) -> list[AzureResource]:
    """Return what is in our groups, and what has our tag or CycleCloud's anywhere."""
    base = f"/subscriptions/{arm.subscription}"
    listed = [entry for group in own_groups for entry in arm.items(f"{group.id}/resources", RESOURCES)]
    for tag, value in ((CLUSTER_TAG, request.cluster), ("ClusterName", request.nodes_cluster)):
        quoted = value.replace("'", "''")
        query = {"$filter": f"tagName eq '{tag}' and tagValue eq '{quoted}'"}
        listed += arm.items(f"{base}/resources", RESOURCES, **query)
    # A listing by tag may leave out tags and owners; the entry with more of both is the better one.
    by_id: dict[str, AzureResource] = {}
    for entry in map(read_resource, listed):
        before = by_id.get(entry.id.lower())
        if before is None or len(entry.tags) > len(before.tags):
            by_id[entry.id.lower()] = entry._replace(
                managed_by=entry.managed_by or (before.managed_by if before else "")
            )
    return list(by_id.values())


def _principals(
    arm: ArmReader,
    resources: t.Iterable[AzureResource],
    own_groups: t.Sequence[AzureResource],
    all_groups: t.Sequence[AzureResource],
    request: TeardownRequest,
) -> set[str]:
    """Return the identities that go with the cluster: a group of ours takes all in it along."""
    principals = set()
    for resource in resources:
        going = any(below(resource.id, group.id) for group in own_groups) or of_cluster(resource, request, all_groups)
        version = _PRINCIPALS.get(resource.type.lower())
        if not (going and version):
            continue
        document = arm.get(resource.id, version) or {}
        for section in (document.get("identity") or {}, document.get("properties") or {}):
            principals.add(str(section.get("principalId") or ""))
    return principals - {""}


def _listed_assignments(arm: ArmReader, base: str, principals: t.Iterable[str]) -> list[dict[str, t.Any]]:
    """Return the subscription's role assignments, and those of our principals also above it; none twice."""
    path = f"{base}/providers/Microsoft.Authorization/roleAssignments"
    listed = arm.items(path, ASSIGNMENTS)
    for principal in sorted(principals):
        listed += arm.items(path, ASSIGNMENTS, **{"$filter": f"principalId eq '{principal}'"})
    return list({str(assignment["id"]).lower(): assignment for assignment in listed}.values())


# Deleting what a plan names, one by one; what is gone already counts as done.


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
    """Return the ids of the chosen parts of a plan in the order of deletion."""
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
        stable = [api_version for api_version in entry.get("apiVersions") or [] if _STABLE.fullmatch(api_version)]
        if str(entry.get("resourceType", "")).lower() == kind.lower() and stable:
            return max(stable)
    raise TeardownError(f"Azure names no api-version of {namespace}/{kind}: delete it in the portal, then start again")


# What a user sees of a teardown: the list beforehand, where CycleCloud is, what is left afterwards.


_MACHINE = "2024-07-01"
_NETWORK = "2024-05-01"


def listing(plan: TeardownPlan) -> list[str]:
    """Return a plan as lines, what goes first coming first."""
    lines = [f"lock {entry}" for entry in plan.locks]
    lines += [f"role assignment {entry}" for entry in plan.assignments]
    lines += [f"resource {entry}" for entry in plan.resources]
    for group in plan.groups:
        lines.append(f"resource group {group} with everything in it")
        lines += [f"  {entry}" for entry in plan.contents.get(group.rsplit("/", 1)[-1], [])]
    return lines


def server(arm: ArmReader, observed: ObservedSubscription, cluster: str) -> dict[str, str]:
    """Return name, user and addresses of the CycleCloud machine, as far as it was ever made."""
    name = f"{cluster}-cyclecloud"
    for resource in observed.resources:
        if resource.name != name or resource.type.lower() != "microsoft.compute/virtualmachines":
            continue
        machine = (arm.get(resource.id, _MACHINE) or {}).get("properties") or {}
        interfaces = (machine.get("networkProfile") or {}).get("networkInterfaces") or []
        private, public = _addresses(arm, str(interfaces[0]["id"])) if interfaces else ("", "")
        user = str((machine.get("osProfile") or {}).get("adminUsername") or "")
        answer = {"name": name, "user": user, "address": public or private}
        return {**answer, "private_address": private, "public_address": public}
    return {}


def _addresses(arm: ArmReader, interface: str) -> tuple[str, str]:
    configurations = ((arm.get(interface, _NETWORK) or {}).get("properties") or {}).get("ipConfigurations") or []
    for configuration in configurations:
        properties = configuration.get("properties") or {}
        private = str(properties.get("privateIPAddress") or "")
        public_id = str((properties.get("publicIPAddress") or {}).get("id") or "")
        public = ((arm.get(public_id, _NETWORK) or {}).get("properties") or {}) if public_id else {}
        return private, str(public.get("ipAddress") or "")
    return "", ""


def vaults(arm: ArmReader, observed: ObservedSubscription, cluster: str) -> tuple[list[str], list[str]]:
    """Return deleted key vaults of ours, which keep their names until they are purged, and why none could be read."""
    path = f"/subscriptions/{observed.subscription}/providers/Microsoft.KeyVault/deletedVaults"
    try:
        records = arm.items(path, VAULTS)
    except AzureError as exc:
        if "MissingSubscriptionRegistration" in str(exc) or "not registered" in str(exc):
            return [], []  # no vault was ever made here
        return [], [f"deleted key vaults could not be listed: {exc}"]
    listed = [read_resource({**vault, "tags": (vault.get("properties") or {}).get("tags")}) for vault in records]
    return sorted(vault.id for vault in listed if tagged(vault, cluster)), []


# When a cluster is taken down: a tag of its resource groups.


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
    stripped = text.strip()
    for form in _FORMATS:
        try:
            return datetime.datetime.strptime(stripped, form).astimezone(UTC)
        except ValueError:
            continue
    try:
        return datetime.datetime.strptime(stripped, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise TeardownError(
            f"{text!r} is no time: write 2026-12-01, 2026-12-01T18:00:00Z or 2026-12-01T18:00:00+01:00"
        ) from None


def write(moment: datetime.datetime) -> str:
    """Write a time as the tag has it."""
    return moment.astimezone(UTC).strftime(_FORMAT)


def new_expiry(before: str, now: datetime.datetime, expires_on: str, days: float) -> str:
    """Return the tag's new value: a time, or so many days from now. What is past already is refused."""
    moment = read_time(expires_on) if expires_on else now + datetime.timedelta(days=days)
    if moment <= now and expires_on != before:
        raise TeardownError(f"{write(moment)} is past already (it is {write(now)}): use destroy.yml at once")
    return write(moment)


def clusters(groups: t.Iterable[ownership.AzureResource], now: datetime.datetime) -> list[Due]:
    """Return every cluster of ours that has an expiry; the earliest of its groups counts."""
    expiries: dict[str, list[str]] = {}
    unnamed: dict[str, str] = {}
    for group in groups:
        name = group.tags.get(CLUSTER_TAG, "")
        if not name or TAG not in group.tags:
            continue
        if ours(group, name):
            expiries.setdefault(name, []).append(group.tags[TAG])
        elif tagged(group, name) and not group.tags.get(OWN_TAG):
            unnamed[name] = f"{TAG} of {name}: {group.id} does not have its own name in {OWN_TAG}; nothing is deleted"
    due = [_due(name, texts, now) for name, texts in expiries.items()]
    due += [Due(name, "", False, problem) for name, problem in unnamed.items() if name not in expiries]
    return sorted(due)


def _due(name: str, texts: t.Iterable[str], now: datetime.datetime) -> Due:
    try:
        first = min(read_time(text) for text in texts)
    except TeardownError as exc:
        return Due(name, "", False, f"{TAG} of {name}: {exc}; nothing is deleted")
    return Due(name, write(first), first <= now)


def tags(known: t.Mapping[str, str], expires: str, chooser: str = EXPIRE) -> dict[str, str]:
    """Return all tags of a group with a new expiry: writing tags replaces those that are not named."""
    remaining = {name: value for name, value in known.items() if name.lower() not in (TAG, BY_TAG)}
    return {**remaining, **({TAG: expires} if expires else {}), BY_TAG: by(chooser, expires)}


def by(chooser: str, expires: str) -> str:
    """Return the value of the tag that says who chose a day."""
    return f"{chooser} {expires or NEVER}"


class Provisioned(t.NamedTuple):
    """What provision.yml does with its day: the tags to set, what to tell of another day that stays, why it cannot."""

    tags: dict[str, str]
    notice: str = ""
    refused: str = ""


def provisioned(known: t.Mapping[str, str], requested: str, again: bool, now: datetime.datetime) -> Provisioned:
    """Change only an expiry that provision.yml set itself: any other was chosen later, by expire.yml or by hand."""
    if not requested:
        return Provisioned({})
    lower = {name.lower(): value for name, value in known.items()}
    current, mark = lower.get(TAG, ""), lower.get(BY_TAG, "")
    if again or mark == by(PROVISION, current) or (not mark and (not current or _same(current, requested))):
        passed = read_time(requested) <= now
        refused = (
            f"azure_infra_expires_on {requested} has passed: write a later day, or use expire.yml" if passed else ""
        )
        return Provisioned({TAG: requested, BY_TAG: by(PROVISION, requested)}, "", refused)
    if _same(current, requested):
        return Provisioned({})
    chooser = mark.partition(" ")[0]
    author = chooser if mark == by(chooser, current) else "somebody"
    return Provisioned(
        {},
        f"{TAG} stays {current or NEVER}, which {author} chose. azure_infra_expires_on ({requested}) is not written;"
        " azure_infra_expires_on_again=true writes it.",
    )


def _same(first: str, second: str) -> bool:
    try:
        return read_time(first) == read_time(second)
    except TeardownError:
        return first == second
