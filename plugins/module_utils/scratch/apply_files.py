# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan of the NVMe scratch writes without a command: fstab, the marker, directories, zeroes. Private."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import stat
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.machine import FstabLine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Action
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read import FSTAB, MARKER
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_content import spots
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read_place import Place

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ApplyError(Exception):
    """A step failed or must not be taken; the text is fit for the user, ``blame`` is the class of the record."""

    def __init__(self, text: str, blame: str = "software") -> None:
        super().__init__(text)
        self.blame = blame


def comment_out(place: Place, action: Action, planned: t.Sequence[FstabLine]) -> None:
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
    replace(path, "".join(lines).encode("utf-8", "surrogateescape"), owner, stat.S_IMODE(about.st_mode))


def _read(line: str) -> str:
    """Return a line as the plan has it."""
    plain = line.encode("utf-8", "surrogateescape").decode(errors="replace").splitlines()
    return plain[0] if plain else ""


def mark(place: Place, uuid: str) -> None:
    """Leave a note of what is being built that a power cut cannot take away."""
    path = place.at(MARKER)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    replace(path, f"{json.dumps({'building': uuid})}\n".encode(), "root", 0o600)
    _sync_folder(place)


def unmark(place: Place) -> None:
    place.at(MARKER).unlink(missing_ok=True)
    _sync_folder(place)


def have_directory(place: Place, action: Action) -> None:
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


def zero(place: Place, path: str, size: int) -> None:
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


def _sync_folder(place: Place) -> None:
    handle = os.open(place.at(MARKER).parent, _FOLDER)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
