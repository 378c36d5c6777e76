# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HPL: what each line means and which run it belongs to. Private, see hpl."""

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

FAILURES = [
    (r"^\|\|Ax-b\|\|_oo.*\.\.\. FAILED", "hardware"),
    (r"Memory allocation failed for A, x and b", "config"),
    # "HPL ERROR from process # 0, on line 419 of function .." says nothing; the words are on the next line.
    (r"^>>> .*<<<", "config"),
    (r"^0*[1-9]\d* tests skipped because of illegal input", "config"),
    (r"^0*[1-9]\d* tests completed and failed residual checks,", "hardware"),
]

_MARK = re.compile(r"HPLinpack \d|HPL-\w[\w-]* +(?:ver\w*\.? +)?v?\d")

# PTRANS of HPCC has rows that start with WALL, and a summary with a comma after "tests".
_LINE = re.compile(
    r"""(?P<banner>(?P<program>HPLinpack|HPL-\w[\w-]*)\ +(?:ver\w*\.?\ +)?v?(?P<version>\d+(?:\.\w+)+))
    |(?P<row>(?P<mixed>HPL[_-](?:AI|MxP)\w*\s+)?(?P<variant>W[RC]\d+\S*)\s+(?P<n>\d{1,18})\s+(?P<nb>\d{1,9})\s+
        (?P<p>\d{1,9})\s+(?P<q>\d{1,9})\s+(?P<seconds>\S+)\s+(?P<gflops>[^\s()]+)(?P<more>.*))
    |(?P<residual>\|\|Ax-b\|\|_oo[^=]{1,200}=\s*(?P<value>\S+)\s+\.{3,}\s+(?P<verdict>PASSED|FAILED))
    |(?P<torn>(?:HPL[_-](?:AI|MxP)\w*\s+)?W[RC]\d\S*\s+\d|\|\|Ax-b\|\|_oo\ *\/[^=]{1,200}=)
    |(?P<summary>Finished\s+(?P<tests>\d{1,9})\ tests(?P<comma>,?)\ with\ the\ following\ results)
    |(?P<count>(?P<number>\d{1,9})\ tests\ (?:completed\ and\ (?P<kind>passed|failed)\ residual\ checks
        |completed\ without\ checking|(?P<skipped>skipped)\ because))
    |(?P<block>\*+\ HPL[\ -]M[xX]P\ Result\ \*+)
    |(?P<size>N\ =\ (?P<mn>\d{1,18}),\ NB\ =\ (?P<mnb>\d{1,9}),\ NPROW\ =\ (?P<mp>\d{1,9}),\ NPCOL\ =\ (?P<mq>\d{1,9}))
    |(?P<speed>(?P<lu>LU\ )?GFLOPS\ =\ (?P<rate>[^\s,]+)(?:,\ per\ GPU\ =\s*(?P<each>\S+))?)""",
    re.VERBOSE | re.ASCII,
)


class StartedHpl:
    """A run that is being read."""

    def __init__(self) -> None:
        self.program: str | None = None
        self.version: str | None = None
        self.rows: list[dict[str, t.Any]] = []
        self.residuals: list[tuple[float | None, bool]] = []
        self.counts: dict[str, int] = {}
        self.marks = 0
        self.torn = 0
        self.causes = FirstCause(FAILURES)

    @property
    def used(self) -> bool:
        """Say whether it holds more than a banner."""
        return bool(self.rows or self.residuals or self.counts or self.marks or self.torn)

    @property
    def started(self) -> bool:
        return self.used or self.program is not None

    @property
    def ended(self) -> bool:
        """HPL ends with its summary, HPL-MxP encloses its result between two marks."""
        return "skipped" in self.counts or self.marks > 1


