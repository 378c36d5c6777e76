# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directory of a certification: whatever was learnt is in it before anything else happens. Private, stdlib only.

Coordinator, batch scripts and nodes share it. Every file is written aside, flushed and renamed, so that whoever is
killed leaves a whole file or none.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._replace import replace

FOLDERS = ("batches", "jobs", "results", "started", "logs", "journal")
# No honest file is larger; a damaged one must not fill the memory of whoever reads it.
LARGEST = 256 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,200}")


class JournalError(ValueError):
    """The directory cannot be used; the text is fit for the user."""


class Journal:
    """Reads and writes one run's directory."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def create(self) -> None:
        """Make the directories; the user of the run alone may write."""
        for name in ("", *FOLDERS):
            try:
                (self.folder / name).mkdir(mode=0o755, parents=True, exist_ok=True)
            except OSError as exc:
                raise JournalError(f"{self.folder / name} cannot be made: {exc.strerror}") from exc

    def path(self, kind: str, name: str, suffix: str = ".json") -> Path:
        """Return where something is; a name that would lead elsewhere is refused."""
        if not _NAME.fullmatch(name):
            raise JournalError(f"{name!r} cannot be the name of a file")
        return self.folder / kind / f"{name}{suffix}"

    def write(self, kind: str, name: str, value: t.Any) -> Path:
        path = self.path(kind, name)
        replace(path, json.dumps(value, sort_keys=True))
        return path

    def read(self, kind: str, name: str) -> t.Any:
        """Return what was written, None if nothing was."""
        return load(self.path(kind, name))

    def results(self, test: str) -> list[Json] | None:
        """Return the records of a test, None as long as there are none."""
        text = _text(self.path("results", test, ".jsonl"))
        return None if text is None else records(text) or [_hole("its result is empty")]

    def answered(self) -> set[str]:
        """Return the ids of all tests that have results."""
        return {name[: -len(".jsonl")] for name in _names(self.folder / "results") if name.endswith(".jsonl")}

    def answer(self, test: str, found: t.Sequence[Json]) -> None:
        """Keep the records of a test; the first answer stays, whoever else measures it again."""
        path = self.path("results", test, ".jsonl")
        if not path.exists():
            replace(path, "".join(f"{json.dumps(one, sort_keys=True)}\n" for one in found))

    def start(self, name: str) -> None:
        """Leave a sign that a task runs: a node that is given but silent has none."""
        with contextlib.suppress(OSError):
            self.path("started", name, "").touch()

    def started(self) -> set[str]:
        return set(_names(self.folder / "started"))

    def say(self, line: str) -> None:
        """Add a line for people who watch."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with contextlib.suppress(OSError), (self.folder / "progress.log").open("a", encoding="utf-8") as file:
            file.write(f"{stamp} {line}\n")


def load(path: Path) -> t.Any:
    """Return what a JSON file holds, None without one."""
    text = _text(path)
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise JournalError(f"{path} is no JSON: {exc}") from exc


def records(text: str) -> list[Json]:
    """Read JSON lines; what is no record says that something is wrong with the test, not with the node.

    Left out without a word, a line could take a failure with it, and the rest would pass.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    found = [one for one in map(_record, lines) if one is not None]
    lost = len(lines) - len(found)
    return found + [_hole(f"{lost} of {len(lines)} lines of its result are no records")] * bool(lost)


def _record(line: str) -> Json | None:
    try:
        one = json.loads(line)
    except (ValueError, RecursionError):
        return None
    texts = isinstance(one, dict) and all(isinstance(one.get(name), str) for name in ("check", "verdict"))
    return one if texts and all(isinstance(one.get(name, {}), dict) for name in ("scope", "context")) else None


def _hole(reason: str) -> Json:
    return record("result", None, time=0.0, verdict="error", reason=reason)


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST).decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise JournalError(f"{path} cannot be read: {exc.strerror}") from exc


def _names(folder: Path) -> list[str]:
    """List a directory as it is now: an NFS client believes its cache until it has changed the directory itself."""
    probe = folder / f".look.{os.uname().nodename}.{os.getpid()}"
    with contextlib.suppress(OSError):
        probe.touch()
        probe.unlink()
    try:
        return [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise JournalError(f"{folder} cannot be listed: {exc.strerror}") from exc
