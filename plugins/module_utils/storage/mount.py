# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mount and its line in fstab: what has to change, and changing it without waiting for a dead server."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lines import LineError, one_line
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import replace_owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run

# From the request and the observed mount to a plan. Pure.


AGAIN = "hpcai-mount-again@"
# The unit itself is drawn from fstab by systemd, which never tries a failed mount again.
DROP_IN = f"""\
# From hpcai.gpu_cluster: a mount that failed is tried again for as long as it takes.
[Unit]
StartLimitIntervalSec=0
OnFailure={AGAIN}%N.service
"""
_ESCAPES = {"\\": "\\134", " ": "\\040", "\t": "\\011", "\n": "\\012", "#": "\\043"}
_ACCEPTS = "accepts connections to port"
_PAUSE = 3.0  # seconds until a busy server is asked again
_PORTS = {"nfs": 2049, "nfs4": 2049, "cifs": 445, "smb3": 445}


class SharedMountError(ValueError):
    """The mount cannot be brought to the request; the text is fit for the user."""


class MountRequest(t.NamedTuple):
    """One line of fstab; without a source the mount is somebody else's and only checked."""

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
    """The mount as it is; ``trouble`` is the error of stat on the file system, empty when it answered."""

    fstab: str
    drop_in: str
    mounted: Mounted | None = None
    same: bool = False
    trouble: str = ""


class MountPlan(t.NamedTuple):
    """The new texts of fstab and drop-in, and the actions: remount, unmount, detach or mount."""

    fstab: str
    drop_in: str
    actions: list[str]


def unit_name(path: str) -> str:
    """Return the unit of a mount point, as ``systemd-escape --path --suffix=mount`` writes it."""
    plain = "/".join(component for component in path.split("/") if component)
    return f"{''.join(_unit_letter(letter, position) for position, letter in enumerate(plain)) or '-'}.mount"


def _unit_letter(letter: str, position: int) -> str:
    if letter == "/":
        return "-"
    plain = letter.isascii() and (letter.isalnum() or letter in ":_" or (letter == "." and position > 0))
    return letter if plain else "".join(f"\\x{byte:02x}" for byte in letter.encode())


def parse_mountinfo(text: str, path: str) -> Mounted | None:
    """Return the visible mount at a path; an automount point with nothing in it is none."""
    mounted = None
    for line in text.splitlines():
        before_dash, dummy, after_dash = line.partition(" - ")
        fields, source = before_dash.split(), after_dash.split()
        if len(fields) > 5 and len(source) > 1 and _plain(fields[4]) == path and source[0] != "autofs":
            mounted = Mounted(_plain(source[1]), source[0], fields[5])
    return mounted


def same_source(request: MountRequest, mounted: Mounted) -> bool:
    """Return whether the requested source is mounted; the kernel shows it as given, without a final slash."""
    kinds = {"nfs4": "nfs", "smb3": "cifs"}
    if kinds.get(mounted.fstype, mounted.fstype) != kinds.get(request.fstype, request.fstype):
        return False
    requested_source, mounted_source = (source.rstrip("/") for source in (request.source, mounted.source))
    return requested_source == mounted_source or (
        request.fstype == "cifs" and requested_source.lower() == mounted_source.lower()
    )


def server_of(request: MountRequest) -> tuple[str, int] | None:
    """Return host and port of the server; None for a source without a server."""
    port = re.search(r"(?:^|,)port=(\d+)", request.options)
    match = re.match(r"//([^/]+)/|\[([^]]+)\]:|([^:/]+):", request.source)
    if request.fstype not in _PORTS or not match:
        return None
    return next(filter(None, match.groups())), int(port.group(1)) if port else _PORTS[request.fstype]


def hidden(line: str) -> str:
    """Return a line of fstab without a password that an older tool may have left in it."""
    return re.sub(r"(\bpass(?:word)?2?=|\buser(?:name)?=[^,%\s]*%)[^,\s]*", r"\1(hidden)", line)


def fstab_line(text: str, path: str) -> str:
    """Return the line of a mount point, empty if there is none."""
    lines = [line for line in text.splitlines() if _is_of(line, path)]
    if len(lines) > 1:
        raise SharedMountError(f"/etc/fstab has {len(lines)} lines for {path}. Remove all but one; nothing was changed")
    return lines[0] if lines else ""


def plan(request: MountRequest, observed: ObservedMount) -> MountPlan:
    """Return the plan; a mount that works is never unmounted by force."""
    _refuse_silence(request, observed)
    if not request.path.startswith("/"):
        raise SharedMountError(f"{request.path} is no absolute path. Nothing was changed")
    if not request.present:
        gone = ["detach" if observed.trouble else "unmount"] if observed.mounted else []
        return MountPlan(_edited(observed.fstab, request.path, ""), "", gone)
    try:
        one_line(request._asdict(), "the mount's")
    except LineError as exc:
        raise SharedMountError(f"Nothing was mounted. {exc}") from exc
    if not request.source:
        return MountPlan(observed.fstab, observed.drop_in, _refuse_unmounted(request, observed))
    line = _line_of(request, fstab_line(observed.fstab, request.path))
    fstab = _edited(observed.fstab, request.path, line)
    actions = []
    if not observed.mounted:
        actions = ["mount"]
    elif observed.trouble:
        actions = ["detach", "mount"]
    elif not observed.same:
        actions = ["unmount", "mount"]
    elif fstab != observed.fstab:
        actions = ["remount"]
    return MountPlan(fstab, DROP_IN, actions)


