# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of nccl-tests while its lines arrive: header, table, footer."""

from __future__ import annotations

import math
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import number

# What a run of nccl-tests is. `nccl_tests` has the functions that read one.


@dataclass(frozen=True)
class NcclTestsDevice:
    """One rank; ``bus_id`` as printed: ``0x07`` by old versions, ``0001:00:00`` by new ones."""

    rank: int
    group: int | None
    pid: int | None
    host: str
    device: int
    bus_id: str
    name: str


@dataclass(frozen=True)
class Timing:
    """Bandwidths in decimal GB/s. ``wrong`` counts elements, ``deviation`` (up to 2.11) is the largest difference."""

    time_us: float | None
    algbw: float | None
    busbw: float | None
    wrong: float | None
    deviation: float | None


@dataclass(frozen=True)
class NcclTestsRow:
    """One line of the table; ``size`` is in bytes of the whole operation, ``count`` in elements of one rank."""

    size: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out_of_place: Timing | None
    in_place: Timing | None

    @property
    def timings(self) -> list[Timing]:
        return [timing for timing in (self.out_of_place, self.in_place) if timing]


@dataclass(frozen=True)
class NcclTestsRun:
    """One table and what stands around it; None is what the log does not say."""

    collective: str | None
    program: str | None
    version: str | None
    nccl_version: str | None
    layout: str
    devices: list[NcclTestsDevice]
    ranks: int | None
    nodes: int | None
    rows: list[NcclTestsRow]
    out_of_bounds: int | None
    correct: bool | None
    average_busbw: float | None
    validated: bool
    complete: bool
    notes: list[str] = field(default_factory=list)
    cause: Cause | None = None

    @property
    def ok(self) -> bool:
        return self.complete and self.cause is None and self.peak_busbw is not None

    @property
    def peak_busbw(self) -> float | None:
        speeds = [timing.busbw for row in self.rows for timing in row.timings if timing.busbw is not None]
        return max(speeds, default=None)

    @property
    def largest(self) -> NcclTestsRow | None:
        """Return the last of the rows with the largest size."""
        return max(reversed(self.rows), key=lambda row: row.size, default=None)

    def busbw(self, size: int) -> float | None:
        """Return the bandwidth of the last row of that size, out of place where it was measured."""
        for row in reversed(self.rows):
            if row.size == size and row.timings:
                return row.timings[0].busbw
        return None


# What stands around the table of nccl-tests: parameters, devices, footer.


# Version, program, parameters: the first lines of a run, as many of them as its version has.
MARKS = (
    re.compile(r"nccl-tests version (\S+)(?:.* nccl-library=(\d+))?"),
    re.compile(r"Collective test starting: *(\S+)"),
    re.compile(r"nThread +(\d+) +nGpus +(\d+) +minBytes "),
)
# Lines that only nccl-tests prints, of which each version has some at its begin.
FIRST = re.compile(r"#? *(?:nccl-tests version|Collective test starting:|nThread +\d+ +nGpus )|# Using devices")
CONCLUDED = "Collective test concluded:"
COMPILED = re.compile(r"NCCL Tests compiled with NCCL (\d+\.\d+)")
OUT_OF_BOUNDS = re.compile(r"Out of bounds values *: *(\d+) *(OK|FAILED)?")
AVERAGE = re.compile(r"Avg bus bandwidth *: *(\S+) *(OK|FAILED)?")
LIBRARY = re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)")
NOTES = re.compile(r"error: \S|Reducing maxBytes|Blocking |Parallel Init|Per-Iteration|GPU memory")
NOTES_BEFORE = re.compile(r"Writing JSON output|skipping json output")
# These words stand at the begin of a line without # in 1.0.
BARE = ("nThread ", "Out of bounds values", "Avg bus bandwidth")

_DEVICE = re.compile(
    r"Rank +(\d+) +(?:Group +(\d+) +)?(?:Pid +(\d+) +)?on +(\S+) +device +(\d+) +\[([^\]]*)\] *(.*)", re.ASCII
)
_RANK = re.compile(r"Rank +(\d{1,9}) ", re.ASCII)
# What busbw / algbw is for n ranks; others have 1 whatever n is.
_PARTED = ("all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter")
# One rank has busbw 0, two have half of algbw at least.
_ALONE = 0.4


def device(text: str) -> NcclTestsDevice | None:
    """Return the rank that a line describes in full."""
    match = _DEVICE.match(text)
    if not match or max(len(match.group(index) or "") for index in (1, 2, 3, 5)) > 9:
        return None
    rank, group, pid, host, index, bus_id, name = match.groups()
    return NcclTestsDevice(int(rank), _integer(group), _integer(pid), host, int(index), bus_id, name.strip())


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)


def rank_number(text: str) -> int | None:
    """Return the number of a rank whose line may be cut off behind it."""
    match = _RANK.match(text)
    return int(match.group(1)) if match else None


