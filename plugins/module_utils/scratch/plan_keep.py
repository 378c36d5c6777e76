# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An array of ours that is there already: use it, finish it, or say what is wrong with it. Pure, private."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.case import (
    Case,
    Draft,
    finish,
    marked,
    stops,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ids import chunk_for, filesystem_uuid
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Action, Finding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ours import Ours
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.place import Placement, place_array
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan_make import make

ANEW = "rebuild: true makes it anew from the selected disks; everything on scratch is lost."


def keep(case: Case, draft: Draft) -> Draft:
    """Plan for the array of ours that counts: the mounted one, else the whole one."""
    current = case.arrays[0]
    if not current.whole:
        return _broken(case, draft, current)
    if len(case.arrays) > 1 and case.arrays[1].whole and not current.mounts:
        return _several(case, draft)
    differs = _differences(case, current)
    if differs and case.request.rebuild and not case.boot and not stops(case.findings):
        return make(case, draft)
    members = [case.problems[disk.path] for disk in current.disks if disk.path in case.problems]
    draft.findings += [*_softened(case, members), *_smaller(case, current), *differs]
    if members:
        return draft.refuse()
    wrong = _unusable(case, current)
    if not wrong:
        return _use(case, draft, current)
    if case.request.rebuild and wrong.code == "unmountable":
        return make(case, Draft())
    return draft.refuse(wrong)


def _broken(case: Case, draft: Draft, current: Ours) -> Draft:
    """Not all members are there. What was being made is made; the rest waits until somebody says so."""
    if case.request.rebuild or (case.machine.building == case.wanted_uuid and not current.mounts):
        return make(case, draft) if not stops(case.findings) else draft.refuse(*case.findings, _damaged(case, current))
    return draft.refuse(*case.findings, _damaged(case, current))


def _damaged(case: Case, current: Ours) -> Finding:
    there = ", ".join(f"{disk.path} ({disk.id})" for disk in current.disks) or "none"
    text = f"The array {current.uuid} of scratch has {len(current.disks)} of {current.devices} members: {there}."
    blame = "hardware" if len(case.machine.disks) < current.devices or case.selection.short else "software"
    advice = f"Bring the missing disk back and restart; without it the data is lost, and {ANEW}"
    return Finding("fail", blame, "damaged", text, advice, current.array.device if current.array else "")


def _several(case: Case, draft: Draft) -> Draft:
    names = ", ".join(f"{one.uuid} ({', '.join(disk.id for disk in one.disks)})" for one in case.arrays if one.whole)
    text = f"The selected disks hold several whole arrays of ours: {names}."
    advice = f"Name the disks of the right one in ids; or {ANEW}"
    if case.request.rebuild and not case.boot:
        return make(case, draft)
    return draft.refuse(*case.findings, Finding("fail", "config", "several", text, advice))


def _softened(case: Case, members: t.Sequence[Finding]) -> t.Iterator[Finding]:
    """Beside a whole array, a disk with content of others is no reason to take scratch away."""
    yield from case.selection.findings
    for found in case.problems.values():
        soft = found.blame == "config" and found not in members
        yield replace(found, level="warn") if soft else found


def _smaller(case: Case, current: Ours) -> list[Finding]:
    expected = case.selection.expected
    if expected is None or current.devices >= expected or case.selection.short:
        return []
    text = f"Scratch is an array of {current.devices} disks, {expected} are expected."
    level = "warn" if case.request.fewer == "allow" else "fail"
    return [Finding(level, "config", "smaller", text, f"It stays in use; {ANEW}")]


