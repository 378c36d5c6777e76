# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Making an array: of blank disks, of disks that may be erased, or anew of our own. Pure, private."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.case import (
    Case,
    Draft,
    finish,
    freed,
    marked,
    stops,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.content import is_ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ids import chunk_for, filesystem_uuid
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Action, Finding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.place import place_array


def make(case: Case, draft: Draft) -> Draft:
    """Plan an array of all selected disks; nothing is touched unless every one of them may be."""
    draft.findings = [*case.findings, *draft.findings]
    if not case.disks or stops(draft.findings):
        return draft.refuse()
    blocked = [*_same_name(case), *_ours_in_use(case)]
    if blocked:
        return draft.refuse(*blocked)
    request, uuid = case.request, case.wanted_uuid
    draft.source, draft.uuid, draft.members = "array", uuid, case.disks
    draft.chunk = chunk_for(case.disks, request.chunk)
    draft.filesystem = f"{request.filesystem} {filesystem_uuid(uuid)}"
    own = {mount for one in case.arrays for mount in one.mounts}
    bare = replace(case.machine, mounts=tuple(mount for mount in case.machine.mounts if mount not in own))
    place = place_array(bare, request, "", case.disks)
    ours = [steps.wipe(disk) for disk in case.disks if is_ours(disk)]
    making: list[Action] = [*freed(case), *marked(case, uuid), *(steps.wipe(disk) for disk in case.wipes), *ours]
    making += [steps.create(request, case.disks, draft.chunk)]
    ids = [disk.id for disk in case.disks]
    making += [steps.mkfs(request, steps.device(request), uuid, draft.chunk, ids), Action("unmark")]
    return finish(replace(case, machine=bare), draft, place, making)


def _same_name(case: Case) -> list[Finding]:
    """mdadm would give our array another device than the one that is written here."""
    known = {one.uuid for one in case.arrays}
    hits = [a for a in case.machine.arrays if a.name == case.request.name and a.uuid not in known]
    return [
        Finding(
            "fail",
            "config",
            "name_taken",
            f"{array.device} ({array.uuid}) is called {array.name} already, and is not made of the selected disks.",
            "Choose another name for scratch.",
            array.device,
        )
        for array in hits
    ]


def _ours_in_use(case: Case) -> t.Iterator[Finding]:
    """An array of ours is made again only if nothing but our own mount uses it."""
    for one in case.arrays:
        others = [mount.target for mount in one.mounts if mount.target != case.request.mount]
        holders = one.array.holders if one.array else ()
        if others or holders:
            text = f"{one.array.device if one.array else one.uuid} is in use: {', '.join([*others, *holders])}."
            yield Finding("fail", "config", "in_use", text, "Free it, then run again.")
