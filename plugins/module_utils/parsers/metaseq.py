# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The training log of metaseq with C(--log-format json): how many words a second, and whether it went to its end.

Lines are those of metaseq/logging/progress_bar/json_progress_bar.py and metaseq/cli/train.py (f7ffa5f): time, level,
tag and JSON whose numbers are texts. The first interval has no speed, later ones have that of all ranks together. A
log may hold several runs, as jobs that go on append to it; their updates then begin again below the last.
"""

from __future__ import annotations

import json
import re
import statistics
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import (
    Cause,
    FirstCause,
    Log,
    cause,
    log_of,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines, number

# Ranks other than the first say the same, or nothing.
_RANK = re.compile(r"slurm_procid ([0-9]{1,7}) ?: ?")
_ROW = re.compile(r"\| INFO \| train_inner \| (\{.*)")
_BEGIN = re.compile(r"\| INFO \| [\w.]+ \| Start iterating over samples$")
_END = re.compile(r"\| INFO \| [\w.]+ \| done training in ([0-9.]{1,20}) seconds$")
_FAILURES = (
    (re.compile(r"FloatingPointError|Minimum loss scale reached|NaN detected|Function '\w+' returned nan"), "software"),
    (re.compile(r"out of memory|attempting to recover from OOM"), "software"),
)


@dataclass(frozen=True)
class MetaseqRow:
    """One interval; what is no finite number is None."""

    updates: int
    words_per_second: float | None
    words_per_batch: float | None
    loss: float | None


@dataclass(frozen=True)
class MetaseqRun:
    """One start of the training; ``seconds`` is what it says at its end, ``torn`` counts rows that cannot be read.

    It is complete when it came to its end and no row is missing.
    """

    rows: list[MetaseqRow]
    torn: int
    seconds: float | None
    complete: bool
    cause: Cause | None
    ok: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ok", self.complete and self.cause is None and self.words_per_second is not None)

    @property
    def words_per_second(self) -> float | None:
        """Return the median of the later half of the intervals: the first ones warm up, and single ones stall."""
        speeds = [row.words_per_second for row in self.rows if row.words_per_second]
        return statistics.median(speeds[len(speeds) // 2 :]) if speeds else None

    @property
    def loss(self) -> float | None:
        return self.rows[-1].loss if self.rows else None


class _Started:
    """A run while it is read."""

    def __init__(self) -> None:
        self.rows: list[MetaseqRow] = []
        self.torn = 0
        self.seconds: float | None = None
        self.complete = False
        self.causes = FirstCause(_FAILURES)
        self.nan: Cause | None = None

    def add(self, text: str) -> None:
        row, diverged = _row(text)
        if row is None:
            self.torn += 1
            return
        self.rows.append(row)
        if diverged and not self.nan:
            self.nan = cause(f"the loss at update {row.updates} is no finite number", "software")

    def done(self) -> MetaseqRun:
        complete = self.complete and not self.torn
        return MetaseqRun(self.rows, self.torn, self.seconds, complete, self.causes.cause or self.nan)


def parse(source: Source) -> Log[MetaseqRun]:
    """Read one or several runs."""
    runs: list[_Started] = []
    early = FirstCause(_FAILURES)
    for line in lines(source):
        rank = _RANK.match(line)
        text = line[rank.end() :] if rank else line
        row = _ROW.search(text)
        if (rank and int(rank.group(1))) or (row and runs and _repeats(runs[-1], row.group(1))):
            continue
        if _BEGIN.search(text) or (row and _begins(runs, row.group(1))):
            runs.append(_Started())
        if not runs:
            early.see(text)
            continue
        _see(runs[-1], text, row)
    return log_of([run.done() for run in runs], [early.cause] if early.cause else [])


def _see(run: _Started, text: str, row: t.Match[str] | None) -> None:
    if row:
        run.add(row.group(1))
        return
    run.causes.see(text)
    end = _END.search(text)
    if end and not run.complete:
        run.seconds, run.complete = number(end.group(1)), True


def _begins(runs: list[_Started], text: str) -> bool:
    """A log may have lost its beginning, and one that goes on begins again with fewer updates."""
    row = _row(text)[0]
    if not runs or runs[-1].complete:
        return row is not None
    return row is not None and bool(runs[-1].rows) and row.updates < runs[-1].rows[-1].updates


def _repeats(run: _Started, text: str) -> bool:
    row = _row(text)[0]
    return row is not None and bool(run.rows) and row.updates == run.rows[-1].updates


def _row(text: str) -> tuple[MetaseqRow | None, bool]:
    """Return a row, and whether its loss is there but no number."""
    try:
        values: t.Any = json.loads(text)
        updates = number(str(values["num_updates"]))
        loss = values.get("loss")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, False
    if not isinstance(updates, int) or updates < 0:
        return None, False
    speed, batch, value = (number(str(values.get(name))) for name in ("wps", "wpb", "loss"))
    return MetaseqRow(updates, speed, batch, value), loss is not None and value is None
