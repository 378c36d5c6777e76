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
    OwnArray,
    Selection,
    content,
    find,
    is_ours,
    planned_array,
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
    filesystem_uuid,
    ours,
)

# The input of a plan, and its draft. Pure.


@dataclass(frozen=True)
class Planning:
    """What a plan starts from: the machine, the request, the selected disks and what speaks against using them."""

    machine: ScratchMachine
    request: ScratchRequest
    boot: bool
    selection: Selection
    problems: dict[str, ScratchFinding]  # by path: why a selected disk must not be written to
    wipes: tuple[ScratchDisk, ...]  # selected disks with content of others that may go
    arrays: tuple[OwnArray, ...]

    @property
    def disks(self) -> tuple[ScratchDisk, ...]:
        return self.selection.disks

    @property
    def wanted(self) -> OwnArray:
        """Return the array that all selected disks would make."""
        return planned_array(self.request, self.disks)

    @property
    def findings(self) -> list[ScratchFinding]:
        return [*self.selection.findings, *self.problems.values()]


@dataclass
class PlanDraft:
    """What has been decided so far. After ``refuse()`` no action is left."""

    findings: list[ScratchFinding] = field(default_factory=list)
    actions: list[ScratchAction] = field(default_factory=list)
    source: str = ""  # array, adopted, fallback
    base: str = ""  # of adopted, fallback
    array: OwnArray | None = None  # that there is in the end
    filesystem: str = ""  # as it is described
    mounted: bool = False  # scratch is mounted now, and can be used
    refused: bool = False

    def refuse(self, *findings: ScratchFinding) -> PlanDraft:
        self.findings += findings
        self.actions, self.refused = [], True
        return self


def prepare(machine: ScratchMachine, request: ScratchRequest, boot: bool) -> Planning:
    selection = select(machine, request, boot)
    problems = {disk.path: finding for disk in selection.disks for finding in [problem(disk, machine)] if finding}
    wipes = tuple(d for d in selection.disks if d.path in problems and _may_go(d, problems[d.path], selection))
    for disk in wipes:
        finding = problems.pop(disk.path)
        text = f"{disk.path} ({disk.id}) is erased, as told: it held {finding.found}."
        wiped = replace(finding, level="note", code="wiped", text=text, advice="")
        selection = replace(selection, findings=(*selection.findings, wiped))
    return Planning(machine, request, boot, selection, problems, wipes, tuple(find(machine, request, selection.disks)))


def _may_go(disk: ScratchDisk, finding: ScratchFinding, selection: Selection) -> bool:
    return finding.code == "foreign" and disk.id in selection.wipe


def stops(findings: t.Iterable[ScratchFinding]) -> bool:
    return any(finding.level in ("fail", "error") for finding in findings)


def marked(planning: Planning, uuid: str) -> list[ScratchAction]:
    """Return the action that notes what is about to be made, so that a later run may finish it."""
    return [] if planning.machine.building == uuid else [ScratchAction("mark", uuid=uuid)]


def finish(planning: Planning, draft: PlanDraft, placement: Placement, making: t.Sequence[ScratchAction]) -> PlanDraft:
    """Put the steps in their order: those that fail without harm, the disks, the mount, the directories on it."""
    own_root = draft.source == "array"
    directories, findings = plan_directories(planning.machine, planning.request, placement.mounted, own_root)
    draft.mounted = placement.mounted
    draft.findings += [*placement.findings, *findings]
    if stops(placement.findings):
        return draft.refuse()
    draft.actions = [*placement.first, *making, *placement.last]
    # A marker beside a filesystem in use would allow a later run to make it again.
    if planning.machine.building and own_root and not any(action.kind == "unmark" for action in making):
        draft.actions.append(ScratchAction("unmark"))
    draft.actions += directories
    return draft


def freed(planning: Planning) -> list[ScratchAction]:
    """Take down every array of ours that the selected disks are in."""
    arrays = [own_array.array for own_array in planning.arrays if own_array.array]
    up = [layout.umount(mount.target) for own_array in planning.arrays for mount in reversed(own_array.mounts)]
    return [*up, *(layout.stop(array.device) for array in arrays)]


# Making an array: of blank disks, of disks that may be erased, or again of our own. Pure.


