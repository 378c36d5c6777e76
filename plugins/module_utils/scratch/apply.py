# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry out a plan: look once more before anything is destroyed, run the steps, write the files, read again."""

from __future__ import annotations

import contextlib
import fcntl
import grp
import json
import os
import pwd
import stat
import time
import typing as t
from collections import Counter
from dataclasses import replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import replace_owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.block_device import MachineRoot, spots
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.disks import visible
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    FstabLine,
    ScratchAction,
    ScratchDisk,
    ScratchMachine,
    ScratchMount,
    ScratchPlan,
    ScratchRequest,
    ours,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan import plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read import (
    FSTAB,
    MARKER,
    in_container,
    read_machine,
)

# What a plan of the NVMe scratch writes without a command: fstab, the marker, directories, zeroes.


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ApplyError(Exception):
    """A step failed or must not be taken; the text is fit for the user, ``blame`` is the class of the record."""

    def __init__(self, text: str, blame: str = "software") -> None:
        super().__init__(text)
        self.blame = blame


def comment_out(place: MachineRoot, action: ScratchAction, planned: t.Sequence[FstabLine]) -> None:
    """Comment the lines of an action out, if each still says what the plan saw."""
    path = place.at(FSTAB)
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines(keepends=True)
    saw = {line.number: line.text for line in planned}
    for number in action.lines:
        if number > len(lines) or _read(lines[number - 1]) != saw.get(number):
            raise ApplyError(f"line {number} of {FSTAB} is not what it was a moment ago; run again", "infra")
        lines[number - 1] = f"{action.text}{lines[number - 1]}"
    about = path.stat()
    owner = pwd.getpwuid(about.st_uid).pw_name
    replace_owned(path, "".join(lines).encode("utf-8", "surrogateescape"), owner, stat.S_IMODE(about.st_mode))


def _read(line: str) -> str:
    """Return a line as the plan has it."""
    plain = line.encode("utf-8", "surrogateescape").decode(errors="replace").splitlines()
    return plain[0] if plain else ""


def mark(place: MachineRoot, uuid: str) -> None:
    """Leave a note of what is being built that a power cut cannot take away."""
    path = place.at(MARKER)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    replace_owned(path, f"{json.dumps({'building': uuid})}\n".encode(), "root", 0o600)
    _sync_folder(place)


def unmark(place: MachineRoot) -> None:
    place.at(MARKER).unlink(missing_ok=True)
    _sync_folder(place)


def have_directory(place: MachineRoot, action: ScratchAction) -> None:
    """Have a directory with its owner and mode; missing ones above it are root's. No symbolic link is followed.

    Everybody may write into scratch, so a link there could lead anywhere.
    """
    parts = [part for part in action.path.split("/") if part]
    with contextlib.ExitStack() as opened:
        folder = _open(opened, str(place.root), None, action.path)
        for number, part in enumerate(parts, 1):
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o700 if number == len(parts) else 0o755, dir_fd=folder)
            folder = _open(opened, part, folder, action.path)
        if os.geteuid() == 0:
            os.fchown(folder, pwd.getpwnam(action.owner).pw_uid, grp.getgrnam(action.group).gr_gid)
        os.fchmod(folder, int(action.mode, 8))


