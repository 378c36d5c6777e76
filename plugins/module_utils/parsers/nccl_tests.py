# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read logs of nccl-tests, of every layout from 1.0 to 2.19, as text or as the JSON of ``-J``."""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import json_text, nccl_tests_table
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause, Log, mixed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_table import (
    CAUSES,
    Building,
    NcclTestsDevice,
    NcclTestsRow,
    NcclTestsRun,
    Timing,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import (
    Source,
    Tail,
    Writers,
    number,
    pieces,
    program_lines,
)

# The JSON that nccl-tests writes with ``-J``, schema 3. It holds the whole environment: nothing of it is returned.


_TEXT = 200
# Every iteration of every process may be listed: 64 MiB are enough for thousands.
_MOST_PIECES = 256


def parse_json(source: Source) -> Log[NcclTestsRun]:
    """Return the run of a document; one that breaks off gives the results it holds."""
    document = json_text.read("".join(itertools.islice(pieces(source), _MOST_PIECES)))
    data = _dict(document.data)
    if not {"results", "config", "args", "nccl_version"} & set(data):
        return Log([], None)
    run = _run(data, document.whole)
    return Log([run], run.cause)


def _run(data: dict[str, t.Any], whole: bool) -> NcclTestsRun:
    """Return the run of a document; it is complete if that is whole and every result was understood."""
    results = [_dict(entry) for entry in _list(data.get("results"))]
    rows = [row for row in (_row(entry) for entry in results) if row]
    config, bounds, average = (_dict(data.get(key)) for key in ("config", "out_of_bounds", "average_bus_bandwidth"))
    devices = [device for device in (_device(_dict(entry)) for entry in _list(config.get("devices"))) if device]
    program = next((arg for arg in _list(data.get("args"))[:1] if isinstance(arg, str)), "").rpartition("/")[2]
    per_process = nccl_tests_table.product(str(config.get("nthreads")), str(config.get("ngpus")))
    # Only the first device of each process is listed.
    ranks = nccl_tests_table.ranks_of_devices(max((device.rank for device in devices), default=None), per_process)
    count = _integer(bounds.get("count"))
    wrongs = [timing.wrong for row in rows for timing in row.timings if timing.wrong is not None]
    name = nccl_tests_table.collective(program)
    bad = bool(count) or any(wrongs)
    finished = whole and "end_time" in data and count is not None and "bandwidth" in average
    return NcclTestsRun(
        collective=name,
        program=program or None,
        version=None,
        nccl_version=nccl_tests_table.library(str(data.get("nccl_version"))),
        layout="json",
        devices=devices,
        ranks=nccl_tests_table.ranks_of_rows(rows, name) if ranks is None else ranks,
        nodes=len({device.host for device in devices}) or None,
        rows=rows,
        out_of_bounds=count,
        correct=False if bad else True if wrongs and count is not None else None,
        average_busbw=_float(average.get("bandwidth")),
        validated=bool(wrongs),
        complete=finished and len(rows) == len(results) and not any(_broken(entry) for entry in results),
        notes=_notes(data, results),
        cause=_cause(bounds, average, rows),
    )


def _notes(data: dict[str, t.Any], results: t.Sequence[dict[str, t.Any]]) -> list[str]:
    """NCCL's last words are there whether or not anything went wrong."""
    cpu_time = any("cpu_time" in _dict(entry.get("in_place")) for entry in results)
    errors = [text[:_TEXT] for text in _list(data.get("errors")) if isinstance(text, str) and text]
    return ["the times are those of the CPU"] * cpu_time + [f"error: {text}" for text in errors[:20]]


def _cause(bounds: dict[str, t.Any], average: dict[str, t.Any], rows: t.Sequence[NcclTestsRow]) -> Cause | None:
    for row in rows:
        for timing in row.timings:
            if timing.wrong:
                return Cause(f"{timing.wrong:g} wrong elements at {row.size} bytes", "hardware")
    if _integer(bounds.get("count")) or bounds.get("okay") == "false":
        return Cause(f"out_of_bounds: {str(bounds.get('count'))[:20]}", "hardware")
    if average.get("okay") == "false":
        return Cause(f"average_bus_bandwidth: {str(average.get('bandwidth'))[:20]} is too low", "hardware")
    return None


def _row(entry: dict[str, t.Any]) -> NcclTestsRow | None:
    size, count, kind = _integer(entry.get("size")), _integer(entry.get("count")), entry.get("type")
    out_of_place, in_place = (_timing(entry.get(key)) for key in ("out_of_place", "in_place"))
    if size is None or count is None or not isinstance(kind, str) or not (out_of_place or in_place):
        return None
    redop, root = entry.get("redop"), number(str(entry.get("root")))
    return NcclTestsRow(
        size=size,
        count=count,
        type=kind[:_TEXT],
        redop=redop[:_TEXT] if isinstance(redop, str) and redop not in ("", "none") else None,
        root=root if isinstance(root, int) and root >= 0 else None,
        out_of_place=out_of_place,
        in_place=in_place,
    )


def _broken(entry: dict[str, t.Any]) -> bool:
    """A null out of place is a choice, in place it is the end of a run."""
    return _timing(entry.get("in_place")) is None


def _timing(value: t.Any) -> Timing | None:
    """With ``-C`` the time is called cpu_time."""
    cells = _dict(value)
    if "bus_bw" not in cells:
        return None
    time = _float(cells.get("time", cells.get("cpu_time")))
    return Timing(time, _float(cells.get("alg_bw")), _float(cells.get("bus_bw")), _float(cells.get("nwrong")), None)


def _device(entry: dict[str, t.Any]) -> NcclTestsDevice | None:
    rank, index, host = _integer(entry.get("rank")), _integer(entry.get("device")), entry.get("hostname")
    if rank is None or index is None or not isinstance(host, str):
        return None
    group, pid = _integer(entry.get("group")), _integer(entry.get("pid"))
    bus_id, name = (str(entry.get(key) or "")[:_TEXT] for key in ("device_hex", "device_info"))
    return NcclTestsDevice(rank, group, pid, host[:_TEXT], index, bus_id, name)


def _dict(value: t.Any) -> dict[str, t.Any]:
    return value if isinstance(value, dict) else {}


def _list(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else []


def _integer(value: t.Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if good else None


def _float(value: t.Any) -> float | None:
    """A value that is no number is a string, such as ``nan``."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


# Read logs of nccl-tests, of every layout from 1.0 to 2.19, as text or as the JSON of ``-J``.


__all__ = ["Cause", "Log", "NcclTestsDevice", "NcclTestsRow", "NcclTestsRun", "Source", "Timing", "parse", "parse_json"]

_LONGEST_HEADER = 4096
_DIGITS = frozenset("0123456789")


def parse(source: Source) -> Log[NcclTestsRun]:
    """Return the runs of a log; look at `Log.ok` and `Log.cause` before using a number."""
    return _Parser().read(source)


class _Parser:
    def __init__(self) -> None:
        self.runs: list[Building] = []
        self.before = FirstCause(CAUSES)
        self.library: str | None = None
        self.tail = Tail()
        self.writers = Writers()

    def read(self, source: Source) -> Log[NcclTestsRun]:
        """Return the runs of an output, and the first cause where one failed."""
        for line in program_lines(source, nccl_tests_table.FIRST, self.writers, self.tail):
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
        causes.append(mixed(self.writers.mixed, self.writers.copies))
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
            columns = nccl_tests_table.columns(text)
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
        version, starting, sizes = (pattern.match(text) for pattern in nccl_tests_table.MARKS)
        if version:
            run = self._start("version")
            run.version = version.group(1)
            run.library = nccl_tests_table.library(version.group(2)) or run.library
        elif starting:
            self._start("starting").program = starting.group(1)
        elif sizes:
            self._start("sizes").per_process = nccl_tests_table.product(sizes.group(1), sizes.group(2))
        elif text.startswith(nccl_tests_table.CONCLUDED):
            self._current().concluded += 1

    def _remark(self, text: str) -> None:
        compiled = nccl_tests_table.COMPILED.match(text)
        if compiled:
            self._current().library = compiled.group(1)
        elif nccl_tests_table.NOTES_BEFORE.match(text):
            self._current(new=self._ended).note(text)
        elif nccl_tests_table.NOTES.match(text) and self.runs:
            self.runs[-1].note(text)

    def _other(self, line: str) -> None:
        if line.startswith(nccl_tests_table.BARE):
            self._header(line[:_LONGEST_HEADER])
            return
        (self.runs[-1].first if self.runs else self.before).see(line)
        library = nccl_tests_table.LIBRARY.match(line)
        if library and self.runs:
            self.runs[-1].library = library.group(1)
        elif library:
            self.library = library.group(1)
        elif line.startswith("invalid ") and ", defaulting to " in line:
            self._current(new=self._ended).note(line)

    def _row(self, line: str) -> None:
        """Outside a run a row must be whole: lines with two integers and a word are common."""
        if not self.runs or self._ended:
            started = nccl_tests_table.begin(line, None)
            if not started or started[0].missing or not started[0].sane:
                self._other(line)
                return
        run = self._current(new=self._ended)
        rest = run.add_row(line, self.tail.cut)
        if rest is None and nccl_tests_table.row_like(line):
            run.broken += 1
        if rest is None or rest.strip():
            self._other(line if rest is None else rest.strip())
