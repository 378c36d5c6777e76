# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a service, and files in directories that others write to as well: ours are marked; others are left alone."""

from __future__ import annotations

import base64
import binascii
import contextlib
import grp
import hashlib
import json
import os
import pwd
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _files, _trusted

# Files and directories that belong to a service: compared, written and owned in one step.


# The options of one file, for an argument specification.
SPEC: dict[str, t.Any] = {
    "path": {"type": "path", "required": True},
    "content": {"type": "str", "no_log": False},
    "base64": {"type": "str", "no_log": False},
    "secret": {"type": "str", "no_log": True},
    "owner": {"type": "str", "default": "root"},
    "mode": {"type": "str"},
    "diff": {"type": "bool", "default": True},
}


Entry = t.Mapping[str, t.Any]


class FileError(ValueError):
    """A file cannot be what is wanted; the text is fit for the user."""


class FileModule(t.Protocol):
    """What is needed of AnsibleModule."""

    check_mode: bool

    def set_fs_attributes_if_different(self, file_args: dict[str, t.Any], changed: bool) -> bool: ...


def wanted(entry: Entry) -> bytes | None:
    """What the file shall hold; nothing for a directory."""
    for name, what in (("secret", "secret for"), ("base64", "content of")):
        if entry.get(name) is not None:
            try:
                return base64.b64decode(entry[name], validate=True)
            except (binascii.Error, ValueError) as exc:
                raise FileError(f"the {what} {entry['path']} is not base64") from exc
    content = entry.get("content")
    return None if content is None else content.encode()


def difference(entry: Entry, before: bytes | None, after: bytes | None) -> dict[str, str]:
    """A diff for Ansible; a secret's only says that there is one."""
    header = {"before_header": entry["path"], "after_header": entry["path"]}
    if after is None:
        return {**header, "before": "", "after": "directory\n"}
    if entry.get("secret") is not None:
        return {**header, "before": "(hidden)\n" if before else "", "after": "(hidden, differs)\n"}
    if entry.get("base64") is not None or not entry.get("diff", True):
        return {**header, "before": _digest(before), "after": _digest(after)}
    return {**header, "before": (before or b"").decode(errors="replace"), "after": after.decode()}


def _digest(content: bytes | None) -> str:
    return "" if content is None else f"sha256 {hashlib.sha256(content).hexdigest()}\n"


def keep_all(module: FileModule, entries: t.Iterable[Entry]) -> tuple[bool, dict[str, float], list[dict[str, str]]]:
    """Return whether anything changed, when files got (or in check mode: would get) other contents, and their diffs."""
    anything, written, diffs = False, {}, []
    for entry in entries:
        try:
            changed, diff = keep(module, entry)
        except OSError as exc:
            raise FileError(f"Cannot write {entry['path']}: {exc}") from exc
        anything = anything or changed
        diffs += [diff] if diff else []
        if diff and wanted(entry) is not None:
            written[entry["path"]] = time.time()
    return anything, written, diffs


def keep(module: FileModule, entry: Entry) -> tuple[bool, dict[str, str]]:
    """Bring one file or directory to its wanted state; return whether it changed, and how its content did.

    The path has to be root's, this process's or the owner's all along, and no link of anybody else is followed.
    """
    path, after = str(entry["path"]), wanted(entry)
    uid, gid = _ids(entry["owner"])
    mode = entry.get("mode") or ("0755" if after is None else "0644")
    trusted = _trusted.trusted_users(uid)
    try:
        before = None if after is None else _trusted.content(path, trusted)
        changed = not _is_directory(path, trusted) if after is None else before != after
        if changed and not module.check_mode:
            if after is None:
                _trusted.have(_trusted.Directory(path, uid, gid, int(mode, 8)), trusted)
            else:
                _trusted.put_file(_trusted.File(path, after, uid, gid, int(mode, 8)), trusted)
    except _trusted.TrustError as exc:
        raise FileError(f"Cannot write {path}: {exc}") from exc
    diff = difference(entry, before, after) if changed else {}
    if os.path.lexists(path) and _known(entry["owner"]):
        attributes = {"path": path, "owner": entry["owner"], "group": entry["owner"], "mode": mode}
        unused = {"secontext": [None, None, None], "attributes": None}
        changed = module.set_fs_attributes_if_different({**attributes, **unused}, changed)
    return changed, diff


def _is_directory(path: str, trusted: t.AbstractSet[int]) -> bool:
    try:
        with _trusted.opened(path, trusted):
            return True
    except FileNotFoundError:
        return False


