# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvbandwidth --json: what is in a document. Private, see nvbandwidth."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import json_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause, Log, mixed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import (
    Source,
    Writers,
    number,
    program_lines,
)

Facts = t.Dict[str, t.Any]

MARK = '"nvbandwidth"'
_FIRST = re.compile(r"nvbandwidth Version: |\{\s*$")
_STATUS = {"Passed": "passed", "Waived": "waived", "Running": "running"}
_JSON_DEVICE = re.compile(r"(\d{1,9}): (.*?)(?: \(([\da-fA-F:]+)\))?(?:: \(([^()]*)\))?")


def read(text: str) -> Facts:
    """Return version, devices, tests, the error of the whole and whether the document is."""
    document = json_text.read(text)
    top = _dictionary(_dictionary(document.data).get("nvbandwidth"))
    tests: list[Facts] = []
    for item in _items(top.get("testcases")):
        _add(tests, _test(_dictionary(item)))
    devices = [device for device in map(_device, _items(top.get("GPU Device list"))) if device]
    return {
        "version": _text(top.get("version")),
        "cuda_runtime": _text(top.get("CUDA Runtime Version")),
        "driver": _text(top.get("Driver Version")),
        "host": devices[0]["host"] if devices else None,
        "devices": devices,
        "tests": tests,
        "error": _text(top.get("error")),
        # An error of the whole is told by a document, too, with which the program ends.
        "whole": document.whole and not top.get("error"),
    }


def _add(tests: list[Facts], test: Facts) -> None:
    """An error is told by a second entry of the test that is left as running."""
    before = tests[-1] if tests else None
    if before and before["status"] == "running" and (before["name"], test["status"]) == (test["name"], "error"):
        tests.pop()
    tests.append(test)


def _test(item: Facts) -> Facts:
    description, status = _text(item.get("bandwidth_description")), _text(item.get("status"))
    name, error = _text(item.get("name")), _text(item.get("error"))
    latency = "(ns)" in (description or "") or "_latency_" in (name or "")
    matrices = _matrices(item.get("bandwidth_matrix"), description or "")
    if status == "ERROR" and not error:  # the document leaves out what the text form says
        error = f"ERROR: Testcase {name} not found!"
    return {
        "name": name,
        "status": _STATUS.get(status or "", "error"),
        "unit": None if not matrices else "ns" if latency else "GB/s",
        "description": description,
        "matrices": matrices,
        "sum": None if latency else _value(item.get("sum")),
        "error": error,
    }


def _matrices(value: t.Any, description: str) -> list[list[list[float | None]]]:
    """Three matrices are stacked under the description of the last."""
    rows = [[_value(cell) for cell in _items(row)] for row in _items(value)]
    if not rows:
        return []
    count = 3 if " Total " in description and len(rows) % 3 == 0 else 1
    size = len(rows) // count
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)]


def _device(item: t.Any) -> Facts | None:
    match = _JSON_DEVICE.fullmatch(item[:1000]) if isinstance(item, str) else None
    if not match:
        return None
    return {"index": int(match[1]), "name": match[2], "bus_id": match[3], "host": match[4]}


def _value(cell: t.Any) -> float | None:
    """Cells are text, sums are numbers."""
    return number(str(cell)) if _plain(cell) else None


def _plain(cell: t.Any) -> bool:
    return isinstance(cell, (str, int, float)) and not isinstance(cell, bool)


