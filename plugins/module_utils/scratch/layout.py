# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where scratch is mounted, which directories it has, and the commands of each step of a plan. Pure."""

from __future__ import annotations

import posixpath
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.disks import OwnArray, visible
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    Directory,
    FstabLine,
    Path,
    ScratchAction,
    ScratchDisk,
    ScratchFinding,
    ScratchMachine,
    ScratchMount,
    ScratchRequest,
    filesystem_uuid,
)

# The commands of each step.


FSTAB_NOTE = "# hpcai.gpu_cluster nvme_scratch mounts this place itself: "

_LARGEST_LOG_STRIPE = 256  # KiB: mkfs.xfs takes no more


def device(request: ScratchRequest) -> str:
    return f"/dev/md/{request.name}"


def wipe(disk: ScratchDisk) -> ScratchAction:
    argv = ("wipefs", "--all", "--force", *disk.partitions, disk.path)
    return ScratchAction("wipe", argv, disk.path, (disk.id,))


def stop(md: str) -> ScratchAction:
    return ScratchAction("stop", ("mdadm", "--stop", md), md)


def umount(path: str) -> ScratchAction:
    return ScratchAction("umount", ("umount", path), path=path)


def create(request: ScratchRequest, array: OwnArray) -> ScratchAction:
    count, md = len(array.disks), device(request)
    argv = ["mdadm", "--create", md, "--run", "--level=0", f"--raid-devices={count}", "--metadata=1.2"]
    # Without a home host the name is this machine's on every machine, whatever it is called at the next boot.
    argv += [*_stripe(array).mdadm, "--homehost=any", f"--name={request.name}", f"--uuid={array.uuid}"]
    argv += ["--force"] if count == 1 else []
    return ScratchAction("create", (*argv, *(disk.path for disk in array.disks)), md, array.ids, array.uuid)


def assemble(request: ScratchRequest, array: OwnArray) -> ScratchAction:
    # Not --run: an array without all its members must stay as it is.
    argv = ("mdadm", "--assemble", device(request), f"--uuid={array.uuid}", *(disk.path for disk in array.disks))
    return ScratchAction("assemble", argv, device(request), array.ids, array.uuid)


def mkfs(request: ScratchRequest, md: str, array: OwnArray) -> ScratchAction:
    uuid, stripe = filesystem_uuid(array.uuid), _stripe(array)
    if request.filesystem == "xfs":
        # -K: discarding terabytes takes minutes, and a node that boots does not wait for it.
        argv = ["mkfs.xfs", "-q", "-f", "-K", "-m", f"uuid={uuid}", *stripe.xfs, md]
    else:
        argv = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-U", uuid, *stripe.ext4, md]
    return ScratchAction("mkfs", tuple(argv), md, array.ids, array.uuid)


class Stripe(t.NamedTuple):
    """How data is laid over the disks of an array, in the words of each program that has to know."""

    mdadm: list[str]
    xfs: list[str]
    ext4: list[str]


def _stripe(array: OwnArray) -> Stripe:
    chunk, width = array.chunk or 0, len(array.disks)
    blocks = chunk // 4  # of 4 KiB
    return Stripe(
        mdadm=[f"--chunk={chunk}"],
        xfs=["-d", f"su={chunk}k,sw={width}", "-l", f"su={min(chunk, _LARGEST_LOG_STRIPE)}k"],
        ext4=["-E", f"nodiscard,stride={blocks},stripe_width={blocks * width}"],
    )


def mount(request: ScratchRequest, md: str) -> ScratchAction:
    options = ("-o", ",".join(request.options)) if request.options else ()
    return ScratchAction("mount", ("mount", *options, md, request.mount), md, path=request.mount)


def remount(request: ScratchRequest) -> ScratchAction:
    argv = ("mount", "-o", ",".join(("remount", *request.options)), request.mount)
    return ScratchAction("remount", argv, path=request.mount)


def bind(request: ScratchRequest, source: str) -> ScratchAction:
    return ScratchAction("bind", ("mount", "--bind", source, request.mount), source, path=request.mount)


def directory(path: str, owner: str, group: str, mode: str) -> ScratchAction:
    return ScratchAction("directory", path=path, owner=owner, group=group, mode=mode)


# The mount point: what is mounted there, and fstab lines for it.


# The options that mountinfo shows as they are given; whether others are in effect cannot be read.
# Those that it shows as the filesystem's (lazytime, sync) or not at all (strictatime) would always seem to be off.
_SHOWN = set("noatime nodiratime relatime nodev nosuid noexec nosymfollow".split())
_TAGS = ("UUID=", "LABEL=", "PARTUUID=", "PARTLABEL=", "ID=")