def make(planning: Planning, draft: PlanDraft) -> PlanDraft:
    """Plan an array of all selected disks; nothing is touched unless every one of them may be."""
    draft.findings = [*planning.findings, *draft.findings]
    if not planning.disks or stops(draft.findings):
        return draft.refuse()
    blocked = [*_same_name(planning), *_ours_in_use(planning)]
    if blocked:
        return draft.refuse(*blocked)
    request, array = planning.request, planning.wanted
    draft.source, draft.array = "array", array
    draft.filesystem = f"{request.filesystem} {filesystem_uuid(array.uuid)}"
    own_mounts = {mount for own_array in planning.arrays for mount in own_array.mounts}
    bare = replace(
        planning.machine, mounts=tuple(mount for mount in planning.machine.mounts if mount not in own_mounts)
    )
    placement = place_array(bare, request, "", planning.disks)
    ours = [layout.wipe(disk) for disk in planning.disks if is_ours(disk)]
    making: list[ScratchAction] = [
        *freed(planning),
        *marked(planning, array.uuid),
        *(layout.wipe(disk) for disk in planning.wipes),
        *ours,
        layout.create(request, array),
        layout.mkfs(request, layout.device(request), array),
        ScratchAction("unmark"),
    ]
    return finish(replace(planning, machine=bare), draft, placement, making)


def _same_name(planning: Planning) -> list[ScratchFinding]:
    """Refuse a name that another array has: mdadm would give ours another device than the plan names."""
    own_uuids = {own_array.uuid for own_array in planning.arrays}
    hits = [a for a in planning.machine.arrays if a.name == planning.request.name and a.uuid not in own_uuids]
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


def _ours_in_use(planning: Planning) -> t.Iterator[ScratchFinding]:
    """Refuse to make an array of ours again while anything but our own mount uses it."""
    for own_array in planning.arrays:
        other_targets = [mount.target for mount in own_array.mounts if mount.target != planning.request.mount]
        holders = own_array.array.holders if own_array.array else ()
        if other_targets or holders:
            name = own_array.array.device if own_array.array else own_array.uuid
            text = f"{name} is in use: {', '.join([*other_targets, *holders])}."
            yield ScratchFinding("fail", "config", "in_use", text, "Free it, then run again.")


# An array of ours that exists: use it, finish it, or report what is wrong with it. Pure.


ANEW = "rebuild: true makes it anew from the selected disks; everything on scratch is lost."


def keep(planning: Planning, draft: PlanDraft) -> PlanDraft:
    """Plan for the array of ours that is mounted, else for the one that has all its members."""
    current = planning.arrays[0]
    if not current.whole:
        return _broken(planning, draft, current)
    if len(planning.arrays) > 1 and planning.arrays[1].whole and not current.mounts:
        return _several(planning, draft)
    differs = _differences(planning, current)
    if differs and planning.request.rebuild and not planning.boot and not stops(planning.findings):
        return make(planning, draft)
    members = [planning.problems[disk.path] for disk in current.disks if disk.path in planning.problems]
    draft.findings += [*_softened(planning, members), *_smaller(planning, current), *differs]
    if members:
        return draft.refuse()
    wrong = _unusable(planning, current)
    if not wrong:
        return _use(planning, draft, current)
    if planning.request.rebuild and wrong.code == "unmountable":
        return make(planning, PlanDraft())
    return draft.refuse(wrong)


def _broken(planning: Planning, draft: PlanDraft, current: OwnArray) -> PlanDraft:
    """Plan for an array that lacks members: finish one that was being made; any other needs ``rebuild``."""
    if planning.request.rebuild or (planning.machine.building == planning.wanted.uuid and not current.mounts):
        return (
            make(planning, draft)
            if not stops(planning.findings)
            else draft.refuse(*planning.findings, _damaged(planning, current))
        )
    return draft.refuse(*planning.findings, _damaged(planning, current))


def _damaged(planning: Planning, current: OwnArray) -> ScratchFinding:
    present = ", ".join(f"{disk.path} ({disk.id})" for disk in current.disks) or "none"
    text = f"The array {current.uuid} of scratch has {len(current.disks)} of {current.devices} members: {present}."
    blame = "hardware" if len(planning.machine.disks) < current.devices or planning.selection.short else "software"
    advice = f"Bring the missing disk back and restart; without it the data is lost, and {ANEW}"
    return ScratchFinding("fail", blame, "damaged", text, advice, current.array.device if current.array else "")


