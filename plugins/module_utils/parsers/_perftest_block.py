# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""perftest: what was printed about one test; private."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._perftest_failures import Failures
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause

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


class Block:
    """One test as it was printed, by one side or by both."""

    def __init__(self) -> None:
        self.test: str | None = None
        self.facts: dict[str, str] = {}
        self.units: list[str] = []
        self.columns: list[str] = []
        self.rows: dict[float | None, dict[str, float | None]] = {}
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
            self.rows[cells.get("bytes")] = cells
            self.rules = 0

    def join(self, other: Block) -> None:
        """Take in the other side of the same test."""
        self.facts = {**other.facts, **self.facts}
        self.units += [unit for unit in other.units if unit not in self.units]
        self.rows = {**self.rows, **other.rows}
        self.titles += other.titles
        self.complete |= other.complete
        self.limit_missed |= other.limit_missed
        self.notes += [note for note in other.notes if note not in self.notes]
        self.failures.join(other.failures)
