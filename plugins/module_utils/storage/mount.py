# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a mount and its line in fstab need to become what is wanted: texts in, a plan out. No I/O; private."""

from __future__ import annotations

import re
import typing as t

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


class MountError(ValueError):
    """The mount cannot be what is wanted; the text is fit for the user."""


class Wanted(t.NamedTuple):
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


class Seen(t.NamedTuple):
    """What is there; ``trouble`` is what asking the file system came to: nothing, stale, or why it gave no answer."""

    fstab: str
    drop_in: str
    mounted: Mounted | None = None
    same: bool = False
    trouble: str = ""


class Plan(t.NamedTuple):
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


def same_source(wanted: Wanted, mounted: Mounted) -> bool:
    """Whether this is what is mounted; the kernel writes names as they were given, and no slash at the end."""
    kinds = {"nfs4": "nfs", "smb3": "cifs"}
    if kinds.get(mounted.fstype, mounted.fstype) != kinds.get(wanted.fstype, wanted.fstype):
        return False
    one, other = (source.rstrip("/") for source in (wanted.source, mounted.source))
    return one == other or (wanted.fstype == "cifs" and one.lower() == other.lower())


def server_of(wanted: Wanted) -> tuple[str, int] | None:
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
        raise MountError(f"/etc/fstab has {len(lines)} lines for {path}. Remove all but one; nothing was changed")
    return lines[0] if lines else ""


def plan(wanted: Wanted, seen: Seen) -> Plan:
    """Decide; an unmount is never forced on what still works."""
    _refuse_silence(wanted, seen)
    if not wanted.path.startswith("/"):
        raise MountError(f"{wanted.path} is no absolute path. Nothing was changed")
    if not wanted.present:
        gone = ["detach" if seen.trouble else "unmount"] if seen.mounted else []
        return Plan(_edited(seen.fstab, wanted.path, ""), "", gone)
    if not wanted.source:
        return Plan(seen.fstab, seen.drop_in, _looked_at(wanted, seen))
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
    return Plan(fstab, DROP_IN, actions)


def _refuse_silence(wanted: Wanted, seen: Seen) -> None:
    if seen.mounted and seen.trouble and not is_stale(seen.trouble):
        raise MountError(
            f"{wanted.path} ({seen.mounted.source}) is mounted and does not answer: {seen.trouble}. Processes that use"
            f" it wait until its server is back, and lose nothing. Nothing was changed. (To give up what they wait to"
            f" write: umount -f -l {wanted.path})"
        )


def is_stale(trouble: str) -> bool:
    return "Stale file handle" in trouble


def _looked_at(wanted: Wanted, seen: Seen) -> list[str]:
    if not seen.mounted:
        raise MountError(f"{wanted.path} is no mount of its own: what should have been mounted there before is missing")
    if seen.trouble:
        raise MountError(f"{wanted.path} ({seen.mounted.source}): {seen.trouble}. Unmount and mount it again")
    return []


def _drawn(wanted: Wanted, before: str) -> str:
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
