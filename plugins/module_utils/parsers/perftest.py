# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""perftest: what its messages mean, and which of several is the cause; private."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import (
    Cause,
    FirstCause,
    Log,
    cause,
    mixed,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import (
    Source,
    Writers,
    number,
    program_lines,
)

LIMIT = re.compile(r"BW result is below bw limit|Msg rate\s+is below msg_rate limit")

# Two lines, of which the second has the number that says what happened.
_COMPLETION = re.compile(r"Completion with error at (?:client|server)")
_STATUS = re.compile(r"Failed status (\d{1,3})")
_MEANS = {
    "1": "local length error",
    "4": "local protection error",
    "5": "flushed after an earlier error",
    "9": "remote refused the request",
    "10": "remote refused access to its memory",
    "11": "remote operation error",
    "12": "transport retries exceeded, the other port does not answer",
    "13": "receiver not ready, retries exceeded",
}
_FAILURES = (
    (r"Did not detect devices|No IB devices found|IB device \S+ not found", "config"),
    (r"Port number \d+ state is", "fabric"),
    (r"Couldn't listen to port|Couldn't connect to|Problem in resolving basic address", "infra"),
    (r"Failed to modify QP|Unable to Connect the HCA's through the link", "fabric"),
    (r"Couldn't allocate MR|Couldn't register|failed to create mr|DMA-?BUF .*not supported", "config"),
    (r"Couldn't get context for the device|Couldn't create (?:IB resources|CQ|QP)|Couldn't allocate PD", "software"),
    (r"unrecognized option|Invalid Command|Unsupported memory type|Can't (?:use|enable)", "config"),
    (r"^cu[A-Z]\w+(?:\(\d*\))? (?:returned|error)|Couldn't init GPU context|No such device ID", "software"),
    (r"Failed to load CUDA library|dlerror: ", "software"),
    (r"no available device\(s\) that support CUDA", "config"),
    (r"Data validation (?:failed|error)|Found Incompatibility issue", "fabric"),
)
# The socket broke or a later step could not go on: the reason is on the other side, or stood before.
_CONSEQUENCES = (
    (r"Couldn't read remote address|Couldn't read reports|Couldn't send (?:local address|reports)", "infra"),
    (r"Failed to exchange data between|Unable to (?:init the socket|open file descriptor|read|write)", "infra"),
    (r"Failed to sync between|Failed to close connection|Unable to find the Infiniband/RoCE device", "infra"),
    (r"Failed to complete run_iter|Error occurred while running|Parser function exited with Error", "software"),
    (r"Unable to set up socket connection|Unable to create RDMA_CM resources|Couldn't allocate context", "software"),
)


# Every pattern above holds one of these; most lines of a log are done with after this one search.
_SUSPECT = re.compile(
    r"Couldn't|Unable|Failed|failed|Did not|No IB|not found|Port number|Problem|DMA|recognized|Invalid|Unsupported"
    r"|Can't|^cu[A-Z]|No such|dlerror|no available|validation|Incompat|Error|Parser|Completion"
)


class Failures:
    """The first failure of a test; a consequence only when there is no failure."""

    def __init__(self) -> None:
        self._first = FirstCause()
        self._consequence: Cause | None = None
        self._completion = ""

    def see(self, line: str) -> None:
        if _SUSPECT.search(line):
            self._own(line)
        self._first.see(line)

    def _own(self, line: str) -> None:
        status = _STATUS.search(line)
        if status:
            means = _MEANS.get(status.group(1), "see ibv_wc_status")
            message = f"{self._completion}: {line}" if self._completion else line
            self._first.add(Cause(f"{message[:300]} ({means})", "fabric"))
        elif _COMPLETION.search(line):
            self._completion = self._completion or line
        else:
            failure = _match(line, _FAILURES)
            if failure:
                self._first.add(failure)
            self._consequence = self._consequence or _match(line, _CONSEQUENCES)

    @property
    def cause(self) -> Cause | None:
        if self._first.cause is None and self._completion:
            return Cause(self._completion, "fabric")
        return self._first.cause or self._consequence

    def join(self, other: Failures) -> None:
        """Take the other side's failure where this side knows but consequences."""
        if other._first.cause:
            self._first.add(other._first.cause)
        self._completion = self._completion or other._completion
        self._consequence = self._consequence or other._consequence


