# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unpack the source of a GPU test program and build it. Private."""

from __future__ import annotations

import hashlib
import re
import tarfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._gpu_tools_recipe import Step, ToolError

_SHOWN = 15
_TROUBLE = re.compile(r"\berror\b|\bfatal\b|CMake Error|No such file|undefined reference|\*\*\*", re.IGNORECASE)


def unpack(archive: str, identity: str, into: Path) -> str:
    """Unpack an archive that is what it should be; return the directory of the source in it."""
    kind, dummy, wanted = identity.partition(":")
    found = _sha256(archive) if kind == "sha256" else _commit(archive)
    if found != wanted:
        raise ToolError(f"{archive} is not the source that was asked for: {kind} {found or 'unknown'}, not {wanted}")
    into.mkdir(mode=0o755, parents=True)
    try:
        with tarfile.open(archive) as content:
            _extract(content, into)
    except (tarfile.TarError, EOFError, OSError) as exc:
        raise ToolError(f"{archive} cannot be unpacked: {exc}") from exc
    entries = list(into.iterdir())
    return str(entries[0] if len(entries) == 1 and entries[0].is_dir() else into)


def _sha256(path: str) -> str:
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
            raise ToolError(f"the archive holds {member.name}, which leads out of it or is no file")
        member.mode &= 0o755
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        content.extract(member, root, set_attrs=not member.issym())


def name(library: str, folder: str, short: str) -> None:
    Path(folder).mkdir()
    Path(folder, short).symlink_to(library)


def build(steps: t.Sequence[Step], environment: t.Mapping[str, str], timeout: float) -> float:
    """Run the commands of a build; return the seconds they took."""
    seconds = 0.0
    for step in steps:
        outcome = run(step.argv, timeout, environment={**environment, **step.environment})
        seconds += outcome.seconds
        if outcome.rc != 0:
            raise ToolError(f"{' '.join(step.argv)} failed: {_trouble(outcome)}")
    return seconds


def _trouble(outcome: Outcome) -> str:
    """Pick the lines that say why; compilers say it first, make says last that something went wrong."""
    lines = [line for line in f"{outcome.out}\n{outcome.err}".splitlines() if line.strip()]
    telling = [line for line in lines if _TROUBLE.search(line)] or lines
    status = "it did not end in time" if outcome.rc is None else f"exit status {outcome.rc}"
    return "\n".join([status, *telling[:_SHOWN]])