def _several(planning: Planning, draft: PlanDraft) -> PlanDraft:
    names = ", ".join(
        f"{own_array.uuid} ({', '.join(disk.id for disk in own_array.disks)})"
        for own_array in planning.arrays
        if own_array.whole
    )
    text = f"The selected disks hold several whole arrays of ours: {names}."
    advice = f"Name the disks of the right one in ids; or {ANEW}"
    if planning.request.rebuild and not planning.boot:
        return make(planning, draft)
    return draft.refuse(*planning.findings, ScratchFinding("fail", "config", "several", text, advice))


def _softened(planning: Planning, members: t.Sequence[ScratchFinding]) -> t.Iterator[ScratchFinding]:
    """Lower findings about disks with content of others to warnings: the array is complete without them."""
    yield from planning.selection.findings
    for finding in planning.problems.values():
        soft = finding.blame == "config" and finding not in members
        yield replace(finding, level="warn") if soft else finding


def _smaller(planning: Planning, current: OwnArray) -> list[ScratchFinding]:
    expected = planning.selection.expected
    if expected is None or current.devices >= expected or planning.selection.short:
        return []
    text = f"Scratch is an array of {current.devices} disks, {expected} are expected."
    level = "warn" if planning.request.fewer == "allow" else "fail"
    return [ScratchFinding(level, "config", "smaller", text, f"It stays in use; {ANEW}")]


def _differences(planning: Planning, current: OwnArray) -> list[ScratchFinding]:
    """Return how a complete array differs from the request; it is changed only with ``rebuild``."""
    request, texts = planning.request, []
    members = {disk.path for disk in current.disks}
    more = [f"{disk.path} ({disk.id})" for disk in planning.disks if disk.path not in members | set(planning.problems)]
    less = [f"{disk.path} ({disk.id})" for disk in current.disks if disk not in planning.disks]
    texts += [f"{', '.join(more)} not part of it"] if more else []
    texts += [f"its members {', '.join(less)} not selected"] if less else []
    filesystem = current.filesystem
    texts += (
        [f"{filesystem.type} on it, {request.filesystem} asked for"]
        if filesystem and filesystem.type != request.filesystem
        else []
    )
    if request.chunk and current.chunk != request.chunk:
        texts.append(f"chunk {current.chunk} KiB, {request.chunk} asked for")
    text = f"Scratch (array {current.uuid}) is whole and in use, but not as asked for: {'; '.join(texts)}."
    return [ScratchFinding("warn", "config", "differs", text, f"Leave it, or {ANEW}")] if texts else []


def _unusable(planning: Planning, current: OwnArray) -> ScratchFinding | None:
    """Return why an array with all its members cannot be used; None when it can."""
    array = current.array
    if array is None:
        return None
    if array.holders:
        text = f"On {array.device}, the array of scratch, stands {', '.join(array.holders)}."
        return ScratchFinding("fail", "config", "in_use", text, f"lsblk {array.device} shows what it is.", array.device)
    if not current.runs:
        return _stopped(current) if current.mounts else None
    if current.mounts or (current.filesystem and not planning.machine.unmountable):
        return None
    if planning.machine.building == current.uuid and (current.filesystem or not current.content):
        return None
    return _bad_content(planning, current)


def _stopped(current: OwnArray) -> ScratchFinding:
    device, at = (current.array.device if current.array else ""), " ".join(mount.target for mount in current.mounts)
    text = f"{device}, the array of scratch, stopped working while mounted at {at}; its disks are back and whole."
    advice = f"End the jobs that use it, then umount {at} and run again, or restart the node."
    return ScratchFinding("fail", "hardware", "stopped", text, advice, device)


def _bad_content(planning: Planning, current: OwnArray) -> ScratchFinding | None:
    device = current.array.device if current.array else ""
    if current.filesystem:
        text = f"The {current.filesystem.type} on {device} cannot be mounted: {planning.machine.unmountable}."
        return ScratchFinding("fail", "software", "unmountable", text, f"Repair it, or {ANEW}", device)
    if not current.content and current.array and current.array.blank:
        return None
    types = ", ".join(signature.type for signature in current.content) or "unknown data"
    text = f"{device}, the array of scratch, holds {types}, which is not ours."
    return ScratchFinding(
        "fail", "config", "foreign", text, f"Move it away and run again: wipefs {device} shows it.", device
    )


