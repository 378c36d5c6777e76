# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One case of planning: what was asked and found, and what has been decided so far. Pure, private."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.content import problem
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.directories import plan_directories
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ids import array_uuid
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Disk, Machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Action, Finding, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ours import Ours, find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.place import Placement
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.select import Selection, select


@dataclass(frozen=True)
class Case:
    """What was asked and found."""

    machine: Machine
    request: Request
    boot: bool
    selection: Selection
    problems: dict[str, Finding]  # by path: what forbids to write to a selected disk
    wipes: tuple[Disk, ...]  # selected disks with content of others that may go
    arrays: tuple[Ours, ...]

    @property
    def disks(self) -> tuple[Disk, ...]:
        return self.selection.disks

    @property
    def wanted_uuid(self) -> str:
        """Return the UUID of the array that all selected disks would make."""
        return array_uuid(self.request.name, (disk.id for disk in self.disks))

    @property
    def findings(self) -> list[Finding]:
        return [*self.selection.findings, *self.problems.values()]


@dataclass
class Draft:
    """What has been decided. A finding of level fail or error that ``refuses`` leaves no action."""

    findings: list[Finding] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    source: str = ""  # array, adopted, fallback
    base: str = ""  # of adopted, fallback
    uuid: str = ""
    members: tuple[Disk, ...] = ()
    chunk: int | None = None
    filesystem: str = ""  # as it is described
    there: bool = False  # scratch is mounted now, and of use
    refused: bool = False

    def refuse(self, *findings: Finding) -> Draft:
        self.findings += findings
        self.actions, self.refused = [], True
        return self


def look(machine: Machine, request: Request, boot: bool) -> Case:
    selection = select(machine, request, boot)
    problems = {disk.path: found for disk in selection.disks for found in [problem(disk, machine)] if found}
    wipes = tuple(d for d in selection.disks if d.path in problems and _may_go(d, problems[d.path], selection))
    for disk in wipes:
        told = problems.pop(disk.path)
        text = f"{disk.path} ({disk.id}) is erased, as told: it held {told.found}."
        found = replace(told, level="note", code="wiped", text=text, advice="")
        selection = replace(selection, findings=(*selection.findings, found))
    return Case(machine, request, boot, selection, problems, wipes, tuple(find(machine, request, selection.disks)))


def _may_go(disk: Disk, found: Finding, selection: Selection) -> bool:
    return found.code == "foreign" and disk.id in selection.wipe


def stops(findings: t.Iterable[Finding]) -> bool:
    return any(finding.level in ("fail", "error") for finding in findings)


def marked(case: Case, uuid: str) -> list[Action]:
    """Say first what is about to be made, so that whoever comes after us may finish it."""
    return [] if case.machine.building == uuid else [Action("mark", uuid=uuid)]


def finish(case: Case, draft: Draft, place: Placement, making: t.Sequence[Action]) -> Draft:
    """Put the steps in their order: what may fail without harm, the disks, the mount, what is on it."""
    whole = draft.source == "array"
    directories, findings = plan_directories(case.machine, case.request, place.there, whole)
    draft.there = place.there
    draft.findings += [*place.findings, *findings]
    if stops(place.findings):
        return draft.refuse()
    draft.actions = [*place.first, *making, *place.last]
    # A marker beside a filesystem in use would be a licence to make it again.
    if case.machine.building and whole and not any(action.kind == "unmark" for action in making):
        draft.actions.append(Action("unmark"))
    draft.actions += directories
    return draft


def freed(case: Case) -> list[Action]:
    """Take down every array of ours that the selected disks are in."""
    arrays = [one.array for one in case.arrays if one.array]
    up = [steps.umount(mount.target) for one in case.arrays for mount in reversed(one.mounts)]
    return [*up, *(steps.stop(array.device) for array in arrays)]
