# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source archives that match their checksum, and programs that travel to other nodes as text."""

from __future__ import annotations

import hashlib
import re
import tarfile
import typing as t
from pathlib import Path

# Source archives that are what was asked for, or are not unpacked.


class SourceError(ValueError):
    """A source is not pinned, or not the pinned one; the text is fit for the user."""


def identity(source: t.Mapping[str, t.Any]) -> str:
    """Return what pins a source, ``commit:<id>`` or ``sha256:<digest>``."""
    git, commit, archive, digest = (source.get(key) or "" for key in ("git", "commit", "archive", "sha256"))
    fields = digest if re.fullmatch(r"[0-9a-f]{64}", digest) else ""
    if bool(git) == bool(archive) or bool(git) != bool(commit) or bool(archive) != bool(fields):
        raise SourceError("give git and commit, or archive and sha256 (64 hexadecimal digits)")
    if commit and not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit):
        raise SourceError(f"commit must be a full commit id, because tags and branches move: {commit}")
    return f"commit:{commit}" if commit else f"sha256:{digest}"


def unpack(archive: str, pinned: str, into: Path) -> str:
    """Unpack an archive that is what it should be; return the directory of the source in it."""
    kind, dummy, wanted = pinned.partition(":")
    found = sha256(archive) if kind == "sha256" else _commit(archive)
    if found != wanted:
        raise SourceError(f"{archive} is not the source that was asked for: {kind} {found or 'unknown'}, not {wanted}")
    into.mkdir(mode=0o755, parents=True)
    try:
        with tarfile.open(archive) as content:
            _extract(content, into)
    except (tarfile.TarError, EOFError, OSError) as exc:
        raise SourceError(f"{archive} cannot be unpacked: {exc}") from exc
    entries = list(into.iterdir())
    return str(entries[0] if len(entries) == 1 and entries[0].is_dir() else into)


def sha256(path: str | Path) -> str:
    digest = hashlib.sha256()
    with Path(path).open("rb") as content:
        for block in iter(lambda: content.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _commit(path: str) -> str:
    """Return the commit id that git writes into archives it makes."""
    try:
        with tarfile.open(path) as content:
            return content.pax_headers.get("comment", "")
    except (tarfile.TarError, EOFError, OSError):
        return ""


def _extract(content: tarfile.TarFile, into: Path) -> None:
    """Extract files, directories and links, none of which lead out of the directory."""
    root = into.resolve()
    for member in content.getmembers():
        goal = (root / member.name).resolve()
        aim = (goal.parent / member.linkname).resolve() if member.issym() else (root / member.linkname).resolve()
        outside = root not in (goal, *goal.parents) or ((member.issym() or member.islnk()) and root not in aim.parents)
        if outside or not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
            raise SourceError(f"the archive holds {member.name}, which leads out of it or is no file")
        member.mode &= 0o755
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        content.extract(member, root, set_attrs=not member.issym())


# Programs that travel to other nodes as text: no AnsibleModule, private.


def text_of(module: t.Any) -> str:
    """Return the text of a Python module, also from inside the zip file that Ansible makes of a module."""
    found = module.__spec__.loader.get_source(module.__name__)
    # ansible-core's own loader returns bytes.
    return found.decode("utf-8") if isinstance(found, bytes) else str(found)