def _use(planning: Planning, draft: PlanDraft, current: OwnArray) -> PlanDraft:
    """Plan to start an array that does not run, to make its filesystem if it has none, and to mount it."""
    request, array = planning.request, current.array
    draft.source, draft.array = "array", current
    runs = bool(array and current.runs)
    md = array.device if array and runs else ""
    making: list[ScratchAction] = []
    if not runs:
        making += [layout.stop(array.device)] if array else []
        making.append(layout.assemble(request, current))
    filesystem = current.filesystem
    anew = runs and not current.mounts and (filesystem is None or bool(planning.machine.unmountable))
    if anew:
        making += [*marked(planning, current.uuid), layout.mkfs(request, md, current), ScratchAction("unmark")]
    existing = f"{filesystem.type} {filesystem.uuid}" if filesystem and not anew else ""
    draft.filesystem = existing or f"{request.filesystem} {filesystem_uuid(current.uuid)}"
    return finish(planning, draft, _place(planning, current, md), making)


def _place(planning: Planning, current: OwnArray, md: str) -> Placement:
    return place_array(planning.machine, planning.request, md, current.disks)


# Removing scratch: unmount and stop, erase only with ``destroy``. Pure.


def remove(machine: ScratchMachine, request: ScratchRequest, destroy: bool = False) -> ScratchPlan:
    """Return the steps after which no array of ours with this name is mounted or runs."""
    shown = visible(machine, request.mount)
    # An array that is used as scratch under another name (it was renamed) goes as well.
    own_arrays = [array for array in machine.arrays if ours(array.uuid)]
    arrays = [array for array in own_arrays if array.name == request.name or (shown and shown.device == array.device)]
    uuids = {array.uuid for array in arrays}
    own_disks = [disk for disk in machine.disks if disk.member and ours(disk.member.uuid)]
    disks = [
        disk for disk in own_disks if disk.member and (disk.member.name == request.name or disk.member.uuid in uuids)
    ]
    # The last mount at a path is the visible one.
    devices = {array.device for array in arrays}
    mounts = [mount.target for mount in reversed(machine.mounts) if mount.device in devices]
    actions = [layout.umount(target) for target in mounts or _binds(machine, request)]
    actions += [layout.stop(array.device) for array in arrays]
    actions += [layout.wipe(disk) for disk in disks] if destroy else []
    before = _state(arrays, mounts or _binds(machine, request), disks)
    foreign = [*_covered(machine, devices), *(_strange(disks) if destroy else [])]
    if foreign:
        reason, disk_ids = " ".join(map(str, foreign)), tuple(disk.id for disk in disks)
        return ScratchPlan("fail", "config", reason, tuple(foreign), before=before, after=before, disks=disk_ids)
    after = _state([], [], [] if destroy else disks)
    reason = f"{len(disks)} disks keep what is on them" if disks and not destroy else "there is no scratch"
    return ScratchPlan("skipped", "", reason, (), tuple(actions), before, after, disks=tuple(disk.id for disk in disks))


def _covered(machine: ScratchMachine, devices: t.Collection[str]) -> t.Iterator[ScratchFinding]:
    """Refuse where somebody else's filesystem is mounted over ours: umount would take that one."""
    for target in sorted({mount.target for mount in machine.mounts if mount.device in devices}):
        hits = [mount for mount in machine.mounts if mount.target == target]
        ours_first = min(number for number, mount in enumerate(hits) if mount.device in devices)
        for mount_above in (mount for mount in hits[ours_first:] if mount.device not in devices):
            text = f"On top of scratch at {target} is the mount of {mount_above.device} ({mount_above.fstype})."
            yield ScratchFinding(
                "fail", "config", "mount_taken", text, f"umount {target}, then run again.", mount_above.device
            )