def zero(place: MachineRoot, path: str, size: int) -> None:
    """Make a disk blank that was told to be wiped. The exclusive open fails on a disk that anything uses."""
    handle = os.open(place.at(path), os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
    try:
        for offset, length in spots(size):
            os.pwrite(handle, bytes(length), offset)
        os.fsync(handle)
    finally:
        os.close(handle)


def _open(opened: contextlib.ExitStack, name: str, above: int | None, path: str) -> int:
    try:
        handle = os.open(name, _FOLDER, dir_fd=above)
    except OSError as exc:
        raise ApplyError(f"{path} cannot be a directory, because of {name}: {exc.strerror}", "config") from exc
    opened.callback(os.close, handle)
    return handle


def _sync_folder(place: MachineRoot) -> None:
    handle = os.open(place.at(MARKER).parent, _FOLDER)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# The last look before something is destroyed: is every disk still what the plan saw?


Read = t.Callable[[], ScratchMachine]
Canonical = t.Callable[[str], str]


def check(action: ScratchAction, plan: ScratchPlan, saw: ScratchMachine, read: Read, canonical: Canonical) -> None:
    """Raise `ApplyError` where an action would meet something else than the plan did."""
    if action.kind in ("wipe", "create"):
        now = read()
        for disk_id in action.disks:
            _check_disk(action.kind, _only(saw.disks, disk_id), _only(now.disks, disk_id))
    elif action.kind == "mkfs":
        _check_array(action, plan, saw, read(), canonical(action.device))
    elif action.kind == "mount":
        _check_mounted(action, plan, read(), canonical(action.device))
    elif action.kind == "stop":
        _check_stopped(action.device, saw, read())
    elif action.kind == "umount":
        _check_unmounted(action.path, saw, read())


def _only(disks: t.Sequence[ScratchDisk], disk_id: str) -> ScratchDisk:
    found = [disk for disk in disks if disk.id == disk_id]
    if len(found) != 1:
        raise ApplyError(f"disk {disk_id} is there {len(found)} times now; nothing was written to it", "infra")
    return found[0]


def _check_disk(kind: str, saw: ScratchDisk, now: ScratchDisk) -> None:
    same = (saw.path, saw.size, saw.model) == (now.path, now.size, now.model)
    used = [*now.holders, *now.mounts, *now.swaps, *(["an exclusive open"] if now.busy else [])]
    about = f"disk {now.path} ({now.id})"
    if now.error or not same:
        raise ApplyError(f"{about} changed while it was being planned for: {now.error or saw.path}; run again", "infra")
    if used:
        raise ApplyError(f"{about} came into use ({', '.join(used)}); nothing was written to it, run again", "infra")
    # What is to be wiped must be what was consented to; what gets an array must be blank by now.
    if kind == "wipe" and (now.signatures, now.partitions) != (saw.signatures, saw.partitions):
        raise ApplyError(
            f"{about} holds something else than a moment ago; nothing was written to it, run again", "infra"
        )
    if kind == "create" and not (now.blank and not now.signatures and not now.partitions):
        found = ", ".join(sign.type for sign in now.signatures) or "data without a signature"
        raise ApplyError(f"{about} is not blank: {found}; nothing was written to it, run again", "infra")


def _check_array(
    action: ScratchAction, plan: ScratchPlan, saw: ScratchMachine, now: ScratchMachine, device: str
) -> None:
    found = [array for array in now.arrays if array.uuid == plan.array]
    if len(found) != 1:
        raise ApplyError(f"array {plan.array} is there {len(found)} times; no filesystem was made", "infra")
    array = found[0]
    # The name below /dev/md is a link, which another array may have had before ours.
    if device != array.device:
        text = f"{action.device} is {device}, and the array of scratch is {array.device}"
        raise ApplyError(f"{text}; no filesystem was made. Find out what has that name: ls -l /dev/md", "infra")
    known = {(sign.type, sign.uuid) for one in saw.arrays if one.uuid == array.uuid for sign in one.content}
    strange = [sign.type for sign in array.content if (sign.type, sign.uuid) not in known]
    # What is on an array that was cut off in the making is ours; the plan could not see it before the array ran.
    if strange and saw.building != array.uuid:
        raise ApplyError(f"{array.device} already holds {', '.join(strange)}; no filesystem was made", "infra")
    if array.holders or any(mount.device == array.device for mount in now.mounts):
        raise ApplyError(f"{array.device} came into use; no filesystem was made", "infra")


def _check_mounted(action: ScratchAction, plan: ScratchPlan, now: ScratchMachine, device: str) -> None:
    """Mounting replays a journal, which writes."""
    others = [array for array in now.arrays if array.device == device and array.uuid != plan.array]
    if others:
        text = f"{action.device} is {device}, an array of somebody else ({others[0].uuid or 'without UUID'})"
        raise ApplyError(f"{text}; it was not mounted. Find out what has that name: ls -l /dev/md", "infra")


def _check_stopped(device: str, saw: ScratchMachine, now: ScratchMachine) -> None:
    then, found = ([array.uuid for array in machine.arrays if array.device == device] for machine in (saw, now))
    if found != then:
        raise ApplyError(f"{device} is another array than a moment ago; it was not stopped, run again", "infra")


def _check_unmounted(path: str, saw: ScratchMachine, now: ScratchMachine) -> None:
    shown = visible(now, path)
    if shown is None or _place(shown) not in [_place(mount) for mount in saw.mounts]:
        raise ApplyError(f"{path} shows something else than a moment ago; it was not unmounted, run again", "infra")


def _place(mount: ScratchMount) -> tuple[str, str, str]:
    return mount.target, mount.number, mount.root


# Carry out the steps of a plan for the NVMe scratch, in order, up to the first that fails.


# Replaying the log of a large filesystem takes a while, and so does making one.
_TIMEOUTS = {"mkfs": 300.0, "mount": 180.0}
_STEP_PATIENCE = 30.0
_SETTLE = ("create", "assemble", "stop", "wipe")


class MountError(ApplyError):
    """The filesystem cannot be mounted, which may be because it was never finished."""


class Executor:
    """Executes plans on one machine; ``commands`` is what was run or written, in order."""

    def __init__(
        self, place: MachineRoot, read: t.Callable[[], ScratchMachine], settle: float = _STEP_PATIENCE
    ) -> None:
        self.place, self.read, self.patience = place, read, settle
        self.commands: list[list[str]] = []

    def execute(self, plan: ScratchPlan, saw: ScratchMachine) -> None:
        """Do everything that a plan lists. Raises `ApplyError` at the first step that fails; the rest is left."""
        missing = sorted({a.argv[0] for a in plan.actions if a.argv and not self.place.tool(a.argv[0])})
        if missing:
            text = f"{', '.join(missing)} cannot be found in {self.place.search}; install it, nothing was done"
            raise ApplyError(text, "software")
        for action in plan.actions:
            check(action, plan, saw, self.read, self.place.canonical)
            self.commands.append(told(action))
            try:
                self._step(action, saw)
            except (OSError, KeyError) as exc:  # KeyError: an account that was there when the machine was read
                raise ApplyError(f"{' '.join(told(action))} failed: {exc}", "infra") from exc

    def settle(self) -> None:
        """Let udev finish, which assembles arrays of its own accord as their disks appear."""
        if self.place.tool("udevadm"):
            self.place.run(["udevadm", "settle", f"--timeout={self.patience:.0f}"], self.patience + 10)

    def _step(self, action: ScratchAction, saw: ScratchMachine) -> None:
        if action.argv:
            self._command(action)
        if action.kind == "wipe":
            size = next(disk.size for disk in saw.disks if disk.path == action.device)
            zero(self.place, action.device, size)
            # Otherwise the kernel keeps partitions that are no more; without any there is nothing that could fail.
            self.place.run(["blockdev", "--rereadpt", action.device])
        elif action.kind == "fstab":
            comment_out(self.place, action, saw.fstab)
            self._forget_mount_unit()
        elif action.kind == "mark":
            mark(self.place, action.uuid)
        elif action.kind == "unmark":
            unmark(self.place)
        elif action.kind == "directory":
            have_directory(self.place, action)
        if action.kind in _SETTLE:
            self.settle()
        if action.kind in ("create", "assemble"):
            self._await(action.device)

    def _command(self, action: ScratchAction) -> None:
        done = self.place.run(action.argv, _TIMEOUTS.get(action.kind, 60.0))
        if not done.problem:
            return
        text = f"{' '.join(action.argv)} said: {done.problem}"
        if action.kind != "mount":
            raise ApplyError(text)
        # A mount that did not end says nothing about the filesystem, and with rebuild that would be its end.
        raise ApplyError(text, "infra") if done.rc is None else MountError(text)

    def _await(self, device: str) -> None:
        """The node of an array is made by udev."""
        until = time.monotonic() + self.patience
        while not self.place.at(device).exists():
            if time.monotonic() > until:
                text = f"{device} did not appear within {self.patience:g} s after its array was started"
                raise ApplyError(f"{text}; is udev running (udevadm info --query=all --name=/dev/md127)?", "infra")
            time.sleep(0.1)

    def _forget_mount_unit(self) -> None:
        """Systemd would unmount what stands at a mount point whose old line names a device that is missing."""
        if self.place.at("/run/systemd/system").is_dir():
            self.place.run(["systemctl", "daemon-reload"])


def told(action: ScratchAction) -> list[str]:
    """Return an action as a person reads it: its command, or what is done without one."""
    if action.argv:
        return list(action.argv)
    if action.kind == "directory":
        return ["directory", action.path, f"{action.owner}:{action.group}", action.mode]
    if action.kind == "fstab":
        return ["fstab", "comment out line", ", ".join(map(str, action.lines))]
    return [word for word in (action.kind, action.uuid) if word]


# Read, plan, do, and read again: one run of the NVMe scratch, the same for Ansible and for the boot.


LOCK = "/run/hpcai/nvme_scratch.lock"
_RUN_PATIENCE = 120.0
_ROUNDS = 3


Planner = t.Callable[[ScratchMachine, ScratchRequest, bool], ScratchPlan]


class StepResult(t.NamedTuple):
    """What one run found (``first``), did, and left (``last``); ``problem`` is the class and text of what failed."""

    first: ScratchPlan
    last: ScratchPlan
    after: dict[str, t.Any]
    commands: list[list[str]]
    problem: tuple[str, str] | None = None


class ScratchRun:
    """One run on one machine. ``wait`` is how many seconds missing disks may take to appear."""

    def __init__(
        self,
        request: ScratchRequest,
        boot: bool = False,
        wait: float = 0.0,
        place: MachineRoot | None = None,
        planner: Planner = plan,
    ) -> None:
        self.request, self.boot, self.wait, self.planner = request, boot, wait, planner
        self.place = place or MachineRoot()
        self.executor = Executor(self.place, self.read)

    def read(self) -> ScratchMachine:
        return read_machine(self.place, self.request)

    def look(self, unmountable: str = "") -> tuple[ScratchMachine, ScratchPlan]:
        """Read and plan, as often as disks are missing and may still come."""
        if in_container(self.place):
            return ScratchMachine(), ScratchPlan("skipped", "", "in a container; the disks of its host are not its own")
        until = time.monotonic() + self.wait
        while True:
            self.executor.settle()
            machine = replace(self.read(), unmountable=unmountable)
            found = self.planner(machine, self.request, self.boot)
            if not self._missing(machine, found) or time.monotonic() >= until:
                return machine, found
            time.sleep(1)

    def dry(self) -> StepResult:
        """Only tell what a run would do."""
        found = self.look()[1]
        return StepResult(found, found, found.after, [told(action) for action in found.actions])

    def bring(self) -> StepResult:
        """Do it, alone on this machine."""
        with alone(self.place):
            return self._bring()

    def _bring(self) -> StepResult:
        """Plan until nothing is left to do.

        One round can uncover the next: an array shows its filesystem only when it runs, and a filesystem that was never
        finished shows it when it is mounted. Only the planner knows what may be made anew then.
        """
        machine, found = self.look()
        first, after, said = found, found.after, ""
        problem: tuple[str, str] | None = None
        for dummy in range(_ROUNDS):
            if not found.actions or problem:
                break
            after, before = found.after, said
            said, problem = self._execute(found, machine)
            if said and before:
                problem = ("software", said)
            machine, found = self.look("" if problem else said)
        if not problem and found.actions:
            steps = "; ".join(" ".join(told(action)) for action in found.actions)
            problem = ("infra", f"it did not come to rest: after {_ROUNDS} rounds there is still to do: {steps}")
        return StepResult(first, found, after, self.executor.commands, problem)

    def _execute(self, found: ScratchPlan, machine: ScratchMachine) -> tuple[str, tuple[str, str] | None]:
        """Return what mount said against the filesystem, or what else failed."""
        try:
            self.executor.execute(found, machine)
        except MountError as exc:
            return str(exc), None
        except ApplyError as exc:
            return "", (exc.blame, str(exc))
        return "", None

    def _missing(self, machine: ScratchMachine, found: ScratchPlan) -> bool:
        """Tell whether disks may still come: of those that are expected, or of an array of ours."""
        short = self.request.count is not None and len(found.disks) < self.request.count
        return short or any(finding.code == "missing" for finding in found.findings) or incomplete(machine, found)


def incomplete(machine: ScratchMachine, found: ScratchPlan) -> bool:
    """Tell whether a selected disk belongs to an array of ours with members that are not there (yet).

    With rebuild that array would be made anew: not because a controller was slow.
    """
    members = [disk.member for disk in machine.disks if disk.member and ours(disk.member.uuid)]
    there = Counter(member.uuid for member in members)
    chosen = [disk.member for disk in machine.disks if disk.id in found.disks]
    return any(member and there[member.uuid] and member.devices > there[member.uuid] for member in chosen)


@contextlib.contextmanager
def alone(place: MachineRoot, patience: float = _RUN_PATIENCE) -> t.Iterator[None]:
    """Keep the boot unit and Ansible from working on the same disks at the same time."""
    path = place.at(LOCK)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    until = time.monotonic() + patience
    with path.open("w", encoding="ascii") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as exc:
                if time.monotonic() > until:
                    text = f"another run holds {LOCK} for {patience:g} s already (hpcai-scratch.service, or a playbook)"
                    raise ApplyError(f"{text}; wait for it: fuser -v {LOCK}", "infra") from exc
            time.sleep(0.2)
        yield
