# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry out a plan: read again before anything is destroyed, run the steps, write the files, read the result."""

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

# Steps without a command: fstab, the marker, directories, zeroes.


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ApplyError(Exception):
    """A step failed or must not be taken; the text is fit for the user, ``blame`` is the class of the record."""

    def __init__(self, text: str, blame: str = "software") -> None:
        super().__init__(text)
        self.blame = blame


def comment_out(root: MachineRoot, action: ScratchAction, planned: t.Sequence[FstabLine]) -> None:
    """Comment out the lines of an action, if each is still the line that the plan was made for."""
    path = root.at(FSTAB)
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines(keepends=True)
    planned_text = {line.number: line.text for line in planned}
    for number in action.lines:
        if number > len(lines) or _read(lines[number - 1]) != planned_text.get(number):
            raise ApplyError(f"line {number} of {FSTAB} is not what it was a moment ago; run again", "infra")
        lines[number - 1] = f"{action.text}{lines[number - 1]}"
    about = path.stat()
    owner = pwd.getpwuid(about.st_uid).pw_name
    replace_owned(path, "".join(lines).encode("utf-8", "surrogateescape"), owner, stat.S_IMODE(about.st_mode))


def _read(line: str) -> str:
    """Return a line in the form that a plan has it: decoded, without its end."""
    plain = line.encode("utf-8", "surrogateescape").decode(errors="replace").splitlines()
    return plain[0] if plain else ""


def mark(root: MachineRoot, uuid: str) -> None:
    """Write the marker of the array that is being built, so that it survives a power cut."""
    path = root.at(MARKER)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    replace_owned(path, f"{json.dumps({'building': uuid})}\n".encode(), "root", 0o600)
    _sync_folder(root)


def unmark(root: MachineRoot) -> None:
    root.at(MARKER).unlink(missing_ok=True)
    _sync_folder(root)


def have_directory(root: MachineRoot, action: ScratchAction) -> None:
    """Make a directory with its owner and mode; missing ones above it are root's. No symbolic link is followed.

    Everybody may write into scratch, so a link there could lead anywhere.
    """
    names = [name for name in action.path.split("/") if name]
    with contextlib.ExitStack() as opened:
        folder = _open(opened, str(root.root), None, action.path)
        for number, name in enumerate(names, 1):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700 if number == len(names) else 0o755, dir_fd=folder)
            folder = _open(opened, name, folder, action.path)
        if os.geteuid() == 0:
            os.fchown(folder, pwd.getpwnam(action.owner).pw_uid, grp.getgrnam(action.group).gr_gid)
        os.fchmod(folder, int(action.mode, 8))


