# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to be done so that the wanted machines run: a pure function. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.spec import Spec


class Action(t.NamedTuple):
    """One step: remove, make or start a machine, and why."""

    kind: str
    name: str
    reason: str


class Known(t.NamedTuple):
    """A machine that is there; without a specification when its description cannot be read."""

    spec: Spec | None
    running: bool


def plan(known: t.Mapping[str, Known], wanted: t.Mapping[str, Spec]) -> list[Action]:
    """Return the steps in their order; none when all is as wanted."""
    todo = [Action("remove", name, "not wanted any more") for name in known if name not in wanted]
    for name, spec in wanted.items():
        now = known.get(name)
        if now is None:
            todo += [Action("make", name, "new"), Action("start", name, "new")]
            continue
        reason = difference(now.spec, spec)
        if reason:
            todo += [Action(kind, name, reason) for kind in ("remove", "make", "start")]
        elif not now.running:
            todo.append(Action("start", name, "off"))
    return todo


def difference(now: Spec | None, wanted: Spec) -> str:
    """Say what makes a machine another one; empty when nothing does."""
    if now is None:
        return "its description cannot be read"
    fields = [field for field in Spec._fields if getattr(now, field) != getattr(wanted, field)]
    return f"other {', '.join(fields)}" if fields else ""
