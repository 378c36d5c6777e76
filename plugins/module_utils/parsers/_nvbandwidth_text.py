# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvbandwidth: what each line of its text means. Private, see nvbandwidth."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import number

Found = t.Dict[str, t.Any]

_LINE = re.compile(
    r"""(?P<version>nvbandwidth\ Version:\ (?P<tag>\S+))
    |(?P<runtime>CUDA\ Runtime\ Version:\ (?P<cuda>\S+))
    |(?P<driver>Driver\ Version:\ (?P<release>\S+))
    |(?P<device>(?:Process\ +(?P<process>\d{1,9})\ \((?P<host>[^()]*)\):\ d|D)evice\ (?P<index>\d{1,9}):\ (?P<gpu>.+))
    |(?P<running>Running\ (?P<key>\w+)\.$)
    |(?P<waived>(?:Waiving\ (?P<skipped>\w+)\.|Waived:.{0,200})$)
    |(?P<missing>ERROR:\ Testcase\ (?:index\ )?(?P<asked>\S+)\ (?:not\ found|out\ of\ bound)!)
    |(?P<total>(?:SUM|&&&&\ PERF)\ (?P<total_key>\w+)\ (?P<value>-?(?:\d+\.\d\d|inf|nan))(?:$|\ [+-](?:GB/s|ns)))
    |(?P<failed>(?:Error|ERROR):\ |\[CUDA_ERROR_|\[cudaError|NVML_ERROR:|ASSERT\ in\ expression|Invalid\ value\ when)
    |(?P<described>.{0,300}\((?P<unit>GB/s|ns)\)$)""",
    re.VERBOSE | re.ASCII,
)
_DEVICE = re.compile(r"(.*?)(?: \(([\da-fA-F]{1,8}:[\da-fA-F]{1,2}:[\da-fA-F]{1,2})\))?")
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,252}")
_LABEL = re.compile(r"\d{1,9}(?:-> ?\d{1,9})?", re.ASCII)
_PARTS = ("_read1", "_read2", "_write1", "_write2")
# All have two decimals; what has less was cut off.
_CELL = re.compile(r"-?(?:\d+\.\d\d|nan|inf)|N/A", re.ASCII)


class Reader:
    """One run."""

    def __init__(self) -> None:
        self._run: Found = {"version": None, "cuda_runtime": None, "driver": None, "host": None, "error": None}
        self._devices: list[Found] = []
        self._tests: list[Found] = []
        self._columns: int | None = None
        self._reading = False
        self._before = ""

    @property
    def started(self) -> bool:
        """Say whether anything of a run was seen."""
        return bool(self._run["version"] or self._devices or self._tests)

    def begins(self, line: str) -> bool:
        """Say whether a line is the first of a run."""
        return line.startswith("nvbandwidth Version: ")

    def result(self) -> Found:
        return {**self._run, "devices": self._devices, "tests": self._tests, "whole": True}

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
        parts = _DEVICE.fullmatch(match["gpu"])
        device: Found = {"index": int(match["index"]), "name": parts[1] if parts else "", "bus_id": parts and parts[2]}
        process = match["process"]
        more = {"host": match["host"] or self._run["host"], "process": None if process is None else int(process)}
        self._devices.append({**device, **more})

    def _running(self, match: t.Match[str]) -> None:
        self._add(match["key"], "running")

    def _waived(self, match: t.Match[str]) -> None:
        self._add(match["skipped"], "waived")

    def _missing(self, match: t.Match[str]) -> None:
        self._add(match["asked"], "error", match.string)

    def _add(self, name: str | None, status: str, error: str | None = None) -> None:
        blank: Found = {"unit": None, "description": None, "matrices": [], "sum": None}
        self._tests.append({"name": name, "status": status, **blank, "error": error and error[:1000]})
        self._reading = False

    def _failed(self, match: t.Match[str]) -> None:
        if self._tests and self._tests[-1]["status"] == "running":
            self._tests[-1].update(status="error", error=match.string[:1000])
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
        # NCCL prints lines that end in many numbers, too.
        labelled = _LABEL.fullmatch(" ".join(cells[: -self._columns]))
        if labelled and all(_CELL.fullmatch(cell) for cell in values):
            rows = self._tests[-1]["matrices"][-1]
            rows.append([self._cell(cell, len(rows), column) for column, cell in enumerate(values)])

    def _cell(self, text: str, row: int, column: int) -> float | None:
        """v0.1 prints 0.00 where there is nothing to measure."""
        value = number(text)
        between = "GPU(row)" in (self._tests[-1]["description"] or "") and row == column and self._columns != 1
        return None if value == 0 and (self._run["version"] == "v0.1" or between) else value