def _differences(case: Case, current: Ours) -> list[Finding]:
    """Return in what a whole array is not what is asked for; nothing of it is changed without being told."""
    request, texts = case.request, []
    members = {disk.path for disk in current.disks}
    more = [f"{disk.path} ({disk.id})" for disk in case.disks if disk.path not in members | set(case.problems)]
    less = [f"{disk.path} ({disk.id})" for disk in current.disks if disk not in case.disks]
    texts += [f"{', '.join(more)} not part of it"] if more else []
    texts += [f"its members {', '.join(less)} not selected"] if less else []
    made = current.filesystem
    texts += [f"{made.type} on it, {request.filesystem} asked for"] if made and made.type != request.filesystem else []
    chunk = chunk_of(current)
    texts += [f"chunk {chunk} KiB, {request.chunk} asked for"] if request.chunk and chunk != request.chunk else []
    text = f"Scratch (array {current.uuid}) is whole and in use, but not as asked for: {'; '.join(texts)}."
    return [Finding("warn", "config", "differs", text, f"Leave it, or {ANEW}")] if texts else []


def chunk_of(current: Ours) -> int | None:
    known = [current.array.chunk if current.array else None, *(d.member.chunk for d in current.disks if d.member)]
    return next((chunk for chunk in known if chunk), None)


def _unusable(case: Case, current: Ours) -> Finding | None:
    """Return what keeps a whole array from being used."""
    array = current.array
    if array is None:
        return None
    if array.holders:
        text = f"On {array.device}, the array of scratch, stands {', '.join(array.holders)}."
        return Finding("fail", "config", "in_use", text, f"lsblk {array.device} shows what it is.", array.device)
    if not current.runs:
        return _stopped(current) if current.mounts else None
    if current.mounts or (current.filesystem and not case.machine.unmountable):
        return None
    if case.machine.building == current.uuid and (current.filesystem or not current.content):
        return None
    return _bad_content(case, current)


def _stopped(current: Ours) -> Finding:
    device, at = (current.array.device if current.array else ""), " ".join(mount.target for mount in current.mounts)
    text = f"{device}, the array of scratch, stopped working while mounted at {at}; its disks are back and whole."
    advice = f"End the jobs that use it, then umount {at} and run again, or restart the node."
    return Finding("fail", "hardware", "stopped", text, advice, device)


def _bad_content(case: Case, current: Ours) -> Finding | None:
    device = current.array.device if current.array else ""
    if current.filesystem:
        text = f"The {current.filesystem.type} on {device} cannot be mounted: {case.machine.unmountable}."
        return Finding("fail", "software", "unmountable", text, f"Repair it, or {ANEW}", device)
    if not current.content and current.array and current.array.blank:
        return None
    what = ", ".join(signature.type for signature in current.content) or "unknown data"
    text = f"{device}, the array of scratch, holds {what}, which is not ours."
    return Finding("fail", "config", "foreign", text, f"Move it away and run again: wipefs {device} shows it.", device)


def _use(case: Case, draft: Draft, current: Ours) -> Draft:
    """Start it if it does not run, give it a filesystem if it has none, mount it."""
    request, array = case.request, current.array
    draft.source, draft.uuid, draft.members = "array", current.uuid, current.disks
    draft.chunk = chunk_of(current) or chunk_for(current.disks, request.chunk)
    runs = bool(array and current.runs)
    md = array.device if array and runs else ""
    making: list[Action] = []
    if not runs:
        making += [steps.stop(array.device)] if array else []
        making.append(steps.assemble(request, current.uuid, current.disks))
    made = current.filesystem
    anew = runs and not current.mounts and (made is None or bool(case.machine.unmountable))
    if anew:
        ids = [disk.id for disk in current.disks]
        make_it = steps.mkfs(request, md, current.uuid, draft.chunk, ids)
        making += [*marked(case, current.uuid), make_it, Action("unmark")]
    kept = f"{made.type} {made.uuid}" if made and not anew else ""
    draft.filesystem = kept or f"{request.filesystem} {filesystem_uuid(current.uuid)}"
    return finish(case, draft, _place(case, current, md), making)


def _place(case: Case, current: Ours, md: str) -> Placement:
    return place_array(case.machine, case.request, md, current.disks)