def _items(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else []


def _dictionary(value: t.Any) -> Facts:
    return value if isinstance(value, dict) else {}


def _text(value: t.Any) -> str | None:
    return str(value)[:1000] if _plain(value) and value != "" else None


# nvbandwidth: what each line of its text means. Private, see nvbandwidth.


_LINE = re.compile(
    r"""(?P<version>nvbandwidth\ Version:\ (?P<tag>\S+))
    |(?P<runtime>CUDA\ Runtime\ Version:\ (?P<cuda>\S+))
    |(?P<driver>Driver\ Version:\ (?P<release>\S+))
    |(?P<device>(?:Process\ +(?P<process>\d{1,9})\ \((?P<host>[^()]*)\):\ d|D)evice\ (?P<index>\d{1,9}):\ (?P<gpu>.+))
    |(?P<running>Running\ (?P<key>\w+)\.$)
    |(?P<waived>(?:Waiving\ (?P<skipped>\w+)\.|Waived:.{0,200})$)
    |(?P<missing>ERROR:\ Testcase\ (?:index\ )?(?P<requested>\S+)\ (?:not\ found|out\ of\ bound)!)
    |(?P<total>(?:SUM|&&&&\ PERF)\ (?P<total_key>\w+)\ (?P<value>-?(?:\d+\.\d\d|inf|nan))(?:$|\ [+-](?:GB/s|ns)))
    |(?P<closing>NOTE:\ The\ reported\ results\ may\ not\ reflect)
    |(?P<failed>(?:Error|ERROR):\ |\[CUDA_ERROR_|\[cudaError|NVML_ERROR:|ASSERT\ in\ expression|Invalid\ value\ when)
    |(?P<described>.{0,300}\((?P<unit>GB/s|ns)\)$)""",
    re.VERBOSE | re.ASCII,
)
_TEXT_DEVICE = re.compile(r"(.*?)(?: \(([\da-fA-F]{1,8}:[\da-fA-F]{1,2}:[\da-fA-F]{1,2})\))?")
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,252}")
_LABEL = re.compile(r"(\d{1,9})(?:-> ?\d{1,9})?", re.ASCII)
# What the program exits with, in the middle of a test or before the next one.
_EXITS = ("[CUDA_ERROR_", "[cudaError", "NVML_ERROR:", "ASSERT in expression")
# Text ends with a note since v0.6; earlier ones say nothing at their end.
_NO_NOTE = re.compile(r"v?0\.[0-5](?:\.\d+)?", re.ASCII)
_PARTS = ("_read1", "_read2", "_write1", "_write2")
# All have two decimals; what has less was cut off.
_CELL = re.compile(r"-?(?:\d+\.\d\d|nan|inf)|N/A", re.ASCII)


