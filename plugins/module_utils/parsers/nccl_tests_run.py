# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of nccl-tests while its lines arrive."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests_frame as frame
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests_rows as table
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_model import Device, Row, Run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import number

# What only nccl-tests says.
CAUSES = (
    (r"^USAGE: \S*(?:_perf|/test)", "config"),
    (r"^invalid sizes? (?:specified )?for '", "config"),
    # The ranks are laid out for a healthy node, so what is missing is a GPU.
    (r"^Invalid number of GPUs: \d+ requested", "hardware"),
    (r"is not a power of 2, skipping", "config"),
    (r"^NCCL [\d.]+ or later is needed for", "software"),
    (r"^Incompatible NCCL versions|^Device implementation \d+ is not supported", "software"),
    (r"requires multimem support|alltoallv traffic matrix|must be at least \d+ bytes as required", "config"),
)
_MOST_NOTES = 20
_LONGEST_NOTE = 200


class Building:
    """Collects what the lines of one run say; `finish` draws the conclusions."""

    def __init__(self) -> None:
        self.marks: list[str] = []
        self.version: str | None = None
        self.library: str | None = None
        self.program: str | None = None
        self.per_process: int | None = None
        self.columns: table.Columns | None = None
        self.devices: dict[int, Device] = {}
        self.highest: int | None = None
        self.rows: list[Row] = []
        self.pending: table.Pending | None = None
        self.broken = 0
        self.bounds: list[int | None] = []
        self.averages: list[float | None] = []
        self.concluded = 0
        self.wrong: Cause | None = None
        self.mixed = False
        self.notes: list[str] = []
        self.first = FirstCause(CAUSES)

    @property
    def begun(self) -> bool:
        """Say whether there is more than the first lines of the header."""
        return bool(self.columns or self.highest is not None or self.rows or self.ended or self.first.cause)

    @property
    def ended(self) -> bool:
        return bool(self.averages or self.bounds)

    def note(self, text: str) -> None:
        text = " ".join(text.split())[:_LONGEST_NOTE]
        if len(self.notes) < _MOST_NOTES and text not in self.notes:
            self.notes.append(text)

    def add_device(self, text: str) -> None:
        """Two processes that both are rank 0 do not know of each other."""
        rank, found = frame.rank(text), frame.device(text)
        if rank is not None:
            self.highest = max(rank, self.highest or 0)
        if text.endswith("..."):
            self.note("the list of devices is cut off")
        if found:
            known = self.devices.setdefault(found.rank, found)
            self.mixed = self.mixed or (known.pid, known.host) != (found.pid, found.host)

    def add_row(self, line: str, cut: bool) -> str | None:
        """Return what follows the row, or its piece, on the line; None if the line has no part in a row."""
        started = table.begin(line, self.columns)
        if started and started[0].plausible:
            self.end_row()
            self.pending, rest = started
        else:
            resumed = table.resume(self.pending, line) if self.pending else None
            if resumed is None:
                return None
            rest = resumed
        if cut and " " not in rest and self.pending and self.pending.cells:
            # The last number may have lost digits.
            self.pending.cells.pop()
        if self.pending and not self.pending.missing:
            self.end_row()
        return rest

    def end_row(self) -> None:
        if self.pending:
            row = self.pending.row()
            self.broken += self.pending.broken
            if row:
                self.rows.append(row)
                self._check(row)
        self.pending = None

    def _check(self, row: Row) -> None:
        count = next((timing.wrong for timing in row.timings if timing.wrong), None)
        if count and not self.wrong:
            self.wrong = Cause(f"{count:g} wrong elements at {row.size} bytes", "hardware")
            self.first.add(self.wrong)

    def add_bounds(self, text: str) -> None:
        match = frame.OUT_OF_BOUNDS.match(text)
        if match:
            count = number(match.group(1))
            self.bounds.append(count if isinstance(count, int) else None)
            self._fail(text, match.group(2))

    def add_average(self, text: str, cut: bool) -> None:
        """Without the end of its line the number may have lost digits."""
        match = frame.AVERAGE.match(text)
        if match and (match.group(2) or not cut):
            value = number(match.group(1))
            self.averages.append(None if value is None else float(value))
            self._fail(text, match.group(2))

    def _fail(self, text: str, verdict: str | None) -> None:
        if verdict == "FAILED":
            said = " ".join(text.split())[:_LONGEST_NOTE]
            more = f", the first: {self.wrong.text}" if self.wrong else ""
            self.first.add(Cause(said + more, "hardware"), instead_of=self.wrong)

    @property
    def complete(self) -> bool:
        """One footer for each header; versions that announce the start announce the end as well."""
        starts = max([1, *(self.marks.count(mark) for mark in set(self.marks))])
        ends = [len(self.bounds), len(self.averages)]
        if "starting" in self.marks:
            ends.append(self.concluded)
        return min(ends) >= starts and not self.broken

    def finish(self) -> Run:
        self.end_row()
        devices = [self.devices[rank] for rank in sorted(self.devices)]
        name = frame.collective(self.program)
        ranks = frame.ranks_of_devices(self.highest, self.per_process)
        timings = [timing for row in self.rows for timing in row.timings]
        counts = [timing.wrong for timing in timings if timing.wrong is not None]
        validated = bool(counts) or any(timing.deviation is not None for timing in timings)
        known = [count for count in self.bounds if count is not None]
        wrong = any(counts) or any(known)
        return Run(
            collective=name,
            program=self.program,
            version=self.version,
            nccl_version=self.library,
            layout=self._layout(),
            devices=devices,
            ranks=frame.ranks_of_rows(self.rows, name) if ranks is None else ranks,
            nodes=len({device.host for device in devices}) or None,
            rows=self.rows,
            out_of_bounds=sum(known) if known else None,
            correct=False if wrong else True if validated and known else None,
            average_busbw=self.averages[0] if len(self.averages) == 1 else None,
            validated=validated,
            complete=self.complete,
            notes=self.notes,
            cause=self._cause(),
        )

    def _layout(self) -> str:
        if self.columns:
            return self.columns.layout
        old = any(timing.deviation is not None for row in self.rows for timing in row.timings)
        return "2.0" if old else "2.13"

    def _cause(self) -> Cause | None:
        tables = max([len(self.averages), len(self.bounds), *(self.marks.count(mark) for mark in set(self.marks))])
        if self.first.cause or not (tables > 1 or self.mixed):
            return self.first.cause
        text = f"{max(tables, 2)} tables are mixed, of processes that do not know of each other"
        return Cause(f"{text}: is the program built without MPI?", "config")
