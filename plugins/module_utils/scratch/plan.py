# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner of the NVMe scratch: one for Ansible and for the program that starts with the machine. Pure, private.

Everything that is decided is decided here, from what was read; the executor only does it. It may be cut off after any
step: what is there then is finished by the next plan, or named by it, and never destroyed.
"""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.case import Case, Draft, finish, look, stops
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.describe import after, before
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Finding, Plan, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.place import holding, place_bind
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan_keep import keep
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan_make import make


def plan(machine: Machine, request: Request, boot: bool = False) -> Plan:
    """Return what to do and what comes of it. At boot nothing is erased that is not a broken array of ours."""
    case = look(machine, request, boot)
    draft = _decide(case)
    if draft.refused:
        draft.actions = []
    now = before(case)
    verdict, blame = _verdict(draft)
    usable = draft.source and (not draft.refused or draft.there)
    return Plan(
        verdict,
        blame,
        _reason(case, draft, verdict),
        tuple(draft.findings),
        tuple(draft.actions),
        now,
        after(case, draft, now),
        path=request.mount if usable else "",
        source=draft.source if usable else "",
        disks=tuple(disk.id for disk in case.disks),
        array=draft.uuid if usable else "",
        size=_size(case, draft) if usable else 0,
        members=len(draft.members) if usable else 0,
    )


def _decide(case: Case) -> Draft:
    if case.arrays:
        return keep(case, Draft())
    base = _adopted(case)
    if base:
        return _bind(case, Draft(list(case.selection.findings), source="adopted", base=base))
    if not case.disks:
        return _nothing(case)
    return make(case, Draft())


def _adopted(case: Case) -> str:
    """Return the place where somebody else mounts all of the selected disks."""
    places = [base for base in case.request.adopt if case.disks and all(base in disk.mounts for disk in case.disks)]
    return places[0] if places else ""


def _bind(case: Case, draft: Draft) -> Draft:
    place = place_bind(case.machine, case.request, draft.base)
    if stops(draft.findings):
        draft.there = place.there
        return draft.refuse()
    return finish(case, draft, place, [])


def _nothing(case: Case) -> Draft:
    """No disk: scratch is somewhere else, or there is none."""
    draft, request = Draft(list(case.findings)), case.request
    if stops(draft.findings):
        return draft.refuse()
    if not request.fallback:
        return draft
    draft.source, draft.base = "fallback", request.fallback
    holder = holding(case.machine, request.fallback)
    if holder is None or holder.target == "/":
        # At boot, too: the resource disk was not mounted, and jobs would fill what the system needs.
        text = f"{request.fallback}, which is to stand in for scratch, is on the system disk."
        advice = "Mount the resource disk there, or leave fallback empty for no scratch at all."
        draft.findings.append(Finding("fail", "config", "system_disk", text, advice))
    return _bind(case, draft)


def _verdict(draft: Draft) -> tuple[str, str]:
    for level in ("fail", "error", "warn"):
        hits = [finding for finding in draft.findings if finding.level == level]
        if hits:
            return level, hits[0].blame
    return ("pass" if draft.source in ("array", "adopted") else "skipped"), ""


def _reason(case: Case, draft: Draft, verdict: str) -> str:
    told = [str(finding) for finding in draft.findings if finding.level in ("fail", "error", "warn")]
    if told:
        return " ".join(told)
    mount = case.request.mount
    if draft.source == "array":
        kind = draft.filesystem.split(" ", 1)[0]
        return f"{len(draft.members)} disks, raid0, {kind}, at {mount}"
    if draft.source == "adopted":
        return f"{len(case.disks)} disks are in use at {draft.base} already: a directory there, at {mount}"
    return f"no local NVMe disk: {f'{draft.base} instead, at {mount}' if draft.base else 'there is no scratch'}"


def _size(case: Case, draft: Draft) -> int:
    known: list[int] = [array.size for array in case.machine.arrays if draft.uuid and array.uuid == draft.uuid]
    return known[0] if known and known[0] else sum(disk.size for disk in draft.members)
