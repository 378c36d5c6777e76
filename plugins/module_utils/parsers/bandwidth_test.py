# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""bandwidthTest: what each line means and which run it belongs to. Private, see bandwidth_test."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause, Log, mixed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import (
    Source,
    Writers,
    number,
    program_lines,
)

_DIRECTIONS = {"Host to Device": "h2d", "Device to Host": "d2h", "Device to Device": "d2d"}
FAILURES = [
    (r"!{3,}No devices found", "config"),
    # The run goes on with GPU 0 and passes: right numbers of the wrong GPU.
    (r"!{3,}Invalid GPU number .* default gpu", "config"),
    (r"Compute Mode Prohibited", "config"),
    (r"^(?:Invalid (?:memory )?mode|Illegal argument|Must specify an? )", "config"),
    (r"^Not enough memory ava", "config"),
    (r"^Result = FAIL", "software"),
]

_MARK = re.compile(r"\[CUDA Bandwidth Test\]")
_LINE = re.compile(
    r"""(?P<start>\[CUDA\ Bandwidth\ Test\]|Running\ on\.\.\.|!!!!!Cumulative\ Bandwidth)
    |(?P<fallback>!!!!!Invalid\ GPU\ number\ (?P<requested>-?\d{1,9})\ given)
    |(?P<device>Device\ (?P<index>\d{1,9}):\ ?(?P<device_name>.*))
    |(?P<mode>(?P<word>Quick|Range|Shmoo)\ Mode)
    |(?P<block>(?P<direction>(?:Host\ to\ Device|Device\ to\ (?:Host|Device)))\ Bandwidth,\ (?P<count>\d{1,6})\ Device)
    |(?P<memory>(?P<kind>PINNED|PAGEABLE)\ Memory\ Transfers)
    |(?P<column>(?P<notice>Write-Combined\ Memory\ Writes\ are\ Enabled\s*)?
        Transfer\ Size\ \(Bytes\)\s*Bandwidth\s*\((?P<unit>[GM]B/s)\))
    |(?P<row>(?P<size>\d{1,18})\s+(?P<value>\S+)$)
    |(?P<torn>\d{3}\S*(?:\s+[\d#.]|$))
    |(?P<csv>bandwidthTest-(?P<what>[HD]2[HD])(?:-(?P<where>Pinned|Paged|Pageable))?(?P<combined>-WriteCombined)?,
        \ Bandwidth\ =\ (?P<rate>\S+)\ (?P<rate_unit>[GM]B/s),[^,]*,\ Size\ =\ (?P<bytes>\d{1,18})\ bytes
        ,\ NumDevsUsed\ =\ (?P<used>\d{1,6}))
    |(?P<torn_csv>bandwidthTest-[HD]2)
    |(?P<result>Result\ =\ (?P<verdict>PASS|FAIL))""",
    re.VERBOSE | re.ASCII,
)


class StartedBandwidthTest:
    """A run that is being read."""

    def __init__(self) -> None:
        self.named: list[tuple[int, str]] = []
        self.mode: str | None = None
        self.fallback: int | None = None
        self.blocks: list[dict[str, t.Any]] = []
        self.unit: str | None = None
        self.result: str | None = None
        self.torn = 0
        self.causes = FirstCause(FAILURES)

    def open(self, direction: str, memory: str | None, combined: bool, devices: int) -> None:
        more: dict[str, t.Any] = {"memory": memory, "write_combined": combined, "devices": devices, "rows": []}
        self.blocks.append({"direction": direction, **more})

    def add(self, size: int, printed: float | None, unit: str) -> None:
        self.blocks[-1]["rows"].append((size, printed, unit))
        self.torn += printed is None


