# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner of the NVMe scratch: from request and machine to the steps of a plan, or a refusal. Pure."""

from __future__ import annotations

import posixpath
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import layout
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.disks import (
    Ours,
    Selection,
    content,
    find,
    is_ours,
    problem,
    select,
    visible,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.layout import (
    Placement,
    bound,
    describe,
    holding,
    place_array,
    place_bind,
    plan_directories,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    ScratchAction,
    ScratchArray,
    ScratchDisk,
    ScratchFinding,
    ScratchMachine,
    ScratchPlan,
    ScratchRequest,
    array_uuid,
    chunk_for,
    filesystem_uuid,
    ours,
)

# One case of planning: what was asked and found, and what has been decided so far. Pure, private.


@dataclass(frozen=True)
class Planning:
    """What was asked and found."""

    machine: ScratchMachine
    request: ScratchRequest
    boot: bool
    selection: Selection
    problems: dict[str, ScratchFinding]  # by path: what forbids to write to a selected disk
    wipes: tuple[ScratchDisk, ...]  # selected disks with content of others that may go
    arrays: tuple[Ours, ...]

    @property
    def disks(self) -> tuple[ScratchDisk, ...]:
        return self.selection.disks

    @property
    def wanted_uuid(self) -> str:
        """Return the UUID of the array that all selected disks would make."""
        return array_uuid(self.request.name, (disk.id for disk in self.disks))

    @property
    def findings(self) -> list[ScratchFinding]:
        return [*self.selection.findings, *self.problems.values()]


@dataclass
class PlanDraft:
    """What has been decided. A finding of level fail or error that ``refuses`` leaves no action."""

    findings: list[ScratchFinding] = field(default_factory=list)
    actions: list[ScratchAction] = field(default_factory=list)
    source: str = ""  # array, adopted, fallback
    base: str = ""  # of adopted, fallback
    uuid: str = ""
    members: tuple[ScratchDisk, ...] = ()
    chunk: int | None = None
    filesystem: str = ""  # as it is described
    there: bool = False  # scratch is mounted now, and of use
    refused: bool = False

    def refuse(self, *findings: ScratchFinding) -> PlanDraft:
        self.findings += findings
        self.actions, self.refused = [], True
        return self


def look(machine: ScratchMachine, request: ScratchRequest, boot: bool) -> Planning:
    selection = select(machine, request, boot)
    problems = {disk.path: found for disk in selection.disks for found in [problem(disk, machine)] if found}
    wipes = tuple(d for d in selection.disks if d.path in problems and _may_go(d, problems[d.path], selection))
    for disk in wipes:
        told = problems.pop(disk.path)
        text = f"{disk.path} ({disk.id}) is erased, as told: it held {told.found}."
        found = replace(told, level="note", code="wiped", text=text, advice="")
        selection = replace(selection, findings=(*selection.findings, found))
    return Planning(machine, request, boot, selection, problems, wipes, tuple(find(machine, request, selection.disks)))


def _may_go(disk: ScratchDisk, found: ScratchFinding, selection: Selection) -> bool:
    return found.code == "foreign" and disk.id in selection.wipe


def stops(findings: t.Iterable[ScratchFinding]) -> bool:
    return any(finding.level in ("fail", "error") for finding in findings)


def marked(case: Planning, uuid: str) -> list[ScratchAction]:
    """Say first what is about to be made, so that whoever comes after us may finish it."""
    return [] if case.machine.building == uuid else [ScratchAction("mark", uuid=uuid)]


def finish(case: Planning, draft: PlanDraft, place: Placement, making: t.Sequence[ScratchAction]) -> PlanDraft:
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
        draft.actions.append(ScratchAction("unmark"))
    draft.actions += directories
    return draft


def freed(case: Planning) -> list[ScratchAction]:
    """Take down every array of ours that the selected disks are in."""
    arrays = [one.array for one in case.arrays if one.array]
    up = [layout.umount(mount.target) for one in case.arrays for mount in reversed(one.mounts)]
    return [*up, *(layout.stop(array.device) for array in arrays)]


# Making an array: of blank disks, of disks that may be erased, or anew of our own. Pure, private.


def make(case: Planning, draft: PlanDraft) -> PlanDraft:
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
    ours = [layout.wipe(disk) for disk in case.disks if is_ours(disk)]
    making: list[ScratchAction] = [
        *freed(case),
        *marked(case, uuid),
        *(layout.wipe(disk) for disk in case.wipes),
        *ours,
    ]
    making += [layout.create(request, case.disks, draft.chunk)]
    ids = [disk.id for disk in case.disks]
    making += [layout.mkfs(request, layout.device(request), uuid, draft.chunk, ids), ScratchAction("unmark")]
    return finish(replace(case, machine=bare), draft, place, making)


def _same_name(case: Planning) -> list[ScratchFinding]:
    """mdadm would give our array another device than the one that is written here."""
    known = {one.uuid for one in case.arrays}
    hits = [a for a in case.machine.arrays if a.name == case.request.name and a.uuid not in known]
    return [
        ScratchFinding(
            "fail",
            "config",
            "name_taken",
            f"{array.device} ({array.uuid}) is called {array.name} already, and is not made of the selected disks.",
            "Choose another name for scratch.",
            array.device,
        )
        for array in hits
    ]


def _ours_in_use(case: Planning) -> t.Iterator[ScratchFinding]:
    """An array of ours is made again only if nothing but our own mount uses it."""
    for one in case.arrays:
        others = [mount.target for mount in one.mounts if mount.target != case.request.mount]
        holders = one.array.holders if one.array else ()
        if others or holders:
            text = f"{one.array.device if one.array else one.uuid} is in use: {', '.join([*others, *holders])}."
            yield ScratchFinding("fail", "config", "in_use", text, "Free it, then run again.")


# An array of ours that is there already: use it, finish it, or say what is wrong with it. Pure, private.


ANEW = "rebuild: true makes it anew from the selected disks; everything on scratch is lost."


def keep(case: Planning, draft: PlanDraft) -> PlanDraft:
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
        return make(case, PlanDraft())
    return draft.refuse(wrong)


def _broken(case: Planning, draft: PlanDraft, current: Ours) -> PlanDraft:
    """Not all members are there. What was being made is made; the rest waits until somebody says so."""
    if case.request.rebuild or (case.machine.building == case.wanted_uuid and not current.mounts):
        return make(case, draft) if not stops(case.findings) else draft.refuse(*case.findings, _damaged(case, current))
    return draft.refuse(*case.findings, _damaged(case, current))


def _damaged(case: Planning, current: Ours) -> ScratchFinding:
    there = ", ".join(f"{disk.path} ({disk.id})" for disk in current.disks) or "none"
    text = f"The array {current.uuid} of scratch has {len(current.disks)} of {current.devices} members: {there}."
    blame = "hardware" if len(case.machine.disks) < current.devices or case.selection.short else "software"
    advice = f"Bring the missing disk back and restart; without it the data is lost, and {ANEW}"
    return ScratchFinding("fail", blame, "damaged", text, advice, current.array.device if current.array else "")


def _several(case: Planning, draft: PlanDraft) -> PlanDraft:
    names = ", ".join(f"{one.uuid} ({', '.join(disk.id for disk in one.disks)})" for one in case.arrays if one.whole)
    text = f"The selected disks hold several whole arrays of ours: {names}."
    advice = f"Name the disks of the right one in ids; or {ANEW}"
    if case.request.rebuild and not case.boot:
        return make(case, draft)
    return draft.refuse(*case.findings, ScratchFinding("fail", "config", "several", text, advice))


def _softened(case: Planning, members: t.Sequence[ScratchFinding]) -> t.Iterator[ScratchFinding]:
    """Beside a whole array, a disk with content of others is no reason to take scratch away."""
    yield from case.selection.findings
    for found in case.problems.values():
        soft = found.blame == "config" and found not in members
        yield replace(found, level="warn") if soft else found


def _smaller(case: Planning, current: Ours) -> list[ScratchFinding]:
    expected = case.selection.expected
    if expected is None or current.devices >= expected or case.selection.short:
        return []
    text = f"Scratch is an array of {current.devices} disks, {expected} are expected."
    level = "warn" if case.request.fewer == "allow" else "fail"
    return [ScratchFinding(level, "config", "smaller", text, f"It stays in use; {ANEW}")]


def _differences(case: Planning, current: Ours) -> list[ScratchFinding]:
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
    return [ScratchFinding("warn", "config", "differs", text, f"Leave it, or {ANEW}")] if texts else []


def chunk_of(current: Ours) -> int | None:
    known = [current.array.chunk if current.array else None, *(d.member.chunk for d in current.disks if d.member)]
    return next((chunk for chunk in known if chunk), None)


def _unusable(case: Planning, current: Ours) -> ScratchFinding | None:
    """Return what keeps a whole array from being used."""
    array = current.array
    if array is None:
        return None
    if array.holders:
        text = f"On {array.device}, the array of scratch, stands {', '.join(array.holders)}."
        return ScratchFinding("fail", "config", "in_use", text, f"lsblk {array.device} shows what it is.", array.device)
    if not current.runs:
        return _stopped(current) if current.mounts else None
    if current.mounts or (current.filesystem and not case.machine.unmountable):
        return None
    if case.machine.building == current.uuid and (current.filesystem or not current.content):
        return None
    return _bad_content(case, current)


def _stopped(current: Ours) -> ScratchFinding:
    device, at = (current.array.device if current.array else ""), " ".join(mount.target for mount in current.mounts)
    text = f"{device}, the array of scratch, stopped working while mounted at {at}; its disks are back and whole."
    advice = f"End the jobs that use it, then umount {at} and run again, or restart the node."
    return ScratchFinding("fail", "hardware", "stopped", text, advice, device)


def _bad_content(case: Planning, current: Ours) -> ScratchFinding | None:
    device = current.array.device if current.array else ""
    if current.filesystem:
        text = f"The {current.filesystem.type} on {device} cannot be mounted: {case.machine.unmountable}."
        return ScratchFinding("fail", "software", "unmountable", text, f"Repair it, or {ANEW}", device)
    if not current.content and current.array and current.array.blank:
        return None
    what = ", ".join(signature.type for signature in current.content) or "unknown data"
    text = f"{device}, the array of scratch, holds {what}, which is not ours."
    return ScratchFinding(
        "fail", "config", "foreign", text, f"Move it away and run again: wipefs {device} shows it.", device
    )


def _use(case: Planning, draft: PlanDraft, current: Ours) -> PlanDraft:
    """Start it if it does not run, give it a filesystem if it has none, mount it."""
    request, array = case.request, current.array
    draft.source, draft.uuid, draft.members = "array", current.uuid, current.disks
    draft.chunk = chunk_of(current) or chunk_for(current.disks, request.chunk)
    runs = bool(array and current.runs)
    md = array.device if array and runs else ""
    making: list[ScratchAction] = []
    if not runs:
        making += [layout.stop(array.device)] if array else []
        making.append(layout.assemble(request, current.uuid, current.disks))
    made = current.filesystem
    anew = runs and not current.mounts and (made is None or bool(case.machine.unmountable))
    if anew:
        ids = [disk.id for disk in current.disks]
        make_it = layout.mkfs(request, md, current.uuid, draft.chunk, ids)
        making += [*marked(case, current.uuid), make_it, ScratchAction("unmark")]
    kept = f"{made.type} {made.uuid}" if made and not anew else ""
    draft.filesystem = kept or f"{request.filesystem} {filesystem_uuid(current.uuid)}"
    return finish(case, draft, _place(case, current, md), making)


def _place(case: Planning, current: Ours, md: str) -> Placement:
    return place_array(case.machine, case.request, md, current.disks)


# Plan how scratch is taken away: unmounted and stopped, and erased only when told. Pure, private.


def remove(machine: ScratchMachine, request: ScratchRequest, destroy: bool = False) -> ScratchPlan:
    """Return the steps after which no array of ours with this name is mounted or runs."""
    shown = visible(machine, request.mount)
    # What is used as scratch under another name (it was renamed) is meant as well.
    there = [array for array in machine.arrays if ours(array.uuid)]
    arrays = [one for one in there if one.name == request.name or (shown and shown.device == one.device)]
    uuids = {array.uuid for array in arrays}
    mine = [disk for disk in machine.disks if disk.member and ours(disk.member.uuid)]
    disks = [one for one in mine if one.member and (one.member.name == request.name or one.member.uuid in uuids)]
    # The last mount at a place is the one on top.
    devices = {array.device for array in arrays}
    mounts = [mount.target for mount in reversed(machine.mounts) if mount.device in devices]
    actions = [layout.umount(target) for target in mounts or _binds(machine, request)]
    actions += [layout.stop(array.device) for array in arrays]
    actions += [layout.wipe(disk) for disk in disks] if destroy else []
    now = _seen(arrays, mounts or _binds(machine, request), disks)
    foreign = [*_covered(machine, devices), *(_strange(disks) if destroy else [])]
    if foreign:
        told, seen = " ".join(map(str, foreign)), tuple(disk.id for disk in disks)
        return ScratchPlan("fail", "config", told, tuple(foreign), before=now, after=now, disks=seen)
    after = _seen([], [], [] if destroy else disks)
    reason = f"{len(disks)} disks keep what is on them" if disks and not destroy else "there is no scratch"
    return ScratchPlan("skipped", "", reason, (), tuple(actions), now, after, disks=tuple(disk.id for disk in disks))


def _covered(machine: ScratchMachine, devices: t.Collection[str]) -> t.Iterator[ScratchFinding]:
    """A filesystem of somebody else on top of ours would be the one that is unmounted."""
    for target in sorted({mount.target for mount in machine.mounts if mount.device in devices}):
        hits = [mount for mount in machine.mounts if mount.target == target]
        ours_first = min(number for number, mount in enumerate(hits) if mount.device in devices)
        for other in (mount for mount in hits[ours_first:] if mount.device not in devices):
            text = f"On top of scratch at {target} is the mount of {other.device} ({other.fstype})."
            yield ScratchFinding(
                "fail", "config", "mount_taken", text, f"umount {target}, then run again.", other.device
            )


def _strange(disks: t.Sequence[ScratchDisk]) -> t.Iterator[ScratchFinding]:
    """A superblock of ours is left over where somebody used the disk for something else later."""
    for disk in (one for one in disks if not is_ours(one)):
        text = f"{disk.path} ({disk.id}) was in an array of scratch, and holds {content(disk)}, which is not ours."
        advice = "Nothing is erased on any disk. Move that away, or erase that disk by hand."
        yield ScratchFinding("fail", "config", "foreign", text, advice, disk.path, disk.id)


def _binds(machine: ScratchMachine, request: ScratchRequest) -> list[str]:
    """Return the mount of a directory that stands in for an array; a filesystem that others mounted there stays."""
    bases = [base for base in (request.fallback, *request.adopt) if base and base != request.mount]
    shown = visible(machine, request.mount)
    return [request.mount] if shown and any(bound(machine, request, base) for base in bases) else []


def _seen(
    arrays: t.Sequence[ScratchArray], mounts: t.Sequence[str], disks: t.Sequence[ScratchDisk]
) -> dict[str, t.Any]:
    return {
        "arrays": [array.device for array in arrays],
        "mounts": list(mounts),
        "members": [disk.id for disk in disks],
    }


# How scratch is, and how it will be: the two sides of a diff, without any name that changes at boot. Pure, private.


Document = t.Dict[str, t.Any]


def before(case: Planning) -> Document:
    current = case.arrays[0] if case.arrays else None
    mount = _mount(case, current)
    array_mounted = bool(mount and str(mount["source"]).startswith("array "))
    ours = array_mounted or bool(mount and mount.pop("ours", False))
    return {
        "disks": {disk.id: content(disk) for disk in case.disks},
        "array": _array(current) if current else None,
        "filesystem": _filesystem(case, current) if current else None,
        "mount": mount,
        "directories": describe(case.machine, case.request, array_mounted) if ours else {},
        "fstab": [line.text.strip() for line in case.machine.fstab],
    }


def after(case: Planning, draft: PlanDraft, now: Document) -> Document:
    """Return what the actions lead to; without any the machine stays as it is."""
    then = dict(now)
    for action in draft.actions:
        _applied(then, case, draft, action)
    return then


def _applied(then: Document, case: Planning, draft: PlanDraft, action: ScratchAction) -> None:
    if action.kind == "fstab":
        then["fstab"] = [line.text.strip() for line in case.machine.fstab if line.number not in action.lines]
    elif action.kind == "wipe":
        then["disks"] = {**then["disks"], action.disks[0]: "blank"}
    elif action.kind in ("create", "assemble"):
        members = sorted(disk.id for disk in draft.members)
        about = {"level": "raid0", "chunk": draft.chunk, "members": members, "devices": len(members)}
        then["array"] = {"uuid": draft.uuid, **about, "state": "running"}
        selected = {disk.id: f"member of {draft.uuid}" for disk in draft.members if disk.id in then["disks"]}
        then["disks"] = {**then["disks"], **selected}
        then["filesystem"] = draft.filesystem
    elif action.kind == "mkfs":
        then["filesystem"] = draft.filesystem
    elif action.kind in ("umount", "stop"):
        then.update(mount=None, directories={})
    else:
        _shown(then, case, draft, action)


def _shown(then: Document, case: Planning, draft: PlanDraft, action: ScratchAction) -> None:
    mount = case.request.mount
    if action.kind == "mount":
        then["mount"] = {"path": mount, "source": f"array {draft.uuid}"}
    elif action.kind == "bind":
        then["mount"] = {"path": mount, "source": action.device}
    elif action.kind == "remount":
        then["mount"] = {"path": mount, "source": then["mount"]["source"]}
    elif action.kind == "directory" and then["mount"] and _inside(action.path, mount, draft):
        then["directories"] = {**then["directories"], action.path: f"{action.owner}:{action.group} {action.mode}"}


def _inside(path: str, mount: str, draft: PlanDraft) -> bool:
    return path.startswith(f"{mount}/") or (path == mount and draft.source == "array")


def _array(current: Ours) -> Document:
    state = "running" if current.runs else current.array.state if current.array else "stopped"
    members = sorted(disk.id for disk in current.disks)
    about = {"level": "raid0", "chunk": chunk_of(current), "members": members, "devices": current.devices}
    return {"uuid": current.uuid, **about, "state": state}


def _filesystem(case: Planning, current: Ours) -> str | None:
    made = current.filesystem
    if made is None:
        return ", ".join(signature.type for signature in current.content) or None
    return f"{made.type} {made.uuid}{', cannot be mounted' if case.machine.unmountable else ''}"


def _mount(case: Planning, current: Ours | None) -> Document | None:
    machine, request = case.machine, case.request
    shown = visible(machine, request.mount)
    if shown is None:
        return None
    if current and shown in current.mounts:
        lacks = layout.lacking(shown, request)
        return {"path": request.mount, "source": f"array {current.uuid}", **({"lacks": lacks} if lacks else {})}
    for base in (request.fallback, *request.adopt):
        if base and layout.bound(machine, request, base):
            return {"path": request.mount, "source": layout.stand_in(base, request), "ours": True}
    return {"path": request.mount, "source": posixpath.basename(shown.device) or shown.fstype}


# The planner of the NVMe scratch: one for Ansible and for the program that starts with the machine. Pure, private.


def plan(machine: ScratchMachine, request: ScratchRequest, boot: bool = False) -> ScratchPlan:
    """Return what to do and what comes of it. At boot nothing is erased that is not a broken array of ours."""
    case = look(machine, request, boot)
    draft = _decide(case)
    if draft.refused:
        draft.actions = []
    now = before(case)
    verdict, blame = _verdict(draft)
    usable = draft.source and (not draft.refused or draft.there)
    return ScratchPlan(
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


def _decide(case: Planning) -> PlanDraft:
    if case.arrays:
        return keep(case, PlanDraft())
    base = _adopted(case)
    if base:
        return _bind(case, PlanDraft(list(case.selection.findings), source="adopted", base=base))
    if not case.disks:
        return _nothing(case)
    return make(case, PlanDraft())


def _adopted(case: Planning) -> str:
    """Return the place where somebody else mounts all of the selected disks."""
    places = [base for base in case.request.adopt if case.disks and all(base in disk.mounts for disk in case.disks)]
    return places[0] if places else ""


def _bind(case: Planning, draft: PlanDraft) -> PlanDraft:
    place = place_bind(case.machine, case.request, draft.base)
    if stops(draft.findings):
        draft.there = place.there
        return draft.refuse()
    return finish(case, draft, place, [])


def _nothing(case: Planning) -> PlanDraft:
    """No disk: scratch is somewhere else, or there is none."""
    draft, request = PlanDraft(list(case.findings)), case.request
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
        draft.findings.append(ScratchFinding("fail", "config", "system_disk", text, advice))
    return _bind(case, draft)


def _verdict(draft: PlanDraft) -> tuple[str, str]:
    for level in ("fail", "error", "warn"):
        hits = [finding for finding in draft.findings if finding.level == level]
        if hits:
            return level, hits[0].blame
    return ("pass" if draft.source in ("array", "adopted") else "skipped"), ""


def _reason(case: Planning, draft: PlanDraft, verdict: str) -> str:
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


def _size(case: Planning, draft: PlanDraft) -> int:
    known: list[int] = [array.size for array in case.machine.arrays if draft.uuid and array.uuid == draft.uuid]
    return known[0] if known and known[0] else sum(disk.size for disk in draft.members)
