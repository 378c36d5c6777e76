# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Source archives that match their checksum, the commands of a build, and programs that travel to nodes as text."""

from __future__ import annotations

import ast
import hashlib
import re
import tarfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run

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
    actual = sha256(archive) if kind == "sha256" else _commit(archive)
    if actual != wanted:
        raise SourceError(f"{archive} is not the source that was asked for: {kind} {actual or 'unknown'}, not {wanted}")
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
    # By default Python 3.14 refuses and changes members by rules of its own.
    content.extraction_filter = lambda member, dummy: member
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


# Programs that travel to other nodes as text.


def text_of(module: t.Any) -> str:
    """Return the text of a Python module, also from inside the zip file that Ansible makes of a module."""
    source = module.__spec__.loader.get_source(module.__name__)
    # ansible-core's own loader returns bytes.
    return source.decode("utf-8") if isinstance(source, bytes) else str(source)


def joined(*modules: t.Any) -> str:
    """Return one program of several modules; each imports names of those before it, and the standard library."""
    program = ["from __future__ import annotations\n"]
    for text in map(text_of, modules):
        lines = text.splitlines(keepends=True)
        for node in ast.parse(text).body:
            own = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ansible_collections.")
            future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
            if own or future:
                lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
        program += lines
    return "".join(program)


# Run the commands of a build, and say why one failed.


_SHOWN = 15
_TROUBLE = re.compile(r"\berror\b|\bfatal\b|CMake Error|No such file|undefined reference|\*\*\*", re.IGNORECASE)


class BuildError(ValueError):
    """A command of a build failed; the text is fit for the user."""


class BuildStep(t.NamedTuple):
    argv: t.Sequence[str]
    environment: t.Mapping[str, str] = {}


def run_steps(steps: t.Iterable[BuildStep], environment: t.Mapping[str, str], timeout: float) -> float:
    """Run the commands one after the other, each within ``timeout`` seconds; return the seconds they took."""
    seconds = 0.0
    for step in steps:
        outcome = run(step.argv, timeout, environment={**environment, **step.environment})
        seconds += outcome.seconds
        if outcome.rc != 0:
            raise BuildError(f"{' '.join(step.argv)} failed: {trouble(outcome)}")
    return seconds


def trouble(outcome: Outcome) -> str:
    """Pick the lines that say why; compilers say it first, make says last that something went wrong."""
    lines = [line for line in f"{outcome.out}\n{outcome.err}".splitlines() if line.strip()]
    telling = [line for line in lines if _TROUBLE.search(line)] or lines
    status = outcome.problem if outcome.rc is None else f"exit status {outcome.rc}"
    return "\n".join([status, *(line for line in telling[:_SHOWN] if line != status)])