def _strange(disks: t.Sequence[ScratchDisk]) -> t.Iterator[ScratchFinding]:
    """Refuse to erase disks that still have a superblock of ours, and content of others that came later."""
    for disk in (disk for disk in disks if not is_ours(disk)):
        text = f"{disk.path} ({disk.id}) was in an array of scratch, and holds {content(disk)}, which is not ours."
        advice = "Nothing is erased on any disk. Move that away, or erase that disk by hand."
        yield ScratchFinding("fail", "config", "foreign", text, advice, disk.path, disk.id)


def _binds(machine: ScratchMachine, request: ScratchRequest) -> list[str]:
    """Return the mount of a directory that stands in for an array; a filesystem that others mounted there stays."""
    bases = [base for base in (request.fallback, *request.adopt) if base and base != request.mount]
    shown = visible(machine, request.mount)
    return [request.mount] if shown and any(bound(machine, request, base) for base in bases) else []


def _state(
    arrays: t.Sequence[ScratchArray], mounts: t.Sequence[str], disks: t.Sequence[ScratchDisk]
) -> dict[str, t.Any]:
    return {
        "arrays": [array.device for array in arrays],
        "mounts": list(mounts),
        "members": [disk.id for disk in disks],
    }


# The two sides of the diff, without names that change at boot. Pure.


Document = t.Dict[str, t.Any]


def before(planning: Planning) -> Document:
    current = planning.arrays[0] if planning.arrays else None
    mount = _mount(planning, current)
    array_mounted = bool(mount and str(mount["source"]).startswith("array "))
    ours = array_mounted or bool(mount and mount.pop("ours", False))
    return {
        "disks": {disk.id: content(disk) for disk in planning.disks},
        "array": _array(current) if current else None,
        "filesystem": _filesystem(planning, current) if current else None,
        "mount": mount,
        "directories": describe(planning.machine, planning.request, array_mounted) if ours else {},
        "fstab": [line.text.strip() for line in planning.machine.fstab],
    }


def after(planning: Planning, draft: PlanDraft, before: Document) -> Document:
    """Return the state after the actions; without any it is the state before."""
    document = dict(before)
    for action in draft.actions:
        _applied(document, planning, draft, action)
    return document


def _applied(document: Document, planning: Planning, draft: PlanDraft, action: ScratchAction) -> None:
    if action.kind == "fstab":
        document["fstab"] = [line.text.strip() for line in planning.machine.fstab if line.number not in action.lines]
    elif action.kind == "wipe":
        document["disks"] = {**document["disks"], action.disks[0]: "blank"}
    elif action.kind in ("create", "assemble") and draft.array:
        document["array"] = {**_array(draft.array), "state": "running"}
        selected = {name: f"member of {draft.array.uuid}" for name in draft.array.ids if name in document["disks"]}
        document["disks"] = {**document["disks"], **selected}
        document["filesystem"] = draft.filesystem
    elif action.kind == "mkfs":
        document["filesystem"] = draft.filesystem
    elif action.kind in ("umount", "stop"):
        document.update(mount=None, directories={})
    else:
        _shown(document, planning, draft, action)


def _shown(document: Document, planning: Planning, draft: PlanDraft, action: ScratchAction) -> None:
    mount = planning.request.mount
    if action.kind == "mount":
        document["mount"] = {"path": mount, "source": f"array {draft.array.uuid if draft.array else ''}"}
    elif action.kind == "bind":
        document["mount"] = {"path": mount, "source": action.device}
    elif action.kind == "remount":
        document["mount"] = {"path": mount, "source": document["mount"]["source"]}
    elif action.kind == "directory" and document["mount"] and _inside(action.path, mount, draft):
        document["directories"] = {
            **document["directories"],
            action.path: f"{action.owner}:{action.group} {action.mode}",
        }


def _inside(path: str, mount: str, draft: PlanDraft) -> bool:
    return path.startswith(f"{mount}/") or (path == mount and draft.source == "array")


def _array(current: OwnArray) -> Document:
    state = "running" if current.runs else current.array.state if current.array else "stopped"
    about = {"level": "raid0", "chunk": current.chunk, "members": sorted(current.ids), "devices": current.devices}
    return {"uuid": current.uuid, **about, "state": state}


def _filesystem(planning: Planning, current: OwnArray) -> str | None:
    filesystem = current.filesystem
    if filesystem is None:
        return ", ".join(signature.type for signature in current.content) or None
    return f"{filesystem.type} {filesystem.uuid}{', cannot be mounted' if planning.machine.unmountable else ''}"


