# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine in memory on which the steps of a plan are done: what the kernel and mdadm make of them, and no more.

It knows nothing of the planner: a step that a real machine would refuse (a disk in use, a filesystem that is not there)
raises `Refused` here.
"""

from __future__ import annotations

import posixpath
import typing as t
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    ArrayMember,
    Path,
    ScratchAction,
    ScratchArray,
    ScratchDisk,
    ScratchMachine,
    ScratchMount,
    ScratchPlan,
    ScratchRequest,
    Signature,
    filesystem_uuid,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.module import parse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan import plan

MODEL = "Microsoft NVMe Direct Disk"
ROOT = ScratchMount("/", "/dev/vda1", "254:1", "ext4")
SIZE = 1 << 40
_RUNNING = {"clean", "active", "read-auto"}


class Refused(Exception):
    """What a real machine would say to this step."""


def request_of(**wanted: t.Any) -> ScratchRequest:
    """A request with the defaults of the module's options, for no disk unless some are named."""
    return replace(parse({"models": []}), **wanted)


def disk(number: int, **other: t.Any) -> ScratchDisk:
    """A blank disk; the number of the serial and the kernel's number are not the same."""
    name = f"S{number:02d}"
    known = {
        "path": f"/dev/nvme{(number * 5 + 3) % 16}n1",
        "id": name,
        "ids": (name, f"eui.{number:016x}", f"nvme-{name}"),
    }
    return ScratchDisk(**{**known, "model": MODEL, "transport": "pcie", "size": SIZE, "max_io": 1024, **other})


def member(
    one: ScratchDisk, uuid: str, devices: int, role: int, name: str = "scratch", chunk: int = 512
) -> ScratchDisk:
    about = ArrayMember(uuid, name, "raid0", devices, role, chunk)
    return replace(one, member=about, signatures=(Signature(one.path, "linux_raid_member", uuid),), blank=False)


def cleared(one: ScratchDisk) -> ScratchDisk:
    return replace(one, member=None, signatures=(), partitions=(), blank=True)


def blank(count: int = 8, **other: t.Any) -> ScratchMachine:
    return ScratchMachine(tuple(disk(number) for number in range(count)), mounts=(ROOT,), **other)


