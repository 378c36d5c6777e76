# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvbandwidth v0.1 to v0.8, one node or several, text and JSON: `parse` tells them apart by itself.

`Test.only` is the value of a test that one visible GPU leaves a single cell of. The printed SUM of more cells, the
printed MIN (0.00 whenever a cell is empty) and a sum of latencies say nothing about any GPU. In text a waived test
since v0.5 has no name, so compare the tests you asked for with those that came back.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import _json_documents as documents
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import _nvbandwidth_json as json_form
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import _nvbandwidth_text as text_form
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines

Matrix = t.List[t.List[t.Optional[float]]]

_FAILURES = [
    (r"^ERROR: Testcase .*(?:not found|out of bound)!", "config"),
    (r"^ERROR: Invalid Arguments|^You cannot specify both|did not match any testcases", "config"),
    (r"Invalid value when checking the pattern at|ASSERT in expression h_errorFlag", "hardware"),
    (r"^\[cudaError\w+\]|^\[CUDA_ERROR_\w+\]", "?"),
    (r"NVML_ERROR: \[|ASSERT in expression", "software"),
]


@dataclass(frozen=True)
class Device:
    """A GPU in the order of the columns; ``process`` and ``host`` are those of a run over several nodes."""

    index: int
    name: str
    bus_id: str | None = None
    host: str | None = None
    process: int | None = None


@dataclass(frozen=True)
class Test:
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
class Run:
    """One start of the program; complete when every test that began has ended."""

    version: str | None
    cuda_runtime: str | None
    driver: str | None
    host: str | None
    devices: list[Device]
    tests: list[Test]
    complete: bool
    ok: bool
    cause: Cause | None

    def test(self, name: str) -> Test | None:
        """Return the last test of that name."""
        return next((test for test in reversed(self.tests) if test.name == name), None)


def parse(source: Source) -> Log[Run]:
    """Read text, JSON, or JSON with text around it."""
    reader = _Reader()
    for line, document in documents.split(lines(source), json_form.MARK):
        if document is None:
            reader.see(line)
        else:
            reader.end()
            reader.take(json_form.read(document), FirstCause(_FAILURES))
    reader.end()
    cause = reader.causes.cause
    return Log(reader.runs, cause)


class _Reader:
    """Sorts lines into runs."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.causes = FirstCause(_FAILURES)
        self._text = text_form.Reader()
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
        self._text, self._own = text_form.Reader(), FirstCause(_FAILURES)

    def take(self, found: dict[str, t.Any], causes: FirstCause) -> None:
        tests = [Test(**test) for test in found.pop("tests")]
        devices = [Device(**device) for device in found.pop("devices")]
        for told in (found.pop("error"), *(_told(test) for test in tests)):
            if told:
                causes.see(told)
                causes.add(Cause(told[:400], "software"))
        complete = found.pop("whole") and bool(tests) and all(test.status != "running" for test in tests)
        cause = causes.cause
        if cause:
            self.causes.add(cause)
        good = cause is None and all(test.status != "error" for test in tests) and any(test.values for test in tests)
        self.runs.append(
            Run(**found, devices=devices, tests=tests, complete=complete, ok=complete and good, cause=cause)
        )


def _told(test: Test) -> str | None:
    return test.error or (f"{test.name} ended with an error" if test.status == "error" else None)