def _mount(planning: Planning, current: OwnArray | None) -> Document | None:
    machine, request = planning.machine, planning.request
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


# The planner, the same for Ansible and for the boot program. Pure.


def plan(machine: ScratchMachine, request: ScratchRequest, boot: bool = False) -> ScratchPlan:
    """Return the actions and the state after them. At boot nothing is erased but a broken array of ours."""
    planning = prepare(machine, request, boot)
    draft = _decide(planning)
    if draft.refused:
        draft.actions = []
    state = before(planning)
    verdict, blame = _verdict(draft)
    usable = draft.source and (not draft.refused or draft.mounted)
    return ScratchPlan(
        verdict,
        blame,
        _reason(planning, draft, verdict),
        tuple(draft.findings),
        tuple(draft.actions),
        state,
        after(planning, draft, state),
        path=request.mount if usable else "",
        source=draft.source if usable else "",
        disks=tuple(disk.id for disk in planning.disks),
        array=draft.array.uuid if draft.array and usable else "",
        size=_size(planning, draft.array) if draft.array and usable else 0,
        members=len(draft.array.disks) if draft.array and usable else 0,
    )


def _decide(planning: Planning) -> PlanDraft:
    if planning.arrays:
        return keep(planning, PlanDraft())
    base = _adopted(planning)
    if base:
        return _bind(planning, PlanDraft(list(planning.selection.findings), source="adopted", base=base))
    if not planning.disks:
        return _nothing(planning)
    return make(planning, PlanDraft())


def _adopted(planning: Planning) -> str:
    """Return the ``adopt`` path where somebody else mounts all selected disks; empty where there is none."""
    places = [
        base
        for base in planning.request.adopt
        if planning.disks and all(base in disk.mounts for disk in planning.disks)
    ]
    return places[0] if places else ""


def _bind(planning: Planning, draft: PlanDraft) -> PlanDraft:
    placement = place_bind(planning.machine, planning.request, draft.base)
    if stops(draft.findings):
        draft.mounted = placement.mounted
        return draft.refuse()
    return finish(planning, draft, placement, [])


def _nothing(planning: Planning) -> PlanDraft:
    """Plan without a disk: scratch is the fallback directory, or there is none."""
    draft, request = PlanDraft(list(planning.findings)), planning.request
    if stops(draft.findings):
        return draft.refuse()
    if not request.fallback:
        return draft
    draft.source, draft.base = "fallback", request.fallback
    holder = holding(planning.machine, request.fallback)
    if holder is None or holder.target == "/":
        # At boot, too: the resource disk was not mounted, and jobs would fill what the system needs.
        text = f"{request.fallback}, which is to stand in for scratch, is on the system disk."
        advice = "Mount the resource disk there, or leave fallback empty for no scratch at all."
        draft.findings.append(ScratchFinding("fail", "config", "system_disk", text, advice))
    return _bind(planning, draft)


def _verdict(draft: PlanDraft) -> tuple[str, str]:
    for level in ("fail", "error", "warn"):
        hits = [finding for finding in draft.findings if finding.level == level]
        if hits:
            return level, hits[0].blame
    return ("pass" if draft.source in ("array", "adopted") else "skipped"), ""


def _reason(planning: Planning, draft: PlanDraft, verdict: str) -> str:
    texts = [str(finding) for finding in draft.findings if finding.level in ("fail", "error", "warn")]
    if texts:
        return " ".join(texts)
    mount = planning.request.mount
    if draft.array:
        kind = draft.filesystem.split(" ", 1)[0]
        return f"{len(draft.array.disks)} disks, raid0, {kind}, at {mount}"
    if draft.source == "adopted":
        return f"{len(planning.disks)} disks are in use at {draft.base} already: a directory there, at {mount}"
    return f"no local NVMe disk: {f'{draft.base} instead, at {mount}' if draft.base else 'there is no scratch'}"


def _size(planning: Planning, array: OwnArray) -> int:
    sizes = [known.size for known in planning.machine.arrays if known.uuid == array.uuid]
    return sizes[0] if sizes and sizes[0] else sum(disk.size for disk in array.disks)
