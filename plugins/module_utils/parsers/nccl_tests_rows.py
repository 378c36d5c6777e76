# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of nccl-tests: columns from the header where there is one, from the shape of the row where not.

A row is written in up to three pieces. The first columns are printed before the collective runs, so whatever NCCL or
a failure has to say stands between, glued to the column before it, and the rest of the row follows on a later line.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_model import Row, Timing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import number

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
# Counts have an exponent from 1e+06 on.
_DEVIATION = re.compile(r"\de(?:-\d+|\+0[0-5])", re.ASCII)
_RATE = re.compile(r"\d+\.\d+|\d{6,}|\de[-+]\d+|-?(?:inf|nan)", re.ASCII | re.IGNORECASE)
_MOST_CELLS = 40
# Without a number out of place the row has a gap of 32 blanks, else of nine at most.
_GAP = 20


@dataclass(frozen=True)
class Columns:
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


def columns(header: str) -> Columns | None:
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
    return Columns(layout, max(width, 4), len(starts), oldest, layout != "2.13", "cputime" in names)


@dataclass
class Pending:
    """A row of which not all cells were seen yet."""

    match: t.Match[str]
    columns: Columns | None
    cells: list[str] = field(default_factory=list)
    gap: int = 0

    def take(self, text: str) -> str:
        """Take the cells at the begin of a text, and return what follows them."""
        if not self.cells:
            self.gap = len(text) - len(text.lstrip(" \t"))
        position = 0
        while len(self.cells) < _MOST_CELLS:
            found = _CELL.match(text, position)
            if not found and len(self.cells) % self._columns.width == self._columns.width - 1:
                found = _GLUED.match(text, position)
            if not found:
                break
            self.cells.append(found.group(1))
            position = found.end()
        return text[position:]

    @property
    def _columns(self) -> Columns:
        """Without a header, four cells more in each group are those of ``-I``."""
        return self.columns or Columns(width=8 if len(self.cells) >= 16 else 4)

    @property
    def missing(self) -> int:
        return max(0, self._columns.cells - len(self.cells))

    @property
    def width(self) -> int:
        return self._columns.width

    @property
    def sane(self) -> bool:
        """Say whether the cells can be measurements: bandwidths have decimals, unless they have six digits."""
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

    def row(self) -> Row | None:
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
        return Row(
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


def begin(line: str, columns: Columns | None) -> tuple[Pending, str] | None:
    """Return the row that a line begins, and what follows it on the line."""
    match = _LEAD.match(line)
    if not match:
        return None
    pending = Pending(match, columns)
    rest = pending.take(line[match.end() :])
    return pending, rest


def resume(pending: Pending, line: str) -> str | None:
    """Add the rest of a row, which stands alone on a line, and return what follows; None if the line is no rest."""
    more = Pending(pending.match, pending.columns)
    rest = more.take(line)
    # A group, or two; a column of iterations may follow.
    if len(more.cells) not in (more.width, pending.missing, pending.missing + 1) or not more.sane:
        return None
    pending.cells.extend(more.cells)
    return rest
