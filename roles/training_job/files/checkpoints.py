# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints that a crash cannot spoil, and a journal that tells what a crash has cost.

A checkpoint is ``step-00000040.pt`` and beside it ``step-00000040.json`` with its size and SHA-256. The second is
written last: a checkpoint without it was never finished. What is in one is the caller's; nothing here needs torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import typing as t
from pathlib import Path

Json = t.Dict[str, t.Any]
JOURNAL = "journal.jsonl"
# Left by a training that was told to make room and is worth starting again.
STOPPED = "stopped"
# Tells a training that was not yet there when it was told to make room.
LEAVE = "leave"
_BLOCK = 1 << 20


def replace(path: Path, write: t.Callable[[t.BinaryIO], t.Any]) -> None:
    """Write a file aside and put it in its place: it is there whole and on the disk, or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as handle:
        write(handle)
        handle.flush()
        os.fsync(handle.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as handle:
        for block in iter(lambda: handle.read(_BLOCK), b""):
            found.update(block)
    return found.hexdigest()


class Checkpoints:
    """The checkpoints of one job in a directory of their own."""

    def __init__(self, folder: Path, kept: int = 2) -> None:
        self._folder, self._kept = folder, max(1, kept)
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, write: t.Callable[[t.BinaryIO], t.Any]) -> Path:
        """Keep what ``write`` writes as the checkpoint after so many steps, and remove those that are too old."""
        path = self._folder / f"step-{step:08d}.pt"
        replace(path, write)
        about = {"step": step, "bytes": path.stat().st_size, "sha256": digest(path)}
        replace(path.with_suffix(".json"), lambda handle: handle.write(json.dumps(about).encode()))
        notes = sorted(self._folder.glob("step-*.json"))
        # Later ones were passed over, else this start would have begun there; they must not push out sound ones.
        later = [note for note in notes if note.stem > path.stem]
        for old in [*later, *notes[: len(notes) - len(later)][: -self._kept]]:
            # The other way round, a kill in between would leave one that claims to be whole.
            old.unlink()
            old.with_suffix(".pt").unlink(missing_ok=True)
        return path

    def newest(self) -> tuple[int, Path] | None:
        """Return the newest checkpoint that is what its writer wrote; say why newer ones are passed over."""
        for note in sorted(self._folder.glob("step-*.json"), reverse=True):
            try:
                about = json.loads(note.read_text(encoding="utf-8"))
                path = note.with_suffix(".pt")
                size = path.stat().st_size
                if size != about["bytes"]:
                    raise ValueError(f"it has {size} bytes of {about['bytes']}")
                if digest(path) != about["sha256"]:
                    raise ValueError("its SHA-256 is another one")
                return int(about["step"]), path
            except (OSError, ValueError, KeyError, TypeError) as exc:
                print(f"checkpoint {note.stem} is passed over: {exc}", file=sys.stderr, flush=True)
        return None


class Journal:
    """One line for every start, step, checkpoint and stop of a job, over all its starts."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL

    def add(self, event: str, **about: t.Any) -> None:
        """Append one line; after a crash in the middle of one the next begins on a line of its own."""
        text = json.dumps({"event": event, **about}) + "\n"
        with self._path.open("ab+") as handle:
            if handle.tell():
                handle.seek(-1, os.SEEK_END)
                text = text if handle.read(1) == b"\n" else f"\n{text}"
            handle.write(text.encode())

    def read(self) -> list[Json]:
        """Return the events; a line that a crash cut off is no event."""
        found = []
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                found.append(event)
        return found


def done(events: t.Sequence[Json]) -> int:
    """Return how many steps the starts so far have done at most; also those that no checkpoint holds."""
    return max((int(event["step"]) for event in events if event.get("event") == "step"), default=0)


def starts(events: t.Sequence[Json]) -> Json:
    """Return what a result says of the job's starts: how many came after the first, and what they cost."""
    found = [event for event in events if event.get("event") == "start"]
    last = found[-1] if len(found) > 1 else {}
    return {
        "restarts": max(0, len(found) - 1),
        "resumed_from": last.get("step"),
        "lost_steps": sum(int(event.get("lost", 0)) for event in found),
    }


class Stop:
    """What signals have asked for so far; the first flag is for any of them, the second for USR1 alone."""

    def __init__(self) -> None:
        self.flags = [0.0, 0.0]
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, dummy: t.Any) -> None:
        self.flags = [1.0, max(self.flags[1], float(number == signal.SIGUSR1))]
