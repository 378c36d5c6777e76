# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read logs of nccl-tests, of every layout from 1.0 to 2.19, as text or as the JSON of ``-J``.

A log may hold several runs. Ranks are those that the devices' lines tell of, else those that the ratio of the
bandwidths fits; compare them with the ranks that were asked for: a program built without MPI makes every process
measure alone, says OK and ends with 0. ``average_busbw`` is the mean over all sizes and no measure of the best.
"""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests_frame as frame
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests_rows as table
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_json import parse_json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_model import (
    Device,
    Row,
    Run,
    Timing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_run import CAUSES, Building
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, Tail, lines

__all__ = ["Cause", "Device", "Log", "Row", "Run", "Source", "Timing", "parse", "parse_json"]

_LONGEST_HEADER = 4096
_DIGITS = frozenset("0123456789")


def parse(source: Source) -> Log[Run]:
    """Return the runs of a log; look at `Log.ok` and `Log.cause` before using a number."""
    return _Parser().read(source)


class _Parser:
    def __init__(self) -> None:
        self.runs: list[Building] = []
        self.before = FirstCause(CAUSES)
        self.library: str | None = None
        self.tail = Tail()

    def read(self, source: Source) -> Log[Run]:
        for line in lines(source, self.tail):
            head = line[:1]
            if head in _DIGITS:
                self._row(line)
            elif head == "#":
                self._header(line[1:_LONGEST_HEADER].strip())
            elif " NCCL INFO " not in line:
                self._other(line)
        runs = [run.finish() for run in self.runs]
        # What shells complain about before good runs has nothing to do with them.
        well = bool(runs) and all(run.ok for run in runs)
        causes = [self.before.failure if well else self.before.cause, *(run.cause for run in runs)]
        return Log(runs, next((cause for cause in causes if cause), None))

    def _current(self, new: bool = False) -> Building:
        if new or not self.runs:
            run = Building()
            run.library, self.library = self.library, None
            self.runs.append(run)
        return self.runs[-1]

    @property
    def _ended(self) -> bool:
        return bool(self.runs) and self.runs[-1].ended

    def _start(self, mark: str) -> Building:
        """A second header right after the first is another process's, not another run: see `Building.complete`."""
        run = self._current(new=bool(self.runs) and self.runs[-1].begun)
        run.marks.append(mark)
        return run

    def _header(self, text: str) -> None:
        if text.startswith("Rank "):
            self._current(new=self._ended).add_device(text)
        elif text.startswith(("size ", "bytes ")):
            columns = table.columns(text)
            if columns:
                run = self._current(new=self._ended or bool(self.runs and self.runs[-1].rows))
                run.columns = columns
                if columns.cpu_time:
                    run.note("the times are those of the CPU")
        elif text.startswith(("nccl-tests ", "Collective ", "nThread ")):
            self._mark(text)
        elif text.startswith("Out of bounds"):
            self._current().add_bounds(text)
        elif text.startswith("Avg bus"):
            self._current().add_average(text, self.tail.cut)
        else:
            self._remark(text)

    def _mark(self, text: str) -> None:
        version, starting, sizes = (pattern.match(text) for pattern in frame.MARKS)
        if version:
            run = self._start("version")
            run.version = version.group(1)
            run.library = frame.library(version.group(2)) or run.library
        elif starting:
            self._start("starting").program = starting.group(1)
        elif sizes:
            self._start("sizes").per_process = frame.product(sizes.group(1), sizes.group(2))
        elif text.startswith(frame.CONCLUDED):
            self._current().concluded += 1

    def _remark(self, text: str) -> None:
        compiled = frame.COMPILED.match(text)
        if compiled:
            self._current().library = compiled.group(1)
        elif frame.NOTES_BEFORE.match(text):
            self._current(new=self._ended).note(text)
        elif frame.NOTES.match(text) and self.runs:
            self.runs[-1].note(text)

    def _other(self, line: str) -> None:
        if line.startswith(frame.BARE):
            self._header(line[:_LONGEST_HEADER])
            return
        (self.runs[-1].first if self.runs else self.before).see(line)
        found = frame.LIBRARY.match(line)
        if found and self.runs:
            self.runs[-1].library = found.group(1)
        elif found:
            self.library = found.group(1)
        elif line.startswith("invalid ") and ", defaulting to " in line:
            self._current(new=self._ended).note(line)

    def _row(self, line: str) -> None:
        """Outside a run a row must be whole: lines with two integers and a word are common."""
        if not self.runs or self._ended:
            started = table.begin(line, None)
            if not started or started[0].missing or not started[0].sane:
                self._other(line)
                return
        rest = self._current(new=self._ended).add_row(line, self.tail.cut)
        if rest is None or rest.strip():
            self._other(line if rest is None else rest.strip())