class HplReader:
    """Sorts lines into runs."""

    def __init__(self) -> None:
        self.runs: list[StartedHpl] = [StartedHpl()]
        self.causes = FirstCause(FAILURES)
        self._counting = False

    @property
    def _run(self) -> StartedHpl:
        return self.runs[-1]

    def see(self, line: str) -> None:
        match = _LINE.match(line)
        if match:
            getattr(self, f"_{match.lastgroup}")(match)
        self.causes.see(line)
        self._run.causes.see(line)

    def _fresh(self) -> None:
        self.runs.append(StartedHpl())
        self._counting = False

    def _banner(self, match: t.Match[str]) -> None:
        # HPCC prints the banner twice, at its own beginning and at that of HPL.
        failed = self._run.program is not None and self._run.causes.cause is not None
        if self._run.used or failed:
            self._fresh()
        # NVIDIA's builds print their own banner and then that of the HPL they are made of.
        if self._run.program is None or match["program"] != "HPLinpack":
            self._run.program, self._run.version = match["program"], match["version"]

    def _row(self, match: t.Match[str]) -> None:
        if self._run.ended:
            self._fresh()
        extra = match["more"].replace("(", " ( ").replace(")", " ").split()
        speed, lone = number(match["gflops"]), None
        each = number(extra[1]) if extra[:1] == ["("] and len(extra) > 1 else None
        mixed = bool(match["mixed"])
        if mixed and len(extra) > 1:  # .. time Gflops, seconds of refinement, [iterations], Gflops with refinement
            speed, lone = number(extra[-1]), speed
        sizes = {name: int(match[name]) for name in ("n", "nb", "p", "q")}
        rates = {"gflops": speed, "gflops_per_gpu": each, "gflops_factorization": lone, "mixed": mixed}
        self._run.torn += speed is None
        self._run.rows.append({"variant": match["variant"], **sizes, "seconds": number(match["seconds"]), **rates})

    def _torn(self, dummy: t.Match[str]) -> None:
        if self._run.ended:
            self._fresh()
        self._run.torn += 1

    def _residual(self, match: t.Match[str]) -> None:
        """HPL asks whether the residual is below its limit, which a compiler may turn around: nan has passed then."""
        value, passed = number(match["value"]), match["verdict"] == "PASSED"
        self._run.residuals.append((value, passed and value is not None))
        if passed and value is None:
            wrong = Cause(" ".join(match.string.split())[:200], "hardware")
            self.causes.add(wrong)
            self._run.causes.add(wrong)

    def _summary(self, match: t.Match[str]) -> None:
        self._counting = not match["comma"] and self._run.started
        if self._counting:
            self._run.counts["tests"] = int(match["tests"])

    def _count(self, match: t.Match[str]) -> None:
        if self._counting:
            name = match["kind"] or match["skipped"] or "unchecked"
            self._run.counts[name] = int(match["number"])
            self._counting = name != "skipped"

    def _block(self, dummy: t.Match[str]) -> None:
        if self._run.marks > 1 or self._run.counts:
            self._fresh()
        self._run.program = self._run.program or "HPL-MxP"
        self._run.marks += 1

    def _size(self, match: t.Match[str]) -> None:
        if self._run.marks:
            sizes = {"n": int(match["mn"]), "nb": int(match["mnb"]), "p": int(match["mp"]), "q": int(match["mq"])}
            self._run.rows.append({"variant": "HPL-MxP", **sizes, "seconds": None, "gflops": None, "mixed": True})

    def _speed(self, match: t.Match[str]) -> None:
        if not self._run.marks or not self._run.rows:
            return
        if match["lu"]:
            self._run.rows[-1]["gflops_factorization"] = number(match["rate"])
        else:
            self._run.rows[-1].update(gflops=number(match["rate"]), gflops_per_gpu=number(match["each"] or ""))


# HPL (High-Performance Linpack): netlib's, NVIDIA's, inside HPCC, and the mixed precision HPL-AI and HPL-MxP.


@dataclass(frozen=True)
class HplRow:
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
    """One check of a solution; the value is None when it is no finite number, which never has passed."""

    value: float | None
    passed: bool


@dataclass(frozen=True)
class HplRun:
    """One start of the program. The counts are those of its summary, which HPL-MxP does not have."""

    program: str | None
    version: str | None
    rows: list[HplRow]
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
    def best(self) -> HplRow | None:
        """Return the fastest row."""
        rows = [row for row in self.rows if row.gflops is not None]
        return max(rows, key=lambda row: row.gflops or 0.0, default=None)


def parse(source: Source) -> Log[HplRun]:
    """Read one or several runs."""
    reader, writers = HplReader(), Writers()
    for line in program_lines(source, _MARK, writers):
        reader.see(line)
    runs = [_run(run) for run in reader.runs if run.started]
    cause = reader.causes.cause or mixed(writers.mixed, writers.copies)
    return Log(runs, cause)


def _run(started: StartedHpl) -> HplRun:
    counts = started.counts
    rows = [HplRow(**row) for row in started.rows]
    residuals = [Residual(*residual) for residual in started.residuals]
    complete = started.ended and not started.torn
    cause = started.causes.cause or (None if complete else started.causes.port_error)
    checked = bool(residuals) or bool(counts.get("passed"))
    ok = complete and cause is None and checked and any(row.gflops is not None for row in rows)
    return HplRun(
        program=started.program,
        version=started.version,
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
