# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Children that may also be written as a list inside their parent: subnets of a network, rules of a group."""

from __future__ import annotations

import copy
import typing as t
import uuid

from . import behaviour, ids
from .behaviour import Behaviour, Call
from .http import ArmError
from .state import State


class Parent(Behaviour):
    """``lists`` maps a property to the type of the children it shows."""

    lists: t.ClassVar[dict[str, str]] = {}

    def prepare(self, call: Call) -> None:
        self.check(call)
        call.children = []
        for key, kind in self.lists.items():
            given = call.properties.pop(key, None)
            if call.request.method == "PUT":
                call.children += [self._child(call, kind, one) for one in given or []]
        for child in call.children:
            self.check_child(call, child)

    def check(self, call: Call) -> None:
        """Check the parent itself."""

    def check_child(self, call: Call, child: Call) -> None:
        """Check one child; its siblings are ``call.children``."""

    def _child(self, call: Call, kind: str, body: dict[str, t.Any]) -> Call:
        if not body.get("name"):
            raise ArmError(400, "InvalidRequestFormat", f"Cannot parse the request: a name is missing in {kind}.")
        short = kind.rsplit("/", 1)[-1]
        target = ids.Target(call.target.scope, call.target.namespace, (*call.target.types, short),
                            (*call.target.names, body["name"]))  # fmt: skip
        new = {"properties": {}, **body, "id": target.id, "type": kind, "etag": f'W/"{uuid.uuid4()}"'}
        new["properties"]["provisioningState"] = "Succeeded"
        made = Call(call.state, call.request, target, call.kinds[kind.lower()], call.state.get(target.id), new)
        made.kinds = call.kinds
        return made

    def stored(self, call: Call) -> None:
        if call.request.method != "PUT":
            return
        kept = {child.id.lower() for child in call.children}
        for kind in self.lists.values():
            for old in call.state.under(call.id):
                if old["type"].lower() == kind.lower() and old["id"].lower() not in kept:
                    behaviour.of(kind).deletable(call.state, old)
                    call.state.drop(old["id"])
        for child in call.children:
            call.state.put(child.new)

    def show(self, state: State, resource: dict[str, t.Any], query: dict[str, str]) -> dict[str, t.Any]:
        shown = copy.deepcopy(resource)
        for key, kind in self.lists.items():
            found = [one for one in state.under(resource["id"]) if one["type"].lower() == kind.lower()]
            shown["properties"][key] = [behaviour.of(kind).show(state, one, query) for one in found]
        return shown
