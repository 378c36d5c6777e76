# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at one mount of this host and change it, never waiting for a server without an end. Private.

Whatever touches a mounted path runs as a program that can be left behind: on a hard mount of an absent server a system
call does not return.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage.mount import (
    AGAIN,
    Mounted,
    MountError,
    Plan,
    Seen,
    Wanted,
    parse_mountinfo,
    same_source,
    server_of,
    unit_name,
)

FSTAB = Path("/etc/fstab")
MOUNTINFO = Path("/proc/self/mountinfo")
UNITS = Path("/etc/systemd/system")
AGAIN_UNIT = """\
[Unit]
Description=Try again to mount %I

[Service]
Type=oneshot
ExecStart=/bin/sleep 10
ExecStart=-/bin/systemctl --no-block start %i.mount
"""


class Host:
    """One mount on this host; ``patience`` is for an answer of a file system, ``timeout`` for mounting it."""

    def __init__(self, wanted: Wanted, patience: float, timeout: float) -> None:
        self.wanted, self.patience, self.timeout = wanted, patience, timeout
        self.unit = unit_name(wanted.path)
        self.drop_in = UNITS / f"{self.unit}.d" / "hpcai.conf"
        self.again = UNITS / f"{AGAIN}.service"
        self.warnings: list[str] = []

    def look(self) -> Seen:
        mounted = parse_mountinfo(MOUNTINFO.read_text(), self.wanted.path)
        fstab = _text(FSTAB)
        drop_in = _text(self.drop_in) if _text(self.again) == AGAIN_UNIT else _text(self.drop_in) and "incomplete"
        if not mounted:
            return Seen(fstab, drop_in)
        trouble = self._ask("--file-system", self.wanted.path)[1]
        return Seen(fstab, drop_in, mounted, not trouble and self._same(mounted), trouble)

    def _same(self, mounted: Mounted) -> bool:
        if self.wanted.fstype != "none":  # a bind mount shows what its source is on, not its source
            return same_source(self.wanted, mounted)
        if not (self.wanted.source and self.wanted.present):
            return False
        (one, problem), (other, dummy) = (
            self._ask("--format=%d:%i", path) for path in (self.wanted.source, self.wanted.path)
        )
        if problem:
            raise MountError(
                f"{self.wanted.source} cannot be seen: {problem}. What is at {self.wanted.path} was left there"
            )
        return one == other

    def _ask(self, *words: str) -> tuple[str, str]:
        asked = run(["stat", *words], self.patience)
        return asked.out.strip(), asked.problem

    def carry_out(self, seen: Seen, todo: Plan) -> None:
        """Files first: a run that is killed after them is finished by the next, and at the latest by the next boot."""
        for action in todo.actions:
            if action in ("unmount", "detach"):
                self._unmount(lazily=action == "detach")
        self._write(seen, todo)
        if "mount" in todo.actions:
            self._mount()
        if "remount" in todo.actions:
            self._remount()

    def _write(self, seen: Seen, todo: Plan) -> None:
        if todo.drop_in:
            self._keep(self.again, AGAIN_UNIT)
            self._keep(self.drop_in, todo.drop_in)
        elif seen.drop_in:
            self.drop_in.unlink()
            with contextlib.suppress(OSError):  # an administrator may have drop-ins of his own there
                self.drop_in.parent.rmdir()
            if not any(UNITS.glob(f"*.mount.d/{self.drop_in.name}")):
                self.again.unlink(missing_ok=True)
        if todo.fstab != seen.fstab:
            write_fstab(todo.fstab)
        self.reload()

    def _keep(self, path: Path, content: str) -> None:
        if _text(path) != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace(path, content.encode(), "root", 0o644)

    def reload(self) -> None:
        """systemd draws its units from fstab only when told to."""
        shown = run(["systemctl", "show", "--property=NeedDaemonReload,LoadState", self.unit], 30).out
        if "NeedDaemonReload=yes" in shown or "LoadState=loaded" not in shown:
            run(["systemctl", "daemon-reload"], 90)

    def _unmount(self, lazily: bool) -> None:
        done = run(["umount", *(["--lazy"] if lazily else []), self.wanted.path], self.patience)
        if done.rc == 0:
            return
        if "busy" in done.problem:
            raise MountError(
                f"{self.wanted.path} is in use and stays as it is; 'fuser -vm {self.wanted.path}' shows by whom"
            )
        raise MountError(f"{self.wanted.path} cannot be unmounted: {done.problem}")

    def _mount(self) -> None:
        made = run(["mkdir", "--parents", "--mode=0755", self.wanted.path], self.patience)
        if made.problem:
            raise MountError(f"The mount point {self.wanted.path} cannot be made: {made.problem}")
        run(["systemctl", "reset-failed", self.unit], 30)
        done = run(["systemctl", "start", self.unit], self.timeout)
        now = self.look()
        if done.rc == 0 and now.mounted and now.same and not now.trouble:
            return
        raise MountError(self._not_mounted(done, now))

    def _not_mounted(self, done: Outcome, now: Seen) -> str:
        if now.mounted and not now.same:
            return f"{self.wanted.path}: systemd mounted {now.mounted.source} there instead of {self.wanted.source}"
        journal = ["journalctl", "--unit", self.unit, "--lines=8", "--output=cat", "--no-pager"]
        lines = run(journal, 30).out.splitlines()
        telling = [line for line in lines if line.startswith("mount") or "timed out" in line]
        said = telling[-1] if telling else done.problem
        parts = [
            f"{self.wanted.source} cannot be mounted at {self.wanted.path}: {now.trouble or said}",
            reached(self.wanted),
        ]
        parts.append("It is in fstab and is tried again every 10 seconds; run this again when its server is there")
        return ". ".join(part for part in parts if part)

    def _remount(self) -> None:
        """Take over what can be while it is in use; unmounting it for the rest would be felt by jobs."""
        done = run(["mount", "--options", "remount", self.wanted.path], self.timeout)
        if done.rc != 0:
            self.warnings.append(
                f"{self.wanted.path} stays mounted with its old options, which cannot be changed while it is mounted"
                f" ({done.problem}). The new ones are in fstab and hold from the next boot on, or after: umount"
                f" {self.wanted.path} && systemctl start '{self.unit}'"
            )

    def forget(self) -> None:
        """Remove the mount point, if it is empty."""
        run(["rmdir", self.wanted.path], self.patience)


def _text(path: Path) -> str:
    """The file as it is: fstab is written again, with whatever line ends and characters somebody put there."""
    return os.fsdecode(path.read_bytes()) if path.exists() else ""


def reached(wanted: Wanted) -> str:
    """What the server's port says; empty where there is none."""
    server = server_of(wanted)
    if not server:
        return ""
    try:
        with socket.create_connection(server, 5):
            return f"{server[0]} accepts connections to port {server[1]}: see whether it exports this, and to this host"
    except OSError as exc:
        return f"{server[0]} cannot be reached on port {server[1]}: {exc.strerror or exc}"


def write_fstab(text: str) -> None:
    """Replace it in one step; a link to it stays one."""
    mode = FSTAB.stat().st_mode & 0o7777 if FSTAB.exists() else 0o644
    replace(FSTAB.resolve(), os.fsencode(text), "root", mode)