def _match(line: str, rules: t.Sequence[tuple[str, str]]) -> Cause | None:
    return next((cause(line, kind) for pattern, kind in rules if re.search(pattern, line)), None)


# perftest: what was printed about one test.


# What --out_json calls the columns of the table and the lines of the banner.
JSON_NAMES = {
    "MsgSize": "bytes",
    "n_iterations": "iterations",
    "BW_peak": "peak",
    "BW_average": "average",
    "bw_avg": "average",
    "MsgRate": "rate",
    "msgRate_avg": "rate",
    "CPU_util": "cpu",
}
JSON_FACTS = {
    "Device": "Device",
    "Number_of_qps": "Number of qps",
    "Connection_type": "Connection type",
    "Mtu": "Mtu",
    "Link_type": "Link type",
}


class PerftestBlock:
    """One test as it was printed, by one side or by both."""

    def __init__(self) -> None:
        self.test: str | None = None
        self.facts: dict[str, str] = {}
        self.units: list[str] = []
        self.columns: list[str] = []
        self.rows: dict[tuple[float | None, ...], dict[str, float | None]] = {}
        self.prints: dict[tuple[float | None, ...], int] = {}
        self.torn = 0
        self.ends: set[tuple[str, str]] = set()
        self.titles = self.headers = self.rules = 0
        self.halves = False  # what --report-both adds: the two sides of the sum that came before
        self.complete = self.limit_missed = False
        self.bare = self.unitless = False
        self.notes: list[str] = []
        self.failures = Failures()

    @property
    def sides(self) -> int:
        return max(self.titles, 1)

    @property
    def cause(self) -> Cause | None:
        return self.failures.cause

    def add(self, cells: dict[str, float | None]) -> None:
        """Both sides print the same row, and --run_infinitely repeats it: the last one stays."""
        if not self.halves:
            key = (cells.get("bytes"), cells.get("sl"))
            self.rows[key] = cells
            self.prints[key] = self.prints.get(key, 0) + 1
            self.rules = 0

    @property
    def several(self) -> Cause | None:
        """One process prints one row of a size: more of them are intervals, or other processes' rows."""
        sizes = [size for size, _level in self.rows]
        size = next((size for size in sizes if sizes.count(size) > 1), None)
        if size is not None:
            levels = f"{sizes.count(size)} service levels at {size:.0f} bytes"
            return Cause(f"{levels}: rows of several processes, which do not add up", "config")
        most = max(self.prints, key=lambda key: self.prints[key], default=None)
        if most is None or self.prints[most] <= max(self.titles, self.headers, 1):
            return None
        what = "rows" if most[0] is None else f"rows of {most[0]:.0f} bytes"
        return Cause(
            f"{self.prints[most]} {what}: intervals of --run_infinitely, or several processes in one log", "config"
        )

    def join(self, other: PerftestBlock) -> None:
        """Take in the other side of the same test."""
        self.facts = {**other.facts, **self.facts}
        self.units += [unit for unit in other.units if unit not in self.units]
        self.rows = {**self.rows, **other.rows}
        for key, count in other.prints.items():
            self.prints[key] = self.prints.get(key, 0) + count
        self.torn += other.torn
        self.titles += other.titles
        self.headers += other.headers
        self.complete |= other.complete
        self.limit_missed |= other.limit_missed
        self.notes += [note for note in other.notes if note not in self.notes]
        self.failures.join(other.failures)


# perftest: from lines to blocks.


