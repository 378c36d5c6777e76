# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Earlier runs: which one goes on, what they said of nodes, and which of them may go. Private, stdlib only."""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import journal as journals

CERTIFICATE, RECORDS, REQUEST = "certificate.json", "records.jsonl", "request.json"
RESUMABLE = 6 * 3600.0  # seconds; what nodes said before that is no proof of today
_EARLIER = 5  # earlier certificates that are asked for suspects


def unfinished(base: Path, fingerprint: str) -> Json | None:
    """Return the newest run that was asked for the same, not long ago, and has no certificate."""
    folders = sorted(base.iterdir(), reverse=True) if base.is_dir() else []
    for folder in folders:
        there = journals.load(folder / REQUEST) if recent(folder) else None
        if there and there.get("fingerprint") == fingerprint and not (folder / CERTIFICATE).exists():
            return dict(there)
    return None


def recent(folder: Path) -> bool:
    file = folder / REQUEST
    return file.is_file() and time.time() - file.stat().st_mtime < RESUMABLE


def earlier(base: Path) -> list[t.Any]:
    """Return the last certificates, the newest last; a damaged one must not stand in the way of a new one."""
    found = []
    files = sorted(base.glob(f"*/{CERTIFICATE}"), key=lambda path: (path.stat().st_mtime, path))
    for path in files[-_EARLIER:]:
        with contextlib.suppress(journals.JournalError):
            found.append(journals.load(path))
    return found


def old(base: Path, keep: int, run: str, reasons: t.Callable[[], t.Sequence[str]]) -> list[Path]:
    """Return the runs that may go, the oldest first; ``run`` is the newest, whether it is there yet or not.

    A run stays that is not ours or is under way, that has the last word on any node, or that a node's reason names.
    """
    if keep < 1 or not base.is_dir():
        return []
    runs = sorted((_age(path), path) for path in base.iterdir() if path.name != run and _ours(path))
    spare = [path for dummy, path in runs[: max(0, len(runs) - (keep - 1))] if not _going(path)]
    if not spare:
        return []
    named = " ".join(reasons())
    known: set[str] = set()
    last = {path for path in [base / run, *(path for dummy, path in reversed(runs))] if _says_more(path, known)}
    return [path for path in spare if path not in last and not re.search(rf"\brun {re.escape(path.name)}(?!\S)", named)]


def _ours(folder: Path) -> bool:
    """Only what the module certification wrote is a run, under the name that its request has."""
    if folder.is_symlink() or not (folder / REQUEST).is_file():
        return False
    try:
        found = journals.load(folder / REQUEST)
    except journals.JournalError:
        return False
    return isinstance(found, dict) and found.get("run") == folder.name and {"schema", "fingerprint"} <= set(found)


def _age(folder: Path) -> float:
    files = [file for file in (folder / CERTIFICATE, folder / REQUEST) if file.is_file()]
    return files[0].stat().st_mtime if files else 0.0


def _going(folder: Path) -> bool:
    """Say whether a run may still go on, or somebody leads it at this moment."""
    if not (folder / CERTIFICATE).exists() and recent(folder):
        return True
    try:
        with (folder / "lock").open("a") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _says_more(folder: Path, known: set[str]) -> bool:
    """Say whether a run tells of nodes that no newer one does; what cannot be read may."""
    try:
        found = journals.load(folder / CERTIFICATE)
        nodes = set(found["nodes"]) if found else set()
    except (journals.JournalError, TypeError, KeyError):
        return True
    fresh = nodes - known
    known.update(nodes)
    return bool(fresh)


def remove(folder: Path) -> None:
    """Remove a run; what says that it is one goes last, so that a removal that was cut short is taken up again."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == REQUEST):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    folder.rmdir()


def reasons(nodes: t.Iterable[Json]) -> list[str]:
    """Return why nodes are drained; our reasons name the run that said so."""
    return [str(node.get("reason") or "") for node in nodes]