@dataclass
class Placement:
    """The actions that mount scratch at its path: ``first`` before any disk is touched, ``last`` after."""

    mounted: bool = False  # mounted already, as requested
    first: list[ScratchAction] = field(default_factory=list)
    last: list[ScratchAction] = field(default_factory=list)
    findings: list[ScratchFinding] = field(default_factory=list)

    @property
    def possible(self) -> bool:
        return not any(finding.level in ("fail", "error") for finding in self.findings)


def at(machine: ScratchMachine, path: str) -> Path:
    return next((entry for entry in machine.paths if entry.path == path), Path(path, "absent"))


def stand_in(base: str, request: ScratchRequest) -> str:
    """Return the directory that serves as scratch on somebody else's filesystem at ``base``."""
    return base if base == request.mount else posixpath.join(base, request.name)


def bound(machine: ScratchMachine, request: ScratchRequest, base: str) -> bool:
    """Return whether the mount shows our directory on somebody else's filesystem at ``base``."""
    if base == request.mount:
        return True
    shown, holder = visible(machine, request.mount), holding(machine, base)
    if shown is None or holder is None or shown.number != holder.number:
        return False
    return shown.root == posixpath.join(holder.root, posixpath.relpath(stand_in(base, request), holder.target))


def holding(machine: ScratchMachine, path: str) -> ScratchMount | None:
    """Return the mount on which a path lies."""
    hits = [m for m in machine.mounts if m.target == "/" or f"{path}/".startswith(f"{m.target}/")]
    return max(enumerate(hits), key=lambda hit: (len(hit[1].target), hit[0]))[1] if hits else None


def place_array(machine: ScratchMachine, request: ScratchRequest, md: str, disks: t.Sequence[ScratchDisk]) -> Placement:
    """Plan the mount of an array; ``md`` is its device now, or empty where it does not run yet."""
    placement, shown = Placement(), visible(machine, request.mount)
    placement.mounted = bool(shown and md and shown.device == md and shown.root == "/")
    elsewhere = sorted({m.target for m in machine.mounts if md and m.device == md and m.target != request.mount})
    if not placement.mounted:
        _clear(machine, request, placement)
        if elsewhere:
            text = f"{md}, the array of scratch, is mounted at {', '.join(elsewhere)}, not at {request.mount}."
            advice = f"umount {' '.join(elsewhere)} and run again, or make that the mount."
            placement.findings.append(ScratchFinding("fail", "config", "elsewhere", text, advice, md))
        placement.last += [_mount_point(machine, request, placement), mount(request, md or device(request))]
    elif shown and lacking(shown, request):
        placement.last.append(remount(request))
    own_devices = {md, device(request)} | {d for disk in disks for d in (disk.path, *disk.partitions, *disk.holders)}
    _fstab(machine, request, own_devices, placement)
    return placement


def place_bind(machine: ScratchMachine, request: ScratchRequest, base: str) -> Placement:
    """Plan the mount of a directory on a filesystem that somebody else mounts."""
    placement, source = Placement(), stand_in(base, request)
    placement.mounted = bound(machine, request, base)
    current = at(machine, source)
    if at(machine, base).kind != "directory":
        text = f"{base}, which should hold scratch, is not a directory."
        placement.findings.append(
            ScratchFinding("fail", "config", "no_directory", text, "Mount it, or name another one.")
        )
    elif current.kind == "other":
        placement.findings.append(_not_a_directory(source))
    elif source != request.mount and (current.owner, current.group, current.mode) != ("root", "root", request.mode):
        placement.last.append(directory(source, "root", "root", request.mode))
    if not placement.mounted:
        _clear(machine, request, placement)
        placement.last += [_mount_point(machine, request, placement), bind(request, source)]
    if source != request.mount:
        _fstab(machine, request, set(), placement)
    return placement


def lacking(shown: ScratchMount, request: ScratchRequest) -> list[str]:
    """Return the requested options that mountinfo shows to be off."""
    # The kernel takes noatime and relatime together as noatime.
    hidden = {"relatime"} if "noatime" in request.options else set()
    return [option for option in request.options if option in _SHOWN - hidden and option not in shown.options]


def _clear(machine: ScratchMachine, request: ScratchRequest, placement: Placement) -> None:
    """Unmount a directory that we bound there ourselves; any other mount at the path is a finding."""
    shown = visible(machine, request.mount)
    bases = [base for base in (request.fallback, *request.adopt) if base and base != request.mount]
    if shown is None:
        return
    if any(bound(machine, request, base) for base in bases):
        placement.first.append(umount(request.mount))
        return
    text = f"{request.mount} is already the mount of {shown.device} ({shown.fstype})."
    advice = f"umount {request.mount} and remove what mounts it there, or choose another mount."
    placement.findings.append(ScratchFinding("fail", "config", "mount_taken", text, advice, shown.device))


