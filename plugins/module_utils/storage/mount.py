# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mount and its line in fstab: what has to change, and changing it without waiting for a dead server."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import replace_owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run

# What a mount and its line in fstab need to become what is wanted: texts in, a plan out. No I/O; private.


AGAIN = "hpcai-mount-again@"
# The unit itself is drawn from fstab by systemd, which never tries a failed mount again.
DROP_IN = f"""\
# From hpcai.gpu_cluster: a mount that failed is tried again for as long as it takes.
[Unit]
StartLimitIntervalSec=0
OnFailure={AGAIN}%N.service
"""
_ESCAPES = {"\\": "\\134", " ": "\\040", "\t": "\\011", "\n": "\\012", "#": "\\043"}
_PORTS = {"nfs": 2049, "nfs4": 2049, "cifs": 445, "smb3": 445}


class SharedMountError(ValueError):
    """The mount cannot be what is wanted; the text is fit for the user."""


class WantedMount(t.NamedTuple):
    """One line of fstab; without a source the mount is somebody else's and only looked at."""

    path: str
    source: str
    fstype: str
    options: str
    present: bool = True


class Mounted(t.NamedTuple):
    source: str
    fstype: str
    options: str


class ObservedMount(t.NamedTuple):
    """What is there; ``trouble`` is what asking the file system came to: nothing, stale, or why it gave no answer."""

    fstab: str
    drop_in: str
    mounted: Mounted | None = None
    same: bool = False
    trouble: str = ""


class MountPlan(t.NamedTuple):
    """The texts as they shall be, and what follows: remount, unmount, detach or mount."""

    fstab: str
    drop_in: str
    actions: list[str]


def unit_name(path: str) -> str:
    """The unit of a mount point, as ``systemd-escape --path --suffix=mount`` writes it."""
    plain = "/".join(part for part in path.split("/") if part)
    return f"{''.join(_unit_letter(letter, place) for place, letter in enumerate(plain)) or '-'}.mount"


def _unit_letter(letter: str, place: int) -> str:
    if letter == "/":
        return "-"
    kept = letter.isascii() and (letter.isalnum() or letter in ":_" or (letter == "." and place > 0))
    return letter if kept else "".join(f"\\x{byte:02x}" for byte in letter.encode())


def parse_mountinfo(text: str, path: str) -> Mounted | None:
    """The mount on top at a path; an automount point with nothing in it is none."""
    found = None
    for line in text.splitlines():
        left, dummy, right = line.partition(" - ")
        fields, source = left.split(), right.split()
        if len(fields) > 5 and len(source) > 1 and _plain(fields[4]) == path and source[0] != "autofs":
            found = Mounted(_plain(source[1]), source[0], fields[5])
    return found


def same_source(wanted: WantedMount, mounted: Mounted) -> bool:
    """Whether this is what is mounted; the kernel writes names as they were given, and no slash at the end."""
    kinds = {"nfs4": "nfs", "smb3": "cifs"}
    if kinds.get(mounted.fstype, mounted.fstype) != kinds.get(wanted.fstype, wanted.fstype):
        return False
    one, other = (source.rstrip("/") for source in (wanted.source, mounted.source))
    return one == other or (wanted.fstype == "cifs" and one.lower() == other.lower())


def server_of(wanted: WantedMount) -> tuple[str, int] | None:
    """Where the server listens."""
    port = re.search(r"(?:^|,)port=(\d+)", wanted.options)
    match = re.match(r"//([^/]+)/|\[([^]]+)\]:|([^:/]+):", wanted.source)
    if wanted.fstype not in _PORTS or not match:
        return None
    return next(filter(None, match.groups())), int(port.group(1)) if port else _PORTS[wanted.fstype]


def hidden(line: str) -> str:
    """A line of fstab without a password that an older tool may have left in it."""
    return re.sub(r"(\bpass(?:word)?2?=|\buser(?:name)?=[^,%\s]*%)[^,\s]*", r"\1(hidden)", line)


def fstab_line(text: str, path: str) -> str:
    """The line of a mount point, empty if there is none."""
    lines = [line for line in text.splitlines() if _is_of(line, path)]
    if len(lines) > 1:
        raise SharedMountError(f"/etc/fstab has {len(lines)} lines for {path}. Remove all but one; nothing was changed")
    return lines[0] if lines else ""


def plan(wanted: WantedMount, seen: ObservedMount) -> MountPlan:
    """Decide; an unmount is never forced on what still works."""
    _refuse_silence(wanted, seen)
    if not wanted.path.startswith("/"):
        raise SharedMountError(f"{wanted.path} is no absolute path. Nothing was changed")
    if not wanted.present:
        gone = ["detach" if seen.trouble else "unmount"] if seen.mounted else []
        return MountPlan(_edited(seen.fstab, wanted.path, ""), "", gone)
    if not wanted.source:
        return MountPlan(seen.fstab, seen.drop_in, _looked_at(wanted, seen))
    line = _drawn(wanted, fstab_line(seen.fstab, wanted.path))
    fstab = _edited(seen.fstab, wanted.path, line)
    actions = []
    if not seen.mounted:
        actions = ["mount"]
    elif seen.trouble:
        actions = ["detach", "mount"]
    elif not seen.same:
        actions = ["unmount", "mount"]
    elif fstab != seen.fstab:
        actions = ["remount"]
    return MountPlan(fstab, DROP_IN, actions)


