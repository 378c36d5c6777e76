# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a resource type does beyond being kept: the hooks, and the defaults of all types."""

from __future__ import annotations

import copy
import dataclasses
import typing as t

from . import ids
from .faults import error
from .http import Request
from .schema import Kind
from .state import State


@dataclasses.dataclass
class Call:
    """A request for one resource; ``new`` is what is to be kept, ``old`` what was there."""

    state: State
    request: Request
    target: ids.Target
    kind: Kind
    old: dict[str, t.Any] | None = None
    new: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    body: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    failure: dict[str, t.Any] | None = None  # the error that the operation ends with
    delay: float | None = None
    kinds: dict[str, Kind] = dataclasses.field(default_factory=dict)
    children: list[Call] = dataclasses.field(default_factory=list)

    @property
    def id(self) -> str:
        return self.target.id

    @property
    def name(self) -> str:
        return self.target.names[-1]

    @property
    def group(self) -> dict[str, t.Any]:
        return self.state.get(ids.group(self.id)) or {}

    @property
    def properties(self) -> dict[str, t.Any]:
        found: dict[str, t.Any] = self.new.setdefault("properties", {})
        return found


# Whose references keep other resources from being deleted; a storage account's rule for a subnet does not.
HOLDERS = ("Microsoft.Network/", "Microsoft.Compute/")


class Behaviour:
    """The defaults."""

    located = True  # a tracked resource with a location

    def prepare(self, call: Call) -> None:
        """Check and complete ``call.new`` before it is kept."""

    def stored(self, call: Call) -> None:
        """Do what follows from it."""

    def show(self, state: State, resource: dict[str, t.Any], query: dict[str, str]) -> dict[str, t.Any]:
        """Return the resource as GET shows it."""
        return copy.deepcopy(resource)

    def deletable(self, state: State, resource: dict[str, t.Any]) -> None:
        """Refuse a delete."""
        self.unused(state, resource)

    def deleted(self, state: State, resource: dict[str, t.Any]) -> None:
        """Do what follows from a delete."""

    @staticmethod
    def unused(state: State, resource: dict[str, t.Any], code: str = "ResourceInUse") -> None:
        users = [one["id"] for one in referrers(state, resource["id"]) if one["type"].startswith(HOLDERS)]
        if users:
            message = f"Resource {resource['id']} cannot be deleted because it is in use by {users[0]}."
            raise error(code, status=400, message=message)


def referrers(state: State, resource_id: str) -> t.Iterator[dict[str, t.Any]]:
    """Yield the resources that refer to this one or to what lies below it, from outside of it."""
    for other in state.resources.values():
        if ids.inside(resource_id, other["id"]) or ids.inside(other["id"], resource_id):
            continue
        if any(ids.inside(resource_id, said) for said in ids.references(other.get("properties", {}))):
            yield other


def check_references(call: Call, kinds: t.Container[str]) -> None:
    """Refuse a body that points at what is not there."""
    for said in ids.references(call.new.get("properties", {})):
        target = ids.parse(said)
        if not target or target.type.lower() not in kinds or ids.inside(call.id, said):
            continue
        found = call.state.get(said)
        if not found or found.get("properties", {}).get("provisioningState") == "Deleting":
            raise error("InvalidResourceReference", other=said, resource=call.id)


REGISTRY: dict[str, Behaviour] = {}
DEFAULT = Behaviour()


def register(*names: str) -> t.Callable[[type[Behaviour]], type[Behaviour]]:
    def keep(cls: type[Behaviour]) -> type[Behaviour]:
        made = cls()
        for name in names:
            REGISTRY[name.lower()] = made
        return cls

    return keep


def of(name: str) -> Behaviour:
    return REGISTRY.get(name.lower(), DEFAULT)