def _ids(owner: str) -> tuple[int, int]:
    """Return an owner's user and group; this process's, in check mode, where a package makes the user later."""
    return (pwd.getpwnam(owner).pw_uid, grp.getgrnam(owner).gr_gid) if _known(owner) else (os.geteuid(), os.getegid())


def replace_owned(path: Path, content: bytes, owner: str, mode: int) -> None:
    """Put a whole file in place at once, never readable by more people than in the end.

    AnsibleModule.atomic_move gives a new file mode 0644 and leaves it to a later step to take that back.
    """
    ids = (pwd.getpwnam(owner).pw_uid, grp.getgrnam(owner).gr_gid) if _known(owner) else None
    _files.replace(path, content, mode, ids)


def _known(owner: str) -> bool:
    """In check mode the package that makes the user may not be installed yet."""
    try:
        return bool(pwd.getpwnam(owner) and grp.getgrnam(owner))
    except KeyError:
        return False


# Files in directories that others write to as well: ours carry a mark, all others are left alone.


MARK = "Written by hpcai.gpu_cluster"
Json = t.Dict[str, t.Any]


class ForeignFile(t.NamedTuple):
    """``level`` is error, warn or info; ``about`` is the file, setting, service or package."""

    level: str
    about: str
    text: str


def facts(findings: t.Iterable[ForeignFile]) -> list[dict[str, str]]:
    """Return the findings for the result of a module; the text can stand alone."""
    return [
        {"level": finding.level, "about": finding.about, "text": f"{finding.about}: {finding.text}"}
        for finding in findings
    ]


class RecordError(ValueError):
    """What was noted of an earlier run cannot be read; the text is fit for the user."""


class FileChange(t.NamedTuple):
    """One file that changes; no content means that it goes."""

    path: str
    before: bytes | None
    after: str | None


def load(path: str) -> Json:
    """Read what an earlier run noted; nothing is noted on a host that was never changed."""
    try:
        noted = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise RecordError(f"Cannot read {path}, which tells how this host was before: {exc}") from exc
    if not isinstance(noted, dict):
        raise RecordError(f"{path}, which tells how this host was before, holds no mapping: {noted!r}")
    return noted


def save(path: str, record: t.Mapping[str, t.Any]) -> None:
    """Note something before it is done; with nothing left to note, the file goes."""
    kept = {key: value for key, value in record.items() if value}
    if kept == {key: value for key, value in load(path).items() if value}:
        return
    if kept:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        replace_owned(Path(path), (json.dumps(kept, indent=2, sort_keys=True) + "\n").encode(), "root", 0o644)
        return
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()
    with contextlib.suppress(OSError):
        Path(path).parent.rmdir()


def plan(wanted: t.Mapping[str, str | None]) -> tuple[list[FileChange], list[ForeignFile]]:
    """Compare; a file of another's in the place of one of ours stays as it is."""
    changes, findings = [], []
    for path, after in sorted(wanted.items()):
        file = Path(path)
        before = file.read_bytes() if file.is_file() else None
        there = file.is_symlink() or file.exists()
        if there and (before is None or file.is_symlink() or MARK.encode() not in before):
            if after is not None:
                text = "is there and was not written by this role: left as it is. Move it away to have ours"
                findings.append(ForeignFile("warn", path, text))
        elif after is not None and before != after.encode():
            changes.append(FileChange(path, before, after))
        elif after is None and before is not None:
            changes.append(FileChange(path, before, None))
    return changes, findings


def differences(changes: t.Iterable[FileChange]) -> list[dict[str, str]]:
    """One diff per file, for Ansible."""
    return [
        {
            "before_header": change.path,
            "after_header": change.path,
            "before": (change.before or b"").decode(errors="replace"),
            "after": change.after or "",
        }
        for change in changes
    ]


def note_directories(changes: t.Iterable[FileChange], record: Json) -> None:
    """Note which directories are going to be made, from the top down."""
    made = record.setdefault("directories", [])
    for change in changes:
        above = [str(d) for d in reversed(Path(change.path).parents) if change.after is not None and not d.exists()]
        made += [d for d in above if d not in made]


def apply(module: FileModule, changes: t.Iterable[FileChange], record: Json, modes: t.Mapping[str, str]) -> None:
    """Write and remove; a directory of ours goes when nothing is left in it."""
    for change in changes:
        if change.after is None:
            Path(change.path).unlink()
            continue
        try:
            keep(
                module, {"path": change.path, "content": change.after, "owner": "root", "mode": modes.get(change.path)}
            )
        except OSError as exc:
            raise FileError(f"Cannot write {change.path}: {exc}") from exc
    for folder in reversed(record.get("directories", [])[:]):
        if not Path(folder).is_dir() or not any(Path(folder).iterdir()):
            record["directories"].remove(folder)
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