def _refuse_silence(wanted: WantedMount, seen: ObservedMount) -> None:
    if seen.mounted and seen.trouble and not is_stale(seen.trouble):
        raise SharedMountError(
            f"{wanted.path} ({seen.mounted.source}) is mounted and does not answer: {seen.trouble}. Processes that use"
            f" it wait until its server is back, and lose nothing. Nothing was changed. (To give up what they wait to"
            f" write: umount -f -l {wanted.path})"
        )


def is_stale(trouble: str) -> bool:
    return "Stale file handle" in trouble


def _looked_at(wanted: WantedMount, seen: ObservedMount) -> list[str]:
    if not seen.mounted:
        raise SharedMountError(
            f"{wanted.path} is no mount of its own: what should have been mounted there before is missing"
        )
    if seen.trouble:
        raise SharedMountError(f"{wanted.path} ({seen.mounted.source}): {seen.trouble}. Unmount and mount it again")
    return []


def _drawn(wanted: WantedMount, before: str) -> str:
    """The wanted line; one that says the same in other white space stays."""
    fields = [_escaped(field) for field in (wanted.source, wanted.path, wanted.fstype, wanted.options or "defaults")]
    return before if before.split()[:4] == fields else " ".join([*fields, "0", "0"])


def _edited(text: str, path: str, line: str) -> str:
    """Put the line in place of the old one, or at the end; nothing else changes."""
    before = fstab_line(text, path)
    if before == line:
        return text
    if before:
        new = f"{line}\n" if line else ""
        return "".join(new if _is_of(old, path) else old for old in text.splitlines(keepends=True))
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{end}{line}\n"


def _is_of(line: str, path: str) -> bool:
    fields = line.split()
    if len(fields) < 2 or fields[0].startswith("#"):
        return False
    return (_plain(fields[1]).rstrip("/") or "/") == path


def _plain(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)


def _escaped(field: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in field)


# Look at one mount of this host and change it, never waiting for a server without an end.


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


class MountHost:
    """One mount on this host; ``patience`` is for an answer of a file system, ``timeout`` for mounting it."""

    def __init__(self, wanted: WantedMount, patience: float, timeout: float) -> None:
        self.wanted, self.patience, self.timeout = wanted, patience, timeout
        self.unit = unit_name(wanted.path)
        self.drop_in = UNITS / f"{self.unit}.d" / "hpcai.conf"
        self.again = UNITS / f"{AGAIN}.service"
        self.warnings: list[str] = []

    def look(self) -> ObservedMount:
        mounted = parse_mountinfo(MOUNTINFO.read_text(), self.wanted.path)
        fstab = _text(FSTAB)
        drop_in = _text(self.drop_in) if _text(self.again) == AGAIN_UNIT else _text(self.drop_in) and "incomplete"
        if not mounted:
            return ObservedMount(fstab, drop_in)
        trouble = self._ask("--file-system", self.wanted.path)[1]
        return ObservedMount(fstab, drop_in, mounted, not trouble and self._same(mounted), trouble)

    def _same(self, mounted: Mounted) -> bool:
        if self.wanted.fstype != "none":  # a bind mount shows what its source is on, not its source
            return same_source(self.wanted, mounted)
        if not (self.wanted.source and self.wanted.present):
            return False
        (one, problem), (other, dummy) = (
            self._ask("--format=%d:%i", path) for path in (self.wanted.source, self.wanted.path)
        )
        if problem:
            raise SharedMountError(
                f"{self.wanted.source} cannot be seen: {problem}. What is at {self.wanted.path} was left there"
            )
        return one == other

    def _ask(self, *words: str) -> tuple[str, str]:
        asked = run(["stat", *words], self.patience)
        return asked.out.strip(), asked.problem

    def carry_out(self, seen: ObservedMount, todo: MountPlan) -> None:
        """Files first: a run that is killed after them is finished by the next, and at the latest by the next boot."""
        for action in todo.actions:
            if action in ("unmount", "detach"):
                self._unmount(lazily=action == "detach")
        self._write(seen, todo)
        if "mount" in todo.actions:
            self._mount()
        if "remount" in todo.actions:
            self._remount()

    def _write(self, seen: ObservedMount, todo: MountPlan) -> None:
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
            replace_owned(path, content.encode(), "root", 0o644)

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
            raise SharedMountError(
                f"{self.wanted.path} is in use and stays as it is; 'fuser -vm {self.wanted.path}' shows by whom"
            )
        raise SharedMountError(f"{self.wanted.path} cannot be unmounted: {done.problem}")

    def _mount(self) -> None:
        made = run(["mkdir", "--parents", "--mode=0755", self.wanted.path], self.patience)
        if made.problem:
            raise SharedMountError(f"The mount point {self.wanted.path} cannot be made: {made.problem}")
        run(["systemctl", "reset-failed", self.unit], 30)
        done = run(["systemctl", "start", self.unit], self.timeout)
        now = self.look()
        if done.rc == 0 and now.mounted and now.same and not now.trouble:
            return
        raise SharedMountError(self._not_mounted(done, now))

    def _not_mounted(self, done: Outcome, now: ObservedMount) -> str:
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


def reached(wanted: WantedMount) -> str:
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
    replace_owned(FSTAB.resolve(), os.fsencode(text), "root", mode)