# One or several rows; a failure message and even the next row can be glued to the last cell, whose newline is
# written later than the row.
_CELLS = re.compile(r"(?:\d+(?:\.\d+)?|-?nan|-?inf|N/A)(?:\s+(?:\d+(?:\.\d+)?|-?nan|-?inf|N/A))+", re.ASCII)
# How a row begins.
_LEAD = re.compile(r"\d+\s+\d+(?:\s|$)", re.ASCII)
_HEADER = re.compile(r"#bytes\s+(?:#sl\s+)?#iterations\s+BW ")
_COLUMN = re.compile(
    r"(#bytes|#sl|#iterations|BW peak|BW average|MsgRate Port\d|MsgRate|BW Port\d|CPU_Util)(?:\[(.*?)\])?"
)
_NAMES = {
    "#bytes": "bytes",
    "#sl": "sl",
    "#iterations": "iterations",
    "BW peak": "peak",
    "BW average": "average",
    "MsgRate": "rate",
    "CPU_Util": "cpu",
    "BW Port1": "port1",
    "BW Port2": "port2",
}
_FIRST = re.compile(r"-{40,}$|\*{20,}$|\* Waiting for client")
_FACT = re.compile(r"(Device|Number of qps|Connection type|Mtu|Link type)\s*: (\S+)")
_GPU = re.compile(r"\bdevice name = \[(.+)\]")
_TITLE = re.compile(r"([A-Z][A-Za-z_ ]{0,80}BW |[A-Z][A-Za-z_ ]{0,80}Latency )(?:[A-Za-z ]{0,40})Test")
_SERVER = "* Waiting for client to connect... *"
_SIDE = re.compile(r"(?:local|remote) address:.* QPN (0x[0-9a-f]+),? PSN (0x[0-9a-f]+)")
_BARE = re.compile(r"\d+\.\d{6}", re.ASCII)
_PAIR = re.compile(r'"?([A-Za-z_][A-Za-z_0-9. ]{0,40}?)"?\s*:\s*"?([^",{}]*)"?,?')


