# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How scratch is, and how it will be: the two sides of a diff, without any name that changes at boot. Pure, private."""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import place as places
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.case import Case, Draft
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.content import content
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.directories import describe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Action
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ours import Ours, visible
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan_keep import chunk_of

Document = t.Dict[str, t.Any]


def before(case: Case) -> Document:
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


def after(case: Case, draft: Draft, now: Document) -> Document:
    """Return what the actions lead to; without any the machine stays as it is."""
    then = dict(now)
    for action in draft.actions:
        _applied(then, case, draft, action)
    return then


def _applied(then: Document, case: Case, draft: Draft, action: Action) -> None:
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


def _shown(then: Document, case: Case, draft: Draft, action: Action) -> None:
    mount = case.request.mount
    if action.kind == "mount":
        then["mount"] = {"path": mount, "source": f"array {draft.uuid}"}
    elif action.kind == "bind":
        then["mount"] = {"path": mount, "source": action.device}
    elif action.kind == "remount":
        then["mount"] = {"path": mount, "source": then["mount"]["source"]}
    elif action.kind == "directory" and then["mount"] and _inside(action.path, mount, draft):
        then["directories"] = {**then["directories"], action.path: f"{action.owner}:{action.group} {action.mode}"}


def _inside(path: str, mount: str, draft: Draft) -> bool:
    return path.startswith(f"{mount}/") or (path == mount and draft.source == "array")


def _array(current: Ours) -> Document:
    state = "running" if current.runs else current.array.state if current.array else "stopped"
    members = sorted(disk.id for disk in current.disks)
    about = {"level": "raid0", "chunk": chunk_of(current), "members": members, "devices": current.devices}
    return {"uuid": current.uuid, **about, "state": state}


def _filesystem(case: Case, current: Ours) -> str | None:
    made = current.filesystem
    if made is None:
        return ", ".join(signature.type for signature in current.content) or None
    return f"{made.type} {made.uuid}{', cannot be mounted' if case.machine.unmountable else ''}"


def _mount(case: Case, current: Ours | None) -> Document | None:
    machine, request = case.machine, case.request
    shown = visible(machine, request.mount)
    if shown is None:
        return None
    if current and shown in current.mounts:
        lacks = places.lacking(shown, request)
        return {"path": request.mount, "source": f"array {current.uuid}", **({"lacks": lacks} if lacks else {})}
    for base in (request.fallback, *request.adopt):
        if base and places.bound(machine, request, base):
            return {"path": request.mount, "source": places.stand_in(base, request), "ours": True}
    return {"path": request.mount, "source": posixpath.basename(shown.device) or shown.fstype}
