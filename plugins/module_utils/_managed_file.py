# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files and directories that belong to a service: compared, written and owned in one step. Private."""

from __future__ import annotations

import base64
import binascii
import grp
import hashlib
import pwd
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _replace

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


class Module(t.Protocol):
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


def keep_all(module: Module, entries: t.Iterable[Entry]) -> tuple[bool, dict[str, float], list[dict[str, str]]]:
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


def keep(module: Module, entry: Entry) -> tuple[bool, dict[str, str]]:
    """Bring one file or directory to its wanted state; return whether it changed, and how its content did."""
    path, after = Path(entry["path"]), wanted(entry)
    before = path.read_bytes() if after is not None and path.is_file() else None
    changed = not path.is_dir() if after is None else before != after
    diff = difference(entry, before, after) if changed else {}
    mode = entry.get("mode") or ("0755" if after is None else "0644")
    if changed and not module.check_mode:
        path.parent.mkdir(parents=True, exist_ok=True)
        if after is None:
            path.mkdir(mode=int(mode, 8))
        else:
            replace(path, after, entry["owner"], int(mode, 8))
    if path.exists() and _known(entry["owner"]):
        attributes = {"path": str(path), "owner": entry["owner"], "group": entry["owner"], "mode": mode}
        unused = {"secontext": [None, None, None], "attributes": None}
        changed = module.set_fs_attributes_if_different({**attributes, **unused}, changed)
    return changed, diff


def replace(path: Path, content: bytes, owner: str, mode: int) -> None:
    """Put a whole file in place at once, never readable by more people than in the end.

    AnsibleModule.atomic_move gives a new file mode 0644 and leaves it to a later step to take that back.
    """
    ids = (pwd.getpwnam(owner).pw_uid, grp.getgrnam(owner).gr_gid) if _known(owner) else None
    _replace.replace(path, content, mode, ids)


def _known(owner: str) -> bool:
    """In check mode the package that makes the user may not be installed yet."""
    try:
        return bool(pwd.getpwnam(owner) and grp.getgrnam(owner))
    except KeyError:
        return False
