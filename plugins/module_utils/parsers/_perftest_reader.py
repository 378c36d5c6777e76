# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""perftest: from lines to blocks; private."""

from __future__ import annotations

import re

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import _perftest_failures as bad
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._perftest_block import (
    JSON_FACTS,
    JSON_NAMES,
    Block,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import number

# One or several rows; a failure message and even the next row can be glued to the last cell, whose newline is
# written later than the row.
_CELLS = re.compile(r"(?:\d+(?:\.\d+)?|-?nan|-?inf|N/A)(?:\s+(?:\d+(?:\.\d+)?|-?nan|-?inf|N/A))+", re.ASCII)
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
_FACT = re.compile(r"(Device|Number of qps|Connection type|Mtu|Link type)\s*: (\S+)")
_GPU = re.compile(r"\bdevice name = \[(.+)\]")
_TITLE = re.compile(r"([A-Z][A-Za-z_ ]{0,80}BW |[A-Z][A-Za-z_ ]{0,80}Latency )(?:[A-Za-z ]{0,40})Test")
_SERVER = "* Waiting for client to connect... *"
_SIDE = re.compile(r"(?:local|remote) address:.* QPN (0x[0-9a-f]+),? PSN (0x[0-9a-f]+)")
_BARE = re.compile(r"\d+\.\d{6}", re.ASCII)
_PAIR = re.compile(r'"?([A-Za-z_][A-Za-z_0-9. ]{0,40}?)"?\s*:\s*"?([^",{}]*)"?,?')


class Reader:
    """Line by line; ``outside`` is the failure of a program that did not come as far as its title."""

    def __init__(self) -> None:
        self.outside: Cause | None = None
        self._blocks: list[Block] = []
        self._now = Block()
        self._json = False
        self._width = 0

    def finish(self) -> list[Block]:
        """Return the blocks, the two sides of a test joined."""
        self._close()
        self.outside = self.outside or self._now.cause
        found: list[Block] = []
        for block in self._blocks:
            if found and block.ends and block.ends == found[-1].ends:
                found[-1].join(block)
            else:
                found.append(block)
        tables = [block for block in found if not block.bare]
        return tables or found

    def see(self, line: str) -> None:
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
        if not self._now.rows and _BARE.fullmatch(rest):
            self._now.bare = self._now.unitless = self._now.complete = True
            self._now.add({"average": number(rest)})
        self._complain(rest)

    def _complain(self, line: str) -> None:
        if " limit" in line and bad.LIMIT.search(line):
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
            return line
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
            self._now.failures = bad.Failures()
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
        found = _COLUMN.findall(line)
        self._now.columns = [_NAMES.get(name, name) for name, _unit in found]
        unit = next((unit for name, unit in found if name == "BW average"), "")
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
        found = _FACT.findall(line)
        gpu = _GPU.search(line)
        for name, value in [*found, *([("gpu", gpu.group(1))] if gpu else [])]:
            self._now.facts.setdefault(name, value)
        return bool(found or gpu)

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
            self._now.rows.setdefault(None, {})[JSON_NAMES[name]] = number(value)

    def _close(self) -> None:
        """Keep what began as a test; what came before goes on with the next one."""
        now = self._now
        if now.rows or now.titles or now.headers:
            self._blocks.append(now)
            self._now = Block()
