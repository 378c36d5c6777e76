# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HPL (High-Performance Linpack): netlib's, NVIDIA's, inside HPCC, and the mixed precision HPL-AI and HPL-MxP.

A run is ok only when its residuals were checked and passed: a failed one does not change the exit status. Rows of
mixed precision (`Row.mixed`) must never be held against a limit for double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._hpl_reader import Reader, Started
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines


@dataclass(frozen=True)
class Row:
    """One solved system of order ``n`` on ``p`` times ``q`` processes.

    ``gflops`` is the number to report. With mixed precision that is the one with refinement included where it is
    printed; ``gflops_factorization`` is the higher one without.
    """

    variant: str
    n: int
    nb: int
    p: int
    q: int
    seconds: float | None
    gflops: float | None
    gflops_per_gpu: float | None = None
    gflops_factorization: float | None = None
    mixed: bool = False


@dataclass(frozen=True)
class Residual:
    """One check of a solution; the value is None when it is no finite number."""

    value: float | None
    passed: bool


@dataclass(frozen=True)
class Run:
    """One start of the program. The counts are those of its summary, which HPL-MxP does not have."""

    program: str | None
    version: str | None
    rows: list[Row]
    residuals: list[Residual]
    tests: int | None
    passed: int | None
    failed: int | None
    skipped: int | None
    complete: bool
    ok: bool
    cause: Cause | None

    @property
    def residual_failures(self) -> int | None:
        """Return how many solutions were wrong; None if none was checked."""
        if not self.residuals and not self.passed and not self.failed:
            return None
        return max(self.failed or 0, sum(not residual.passed for residual in self.residuals))

    @property
    def best(self) -> Row | None:
        """Return the fastest row."""
        rows = [row for row in self.rows if row.gflops is not None]
        return max(rows, key=lambda row: row.gflops or 0.0, default=None)


def parse(source: Source) -> Log[Run]:
    """Read one or several runs."""
    reader = Reader()
    for line in lines(source):
        reader.see(line)
    runs = [_run(run) for run in reader.runs if run.started]
    cause = reader.causes.cause
    return Log(runs, cause)


def _run(found: Started) -> Run:
    counts = found.counts
    rows = [Row(**row) for row in found.rows]
    residuals = [Residual(*residual) for residual in found.residuals]
    complete, cause = found.ended, found.causes.cause
    checked = bool(residuals) or bool(counts.get("passed"))
    ok = complete and cause is None and checked and any(row.gflops is not None for row in rows)
    return Run(
        program=found.program,
        version=found.version,
        rows=rows,
        residuals=residuals,
        tests=counts.get("tests"),
        passed=counts.get("passed"),
        failed=counts.get("failed"),
        skipped=counts.get("skipped"),
        complete=complete,
        ok=ok,
        cause=cause,
    )