class PerftestReader:
    """Line by line; ``outside`` is the failure of a program that did not come as far as its title."""

    def __init__(self) -> None:
        self.outside: Cause | None = None
        self._blocks: list[PerftestBlock] = []
        self._now = PerftestBlock()
        self._json = False
        self._width = 0

    def finish(self) -> list[PerftestBlock]:
        """Return the blocks, the two sides of a test joined."""
        self._close()
        self.outside = self.outside or self._now.cause
        blocks: list[PerftestBlock] = []
        for block in self._blocks:
            if blocks and block.ends and block.ends == blocks[-1].ends:
                blocks[-1].join(block)
            else:
                blocks.append(block)
        tables = [block for block in blocks if not block.bare]
        return tables or blocks

    def see(self, line: str) -> None:
        """Read one line."""
        if " NCCL INFO " in line and not line[0].isdigit():
            return  # thousands of them, and nothing of perftest
        if self._json_line(line):
            return
        rest = self._row(line)
        if rest is None:
            return
        for reads in (self._frame, self._header, self._end, self._fact):
            if reads(rest):
                return
        if (self._now.bare or not self._now.rows) and _BARE.fullmatch(rest):
            self._bare(number(rest))
        self._complain(rest)

    def _bare(self, value: float | None) -> None:
        """A server and its client may print the same number; several are of several sizes or intervals."""
        now = self._now
        now.bare = now.unitless = now.complete = True
        if {"average": value} not in now.rows.values():
            now.add({"average": value})

    def _complain(self, line: str) -> None:
        if " limit" in line and LIMIT.search(line):
            self._now.limit_missed = True
        elif "WARNING" in line or "Conflicting CPU" in line:
            if len(self._now.notes) < 20 and line not in self._now.notes:
                self._now.notes.append(line[:200])
        else:
            self._now.failures.see(line)

    def _row(self, line: str) -> str | None:
        """Take rows; return what of the line is left, None if nothing is."""
        columns = self._now.columns
        match = _CELLS.match(line) if columns else None
        words = match.group().split() if match else []
        if match is None or len(words) < columns.index("average") + 1:
            self._now.torn += bool(columns and not self._now.halves and _LEAD.match(line))
            return line
        self._now.torn += len(words) % len(columns) > 0 and not self._now.halves
        for first in range(0, len(words), len(columns)):
            values = [number(word) for word in words[first : first + len(columns)]]
            if len(values) > columns.index("average"):
                self._now.add(dict(zip(columns, values)))
        return line[match.end() :].strip() or None

    def _frame(self, line: str) -> bool:
        """A title after rows begins another test, or is the other side, whose block is joined in the end."""
        if line == _SERVER:
            if self._now.rows:
                self._close()
            return True
        if line.endswith("Test") and _TITLE.fullmatch(line):
            if self._now.rules == 1:
                self._now.complete = False  # the only rule behind the rows is the one above this title
            if self._now.rows or self._now.cause:
                self._close()
            self.outside = self.outside or self._now.cause
            self._now.failures = Failures()
            self._now.test = line
            self._now.titles += 1
            return True
        if line in ("Local results:", "Remote results:"):
            self._now.halves = True
            return True
        return False

    def _header(self, line: str) -> bool:
        if not _HEADER.match(line):
            return False
        now = self._now
        if now.halves:
            return True
        if now.rows and now.headers >= now.titles:
            self._close()
        self._now.headers += 1
        self._now.complete = False
        columns = _COLUMN.findall(line)
        self._now.columns = [_NAMES.get(name, name) for name, _unit in columns]
        unit = next((unit for name, unit in columns if name == "BW average"), "")
        if "average" not in self._now.columns:
            self._now.columns = []
        elif unit not in ["", *self._now.units] and len(self._now.units) < 4:
            self._now.units.append(unit)
        return True

    def _end(self, line: str) -> bool:
        if not line.startswith("-" * 20) or line.strip("-"):
            return False
        # One that is shorter than those before was cut off.
        self._width = max(self._width, len(line))
        self._now.rules += 1
        self._now.complete = bool(self._now.rows) and len(line) == self._width
        return True

    def _fact(self, line: str) -> bool:
        if " : " not in line and " address: " not in line and " = [" not in line:
            return False
        side = _SIDE.match(line)
        if side:
            self._now.ends.add((side.group(1), side.group(2)))
            return True
        facts = _FACT.findall(line)
        gpu = _GPU.search(line)
        for name, value in [*facts, *([("gpu", gpu.group(1))] if gpu else [])]:
            self._now.facts.setdefault(name, value)
        return bool(facts or gpu)

    def _json_line(self, line: str) -> bool:
        """Read JSON by its lines: before January 2024 its keys have no quotes, and later there are stray commas."""
        if line.startswith(("test_info: {", '"test_info": {')):
            self._close()
            self._json = self._now.unitless = True
        if not self._json:
            return False
        match = _PAIR.fullmatch(line)
        if match:
            self._json_pair(match.group(1), match.group(2))
        elif line == "}" and self._now.rows:
            self._now.complete, self._json = True, False
            self._close()
        return True

    def _json_pair(self, name: str, value: str) -> None:
        if name == "test":
            self._now.test = value.replace("_", " ").replace("RDMA ", "RDMA_")
        elif name in JSON_FACTS:
            self._now.facts[JSON_FACTS[name]] = value
        elif name in JSON_NAMES:
            self._now.rows.setdefault((None, None), {})[JSON_NAMES[name]] = number(value)

    def _close(self) -> None:
        """Keep what began as a test; what came before goes on with the next one."""
        now = self._now
        if now.rows or now.titles or now.headers:
            self._blocks.append(now)
            self._now = PerftestBlock()


# perftest (ib_write_bw, ib_read_bw, ib_send_bw ..): tables, --output=bandwidth, --out_json; server and client mixed.


GBPS = {"MB/sec": 0.008388608, "MiB/sec": 0.008388608, "Gb/sec": 1.0}
# The same words as those of sysfs and ibstat.
_LINKS = {"IB": "InfiniBand"}


@dataclass(frozen=True)
class PerftestRow:
    """One message size, None of a bare number; of both directions together if the test is bidirectional."""

    size: int | None
    iterations: int | None
    peak_gbps: float | None
    average_gbps: float | None
    message_rate_mpps: float | None
    cpu_percent: float | None
    ports_gbps: list[float | None]
    peak: float | None
    average: float | None


