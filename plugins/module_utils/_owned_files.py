# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in directories that others write to as well: ours carry a mark, all others are left alone. Private.

What is not wanted any more is taken away again, with the directories that were made for it.
"""

from __future__ import annotations

import contextlib
import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _managed_file as managed

MARK = "Written by hpcai.gpu_cluster"
Json = t.Dict[str, t.Any]


class Finding(t.NamedTuple):
    """``level`` is error, warn or info; ``about`` is the file, setting, service or package."""

    level: str
    about: str
    text: str


def told(findings: t.Iterable[Finding]) -> list[dict[str, str]]:
    """Return them for the result of a module; the text can stand alone."""
    return [{"level": one.level, "about": one.about, "text": f"{one.about}: {one.text}"} for one in findings]


class RecordError(ValueError):
    """What was noted of an earlier run cannot be read; the text is fit for the user."""


class Change(t.NamedTuple):
    """One file that changes; no content means that it goes."""

    path: str
    before: bytes | None
    after: str | None


def load(path: str) -> Json:
    """Read what an earlier run noted; nothing is noted on a host that was never changed."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise RecordError(f"Cannot read {path}, which tells how this host was before: {exc}") from exc
    if not isinstance(found, dict):
        raise RecordError(f"{path}, which tells how this host was before, holds no mapping: {found!r}")
    return found


def save(path: str, record: t.Mapping[str, t.Any]) -> None:
    """Note something before it is done; with nothing left to note, the file goes."""
    kept = {key: value for key, value in record.items() if value}
    if kept == {key: value for key, value in load(path).items() if value}:
        return
    if kept:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        managed.replace(Path(path), (json.dumps(kept, indent=2, sort_keys=True) + "\n").encode(), "root", 0o644)
        return
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()
    with contextlib.suppress(OSError):
        Path(path).parent.rmdir()


def plan(wanted: t.Mapping[str, str | None]) -> tuple[list[Change], list[Finding]]:
    """Compare; a file of another's in the place of one of ours stays as it is."""
    changes, findings = [], []
    for path, after in sorted(wanted.items()):
        place = Path(path)
        before = place.read_bytes() if place.is_file() else None
        there = place.is_symlink() or place.exists()
        if there and (before is None or place.is_symlink() or MARK.encode() not in before):
            if after is not None:
                text = "is there and was not written by this role: left as it is. Move it away to have ours"
                findings.append(Finding("warn", path, text))
        elif after is not None and before != after.encode():
            changes.append(Change(path, before, after))
        elif after is None and before is not None:
            changes.append(Change(path, before, None))
    return changes, findings


def differences(changes: t.Iterable[Change]) -> list[dict[str, str]]:
    """One diff per file, for Ansible."""
    return [
        {
            "before_header": one.path,
            "after_header": one.path,
            "before": (one.before or b"").decode(errors="replace"),
            "after": one.after or "",
        }
        for one in changes
    ]


def note_directories(changes: t.Iterable[Change], record: Json) -> None:
    """Note which directories are going to be made, from the top down."""
    made = record.setdefault("directories", [])
    for one in changes:
        above = [str(d) for d in reversed(Path(one.path).parents) if one.after is not None and not d.exists()]
        made += [d for d in above if d not in made]


def apply(module: managed.Module, changes: t.Iterable[Change], record: Json, modes: t.Mapping[str, str]) -> None:
    """Write and remove; a directory of ours goes when nothing is left in it."""
    for one in changes:
        if one.after is None:
            Path(one.path).unlink()
            continue
        try:
            managed.keep(module, {"path": one.path, "content": one.after, "owner": "root", "mode": modes.get(one.path)})
        except OSError as exc:
            raise managed.FileError(f"Cannot write {one.path}: {exc}") from exc
    for folder in reversed(record.get("directories", [])[:]):
        if not Path(folder).is_dir() or not any(Path(folder).iterdir()):
            record["directories"].remove(folder)
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