class BandwidthTestReader:
    """Sorts lines into runs and tables."""

    def __init__(self) -> None:
        self.runs: list[StartedBandwidthTest] = []
        self.causes = FirstCause(FAILURES)
        self._returned = ""

    @property
    def _run(self) -> StartedBandwidthTest:
        if not self.runs:
            self.runs.append(StartedBandwidthTest())
        return self.runs[-1]

    def see(self, line: str) -> None:
        # cudaGetDeviceCount returned a number, and the words are on the next line.
        line, self._returned = f"{self._returned} {line}".lstrip(), ""
        if line.startswith("cudaGetDevice") and line[-1:].isdigit():
            self._returned = line[:200]
            return
        match = _LINE.match(line)
        if match:
            getattr(self, f"_{match.lastgroup}")(match)
        self.causes.see(line)
        if self.runs:
            self.runs[-1].causes.see(line)

    def _start(self, dummy: t.Match[str] | None = None) -> None:
        if self._run.named or self._run.blocks or self._run.result:
            self.runs.append(StartedBandwidthTest())

    def _fallback(self, match: t.Match[str]) -> None:
        self._start()
        self._run.fallback = int(match["requested"])

    def _device(self, match: t.Match[str]) -> None:
        # Of --device=all there are several in a row; pasted logs often begin with this line.
        if self._run.blocks or self._run.result or self._run.mode:
            self._start()
        self._run.named.append((int(match["index"]), match["device_name"].strip()))

    def _mode(self, match: t.Match[str]) -> None:
        self._run.mode = match["word"].lower()

    def _block(self, match: t.Match[str]) -> None:
        self._table(_DIRECTIONS[match["direction"]], None, False, int(match["count"]))
        self._run.unit = None

    def _table(self, direction: str, memory: str | None, combined: bool, devices: int) -> None:
        if self._run.result:
            self._start()
        self._run.open(direction, memory, combined, devices)

    def _memory(self, match: t.Match[str]) -> None:
        if self._run.blocks:
            self._run.blocks[-1]["memory"] = match["kind"].lower()

    def _column(self, match: t.Match[str]) -> None:
        self._run.unit = match["unit"]
        if match["notice"] and self._run.blocks:
            self._run.blocks[-1]["write_combined"] = True

    def _row(self, match: t.Match[str]) -> None:
        if self._run.blocks and self._run.unit and not self._run.result:
            self._run.add(int(match["size"]), number(match["value"]), self._run.unit)

    def _torn(self, dummy: t.Match[str]) -> None:
        """A line that begins as rows do, inside a table, and cannot be read."""
        if self.runs and self._run.blocks and self._run.unit and not self._run.result:
            self._run.torn += 1

    def _torn_csv(self, dummy: t.Match[str]) -> None:
        self._run.torn += 1

    def _csv(self, match: t.Match[str]) -> None:
        where = {"Pinned": "pinned", None: None}.get(match["where"], "pageable")
        table = (match["what"].lower(), where, bool(match["combined"]), int(match["used"]))
        last = self._run.blocks[-1] if self._run.blocks else {}
        if tuple(last.get(key) for key in ("direction", "memory", "write_combined", "devices")) != table:
            self._table(*table)
        self._run.unit = None
        self._run.add(int(match["bytes"]), number(match["rate"]), match["rate_unit"])

    def _result(self, match: t.Match[str]) -> None:
        self._run.result = match["verdict"]


# bandwidthTest of the CUDA samples (up to 12.8): text, --csv, quick, range and shmoo mode, several runs in one log.


_PER_GB = {"GB/s": 1, "MB/s": 1000}


@dataclass(frozen=True)
class BandwidthTestRow:
    """One transfer size; ``bandwidth`` is in GB/s, from what was printed in ``unit`` (MB/s before CUDA 10.1, +-3 %)."""

    size: int
    bandwidth: float | None
    printed: float | None
    unit: str


@dataclass(frozen=True)
class BandwidthTestBlock:
    """One table; ``devices`` GPUs are summed in it. Device to device copies have no kind of host memory."""

    direction: str
    memory: str | None
    write_combined: bool
    devices: int
    rows: list[BandwidthTestRow]

    @property
    def largest(self) -> BandwidthTestRow | None:
        """Return the row of the largest size: the one to judge."""
        return max(self.rows, key=lambda row: row.size, default=None)

    @property
    def maximum(self) -> float | None:
        """Return the highest bandwidth of all sizes; small device to device copies may come from a cache."""
        return max((row.bandwidth for row in self.rows if row.bandwidth is not None), default=None)


@dataclass(frozen=True)
class BandwidthTestRun:
    """One start of the program. ``fallback`` is a GPU number that does not exist: GPU 0 was measured in its stead."""

    device: int | None
    device_name: str | None
    devices: int
    mode: str | None
    fallback: int | None
    blocks: list[BandwidthTestBlock]
    result: str | None
    complete: bool
    ok: bool
    cause: Cause | None

    def bandwidth(self, direction: str, memory: str = "pinned") -> float | None:
        """Return GB/s of one GPU at the largest size ("h2d", "d2h", "d2d"); None if it is a sum over several."""
        for block in self.blocks:
            if block.direction == direction and block.memory in (memory, None) and block.devices == 1:
                return block.largest.bandwidth if block.largest else None
        return None


def parse(source: Source) -> Log[BandwidthTestRun]:
    """Read one or several runs."""
    reader, writers = BandwidthTestReader(), Writers()
    for line in program_lines(source, _MARK, writers):
        reader.see(line)
    reader.see("")
    runs = [_run(run) for run in reader.runs]
    cause = reader.causes.cause or mixed(writers.mixed, writers.copies)
    return Log(runs, cause)


def _run(started: StartedBandwidthTest) -> BandwidthTestRun:
    blocks = [_block(block) for block in started.blocks if block["rows"]]
    cause, complete = started.causes.cause, started.result is not None and not started.torn
    device, name = started.named[0] if len(started.named) == 1 else (None, None)
    devices = max([len(started.named), 1, *(block.devices for block in blocks)])
    ok = complete and cause is None and any(block.maximum is not None for block in blocks)
    return BandwidthTestRun(
        device, name, devices, started.mode, started.fallback, blocks, started.result, complete, ok, cause
    )


def _block(block: dict[str, t.Any]) -> BandwidthTestBlock:
    # The text form names a kind of host memory for copies inside the GPU as well.
    host = None if block["direction"] == "d2d" else block["memory"]
    return BandwidthTestBlock(**{**block, "memory": host, "rows": [_row(*row) for row in block["rows"]]})


def _row(size: int, printed: float | None, unit: str) -> BandwidthTestRow:
    return BandwidthTestRow(size, None if printed is None else printed / _PER_GB[unit], printed, unit)
