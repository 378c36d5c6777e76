# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where scratch shows up: the mount point, what is mounted there, the fstab lines that want it too. Pure, private."""

from __future__ import annotations

import posixpath
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import steps
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import (
    Disk,
    FstabLine,
    Machine,
    Mount,
    Path,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Action, Finding, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.ours import visible

# The options that show in mountinfo word for word; of the others nobody can tell whether they are on.
# Those that it shows as the filesystem's (lazytime, sync) or not at all (strictatime) would seem never to be on.
_SHOWN = set("noatime nodiratime relatime nodev nosuid noexec nosymfollow".split())
_TAGS = ("UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=", "ID=")


@dataclass
class Placement:
    """What it takes to have scratch at its place. ``first`` comes before any disk is touched, ``last`` after."""

    there: bool = False  # mounted already, as it is wanted
    first: list[Action] = field(default_factory=list)
    last: list[Action] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def possible(self) -> bool:
        return not any(finding.level in ("fail", "error") for finding in self.findings)


def at(machine: Machine, path: str) -> Path:
    return next((item for item in machine.paths if item.path == path), Path(path, "absent"))


def stand_in(base: str, request: Request) -> str:
    """Return the directory of a filesystem of somebody else that serves as scratch."""
    return base if base == request.mount else posixpath.join(base, request.name)


def bound(machine: Machine, request: Request, base: str) -> bool:
    """Tell whether the mount shows the directory that we keep on another filesystem."""
    if base == request.mount:
        return True
    shown, holder = visible(machine, request.mount), holding(machine, base)
    if shown is None or holder is None or shown.number != holder.number:
        return False
    return shown.root == posixpath.join(holder.root, posixpath.relpath(stand_in(base, request), holder.target))


def holding(machine: Machine, path: str) -> Mount | None:
    """Return the mount on which a path lies."""
    hits = [m for m in machine.mounts if m.target == "/" or f"{path}/".startswith(f"{m.target}/")]
    return max(enumerate(hits), key=lambda hit: (len(hit[1].target), hit[0]))[1] if hits else None


def place_array(machine: Machine, request: Request, md: str, disks: t.Sequence[Disk]) -> Placement:
    """Plan the mount of an array; ``md`` is its device now, or empty where it does not run yet."""
    place, shown = Placement(), visible(machine, request.mount)
    place.there = bool(shown and md and shown.device == md and shown.root == "/")
    elsewhere = sorted({m.target for m in machine.mounts if md and m.device == md and m.target != request.mount})
    if not place.there:
        _clear(machine, request, place)
        if elsewhere:
            text = f"{md}, the array of scratch, is mounted at {', '.join(elsewhere)}, not at {request.mount}."
            advice = f"umount {' '.join(elsewhere)} and run again, or make that the mount."
            place.findings.append(Finding("fail", "config", "elsewhere", text, advice, md))
        place.last += [_mount_point(machine, request, place), steps.mount(request, md or steps.device(request))]
    elif shown and lacking(shown, request):
        place.last.append(steps.remount(request))
    own = {md, steps.device(request)} | {d for disk in disks for d in (disk.path, *disk.partitions, *disk.holders)}
    _fstab(machine, request, own, place)
    return place


def place_bind(machine: Machine, request: Request, base: str) -> Placement:
    """Plan the mount of a directory on a filesystem that somebody else mounts."""
    place, source = Placement(), stand_in(base, request)
    place.there = bound(machine, request, base)
    now = at(machine, source)
    if at(machine, base).kind != "directory":
        text = f"{base}, which should hold scratch, is not a directory."
        place.findings.append(Finding("fail", "config", "no_directory", text, "Mount it, or name another one."))
    elif now.kind == "other":
        place.findings.append(_not_a_directory(source))
    elif source != request.mount and (now.owner, now.group, now.mode) != ("root", "root", request.mode):
        place.last.append(steps.directory(source, "root", "root", request.mode))
    if not place.there:
        _clear(machine, request, place)
        place.last += [_mount_point(machine, request, place), steps.bind(request, source)]
    if source != request.mount:
        _fstab(machine, request, set(), place)
    return place


def lacking(shown: Mount, request: Request) -> list[str]:
    """Return the options that are asked for and visibly not on."""
    # The kernel takes noatime and relatime together as noatime.
    hidden = {"relatime"} if "noatime" in request.options else set()
    return [option for option in request.options if option in _SHOWN - hidden and option not in shown.options]


def _clear(machine: Machine, request: Request, place: Placement) -> None:
    """A directory that we put there ourselves gives way; anything else stays."""
    shown = visible(machine, request.mount)
    bases = [base for base in (request.fallback, *request.adopt) if base and base != request.mount]
    if shown is None:
        return
    if any(bound(machine, request, base) for base in bases):
        place.first.append(steps.umount(request.mount))
        return
    text = f"{request.mount} is already the mount of {shown.device} ({shown.fstype})."
    advice = f"umount {request.mount} and remove what mounts it there, or choose another mount."
    place.findings.append(Finding("fail", "config", "mount_taken", text, advice, shown.device))


def _mount_point(machine: Machine, request: Request, place: Placement) -> Action:
    """Only root writes to the bare directory: a job that finds scratch away must not fill the system disk."""
    now = at(machine, request.mount)
    if visible(machine, request.mount) is None:
        if now.kind == "other":
            place.findings.append(_not_a_directory(request.mount))
        if now.kind == "directory" and not now.empty:
            text = f"{request.mount} is not empty: the files in it are out of sight while scratch is mounted."
            place.findings.append(Finding("note", "config", "not_empty", text, "umount it to see them."))
    return steps.directory(request.mount, "root", "root", "0755")


def _not_a_directory(path: str) -> Finding:
    text = f"{path} is a file, a symbolic link or something else that is not a directory."
    return Finding("fail", "config", "no_directory", text, f"Look at it (ls -ld {path}) and move it away.")


def _fstab(machine: Machine, request: Request, own: set[str], place: Placement) -> None:
    """A line for our mount that nobody needs is commented out; one that names something else alive is not ours."""
    stale = [line for line in machine.fstab if _stale(line, own)]
    for line in machine.fstab:
        if line not in stale:
            text = f"line {line.number} of /etc/fstab mounts {line.source} at {request.mount}: {line.text.strip()}"
            advice = "Remove that line if scratch shall be there, or choose another mount."
            place.findings.append(Finding("fail", "config", "fstab", f"{text}.", advice, line.device))
    if stale:
        lines = tuple(line.number for line in stale)
        place.first.append(Action("fstab", path="/etc/fstab", lines=lines, text=steps.FSTAB_NOTE))


def _stale(line: FstabLine, own: set[str]) -> bool:
    if not (line.source.startswith("/dev/") or line.source.startswith(_TAGS)):
        return False
    return not line.device or line.device in own