@dataclass(frozen=True)
class PerftestRun:
    """One test; ``unit`` is that of ``peak`` and ``average``. A missed ``--limit_bw`` leaves the numbers valid."""

    test: str | None
    device: str | None
    link_layer: str | None
    connection: str | None
    qps: int | None
    mtu: int | None
    gpu: str | None
    bidirectional: bool
    unit: str | None
    sides: int
    rows: list[PerftestRow]
    limit_missed: bool
    notes: list[str]
    complete: bool
    ok: bool
    cause: Cause | None

    def bandwidth(self, size: int | None = None) -> float | None:
        """Return the average in Gb/s at a size, by default the largest; of both directions if it is bidirectional.

        None of a size that has rows of several service levels.
        """
        wanted = max((row.size or 0 for row in self.rows), default=None) if size is None else size
        rows = [row for row in self.rows if (row.size or 0) == wanted]
        return rows[0].average_gbps if len(rows) == 1 else None


def parse(source: Source, unit: str | None = None) -> Log[PerftestRun]:
    """Read a log or a file of --out_json; never raises.

    ``--output=bandwidth`` and JSON do not say their unit: give it ("Gb/sec" with --report_gbits, else "MiB/sec"), or
    their numbers are not converted and the run is not ok.
    """
    reader, writers = PerftestReader(), Writers()
    for line in program_lines(source, _FIRST, writers):
        reader.see(line)
    blocks = reader.finish()
    runs = [_run(block, unit) for block in blocks]
    cause = reader.outside or next((run.cause for run in runs if run.cause), None) or mixed(writers.mixed)
    return Log(runs, cause)


def _run(block: PerftestBlock, unit: str | None) -> PerftestRun:
    """Return the run of a block; numbers count only with one unit, and a run without iterations has failed."""
    shown = block.units[0] if block.units else unit if block.unitless else None
    factor = GBPS.get(shown or "")
    rows = [_row(cells, factor) for cells in block.rows.values()]
    cause = block.cause
    if cause is None and len(block.units) > 1:
        cause = Cause(
            f"server and client print {' and '.join(block.units)}: no telling which number is which", "config"
        )
    cause = cause or block.several
    if cause is None and rows and all(row.iterations == 0 for row in rows):
        cause = Cause("0 iterations: no message got through", "fabric")  # the exit status is 0 all the same
    numeric = any(row.average_gbps is not None for row in rows)
    return PerftestRun(
        test=block.test,
        device=block.facts.get("Device"),
        link_layer=_LINKS.get(block.facts.get("Link type", ""), block.facts.get("Link type")),
        connection=block.facts.get("Connection type"),
        qps=_int(block.facts.get("Number of qps")),
        mtu=_int(block.facts.get("Mtu", "").replace("[B]", "")),
        gpu=block.facts.get("gpu"),
        bidirectional="Bidirectional" in (block.test or ""),
        unit=shown,
        sides=block.sides,
        rows=rows,
        limit_missed=block.limit_missed,
        notes=block.notes,
        complete=block.complete and not block.torn,
        ok=block.complete and not block.torn and cause is None and numeric,
        cause=cause,
    )


def _row(cells: t.Mapping[str, float | None], factor: float | None) -> PerftestRow:
    def gbps(name: str) -> float | None:
        value = cells.get(name)
        return None if value is None or factor is None else value * factor

    # Without an iteration there was no measurement, and a peak is not taken in -D runs: both are printed as zero.
    moved = cells.get("iterations") != 0
    peaked = moved and bool(cells.get("peak"))
    return PerftestRow(
        size=_int(cells.get("bytes")),
        iterations=_int(cells.get("iterations")),
        peak_gbps=gbps("peak") if peaked else None,
        average_gbps=gbps("average") if moved else None,
        message_rate_mpps=cells.get("rate") if moved else None,
        cpu_percent=cells.get("cpu"),
        ports_gbps=[gbps(name) for name in ("port1", "port2") if name in cells],
        peak=cells.get("peak"),
        average=cells.get("average"),
    )


def _int(value: t.Any) -> int | None:
    text = str(value)
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    return int(value) if isinstance(value, float) and value.is_integer() else None
