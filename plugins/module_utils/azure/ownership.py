# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a resource is: the tags that tell it, and one that no policy copies. No I/O. Private."""

from __future__ import annotations

import typing as t

CREATOR = "hpcai.gpu_cluster"
CREATOR_TAG, CLUSTER_TAG = "created-by", "hpcai-cluster"
# Policies copy the tags of a group to whatever is made in it. The value of this one differs from resource to resource.
OWN_TAG = "hpcai-resource"
CYCLECLOUD_TAG = "clustername"
_CYCLECLOUD = "cyclecloud/"


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


def thing(found: t.Mapping[str, t.Any]) -> Thing:
    """Read one entry of a listing; tags that are null are none."""
    tags = {str(key).lower(): str(value) for key, value in (found.get("tags") or {}).items()}
    return Thing(str(found["id"]), str(found.get("type", "")), tags, str(found.get("managedBy") or ""))


def own(identifier: str) -> str:
    """Return what a resource that we made says of itself: its type and name."""
    return "/".join(identifier.rstrip("/").split("/")[-2:])


def tagged(found: Thing, cluster: str) -> bool:
    """Say whether it has the tags of this cluster, from us or from a policy."""
    return found.tags.get(CREATOR_TAG) == CREATOR and found.tags.get(CLUSTER_TAG) == cluster


def ours(found: Thing, cluster: str) -> bool:
    """Say whether the collection, or CycleCloud for it, made this resource group for this cluster."""
    said = _said(found)
    return tagged(found, cluster) and (said in ("", own(found.id).lower()) or said.startswith(_CYCLECLOUD))


def made(found: Thing, cluster: str, nodes_cluster: str, groups: t.Sequence[Thing]) -> bool:
    """Say whether we or CycleCloud made this resource for this cluster, whose groups these are.

    CycleCloud gives one value to all of its nodes, which is none that a group of ours has.
    """
    if not tagged(found, cluster):
        return False
    if _said(found):
        return _said(found) in (own(found.id).lower(), f"{_CYCLECLOUD}{nodes_cluster}".lower())
    home = [group for group in groups if below(found.id, group.id)]
    before = not any(OWN_TAG in group.tags for group in home or groups)  # made when there was no such tag
    return before or found.tags.get(CYCLECLOUD_TAG) == nodes_cluster


def _said(found: Thing) -> str:
    return found.tags.get(OWN_TAG, "").lower()


def marked(text: str, cluster: str) -> bool:
    """Say whether a note or a description names the collection and this cluster; `gpu` is not `gpu-2`."""
    words = text.replace(",", " ").replace(";", " ").split()
    return CREATOR in words and cluster in words


def below(identifier: str, scope: str) -> bool:
    """Say whether something is at a scope or inside it."""
    return f"{identifier}/".lower().startswith(f"{scope.rstrip('/')}/".lower())