class NvbandwidthReader:
    """One run."""

    def __init__(self) -> None:
        self._run: Facts = {"version": None, "cuda_runtime": None, "driver": None, "host": None, "error": None}
        self._devices: list[Facts] = []
        self._tests: list[Facts] = []
        self._columns: int | None = None
        self._reading = False
        self._before = ""
        self._closed = self._exited = False
        self._torn = 0

    @property
    def started(self) -> bool:
        """Say whether anything of a run was seen."""
        return bool(self._run["version"] or self._devices or self._tests)

    def begins(self, line: str) -> bool:
        """Say whether a line is the first of a run."""
        return line.startswith("nvbandwidth Version: ")

    def result(self) -> Facts:
        version = self._run["version"]
        ended = self._closed or version is None or _NO_NOTE.fullmatch(version) is not None
        whole = ended and not self._exited and not self._torn
        return {**self._run, "devices": self._devices, "tests": self._tests, "whole": whole}

    def see(self, line: str) -> None:
        match = _LINE.match(line)
        if match:
            getattr(self, f"_{match.lastgroup}")(match)
        elif self._reading:
            self._table(line.split())
        self._before = line or self._before

    def _version(self, match: t.Match[str]) -> None:
        self._run["version"] = match["tag"]

    def _runtime(self, match: t.Match[str]) -> None:
        self._run["cuda_runtime"] = match["cuda"]

    def _driver(self, match: t.Match[str]) -> None:
        self._run["driver"] = match["release"]

    def _device(self, match: t.Match[str]) -> None:
        # Since v0.8 the name of the host is the line before the first device.
        if not self._devices and not match["process"] and self._run["version"] and _HOST.fullmatch(self._before):
            self._run["host"] = self._before
        parts = _TEXT_DEVICE.fullmatch(match["gpu"])
        device: Facts = {"index": int(match["index"]), "name": parts[1] if parts else "", "bus_id": parts and parts[2]}
        process = match["process"]
        more = {"host": match["host"] or self._run["host"], "process": None if process is None else int(process)}
        self._devices.append({**device, **more})

    def _running(self, match: t.Match[str]) -> None:
        self._add(match["key"], "running")

    def _waived(self, match: t.Match[str]) -> None:
        self._add(match["skipped"], "waived")

    def _missing(self, match: t.Match[str]) -> None:
        self._add(match["requested"], "error", match.string)

    def _closing(self, dummy: t.Match[str]) -> None:
        self._closed = True

    def _add(self, name: str | None, status: str, error: str | None = None) -> None:
        blank: Facts = {"unit": None, "description": None, "matrices": [], "sum": None}
        self._tests.append({"name": name, "status": status, **blank, "error": error and error[:1000]})
        self._reading = False

    def _failed(self, match: t.Match[str]) -> None:
        if self._tests and self._tests[-1]["status"] == "running":
            self._tests[-1].update(status="error", error=match.string[:1000])
        self._exited = self._exited or match.string.startswith(_EXITS)
        self._reading = False

    def _described(self, match: t.Match[str]) -> None:
        if self._tests and self._tests[-1]["status"] == "running":
            self._tests[-1].update(unit=match["unit"], description=match.string[:1000])
            self._columns, self._reading = None, True

    def _total(self, match: t.Match[str]) -> None:
        if not self._tests or self._tests[-1]["status"] != "running" or not self._tests[-1]["matrices"]:
            return
        self._reading = False
        test, key = self._tests[-1], match["total_key"]
        if test["unit"] != "ns":
            test["sum"] = number(match["value"])
        if not key.endswith(_PARTS):
            test["status"] = "passed"

    def _table(self, cells: list[str]) -> None:
        if self._columns is None:
            if cells == [str(index) for index in range(len(cells))]:
                self._columns = len(cells) or None
                self._tests[-1]["matrices"] += [[]] if cells else []
            return
        values = cells[-self._columns :]
        rows = self._tests[-1]["matrices"][-1]
        # NCCL prints lines that end in many numbers, too.
        labelled = _LABEL.fullmatch(" ".join(cells[: -self._columns]))
        if labelled and all(_CELL.fullmatch(cell) for cell in values):
            # Rows are counted from 0, "0->2" of pairs as well.
            self._torn += int(labelled[1]) != len(rows)
            rows.append([self._cell(cell, len(rows), column) for column, cell in enumerate(values)])
        elif cells and cells[0].partition("->")[0] == str(len(rows)):
            self._torn += 1

    def _cell(self, text: str, row: int, column: int) -> float | None:
        """v0.1 prints 0.00 where there is nothing to measure."""
        value = number(text)
        between = "GPU(row)" in (self._tests[-1]["description"] or "") and row == column and self._columns != 1
        return None if value == 0 and (self._run["version"] == "v0.1" or between) else value


# nvbandwidth v0.1 to v0.8, one node or several, text and JSON: `parse` tells them apart by itself.


Matrix = t.List[t.List[t.Optional[float]]]

_FAILURES = [
    (r"^ERROR: Testcase .*(?:not found|out of bound)!", "config"),
    (r"^ERROR: Invalid Arguments|^You cannot specify both|did not match any testcases", "config"),
    (r"Invalid value when checking the pattern at|ASSERT in expression h_errorFlag", "hardware"),
    (r"^\[cudaError\w+\]|^\[CUDA_ERROR_\w+\]", "?"),
    (r"NVML_ERROR: \[|ASSERT in expression", "software"),
]


