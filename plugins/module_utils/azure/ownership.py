# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a resource is, by tags, and whether it is as it shall be. No I/O."""

from __future__ import annotations

import typing as t

# Whose a resource is: the tags that tell it, and one that no policy copies. No I/O.


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


# Comparing a resource with what it shall be. No I/O.


def fits(wanted: t.Any, there: t.Any) -> bool:
    """Say whether all that is wanted is there; what else is there does not matter."""
    if isinstance(wanted, dict):
        if not isinstance(there, dict):
            return False
        return all(
            (_place(value) == _place(there.get(key))) if key == "location" else fits(value, there.get(key))
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(there, list) and len(wanted) == len(there) and all(map(fits, wanted, there))
    if isinstance(wanted, str) and wanted.startswith("/subscriptions/"):  # of these Azure changes the case
        return wanted.lower() == str(there).lower()
    return bool(wanted == there)


def _place(text: t.Any) -> str:
    return "".join(str(text).split()).lower()


def part(wanted: t.Any, there: t.Any) -> t.Any:
    """Return of what is there the part that is wanted, for a diff."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return {key: part(value, there[key]) for key, value in wanted.items() if key in there}
    return there


def merge(there: t.Any, wanted: t.Any) -> t.Any:
    """Return what is there with what is wanted written over it."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        return {**there, **{key: merge(there.get(key), value) for key, value in wanted.items()}}
    return wanted


def request(wanted: t.Mapping[str, t.Any], there: t.Mapping[str, t.Any] | None, whole: bool) -> dict[str, t.Any]:
    """Return what is sent: tags of others stay, and with `whole` everything that is there is sent along."""
    if there and whole:
        return t.cast(t.Dict[str, t.Any], merge(dict(there), dict(wanted)))
    tags = {**((there or {}).get("tags") or {}), **(wanted.get("tags") or {})}
    return {**wanted, **({"tags": tags} if tags else {})}
