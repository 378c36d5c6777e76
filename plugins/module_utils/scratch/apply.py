# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry out the steps of a plan for the NVMe scratch, in order, up to the first that fails. Private."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import apply_files as files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply_check import check
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply_files import ApplyError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import Machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Action, Plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_place import Place

# Replaying the log of a large filesystem takes a while, and so does making one.
_TIMEOUTS = {"mkfs": 300.0, "mount": 180.0}
_PATIENCE = 30.0
_SETTLE = ("create", "assemble", "stop", "wipe")


class MountError(ApplyError):
    """The filesystem cannot be mounted, which may be because it was never finished."""


class Executor:
    """Executes plans on one machine; ``commands`` is what was run or written, in order."""

    def __init__(self, place: Place, read: t.Callable[[], Machine], settle: float = _PATIENCE) -> None:
        self.place, self.read, self.patience = place, read, settle
        self.commands: list[list[str]] = []

    def execute(self, plan: Plan, saw: Machine) -> None:
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

    def _step(self, action: Action, saw: Machine) -> None:
        if action.argv:
            self._command(action)
        if action.kind == "wipe":
            size = next(disk.size for disk in saw.disks if disk.path == action.device)
            files.zero(self.place, action.device, size)
            # Otherwise the kernel keeps partitions that are no more; without any there is nothing that could fail.
            self.place.run(["blockdev", "--rereadpt", action.device])
        elif action.kind == "fstab":
            files.comment_out(self.place, action, saw.fstab)
            self._forget_mount_unit()
        elif action.kind == "mark":
            files.mark(self.place, action.uuid)
        elif action.kind == "unmark":
            files.unmark(self.place)
        elif action.kind == "directory":
            files.have_directory(self.place, action)
        if action.kind in _SETTLE:
            self.settle()
        if action.kind in ("create", "assemble"):
            self._await(action.device)

    def _command(self, action: Action) -> None:
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


def told(action: Action) -> list[str]:
    """Return an action as a person reads it: its command, or what is done without one."""
    if action.argv:
        return list(action.argv)
    if action.kind == "directory":
        return ["directory", action.path, f"{action.owner}:{action.group}", action.mode]
    if action.kind == "fstab":
        return ["fstab", "comment out line", ", ".join(map(str, action.lines))]
    return [word for word in (action.kind, action.uuid) if word]