@dataclass(frozen=True)
class NvbandwidthDevice:
    """A GPU in the order of the columns; ``process`` and ``host`` are those of a run over several nodes."""

    index: int
    name: str
    bus_id: str | None = None
    host: str | None = None
    process: int | None = None


@dataclass(frozen=True)
class NvbandwidthTest:
    """One test. Both ways between GPUs give three matrices: each way, then the total (one matrix before v0.6)."""

    name: str | None
    status: str
    unit: str | None = None
    description: str | None = None
    matrices: list[Matrix] = field(default_factory=list)
    sum: float | None = None
    error: str | None = None

    @property
    def values(self) -> list[float]:
        """Return the cells of the last matrix that hold a number."""
        return [cell for row in (self.matrices or [[]])[-1] for cell in row if cell is not None]

    @property
    def minimum(self) -> float | None:
        """Return the lowest cell: the weakest pair of a bandwidth test."""
        return min(self.values, default=None)

    @property
    def only(self) -> float | None:
        """Return the value of a test whose matrix has one row and one column, else None."""
        shape = [len(row) for row in (self.matrices or [[]])[-1]]
        return self.values[0] if self.status == "passed" and shape == [1] and self.values else None


@dataclass(frozen=True)
class NvbandwidthRun:
    """One start of the program; complete when every test that began has ended, and the program did not die."""

    version: str | None
    cuda_runtime: str | None
    driver: str | None
    host: str | None
    devices: list[NvbandwidthDevice]
    tests: list[NvbandwidthTest]
    complete: bool
    ok: bool
    cause: Cause | None

    def test(self, name: str) -> NvbandwidthTest | None:
        """Return the last test of that name."""
        return next((test for test in reversed(self.tests) if test.name == name), None)


def parse(source: Source) -> Log[NvbandwidthRun]:
    """Read text, JSON, or JSON with text around it."""
    reader, writers = _Reader(), Writers()
    for line, document in json_text.split(program_lines(source, _FIRST, writers), MARK):
        if document is None:
            reader.see(line)
        else:
            reader.end()
            reader.take(read(document), FirstCause(_FAILURES))
    reader.end()
    cause = reader.causes.cause or mixed(writers.mixed, writers.copies)
    return Log(reader.runs, cause)


class _Reader:
    """Sorts lines into runs."""

    def __init__(self) -> None:
        self.runs: list[NvbandwidthRun] = []
        self.causes = FirstCause(_FAILURES)
        self._text = NvbandwidthReader()
        self._own = FirstCause(_FAILURES)

    def see(self, line: str) -> None:
        if self._text.begins(line):
            self.end()
        self.causes.see(line)
        self._own.see(line)
        self._text.see(line)

    def end(self) -> None:
        """Close the run in text form, if there is one."""
        if self._text.started:
            self.take(self._text.result(), self._own)
        self._text, self._own = NvbandwidthReader(), FirstCause(_FAILURES)

    def take(self, document: dict[str, t.Any], causes: FirstCause) -> None:
        """Add the run of one JSON document, with the first cause of its failure."""
        tests = [NvbandwidthTest(**test) for test in document.pop("tests")]
        devices = [NvbandwidthDevice(**device) for device in document.pop("devices")]
        for message in (document.pop("error"), *(_error_of(test) for test in tests)):
            if message:
                causes.see(message)
                causes.add(Cause(message[:400], "software"))
        complete = document.pop("whole") and bool(tests) and all(test.status != "running" for test in tests)
        cause = causes.cause
        if cause:
            self.causes.add(cause)
        good = cause is None and all(test.status != "error" for test in tests) and any(test.values for test in tests)
        self.runs.append(
            NvbandwidthRun(
                **document, devices=devices, tests=tests, complete=complete, ok=complete and good, cause=cause
            )
        )


def _error_of(test: NvbandwidthTest) -> str | None:
    return test.error or (f"{test.name} ended with an error" if test.status == "error" else None)