class World:
    """One machine; `machine` is what a reader would find on it now."""

    def __init__(self, machine: ScratchMachine, request: ScratchRequest) -> None:
        self.machine, self.request = machine, request
        self.fixed = tuple(m for m in machine.mounts if m.target != request.mount)  # by others, at every start
        self.half_made: set[str] = set()  # arrays with a filesystem that was cut off
        self.inside: dict[str, list[Path]] = {}  # directories by the filesystem that holds them
        self.hidden: list[Path] = []
        self.contents: dict[str, tuple[Signature, ...]] = {}  # of arrays that do not run
        self.written: list[tuple[str, str]] = []  # every disk that was written to, and by what

    def do(self, action: ScratchAction) -> None:
        getattr(self, f"_{action.kind}")(action)

    def run(self, actions: t.Iterable[ScratchAction]) -> None:
        for action in actions:
            self.do(action)

    def restart(self) -> None:
        """Nothing but the disks, fstab and the marker is left; no array is started by anybody else."""
        for array in self.machine.arrays:
            self.contents[array.uuid] = array.content
        disks = tuple(replace(d, holders=(), mounts=(), swaps=(), busy=False) for d in self.machine.disks)
        self.tell(disks=disks, arrays=(), mounts=self.fixed, paths=self._bare(), unmountable="")

    def tell(self, **changes: t.Any) -> None:
        self.machine = replace(self.machine, **changes)

    def _bare(self) -> tuple[Path, ...]:
        mount = self.request.mount
        kept = [p for p in self.machine.paths if p.path != mount and not p.path.startswith(f"{mount}/")]
        return (*kept, *self.hidden)

    def _disk(self, path: str) -> ScratchDisk:
        return next(d for d in self.machine.disks if d.path == path)

    def _change(self, one: ScratchDisk) -> None:
        self.tell(disks=tuple(one if d.path == one.path else d for d in self.machine.disks))

    def _array(self, device: str) -> ScratchArray:
        hits = [a for a in self.machine.arrays if device in (a.device, f"/dev/md/{a.name}")]
        if not hits:
            raise Refused(f"{device}: no such array")
        return hits[0]

    def _fstab(self, action: ScratchAction) -> None:
        self.tell(fstab=tuple(line for line in self.machine.fstab if line.number not in action.lines))

    def _mark(self, action: ScratchAction) -> None:
        self.tell(building=action.uuid)

    def _unmark(self, action: ScratchAction) -> None:
        self.tell(building="")

    def _umount(self, action: ScratchAction) -> None:
        hits = [m for m in self.machine.mounts if m.target == action.path]
        if not hits:
            raise Refused(f"{action.path}: not mounted")
        gone = hits[-1]
        self.tell(mounts=tuple(m for m in self.machine.mounts if m is not gone), paths=self._bare())
        self._mounted_disks()

    def _mounted_disks(self) -> None:
        for array in self.machine.arrays:
            targets = tuple(m.target for m in self.machine.mounts if m.device == array.device)
            for path in array.members:
                if any(d.path == path for d in self.machine.disks):
                    self._change(replace(self._disk(path), mounts=targets))

    def _stop(self, action: ScratchAction) -> None:
        array = self._array(action.device)
        if any(m.device == array.device for m in self.machine.mounts) or array.holders:
            raise Refused(f"{array.device}: busy")
        self.contents[array.uuid] = array.content
        self.tell(arrays=tuple(a for a in self.machine.arrays if a is not array))
        for one in self.machine.disks:
            if array.device in one.holders:
                self._change(replace(one, holders=tuple(h for h in one.holders if h != array.device), busy=False))

    def _wipe(self, action: ScratchAction) -> None:
        one = self._disk(action.device)
        if one.holders or one.mounts or one.swaps or one.busy:
            raise Refused(f"{one.path}: busy")
        self.written.append((one.id, "wipe"))
        self._change(cleared(one))

    def _create(self, action: ScratchAction) -> None:
        disks = [self._disk(path) for path in action.argv if path.startswith("/dev/nvme")]
        self.superblocks(action, len(disks))
        self._started(action.uuid, disks)
        self.contents.pop(action.uuid, None)

    def superblocks(self, action: ScratchAction, count: int) -> None:
        """The first part of a creation, or all of it without the start."""
        disks = [self._disk(path) for path in action.argv if path.startswith("/dev/nvme")]
        for role, one in list(enumerate(disks))[:count]:
            if not one.blank or one.holders or one.mounts or one.swaps or one.busy or one.signatures:
                raise Refused(f"{one.path}: not blank or busy")
            chunk = next(int(word[8:]) for word in action.argv if word.startswith("--chunk="))
            self.written.append((one.id, "create"))
            self._change(member(one, action.uuid, len(disks), role, self.request.name, chunk))
        self.half_made.discard(action.uuid)

    def _assemble(self, action: ScratchAction) -> None:
        disks = [self._disk(path) for path in action.argv if path.startswith("/dev/nvme")]
        alike = [d.member for d in disks if d.member and d.member.uuid == action.uuid]
        if len(alike) != len(disks) or alike[0].devices != len(disks) or any(d.holders for d in disks):
            raise Refused(f"{action.device}: cannot start")
        self._started(action.uuid, disks)

    def _started(self, uuid: str, disks: t.Sequence[ScratchDisk]) -> None:
        taken = {array.device for array in self.machine.arrays}
        device = next(f"/dev/md{n}" for n in range(127, 100, -1) if f"/dev/md{n}" not in taken)
        content = self.contents.pop(uuid, ())
        paths, size = tuple(d.path for d in disks), sum(d.size for d in disks)
        made = ScratchArray(device, uuid, self.request.name, "raid0", "clean", len(disks), paths, size, content)
        self.tell(arrays=(*self.machine.arrays, replace(made, blank=not content)))
        for path in paths:
            self._change(replace(self._disk(path), holders=(device,), busy=True))

    def _mkfs(self, action: ScratchAction, half: bool = False) -> None:
        array = self._array(action.device)
        if any(m.device == array.device for m in self.machine.mounts) or array.uuid != action.uuid:
            raise Refused(f"{array.device}: mounted, or another one")
        kind = action.argv[0].split(".")[1]
        made = Signature(array.device, kind, filesystem_uuid(array.uuid))
        changed = replace(array, content=(made,), blank=False)
        self.tell(arrays=tuple(changed if a is array else a for a in self.machine.arrays))
        self.inside[array.uuid] = []
        (self.half_made.add if half else self.half_made.discard)(array.uuid)

    def half_mkfs(self, action: ScratchAction) -> None:
        self._mkfs(action, half=True)

    def _mount(self, action: ScratchAction) -> None:
        array = self._array(action.device)
        if array.state not in _RUNNING or not array.content or array.uuid in self.half_made:
            raise Refused("wrong fs type, bad option, bad superblock")
        options = tuple(action.argv[action.argv.index("-o") + 1].split(",")) if "-o" in action.argv else ()
        held = self.inside.get(array.uuid, [])
        self._show(ScratchMount(action.path, array.device, "9:127", array.content[0].type, "/", ("rw", *options)), held)
        if not any(p.path == action.path for p in self.machine.paths):
            self._have(Path(action.path, "directory", "root", "root", "0755"))
        self._mounted_disks()

    def _show(self, mount: ScratchMount, held: t.Iterable[Path]) -> None:
        target = self._path(mount.target)
        if target is None or target.kind != "directory":
            raise Refused(f"{mount.target}: no mount point")
        self.hidden = [p for p in self.machine.paths if p.path == mount.target or p.path.startswith(f"{mount.target}/")]
        self.tell(
            mounts=(*self.machine.mounts, mount),
            paths=(*(p for p in self.machine.paths if p not in self.hidden), *held),
        )

    def _remount(self, action: ScratchAction) -> None:
        shown = [m for m in self.machine.mounts if m.target == action.path][-1]
        changed = replace(shown, options=(*shown.options, *action.argv[2].split(",")[1:]))
        self.tell(mounts=tuple(changed if m is shown else m for m in self.machine.mounts))

    def _bind(self, action: ScratchAction) -> None:
        source = self._path(action.device)
        if source is None:
            raise Refused(f"{action.device}: no such directory")
        hits = [m for m in self.machine.mounts if m.target == "/" or f"{action.device}/".startswith(f"{m.target}/")]
        base = max(hits, key=lambda m: len(m.target))
        root = posixpath.join(base.root, posixpath.relpath(action.device, base.target))
        self._show(replace(base, target=action.path, root=root), [replace(source, path=action.path)])

    def _directory(self, action: ScratchAction) -> None:
        self._have(Path(action.path, "directory", action.owner, action.group, action.mode))

    def _have(self, made: Path) -> None:
        self.tell(paths=(*(p for p in self.machine.paths if p.path != made.path), made))
        for array in self.machine.arrays:
            at = [m.target for m in self.machine.mounts if m.device == array.device]
            if at:
                inside = [p for p in self.machine.paths if p.path == at[0] or p.path.startswith(f"{at[0]}/")]
                self.inside[array.uuid] = inside

    def _path(self, path: str) -> Path | None:
        return next((p for p in self.machine.paths if p.path == path), None)


def settle(world: World, boot: bool = False, request: ScratchRequest | None = None) -> ScratchPlan:
    """Plan and do as the executor does; return the plan for what is there in the end.

    What is on an array shows only when it runs, so a round may uncover the next one.
    """
    wanted = request or world.request
    for _round in range(3):
        found = plan(world.machine, wanted, boot)
        if not found.actions:
            break
        world.tell(unmountable="")
        for action in found.actions:
            try:
                world.do(action)
            except Refused as exc:
                if action.kind != "mount":
                    raise
                world.tell(unmountable=str(exc))
                break
    return plan(world.machine, wanted, boot)


def built(request: ScratchRequest, count: int = 8, **other: t.Any) -> World:
    """A machine with scratch on all its disks."""
    world = World(blank(count, **other), request)
    world.run(plan(world.machine, request).actions)
    world.written.clear()
    return world
