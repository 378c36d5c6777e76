# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rank was the first to hang: where no step ends any more, each rank says where it is, and rank 0 compares.

A rank that hangs leaves the others waiting for it in a collective, so it is the one that is elsewhere. One that holds
Python's lock cannot say anything, and is the one that is missing.
"""

from __future__ import annotations

import collections
import json
import sys
import threading
import time
import traceback
import typing as t
from pathlib import Path

from checkpoints import replace

Json = t.Dict[str, t.Any]


def where(stack: t.Sequence[traceback.FrameSummary]) -> Json:
    """Return the innermost line that is not PyTorch's, and whether PyTorch works or waits there."""
    inside = ["/torch/" in frame.filename for frame in stack]
    last = [frame for frame, torch in zip(stack, inside) if not torch][-1]
    return {"place": f"line {last.lineno} of {Path(last.filename).name}, {last.name}", "waits": inside[-1]}


def first(found: t.Mapping[int, Json], ranks: int) -> int | None:
    """Return the rank that the others wait for, by what each has said; none where they all say the same."""
    missing = [rank for rank in range(ranks) if rank not in found]
    if missing:
        return missing[0]
    places = collections.Counter(one["place"] for one in found.values())
    # A step behind, or where the fewest are, or not in PyTorch.
    for mark in (
        {rank: one["step"] for rank, one in found.items()},
        {rank: places[one["place"]] for rank, one in found.items()},
        {rank: one["waits"] for rank, one in found.items()},
    ):
        least = min(mark.values())
        if least < max(mark.values()):
            return next(rank for rank in sorted(mark) if mark[rank] == least)
    return None


class Stalls(threading.Thread):
    """Watches one rank; ``tell`` of rank 0 is called with what is known once no step has ended for so many seconds."""

    def __init__(self, folder: Path, rank: int, ranks: int, host: str, seconds: float) -> None:
        super().__init__(daemon=True)
        self.folder, self.rank, self.ranks, self.host, self.seconds = folder, rank, ranks, host, seconds
        self.tell: t.Callable[[Json], None] = lambda dummy: None
        self.over = threading.Event()
        self.step(0)
        self._path(rank).unlink(missing_ok=True)

    def _path(self, rank: int) -> Path:
        return self.folder / f"stalled-{rank}.json"

    def step(self, number: int) -> None:
        """Note that a step begins."""
        self.begun = (number, time.monotonic())

    def run(self) -> None:
        while not self.over.wait(min(self.seconds / 10, 5)):
            number, since = self.begun
            if time.monotonic() - since > self.seconds:
                self._note(number)
                if self.rank == 0:
                    self.tell(self.verdict(number))
                return

    def _note(self, number: int) -> None:
        stack = traceback.extract_stack(sys._current_frames()[t.cast(int, threading.main_thread().ident)])
        print(f"rank {self.rank}: no step for {self.seconds:g} s", *traceback.format_list(stack), sep="\n", flush=True)
        said = json.dumps({"host": self.host, "step": number, **where(stack)})
        replace(self._path(self.rank), lambda file: file.write(said.encode()))

    def verdict(self, number: int) -> Json:
        """Return what the ranks have said; they have begun the step at about the same time."""
        begin = time.monotonic()
        while True:
            paths = {rank: self._path(rank) for rank in range(self.ranks)}
            there = {rank: path for rank, path in paths.items() if path.exists()}
            if len(there) == self.ranks or self.over.wait(1) or time.monotonic() - begin > 15:
                break
        found = {rank: json.loads(path.read_text()) for rank, path in there.items()}
        rank, problem = first(found, self.ranks), f"no step for {self.seconds:g} s"
        if rank is None:
            return {"problem": f"{problem}: all ranks are at {found[0]['place']}", "step": number}
        if rank not in found:
            return {"problem": f"{problem}: rank {rank} does not answer", "rank": rank, "step": number}
        about = f"rank {rank} on {found[rank]['host']} is at {found[rank]['place']}, the others are not"
        return {"problem": f"{problem}: {about}", "rank": rank, "host": found[rank]["host"], "step": number}