def _mount_point(machine: ScratchMachine, request: ScratchRequest, placement: Placement) -> ScratchAction:
    """Return the mount point, root's with mode 0755: a job without scratch must not fill the system disk."""
    current = at(machine, request.mount)
    if visible(machine, request.mount) is None:
        if current.kind == "other":
            placement.findings.append(_not_a_directory(request.mount))
        if current.kind == "directory" and not current.empty:
            text = f"{request.mount} is not empty: the files in it are out of sight while scratch is mounted."
            placement.findings.append(ScratchFinding("note", "config", "not_empty", text, "umount it to see them."))
    return directory(request.mount, "root", "root", "0755")


def _not_a_directory(path: str) -> ScratchFinding:
    text = f"{path} is a file, a symbolic link or something else that is not a directory."
    return ScratchFinding("fail", "config", "no_directory", text, f"Look at it (ls -ld {path}) and move it away.")


def _fstab(machine: ScratchMachine, request: ScratchRequest, own_devices: set[str], placement: Placement) -> None:
    """Comment out fstab lines for our mount without a device, or with one of ours; any other line is a finding."""
    stale = [line for line in machine.fstab if _stale(line, own_devices)]
    for line in machine.fstab:
        if line not in stale:
            text = f"line {line.number} of /etc/fstab mounts {line.source} at {request.mount}: {line.text.strip()}"
            advice = "Remove that line if scratch shall be there, or choose another mount."
            placement.findings.append(ScratchFinding("fail", "config", "fstab", f"{text}.", advice, line.device))
    if stale:
        lines = tuple(line.number for line in stale)
        placement.first.append(ScratchAction("fstab", path="/etc/fstab", lines=lines, text=FSTAB_NOTE))


def _stale(line: FstabLine, own_devices: set[str]) -> bool:
    if not (line.source.startswith("/dev/") or line.source.startswith(_TAGS)):
        return False
    return not line.device or line.device in own_devices


# The directories on scratch, made again whenever scratch is made.


def wanted_paths(request: ScratchRequest) -> tuple[str, ...]:
    """Return every path whose state the planner needs."""
    bases = [base for base in (request.fallback, *request.adopt) if base]
    below = [posixpath.join(base, request.name) for base in bases]
    inside = [posixpath.join(request.mount, directory.path) for directory in _with_parents(request)]
    return tuple(dict.fromkeys([request.mount, *bases, *below, *inside]))


def plan_directories(
    machine: ScratchMachine, request: ScratchRequest, mounted: bool, own_root: bool
) -> tuple[list[ScratchAction], list[ScratchFinding]]:
    """Return the directories to have; before the mount nobody knows which there are. ``whole``: the root of the mount
    is ours too, not only what is below it."""
    actions, findings = [], []
    for requested in _all(request, own_root):
        path = posixpath.normpath(posixpath.join(request.mount, requested.path))
        unknown = {requested.owner, requested.group} & set(machine.unknown_names)
        current = at(machine, path)
        if unknown:
            text = f"{path} is not made: this machine knows no user or group {' or '.join(sorted(unknown))}."
            findings.append(
                ScratchFinding("warn", "config", "unknown_owner", text, "Make the account, then run again.")
            )
        elif mounted and current.kind == "other":
            text = f"{path} is a file or a symbolic link, where a directory is wanted."
            # Who owns a directory in scratch can put a link in its place, and must not take the node away with it.
            level = "fail" if requested.owner == "root" else "warn"
            findings.append(ScratchFinding(level, "config", "no_directory", text, f"Move it away (ls -ld {path})."))
        elif (
            not mounted
            or current.kind == "absent"
            or (_listed(requested, request) and _differs(machine, path, requested))
        ):
            actions.append(directory(path, requested.owner, requested.group, requested.mode))
    return actions, findings


def describe(machine: ScratchMachine, request: ScratchRequest, own_root: bool) -> dict[str, str]:
    """Return owner, group and mode of the directories that exist."""
    states = {}
    for requested in _all(request, own_root):
        path = posixpath.normpath(posixpath.join(request.mount, requested.path))
        current = at(machine, path)
        if current.kind == "directory":
            states[path] = f"{current.owner}:{current.group} {current.mode}"
    return states


def _all(request: ScratchRequest, own_root: bool) -> list[Directory]:
    return [*([Directory(".", "root", "root", request.mode)] if own_root else []), *_with_parents(request)]


def _with_parents(request: ScratchRequest) -> list[Directory]:
    """Return the requested directories and their parents; unlisted parents are root's, and left where they exist."""
    directories = {requested.path: requested for requested in request.directories}
    for path in list(directories):
        parent = posixpath.dirname(path)
        while parent:
            directories.setdefault(parent, Directory(parent, "root", "root", "0755"))
            parent = posixpath.dirname(parent)
    return [directories[path] for path in sorted(directories)]


def _listed(requested: Directory, request: ScratchRequest) -> bool:
    return requested.path == "." or requested in request.directories


def _differs(machine: ScratchMachine, path: str, requested: Directory) -> bool:
    current = at(machine, path)
    return (current.owner, current.group, current.mode) != (requested.owner, requested.group, requested.mode)