def _refuse_silence(request: MountRequest, observed: ObservedMount) -> None:
    if observed.mounted and observed.trouble and not is_stale(observed.trouble):
        raise SharedMountError(
            f"{request.path} ({observed.mounted.source}) is mounted and does not answer: {observed.trouble}. Processes"
            f" that use it wait until its server is back, and lose nothing. Nothing was changed. (To give up what they"
            f" wait to write: umount -f -l {request.path})"
        )


def is_stale(trouble: str) -> bool:
    return "Stale file handle" in trouble


def _refuse_unmounted(request: MountRequest, observed: ObservedMount) -> list[str]:
    if not observed.mounted:
        raise SharedMountError(
            f"{request.path} is no mount of its own: what should have been mounted there before is missing"
        )
    if observed.trouble:
        raise SharedMountError(
            f"{request.path} ({observed.mounted.source}): {observed.trouble}. Unmount and mount it again"
        )
    return []


def _line_of(request: MountRequest, before: str) -> str:
    """Return the requested line; an existing one with the same fields in other white space stays."""
    fields = [
        _escaped(field) for field in (request.source, request.path, request.fstype, request.options or "defaults")
    ]
    return before if before.split()[:4] == fields else " ".join([*fields, "0", "0"])


def _edited(text: str, path: str, line: str) -> str:
    """Put the line in place of the old one, or at the end; nothing else changes."""
    before = fstab_line(text, path)
    if before == line:
        return text
    if before:
        new = f"{line}\n" if line else ""
        return "".join(new if _is_of(old, path) else old for old in text.splitlines(keepends=True))
    newline = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{newline}{line}\n"


def _is_of(line: str, path: str) -> bool:
    fields = line.split()
    if len(fields) < 2 or fields[0].startswith("#"):
        return False
    return (_plain(fields[1]).rstrip("/") or "/") == path


def _plain(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)


def _escaped(field: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in field)


# Read and change one mount of this host; every command has a time limit, since a dead server never answers.


FSTAB = Path("/etc/fstab")
MOUNTINFO = Path("/proc/self/mountinfo")
UNITS = Path("/etc/systemd/system")
# It stays until the mount is there or its unit has gone. One that asked for a mount and ended would be still there for
# systemd when a mount fails at once, and nobody would try again.
AGAIN_UNIT = """\
[Unit]
Description=Try again to mount %I

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'while sleep 10; [ "$$(systemctl show --property=LoadState --value "$$1")" = loaded ] && \\
  ! systemctl start "$$1" 2>/dev/null; do :; done' sh %i.mount
"""


