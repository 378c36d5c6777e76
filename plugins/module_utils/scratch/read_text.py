# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What wipefs, mountinfo, swaps and fstab say, as values. No I/O; private."""

from __future__ import annotations

import json
import re
import typing as t

_ESCAPE = re.compile(r"\\([0-7]{3})")


class ReadError(ValueError):
    """The machine cannot be read; the text is fit for the user."""


class Signature(t.NamedTuple):
    """One magic string that wipefs found; ``device`` without its folder."""

    device: str
    offset: int
    type: str
    uuid: str
    label: str


class MountLine(t.NamedTuple):
    """One line of mountinfo; ``device`` is major:minor, ``root`` what of the filesystem is mounted there."""

    device: str
    root: str
    path: str
    options: tuple[str, ...]
    fstype: str
    source: str


class FstabLine(t.NamedTuple):
    """One entry of fstab with the number of its line, from 1, and that line as it stands."""

    number: int
    source: str
    path: str
    fstype: str
    text: str


def parse_wipefs(text: str) -> list[Signature]:
    """Read ``wipefs --no-act --json``; a disk without content makes some versions print nothing at all."""
    if not text.strip():
        return []
    try:
        entries = json.loads(text)["signatures"]
        return [_signature(entry) for entry in entries]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ReadError(f"wipefs did not print signatures as JSON: {exc!r}") from exc


def _signature(entry: t.Mapping[str, t.Any]) -> Signature:
    label, uuid = entry.get("label") or "", entry.get("uuid") or ""
    return Signature(str(entry["device"]), int(str(entry["offset"]), 0), str(entry["type"]), str(uuid), str(label))


def parse_mountinfo(text: str) -> list[MountLine]:
    """Read ``/proc/self/mountinfo``, lowest mount first."""
    mounts = []
    for line in text.splitlines():
        words = line.split(" ")
        if "-" not in words[6:]:
            raise ReadError(f"mountinfo holds a line that is none: {line!r}")
        dash = words.index("-", 6)
        fstype, source = words[dash + 1 : dash + 3]
        options = tuple(words[5].split(","))
        mounts.append(MountLine(words[2], _plain(words[3]), _plain(words[4]), options, fstype, _plain(source)))
    return mounts


def parse_swaps(text: str) -> list[str]:
    """Return the devices and files in ``/proc/swaps``."""
    return [_plain(line.split()[0]) for line in text.splitlines()[1:] if line.strip()]


def parse_fstab(text: str) -> list[FstabLine]:
    """Return the entries of ``/etc/fstab``; comments and what mount(8) ignores are left out."""
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if len(words) >= 3 and not words[0].startswith("#"):
            lines.append(FstabLine(number, _plain(words[0]), _plain(words[1]), words[2], line))
    return lines


def _plain(text: str) -> str:
    r"""Undo the escapes of blanks and backslashes (``\040``)."""
    return _ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), text)