def zero(root: MachineRoot, path: str, size: int) -> None:
    """Zero the regions of a disk that a blank one has zero. The exclusive open fails on a disk that anything uses."""
    handle = os.open(root.at(path), os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
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


def _sync_folder(root: MachineRoot) -> None:
    handle = os.open(root.at(MARKER).parent, _FOLDER)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# The last check before something is destroyed: is every disk still what it was when the plan was made?


# Of which disks it has to be known whether they are blank.
Read = t.Callable[[t.Container[str]], ScratchMachine]
Canonical = t.Callable[[str], str]


def check(action: ScratchAction, plan: ScratchPlan, planned: ScratchMachine, read: Read, canonical: Canonical) -> None:
    """Raise `ApplyError` where the machine differs from the one that the action was planned for."""
    if action.kind in ("wipe", "create"):
        # What is to be wiped is not blank; eight times a thousand reads of the others would say nothing of it.
        current = read(action.disks if action.kind == "create" else ())
        for disk_id in action.disks:
            _check_disk(action.kind, _only(planned.disks, disk_id), _only(current.disks, disk_id))
    elif action.kind == "mkfs":
        _check_array(action, plan, planned, read(()), canonical(action.device))
    elif action.kind == "mount":
        _check_mounted(action, plan, read(()), canonical(action.device))
    elif action.kind == "stop":
        _check_stopped(action.device, planned, read(()))
    elif action.kind == "umount":
        _check_unmounted(action.path, planned, read(()))


def _only(disks: t.Sequence[ScratchDisk], disk_id: str) -> ScratchDisk:
    matches = [disk for disk in disks if disk.id == disk_id]
    if len(matches) != 1:
        raise ApplyError(f"disk {disk_id} is there {len(matches)} times now; nothing was written to it", "infra")
    return matches[0]


def _check_disk(kind: str, planned: ScratchDisk, current: ScratchDisk) -> None:
    same = (planned.path, planned.size, planned.model) == (current.path, current.size, current.model)
    uses = [*current.holders, *current.mounts, *current.swaps, *(["an exclusive open"] if current.busy else [])]
    about = f"disk {current.path} ({current.id})"
    if current.error or not same:
        raise ApplyError(
            f"{about} changed while it was being planned for: {current.error or planned.path}; run again", "infra"
        )
    if uses:
        raise ApplyError(f"{about} came into use ({', '.join(uses)}); nothing was written to it, run again", "infra")
    # What is to be wiped must be what was consented to; what gets an array must be blank by now.
    if kind == "wipe" and (current.signatures, current.partitions) != (planned.signatures, planned.partitions):
        raise ApplyError(
            f"{about} holds something else than a moment ago; nothing was written to it, run again", "infra"
        )
    if kind == "create" and not (current.blank and not current.signatures and not current.partitions):
        content = ", ".join(sign.type for sign in current.signatures) or "data without a signature"
        raise ApplyError(f"{about} is not blank: {content}; nothing was written to it, run again", "infra")


def _check_array(
    action: ScratchAction, plan: ScratchPlan, planned: ScratchMachine, current: ScratchMachine, device: str
) -> None:
    matches = [array for array in current.arrays if array.uuid == plan.array]
    if len(matches) != 1:
        raise ApplyError(f"array {plan.array} is there {len(matches)} times; no filesystem was made", "infra")
    array = matches[0]
    # The name below /dev/md is a link, which another array may have had before ours.
    if device != array.device:
        text = f"{action.device} is {device}, and the array of scratch is {array.device}"
        raise ApplyError(f"{text}; no filesystem was made. Find out what has that name: ls -l /dev/md", "infra")
    known_content = {
        (sign.type, sign.uuid)
        for planned_array in planned.arrays
        if planned_array.uuid == array.uuid
        for sign in planned_array.content
    }
    foreign = [sign.type for sign in array.content if (sign.type, sign.uuid) not in known_content]
    # What is on an array that was cut off in the making is ours; the plan could not see it before the array ran.
    if foreign and planned.building != array.uuid:
        raise ApplyError(f"{array.device} already holds {', '.join(foreign)}; no filesystem was made", "infra")
    if array.holders or any(mount.device == array.device for mount in current.mounts):
        raise ApplyError(f"{array.device} came into use; no filesystem was made", "infra")


def _check_mounted(action: ScratchAction, plan: ScratchPlan, current: ScratchMachine, device: str) -> None:
    """Refuse to mount another array under our name: mounting replays a journal, which writes."""
    foreign = [array for array in current.arrays if array.device == device and array.uuid != plan.array]
    if foreign:
        text = f"{action.device} is {device}, an array of somebody else ({foreign[0].uuid or 'without UUID'})"
        raise ApplyError(f"{text}; it was not mounted. Find out what has that name: ls -l /dev/md", "infra")


def _check_stopped(device: str, planned: ScratchMachine, current: ScratchMachine) -> None:
    uuids_planned, uuids_now = (
        [array.uuid for array in machine.arrays if array.device == device] for machine in (planned, current)
    )
    if uuids_now != uuids_planned:
        raise ApplyError(f"{device} is another array than a moment ago; it was not stopped, run again", "infra")


def _check_unmounted(path: str, planned: ScratchMachine, current: ScratchMachine) -> None:
    shown = visible(current, path)
    if shown is None or _place(shown) not in [_place(mount) for mount in planned.mounts]:
        raise ApplyError(f"{path} shows something else than a moment ago; it was not unmounted, run again", "infra")


def _place(mount: ScratchMount) -> tuple[str, str, str]:
    return mount.target, mount.number, mount.root


# Carry out the steps of a plan in order, up to the first that fails.


# Replaying the log of a large filesystem takes a while, and so does making one.
_TIMEOUTS = {"mkfs": 300.0, "mount": 180.0}
_STEP_PATIENCE = 30.0
_SETTLE = ("create", "assemble", "stop", "wipe")


class MountError(ApplyError):
    """The filesystem cannot be mounted, which may be because it was never finished."""


class Executor:
    """Executes plans on one machine; ``commands`` is what was run or written, in order."""

    def __init__(self, root: MachineRoot, read: Read, settle: float = _STEP_PATIENCE) -> None:
        self.root, self.read, self.patience = root, read, settle
        self.commands: list[list[str]] = []

    def execute(self, plan: ScratchPlan, planned: ScratchMachine) -> None:
        """Carry out the actions of a plan. Raises `ApplyError` at the first step that fails; the rest is left."""
        missing_tools = sorted({a.argv[0] for a in plan.actions if a.argv and not self.root.tool(a.argv[0])})
        if missing_tools:
            text = f"{', '.join(missing_tools)} cannot be found in {self.root.search}; install it, nothing was done"
            raise ApplyError(text, "software")
        for action in plan.actions:
            check(action, plan, planned, self.read, self.root.canonical)
            self.commands.append(describe_action(action))
            try:
                self._step(action, planned)
            except (OSError, KeyError) as exc:  # KeyError: an account that was there when the machine was read
                raise ApplyError(f"{' '.join(describe_action(action))} failed: {exc}", "infra") from exc

    def settle(self) -> None:
        """Let udev finish, which assembles arrays of its own accord as their disks appear."""
        if self.root.tool("udevadm"):
            self.root.run(["udevadm", "settle", f"--timeout={self.patience:.0f}"], self.patience + 10)

    def _step(self, action: ScratchAction, planned: ScratchMachine) -> None:
        if action.argv:
            self._command(action)
        if action.kind == "wipe":
            size = next(disk.size for disk in planned.disks if disk.path == action.device)
            zero(self.root, action.device, size)
            # Otherwise the kernel keeps partitions that are no more; without any there is nothing that could fail.
            self.root.run(["blockdev", "--rereadpt", action.device])
        elif action.kind == "fstab":
            comment_out(self.root, action, planned.fstab)
            self._forget_mount_unit()
        elif action.kind == "mark":
            mark(self.root, action.uuid)
        elif action.kind == "unmark":
            unmark(self.root)
        elif action.kind == "directory":
            have_directory(self.root, action)
        if action.kind in _SETTLE:
            self.settle()
        if action.kind in ("create", "assemble"):
            self._await(action.device)

    def _command(self, action: ScratchAction) -> None:
        outcome = self.root.run(action.argv, _TIMEOUTS.get(action.kind, 60.0))
        if not outcome.problem:
            return
        text = f"{' '.join(action.argv)} said: {outcome.problem}"
        if action.kind != "mount":
            raise ApplyError(text)
        # A mount that did not end says nothing about the filesystem, and with rebuild that would be its end.
        raise ApplyError(text, "infra") if outcome.rc is None else MountError(text)

    def _await(self, device: str) -> None:
        """Wait until udev has made the device node of an array."""
        until = time.monotonic() + self.patience
        while not self.root.at(device).exists():
            if time.monotonic() > until:
                text = f"{device} did not appear within {self.patience:g} s after its array was started"
                raise ApplyError(f"{text}; is udev running (udevadm info --query=all --name=/dev/md127)?", "infra")
            time.sleep(0.1)

    def _forget_mount_unit(self) -> None:
        """Reload systemd, which would unmount a path whose old fstab line names a device that is missing."""
        if self.root.at("/run/systemd/system").is_dir():
            self.root.run(["systemctl", "daemon-reload"])


def describe_action(action: ScratchAction) -> list[str]:
    """Return an action for the list of commands: its command, or a description where it has none."""
    if action.argv:
        return list(action.argv)
    if action.kind == "directory":
        return ["directory", action.path, f"{action.owner}:{action.group}", action.mode]
    if action.kind == "fstab":
        return ["fstab", "comment out line", ", ".join(map(str, action.lines))]
    return [part for part in (action.kind, action.uuid) if part]


# One run: read, plan, apply, read again. It is the same for Ansible and at boot.


LOCK = "/run/hpcai/nvme_scratch.lock"
_RUN_PATIENCE = 120.0
_ROUNDS = 3


Planner = t.Callable[[ScratchMachine, ScratchRequest, bool], ScratchPlan]


class StepResult(t.NamedTuple):
    """The first and the last plan of a run, and its commands; ``problem`` is the class and text of what failed."""

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
        root: MachineRoot | None = None,
        planner: Planner = plan,
    ) -> None:
        self.request, self.boot, self.wait, self.planner = request, boot, wait, planner
        self.root = root or MachineRoot()
        self.executor = Executor(self.root, self.read)

    def read(self, through: t.Container[str] | None = None) -> ScratchMachine:
        return read_machine(self.root, self.request, through)

    def read_and_plan(self, unmountable: str = "") -> tuple[ScratchMachine, ScratchPlan]:
        """Read and plan, as often as disks are missing and may still come."""
        if in_container(self.root):
            return ScratchMachine(), ScratchPlan("skipped", "", "in a container; the disks of its host are not its own")
        until = time.monotonic() + self.wait
        while True:
            self.executor.settle()
            there = self._there()
            machine = replace(self.read(), unmountable=unmountable)
            plan = self.planner(machine, self.request, self.boot)
            if not self._missing(machine, plan) or time.monotonic() >= until:
                return machine, plan
            # To read all disks again takes seconds of a machine that boots: once something has come, and at the end.
            while time.monotonic() < until and self._there() == there:
                time.sleep(1)

    def _there(self) -> tuple[list[tuple[str, str]], list[str], str]:
        """Return what changes where disks, names, arrays or mounts of them appear, or a controller has come to."""
        root = self.root
        sizes = [(name, root.text(f"/sys/block/{name}/size")) for name in root.names("/sys/block")]
        return sizes, root.names("/dev/disk/by-id"), root.text("/proc/self/mountinfo")

    def dry(self) -> StepResult:
        """Return what a run would do, without doing it."""
        plan = self.read_and_plan()[1]
        return StepResult(plan, plan, plan.after, [describe_action(action) for action in plan.actions])

    def bring(self) -> StepResult:
        """Carry out the run, as the only one on this machine."""
        with alone(self.root):
            return self._bring()

    def _bring(self) -> StepResult:
        """Plan until nothing is left to do.

        One round can uncover the next: an array shows its filesystem only when it runs, and a filesystem that was never
        finished shows it when it is mounted. Only the planner knows what may be made anew then.
        """
        machine, plan = self.read_and_plan()
        first, after, mount_error = plan, plan.after, ""
        problem: tuple[str, str] | None = None
        for dummy in range(_ROUNDS):
            if not plan.actions or problem:
                break
            after, before = plan.after, mount_error
            mount_error, problem = self._execute(plan, machine)
            if mount_error and before:
                problem = ("software", mount_error)
            machine, plan = self.read_and_plan("" if problem else mount_error)
        if not problem and plan.actions:
            steps = "; ".join(" ".join(describe_action(action)) for action in plan.actions)
            problem = ("infra", f"it did not come to rest: after {_ROUNDS} rounds there is still to do: {steps}")
        return StepResult(first, plan, after, self.executor.commands, problem)

    def _execute(self, plan: ScratchPlan, machine: ScratchMachine) -> tuple[str, tuple[str, str] | None]:
        """Return the error of a mount, or the class and text of another failure."""
        try:
            self.executor.execute(plan, machine)
        except MountError as exc:
            return str(exc), None
        except ApplyError as exc:
            return "", (exc.blame, str(exc))
        return "", None

    def _missing(self, machine: ScratchMachine, plan: ScratchPlan) -> bool:
        """Return whether disks may still appear: expected ones, or members of an array of ours."""
        short = self.request.count is not None and len(plan.disks) < self.request.count
        missing = short or any(finding.code == "missing" for finding in plan.findings)
        return missing or incomplete(machine, plan, self.request.count)


def incomplete(machine: ScratchMachine, plan: ScratchPlan, count: int | None = None) -> bool:
    """Return whether a selected disk belongs to an array of ours that lacks members, perhaps only for now.

    With rebuild such an array would be made anew, which a slow controller must not cause. Where all disks of a machine
    (``count``) are there, as many as the array has slots, others are in the place of its members, and none will come.
    """
    members = [disk.member for disk in machine.disks if disk.member and ours(disk.member.uuid)]
    present = Counter(member.uuid for member in members)
    selected = [disk for disk in machine.disks if disk.id in plan.disks]
    readable = sum(not disk.error for disk in selected)
    every = readable if count is not None and readable >= count else 0
    chosen = {disk.member for disk in selected if disk.member and present[disk.member.uuid]}
    return any(member.devices > max(present[member.uuid], every) for member in chosen)


@contextlib.contextmanager
def alone(root: MachineRoot, patience: float = _RUN_PATIENCE) -> t.Iterator[None]:
    """Keep the boot unit and Ansible from working on the same disks at the same time."""
    path = root.at(LOCK)
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