class MountHost:
    """One mount on this host; ``patience`` is for an answer of a file system, ``timeout`` for mounting it."""

    def __init__(self, request: MountRequest, patience: float, timeout: float) -> None:
        self.request, self.patience, self.timeout = request, patience, timeout
        self.unit = unit_name(request.path)
        self.drop_in = UNITS / f"{self.unit}.d" / "hpcai.conf"
        self.again = UNITS / f"{AGAIN}.service"
        self.warnings: list[str] = []

    def look(self) -> ObservedMount:
        mounted = parse_mountinfo(MOUNTINFO.read_text(), self.request.path)
        fstab = _text(FSTAB)
        drop_in = _text(self.drop_in) if _text(self.again) == AGAIN_UNIT else _text(self.drop_in) and "incomplete"
        if not mounted:
            return ObservedMount(fstab, drop_in)
        trouble = self._ask("--file-system", self.request.path)[1]
        return ObservedMount(fstab, drop_in, mounted, not trouble and self._same(mounted), trouble)

    def _same(self, mounted: Mounted) -> bool:
        if self.request.fstype != "none":  # a bind mount shows what its source is on, not its source
            return same_source(self.request, mounted)
        if not (self.request.source and self.request.present):
            return False
        (source_id, problem), (mounted_id, dummy) = (
            self._ask("--format=%d:%i", path) for path in (self.request.source, self.request.path)
        )
        if problem:
            raise SharedMountError(
                f"{self.request.source} cannot be seen: {problem}. What is at {self.request.path} was left there"
            )
        return source_id == mounted_id

    def _ask(self, *arguments: str) -> tuple[str, str]:
        outcome = run(["stat", *arguments], self.patience)
        return outcome.out.strip(), outcome.problem

    def carry_out(self, observed: ObservedMount, plan: MountPlan) -> None:
        """Unmount, write the files, then mount: the next run or boot finishes what a killed run left."""
        for action in plan.actions:
            if action in ("unmount", "detach"):
                self._unmount(lazily=action == "detach")
        self._write(observed, plan)
        if "mount" in plan.actions:
            self._mount()
        if "remount" in plan.actions:
            self._remount()

    def _write(self, observed: ObservedMount, plan: MountPlan) -> None:
        if plan.drop_in:
            self._keep(self.again, AGAIN_UNIT)
            self._keep(self.drop_in, plan.drop_in)
        elif observed.drop_in:
            self.drop_in.unlink()
            with contextlib.suppress(OSError):  # an administrator may have drop-ins of his own there
                self.drop_in.parent.rmdir()
            if not any(UNITS.glob(f"*.mount.d/{self.drop_in.name}")):
                self.again.unlink(missing_ok=True)
        if plan.fstab != observed.fstab:
            write_fstab(plan.fstab)
        self.reload()

    def _keep(self, path: Path, content: str) -> None:
        if _text(path) != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_owned(path, content.encode(), "root", 0o644)

    def reload(self) -> None:
        """Reload systemd, which makes its units from fstab only then."""
        shown = run(["systemctl", "show", "--property=NeedDaemonReload,LoadState", self.unit], 30).out
        if "NeedDaemonReload=yes" in shown or "LoadState=loaded" not in shown:
            run(["systemctl", "daemon-reload"], 90)

    def _unmount(self, lazily: bool) -> None:
        outcome = run(["umount", *(["--lazy"] if lazily else []), self.request.path], self.patience)
        if outcome.rc == 0:
            return
        if "busy" in outcome.problem:
            raise SharedMountError(
                f"{self.request.path} is in use and stays as it is; 'fuser -vm {self.request.path}' shows by whom"
            )
        raise SharedMountError(f"{self.request.path} cannot be unmounted: {outcome.problem}")

    def _mount(self) -> None:
        mkdir = run(["mkdir", "--parents", "--mode=0755", self.request.path], self.patience)
        if mkdir.problem:
            raise SharedMountError(f"The mount point {self.request.path} cannot be made: {mkdir.problem}")
        run(["systemctl", "reset-failed", self.unit], 30)
        end = time.monotonic() + self.timeout
        while True:
            outcome = run(["systemctl", "start", self.unit], max(1.0, end - time.monotonic()))
            observed = self.look()
            if outcome.rc == 0 and observed.mounted and observed.same and not observed.trouble:
                return
            problem = self._not_mounted(outcome, observed)
            # EHOSTDOWN: what the kernel's CIFS says of a server that takes a connection and then more than ten seconds.
            if not ("mount error(112)" in problem and _ACCEPTS in problem) or time.monotonic() + _PAUSE > end:
                raise SharedMountError(problem)
            time.sleep(_PAUSE)

    def _not_mounted(self, outcome: Outcome, observed: ObservedMount) -> str:
        if observed.mounted and not observed.same:
            return (
                f"{self.request.path}: systemd mounted {observed.mounted.source} there instead of {self.request.source}"
            )
        journal = ["journalctl", "--unit", self.unit, "--lines=8", "--output=cat", "--no-pager"]
        lines = run(journal, 30).out.splitlines()
        telling = [line for line in lines if line.startswith("mount") or "timed out" in line]
        detail = telling[-1] if telling else outcome.problem
        texts = [
            f"{self.request.source} cannot be mounted at {self.request.path}: {observed.trouble or detail}",
            reached(self.request),
        ]
        texts.append("It is in fstab and is tried again every 10 seconds; run this again when its server is there")
        return ". ".join(text for text in texts if text)

    def _remount(self) -> None:
        """Apply the options that can change while it is mounted; the others wait, since jobs may use it."""
        outcome = run(["mount", "--options", "remount", self.request.path], self.timeout)
        if outcome.rc != 0:
            self.warnings.append(
                f"{self.request.path} stays mounted with its old options, which cannot be changed while it is mounted"
                f" ({outcome.problem}). The new ones are in fstab and hold from the next boot on, or after: umount"
                f" {self.request.path} && systemctl start '{self.unit}'"
            )

    def forget(self) -> None:
        """Remove the mount point, if it is empty."""
        run(["rmdir", self.request.path], self.patience)


def _text(path: Path) -> str:
    """Return the file byte for byte, since fstab is written again with the line ends and characters that it has."""
    return os.fsdecode(path.read_bytes()) if path.exists() else ""


def reached(request: MountRequest) -> str:
    """Return whether the server's port accepts a connection; empty for a source without a server."""
    server = server_of(request)
    if not server:
        return ""
    try:
        with socket.create_connection(server, 5):
            return f"{server[0]} {_ACCEPTS} {server[1]}: see whether it exports this, and to this host"
    except OSError as exc:
        return f"{server[0]} cannot be reached on port {server[1]}: {exc.strerror or exc}"


def write_fstab(text: str) -> None:
    """Replace fstab in one step; a link to it stays a link."""
    mode = FSTAB.stat().st_mode & 0o7777 if FSTAB.exists() else 0o644
    replace_owned(FSTAB.resolve(), os.fsencode(text), "root", mode)
