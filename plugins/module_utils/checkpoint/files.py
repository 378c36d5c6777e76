# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a checkpoint: which there are, whether somebody still writes them, who sends which. Private."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import stat
import typing as t
from pathlib import Path

# What torch, safetensors, DeepSpeed, rsync and editors call a file until it is complete.
UNFINISHED = ("*.tmp", "*.tmp.*", "*.temp", "*.partial", "*.part", "*.incomplete", ".*", "*~", "tmp*.safetensors")
MANIFEST = "MANIFEST.json"
_CHUNK = 4 << 20
_FUTURE = 5.0


class CheckpointError(ValueError):
    """A checkpoint cannot be sent as it is; the text is fit for the user."""


class File(t.NamedTuple):
    """A file of a checkpoint, by its path below the directory."""

    name: str
    size: int
    mtime_ns: int


class Sums(t.NamedTuple):
    """MD5 is what the service keeps of a blob, SHA-256 is what readers of the manifest trust."""

    md5: str
    sha256: str


def scan(directory: Path, settle: float, now: float) -> list[File]:
    """Return all files, sorted; refuses a checkpoint that is not complete or could not be told from one that is."""
    try:
        found = [File(*entry) for entry in _walk(directory)]
    except OSError as exc:
        raise CheckpointError(f"{directory} cannot be read: {exc.strerror or exc}") from exc
    if not found:
        raise CheckpointError(f"{directory} holds no files")
    unfinished = [file.name for file in found if _unfinished(file.name)]
    if unfinished:
        raise CheckpointError(f"{directory} is being written: {_some(unfinished)} is no finished file; try again later")
    newest = max(found, key=lambda file: file.mtime_ns)
    age = now - newest.mtime_ns / 1e9
    if age < -_FUTURE:
        raise CheckpointError(f"{directory}/{newest.name} was written {-age:.0f} s in the future: clocks differ")
    if age < settle:
        raise CheckpointError(
            f"{directory} may still be written: {newest.name} changed {age:.0f} s ago, and files must rest {settle:g} s"
        )
    return sorted(found)


def _walk(directory: Path) -> t.Iterator[tuple[str, int, int]]:
    for folder, folders, names in os.walk(directory, onerror=_fail):
        folders.sort()
        for name in [*names, *(entry for entry in folders if Path(folder, entry).is_symlink())]:
            path = Path(folder, name)
            known = path.lstat()
            relative = path.relative_to(directory).as_posix()
            if not stat.S_ISREG(known.st_mode):
                raise CheckpointError(f"{path} is no file; links and devices are not sent")
            if relative == MANIFEST:
                raise CheckpointError(f"{path} has the name that the list of all files gets beside them")
            if any(mark in relative for mark in '*?"\\') or not relative.isprintable():
                raise CheckpointError(f"{path!s:.200}: azcopy takes characters of its name for something else")
            yield relative, known.st_size, known.st_mtime_ns


def _fail(problem: OSError) -> None:
    raise problem


def _unfinished(name: str) -> bool:
    return any(fnmatch.fnmatchcase(part, mark) for part in name.split("/") for mark in UNFINISHED)


def _some(names: t.Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"


def share(files: t.Sequence[File], index: int, count: int) -> list[File]:
    """Return which files one of several nodes sends: all find the same answer, none has much more than others."""
    loads, parts = [0] * count, [[] for dummy in range(count)]  # type: tuple[list[int], list[list[File]]]
    for file in sorted(files, key=lambda one: (-one.size, one.name)):
        least = min(range(count), key=lambda part: (loads[part], len(parts[part]), part))
        loads[least] += file.size
        parts[least].append(file)
    return sorted(parts[index])


def sums(directory: Path, files: t.Sequence[File], cache: Path) -> dict[str, Sums]:
    """Return the digests of files; those of an unchanged file are not computed again."""
    known = _read(cache)
    kept, found = {}, {}
    for file in files:
        key = f"{directory / file.name}"
        marks = [file.size, file.mtime_ns]
        entry = known.get(key)
        if not (isinstance(entry, list) and len(entry) == 4 and entry[:2] == marks):
            entry = [*marks, *_digest(directory / file.name, file)]
        kept[key], found[file.name] = entry, Sums(*entry[2:])
    if kept != known:
        partial = cache.with_name(f"{cache.name}.{os.getpid()}")
        partial.write_text(json.dumps(kept), encoding="utf-8")
        partial.replace(cache)
    return found


def _read(cache: Path) -> dict[str, t.Any]:
    try:
        known = json.loads(cache.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _digest(path: Path, expected: File) -> Sums:
    md5, sha256 = hashlib.new("md5", usedforsecurity=False), hashlib.sha256()
    try:
        with path.open("rb") as handle:
            while chunk := handle.read(_CHUNK):
                md5.update(chunk)
                sha256.update(chunk)
    except OSError as exc:
        raise CheckpointError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    unchanged(path, expected)
    return Sums(md5.hexdigest(), sha256.hexdigest())


def unchanged(path: Path, expected: File) -> None:
    """Refuse a file that somebody wrote since it was looked at."""
    try:
        now = path.lstat()
    except OSError as exc:
        raise CheckpointError(f"{path} was removed while it was sent") from exc
    if (now.st_size, now.st_mtime_ns) != (expected.size, expected.mtime_ns):
        raise CheckpointError(f"{path} was written while it was sent; try again when the checkpoint is complete")
