# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who made a resource, by its tags, and whether it is as requested. No I/O."""

from __future__ import annotations

import typing as t

CREATOR = "hpcai.gpu_cluster"
CREATOR_TAG, CLUSTER_TAG = "created-by", "hpcai-cluster"
# Policies copy the tags of a group to whatever is made in it. The value of this one differs from resource to resource.
OWN_TAG = "hpcai-resource"
CYCLECLOUD_TAG = "clustername"
_CYCLECLOUD = "cyclecloud/"


class AzureResource(t.NamedTuple):
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


def read_resource(entry: t.Mapping[str, t.Any]) -> AzureResource:
    """Read one entry of a listing; tags that are null count as none."""
    tags = {str(key).lower(): str(value) for key, value in (entry.get("tags") or {}).items()}
    return AzureResource(str(entry["id"]), str(entry.get("type", "")), tags, str(entry.get("managedBy") or ""))


def own_name(identifier: str) -> str:
    """Return the value of the tag that differs from resource to resource: resource group, type and name.

    The group is in it because a template that is exported from one group and deployed to another copies names and tags.
    """
    parts = identifier.strip("/").split("/")
    group = parts[3:4] if len(parts) > 4 and parts[2].lower() == "resourcegroups" else []
    return "/".join([*group, *parts[-2:]])


def tagged(resource: AzureResource, cluster: str) -> bool:
    """Say whether a resource has the tags of this cluster, set by us or copied by a policy."""
    return resource.tags.get(CREATOR_TAG) == CREATOR and resource.tags.get(CLUSTER_TAG) == cluster


def ours(resource: AzureResource, cluster: str) -> bool:
    """Say whether the collection made this resource or resource group for this cluster: its own name is the proof."""
    return tagged(resource, cluster) and _own_tag(resource) == own_name(resource.id).lower()


def made_for(resource: AzureResource, cluster: str, nodes_cluster: str, groups: t.Sequence[AzureResource]) -> bool:
    """Say whether we or CycleCloud made this resource for the cluster; `groups` are those of the subscription.

    CycleCloud sets one value of our own tag on all of its nodes. It proves nothing where the group has it, too.
    """
    if ours(resource, cluster):
        return True
    value = f"{_CYCLECLOUD}{nodes_cluster}".lower()
    return tagged(resource, cluster) and _own_tag(resource) == value and not _copied(resource, OWN_TAG, groups)


def made_by_cyclecloud(resource: AzureResource, nodes_cluster: str, groups: t.Sequence[AzureResource]) -> bool:
    """Say whether a resource has CycleCloud's own tag of the cluster, and not from its group."""
    return resource.tags.get(CYCLECLOUD_TAG) == nodes_cluster and not _copied(resource, CYCLECLOUD_TAG, groups)


def _copied(resource: AzureResource, tag: str, groups: t.Sequence[AzureResource]) -> bool:
    """Say whether the resource group has the same value, from which a policy may have copied it."""
    value = resource.tags.get(tag, "").lower()
    return any(below(resource.id, group.id) and group.tags.get(tag, "").lower() == value for group in groups)


def _own_tag(resource: AzureResource) -> str:
    return resource.tags.get(OWN_TAG, "").lower()


def marked(text: str, cluster: str) -> bool:
    """Say whether a note or a description names the collection and this cluster; `gpu` is not `gpu-2`."""
    words = text.replace(",", " ").replace(";", " ").split()
    return CREATOR in words and cluster in words


def below(identifier: str, scope: str) -> bool:
    """Say whether an identifier is that of a scope or of a resource inside it."""
    return f"{identifier}/".lower().startswith(f"{scope.rstrip('/')}/".lower())


# Comparing a resource with the requested one.


def fits(request: t.Any, observed: t.Any) -> bool:
    """Say whether a resource has all that is requested; what it has besides does not matter."""
    if isinstance(request, dict):
        if not isinstance(observed, dict):
            return False
        return all(
            (_region(value) == _region(observed.get(key))) if key == "location" else fits(value, observed.get(key))
            for key, value in request.items()
        )
    if isinstance(request, list):
        return isinstance(observed, list) and len(request) == len(observed) and all(map(fits, request, observed))
    if isinstance(request, str) and request.startswith("/subscriptions/"):  # of these Azure changes the case
        return request.lower() == str(observed).lower()
    return bool(request == observed)


def _region(text: t.Any) -> str:
    return "".join(str(text).split()).lower()


def part(request: t.Any, observed: t.Any) -> t.Any:
    """Return of the observed resource the keys that the request has, for a diff."""
    if isinstance(request, dict) and isinstance(observed, dict):
        return {key: part(value, observed[key]) for key, value in request.items() if key in observed}
    return observed


def merge(observed: t.Any, request: t.Any) -> t.Any:
    """Return the observed resource with the request written over it."""
    if isinstance(request, dict) and isinstance(observed, dict):
        return {**observed, **{key: merge(observed.get(key), value) for key, value in request.items()}}
    return request


def request_body(body: t.Mapping[str, t.Any], observed: t.Mapping[str, t.Any] | None, whole: bool) -> dict[str, t.Any]:
    """Return what is sent: tags of others stay, and with `whole` everything that the resource has is sent along."""
    if observed and whole:
        return t.cast(t.Dict[str, t.Any], merge(dict(observed), dict(body)))
    tags = {**((observed or {}).get("tags") or {}), **(body.get("tags") or {})}
    return {**body, **({"tags": tags} if tags else {})}