def collective(program: str | None) -> str | None:
    """Return all_reduce for .../all_reduce_perf or all_reduce_perf_mpi."""
    name = (program or "").replace("\\", "/").rpartition("/")[2].partition("_perf")
    return name[0] if name[0] and name[1] else None


def product(threads: str, gpus: str) -> int | None:
    """Return the ranks of one process."""
    numbers = [number(threads), number(gpus)]
    factors = [value for value in numbers if isinstance(value, int) and 0 < value < 1 << 16]
    return factors[0] * factors[1] if len(factors) == 2 else None


def library(text: str | None) -> str | None:
    """Return 2.21.5 for 22105; before 2.9 a number was 2804 for 2.8.4."""
    code = number(text or "")
    if not isinstance(code, int) or not 1000 <= code < 10**7:
        return None
    scale = 10000 if code >= 10000 else 1000
    return f"{code // scale}.{code % scale // 100}.{code % 100}"


def ranks_of_devices(highest: int | None, per_process: int | None) -> int | None:
    """Return the ranks of a list that may have lost lines: each process has 2048 bytes for those of its GPUs."""
    if highest is None:
        return None
    count = highest + 1
    return -(-count // per_process) * per_process if per_process else count


def ranks_of_rows(rows: t.Sequence[NcclTestsRow], name: str | None) -> int | None:
    """Read the ranks back from busbw / algbw, which both are rounded; None if several numbers would fit."""
    low, high = 0.0, float("inf")
    for timing in [timing for row in rows for timing in row.timings]:
        if timing.algbw and timing.busbw is not None and timing.algbw >= 1:
            a, b = _half_digit(timing.algbw), _half_digit(timing.busbw)
            low = max(low, (timing.busbw - b) / (timing.algbw + a))
            high = min(high, (timing.busbw + b) / (timing.algbw - a))
    if low <= high < _ALONE:
        return 1
    # Only all_reduce sends more than it has, and only for two ranks just as much, as a broadcast does.
    twice = name == "all_reduce" or (name is None and low > 1)
    if not twice and (high >= 1 if name is None else name not in _PARTED):
        return None
    return _only_fit(low / 2, high / 2) if twice else _only_fit(low, high)


def _half_digit(value: float) -> float:
    """Six characters hold two decimals below 1000, one below 10000 and none above."""
    return 0.005 if value < 1000 else 0.05 if value < 10000 else 0.5


def _only_fit(low: float, high: float) -> int | None:
    """Return the n of which (n - 1) / n lies between the limits, if there is one only."""
    if not 0 <= low <= high < 1:
        return None
    first = math.ceil(1 / (1 - low) - 1e-9)
    return first if first == math.floor(1 / (1 - high) + 1e-9) else None


# The table of nccl-tests: columns from the header where there is one, from the shape of the row where not.


_TYPES = "bfloat16|float16|float|double|half|u?int(?:8|32|64)?|char|f(?:p)?8_?e[45]m[23]"
_OPERATIONS = "sum|prod|mulsum|max|min|avg|none"
# A word may be an unknown one if a blank follows; what is glued to it can be told apart from known ones only.
_LEAD = re.compile(
    r"(?P<size>\d{1,20})[ \t]+(?P<count>\d{1,20})[ \t]+(?P<type>[a-z]\w{0,30}(?=[ \t]|$)|" + _TYPES + r")"
    r"(?:[ \t]+(?P<redop>\"\"|(?!nan|inf)[a-z]\w{0,30}(?=[ \t]|$)|" + _OPERATIONS + r"))?"
    # A time that has no decimals is at least 10000, a root never is.
    r"(?:[ \t]+(?P<root>-1|\d{1,4}(?![\d.:]|e[-+]\d)))?",
    re.ASCII,
)
_KNOWN = re.compile(_TYPES)
_CELL = re.compile(r"[ \t]*([-+]?(?:\d[\d.]*(?:e[-+]?\d+)?|inf|nan|N/A))(?=[ \t]|$)", re.ASCII | re.IGNORECASE)
# Dots without an exponent are those of an address that is glued to the number, which then is not known.
_GLUED = re.compile(r"[ \t]*(\d+(?:\.\d+e\+\d\d|e[-+]\d\d|\.[\d.]*)?|N/A)", re.ASCII)
# How a row begins, whatever follows and whether or not the numbers can be read.
_ROW_LIKE = re.compile(
    r"\d\S{0,40}[ \t]+\d\S{0,40}[ \t]+(?:(?:" + _TYPES + r")(?=[ \t]|$)"
    r"|[a-z]\w{0,30}[ \t]+(?:" + _OPERATIONS + r"|-1|\d+(?:\.\d+)?)(?=[ \t]|$))",
    re.ASCII,
)
# Counts have an exponent from 1e+06 on.
_DEVIATION = re.compile(r"\de(?:-\d+|\+0[0-5])", re.ASCII)
# Six characters are left to a rate (getFloatStr): two decimals, then one, then none from 10000 on, then 1e+06.
_RATE = re.compile(r"\d+\.\d+|\d{5,}|\de[-+]\d+|-?(?:inf|nan)", re.ASCII | re.IGNORECASE)
_MOST_CELLS = 40
# Without a number out of place the row has a gap of 32 blanks, else of nine at most.
_GAP = 20


@dataclass(frozen=True)
class NcclTestsColumns:
    """How the cells behind the first columns are to be read."""

    layout: str = "2.13"
    width: int = 4
    groups: int = 2
    milliseconds: bool = False
    deviation: bool | None = None
    cpu_time: bool = False

    @property
    def cells(self) -> int:
        return self.width * self.groups


def columns(header: str) -> NcclTestsColumns | None:
    """Return what a header line says, or None for any other line."""
    names = header.split()[:64]
    if names[:2] not in (["size", "count"], ["bytes", "N"]):
        return None
    starts = [index for index, name in enumerate(names) if name in ("time", "cputime")][:2]
    if not starts:
        return None
    oldest = names[0] == "bytes"
    layout = "1.0" if oldest else "2.0" if "error" in names else "2.13"
    width = starts[1] - starts[0] if len(starts) > 1 else 4
    return NcclTestsColumns(layout, max(width, 4), len(starts), oldest, layout != "2.13", "cputime" in names)


@dataclass
class Pending:
    """A row of which not all cells were seen yet."""

    match: t.Match[str]
    columns: NcclTestsColumns | None
    cells: list[str] = field(default_factory=list)
    gap: int = 0

    def take(self, text: str) -> str:
        """Take the cells at the begin of a text, and return what follows them."""
        if not self.cells:
            self.gap = len(text) - len(text.lstrip(" \t"))
        position = 0
        while len(self.cells) < _MOST_CELLS:
            cell = _CELL.match(text, position)
            if not cell and len(self.cells) % self._columns.width == self._columns.width - 1:
                cell = _GLUED.match(text, position)
            if not cell:
                break
            self.cells.append(cell.group(1))
            position = cell.end()
        return text[position:]

    @property
    def _columns(self) -> NcclTestsColumns:
        """Without a header, four cells more in each group are those of ``-I``."""
        return self.columns or NcclTestsColumns(width=8 if len(self.cells) >= 16 else 4)

    @property
    def missing(self) -> int:
        return max(0, self._columns.cells - len(self.cells))

    @property
    def width(self) -> int:
        return self._columns.width

    @property
    def sane(self) -> bool:
        """Say whether the cells can be measurements: bandwidths have decimals, unless they have five digits."""
        groups = [self.cells[begin : begin + self.width] for begin in range(0, len(self.cells), self.width)]
        return all(_RATE.fullmatch(cell) for group in groups for cell in group[1:3])

    @property
    def plausible(self) -> bool:
        """Say whether this can be a row although not all of it is there."""
        return self.sane and (bool(self.cells) or _KNOWN.fullmatch(self.match.group("type")) is not None)

    @property
    def broken(self) -> bool:
        """Say whether something is missing; versions that replay traces measure in place only."""
        return self.missing > 0 and not self._in_place_only

    @property
    def _in_place_only(self) -> bool:
        return self._columns.width <= len(self.cells) < self._columns.cells and self.gap > _GAP

    def row(self) -> NcclTestsRow | None:
        """Return the row as far as it goes; without a complete group of cells there is none."""
        width = self._columns.width
        groups = [self.cells[begin : begin + width] for begin in range(0, self._columns.cells, width)]
        timings = [self._timing(group) if len(group) == width else None for group in groups]
        if not any(timings):
            return None
        out_of_place, in_place = [*timings, None][:2]
        if self._in_place_only:
            out_of_place, in_place = None, out_of_place
        redop, root = self.match.group("redop"), self.match.group("root")
        return NcclTestsRow(
            size=int(self.match.group("size")),
            count=int(self.match.group("count")),
            type=self.match.group("type"),
            redop=redop if redop not in ("none", '""') else None,
            root=int(root) if root and root != "-1" else None,
            out_of_place=out_of_place,
            in_place=in_place,
        )

    def _timing(self, cells: t.Sequence[str]) -> Timing:
        time, algbw, busbw = (_float(cell) for cell in cells[:3])
        last = _float(cells[3])
        if self._columns.milliseconds and time is not None:
            time = round(time * 1000, 6)
        deviation = self._columns.deviation
        if deviation is None:
            deviation = _DEVIATION.fullmatch(cells[3]) is not None
        return Timing(time, algbw, busbw, None if deviation else last, last if deviation else None)


def _float(cell: str) -> float | None:
    # What %g prints has no leading zeros: there the name of a host, glued to the number, begins with a digit.
    if len(cell) > 1 and cell[0] == "0" and cell[1].isdigit():
        return None
    value = number(cell)
    return None if value is None else float(value)


def begin(line: str, columns: NcclTestsColumns | None) -> tuple[Pending, str] | None:
    """Return the row that a line begins, and what follows it on the line."""
    match = _LEAD.match(line)
    if not match:
        return None
    pending = Pending(match, columns)
    rest = pending.take(line[match.end() :])
    return pending, rest


def row_like(line: str) -> bool:
    """Say whether a line begins as rows do: if it cannot be read, a row is missing."""
    return _ROW_LIKE.match(line) is not None


def resume(pending: Pending, line: str) -> str | None:
    """Add the rest of a row, which stands alone on a line, and return what follows; None if the line is no rest."""
    more = Pending(pending.match, pending.columns)
    rest = more.take(line)
    # A group, or two; a column of iterations may follow.
    if len(more.cells) not in (more.width, pending.missing, pending.missing + 1) or not more.sane:
        return None
    pending.cells.extend(more.cells)
    return rest


# A run of nccl-tests while its lines arrive.


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
        self.columns: NcclTestsColumns | None = None
        self.devices: dict[int, NcclTestsDevice] = {}
        self.highest: int | None = None
        self.rows: list[NcclTestsRow] = []
        self.pending: Pending | None = None
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
        rank, gpu = rank_number(text), device(text)
        if rank is not None:
            self.highest = max(rank, self.highest or 0)
        if text.endswith("..."):
            self.note("the list of devices is cut off")
        if gpu:
            known = self.devices.setdefault(gpu.rank, gpu)
            self.mixed = self.mixed or (known.pid, known.host) != (gpu.pid, gpu.host)

    def add_row(self, line: str, cut: bool) -> str | None:
        """Return what follows the row, or its piece, on the line; None if the line has no part in a row."""
        started = begin(line, self.columns)
        if started and started[0].plausible:
            self.end_row()
            self.pending, rest = started
        else:
            resumed = resume(self.pending, line) if self.pending else None
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

    def _check(self, row: NcclTestsRow) -> None:
        count = next((timing.wrong for timing in row.timings if timing.wrong), None)
        if count and not self.wrong:
            self.wrong = Cause(f"{count:g} wrong elements at {row.size} bytes", "hardware")
            self.first.add(self.wrong)

    def add_bounds(self, text: str) -> None:
        match = OUT_OF_BOUNDS.match(text)
        if match:
            count = number(match.group(1))
            self.bounds.append(count if isinstance(count, int) else None)
            self._fail(text, match.group(2))

    def add_average(self, text: str, cut: bool) -> None:
        """Without the end of its line the number may have lost digits."""
        match = AVERAGE.match(text)
        if match and (match.group(2) or not cut):
            value = number(match.group(1))
            self.averages.append(None if value is None else float(value))
            self._fail(text, match.group(2))

    def _fail(self, text: str, verdict: str | None) -> None:
        if verdict == "FAILED":
            message = " ".join(text.split())[:_LONGEST_NOTE]
            more = f", the first: {self.wrong.text}" if self.wrong else ""
            self.first.add(Cause(message + more, "hardware"), instead_of=self.wrong)

    @property
    def complete(self) -> bool:
        """One footer for each header; versions that announce the start announce the end as well."""
        starts = max([1, *(self.marks.count(mark) for mark in set(self.marks))])
        ends = [len(self.bounds), len(self.averages)]
        if "starting" in self.marks:
            ends.append(self.concluded)
        return min(ends) >= starts and not self.broken

    def finish(self) -> NcclTestsRun:
        """Return the run, complete or cut short."""
        self.end_row()
        for event in self.first.notes:
            self.note(event)
        devices = [self.devices[rank] for rank in sorted(self.devices)]
        name = collective(self.program)
        ranks = ranks_of_devices(self.highest, self.per_process)
        timings = [timing for row in self.rows for timing in row.timings]
        counts = [timing.wrong for timing in timings if timing.wrong is not None]
        validated = bool(counts) or any(timing.deviation is not None for timing in timings)
        known = [count for count in self.bounds if count is not None]
        wrong = any(counts) or any(known)
        return NcclTestsRun(
            collective=name,
            program=self.program,
            version=self.version,
            nccl_version=self.library,
            layout=self._layout(),
            devices=devices,
            ranks=ranks_of_rows(self.rows, name) if ranks is None else ranks,
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
            return self.first.cause or (None if self.complete else self.first.port_error)
        text = f"{max(tables, 2)} tables are mixed, of processes that do not know of each other"
        return Cause(f"{text}: is the program built without MPI?", "config")
