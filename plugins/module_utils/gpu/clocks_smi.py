# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask nvidia-smi for clocks and have it change them; every call has a time limit. Private."""

from __future__ import annotations

import re
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import Clocks, Gpu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_messages as messages
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_values as values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import Row, parse_csv

FIELDS = (
    "index uuid pci.bus_id name driver_version persistence_mode"
    " clocks.max.graphics clocks.max.memory clocks.current.graphics clocks.current.memory"
    " clocks.applications.graphics clocks.applications.memory"
    " clocks.default_applications.graphics clocks.default_applications.memory clocks_event_reasons.active"
).split()
# The name before R535. Other names that a driver does not know are left out: their values are unknown.
_FORMER = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
_NEEDED = {"index", "uuid", "pci.bus_id"}
_INVALID = re.compile(r'Field "([^"]+)" is not a valid field to query')
# nvidia-smi calls what a GPU cannot do a warning and ends with 0; before R415 there is no locking at all.
_UNSUPPORTED = re.compile(
    r"not supported for GPU|is not supported|Invalid combination of input arguments", re.IGNORECASE
)
_DENIED = re.compile(r"permission", re.IGNORECASE)
NO_DEVICES = "No devices were found"


class SmiError(RuntimeError):
    """nvidia-smi did not show the GPUs; the text is fit for the user."""

    def __init__(self, text: str, no_gpu: bool = False) -> None:
        super().__init__(text)
        self.no_gpu = no_gpu


class Answer(t.NamedTuple):
    """What came of a change: ``kind`` is done, unsupported, denied or failed."""

    kind: str
    text: str = ""


class Smi:
    """nvidia-smi with a time limit for each call and, if told, one for all of them together."""

    def __init__(self, program: str, timeout: float, budget: float | None = None) -> None:
        self.program = program
        self.timeout = timeout
        self.until = None if budget is None else time.monotonic() + budget
        self.commands: list[list[str]] = []
        self.problem = ""
        self.fields = list(FIELDS)

    def query(self) -> list[Gpu]:
        """Return all GPUs; one that is lost is missing and named in ``problem``."""
        while True:
            outcome = self._run([f"--query-gpu={','.join(self.fields)}", "--format=csv,noheader,nounits"])
            refused = _INVALID.search(f"{outcome.out}\n{outcome.err}")
            if not refused or not self._without(refused.group(1)):
                break
        log = parse_csv(outcome.out, self.fields)
        gpus = [_gpu(row) for run in log.runs for row in run.rows if row.number("index") is not None]
        cause = log.cause or messages.message(outcome.err) or messages.status(outcome.rc)
        self.problem = cause.text if cause else outcome.problem
        if not gpus or any(run.rejected for run in log.runs):
            told = self.problem or f"it printed {outcome.out.strip()[-200:]!r}"
            raise SmiError(f"{self.program} does not show the GPUs: {told}", NO_DEVICES in told)
        return gpus

    def _without(self, name: str) -> bool:
        """Ask without a field that this driver does not know; false when it is one that is needed."""
        if name not in self.fields or name in _NEEDED:
            return False
        place = self.fields.index(name)
        self.fields[place : place + 1] = [_FORMER[name]] if name in _FORMER else []
        return True

    def change(self, gpu: Gpu, *options: str) -> Answer:
        """Change one GPU, named by its place on the bus: indexes move when a GPU is lost."""
        arguments = ["-i", gpu.bus_id, *options]
        self.commands.append([self.program, *arguments])
        outcome = self._run(arguments)
        text = f"{outcome.out}\n{outcome.err}"
        if outcome.rc is None:
            return Answer("failed", outcome.problem)
        if outcome.rc == 3 or _UNSUPPORTED.search(text):
            return Answer("unsupported", _said(text, _UNSUPPORTED) or messages.STATUS[3][1])
        if outcome.rc == 4 or _DENIED.search(text):
            return Answer("denied", f"{_said(text, _DENIED) or 'no permission'}: this needs root")
        known = messages.status(outcome.rc)
        return Answer("done") if outcome.rc == 0 else Answer("failed", known.text if known else outcome.problem)

    def _run(self, arguments: t.Sequence[str]) -> _command.Outcome:
        limit = self.timeout
        if self.until is not None:
            limit = min(limit, self.until - time.monotonic())
            if limit <= 0:
                return _command.Outcome(None, "", f"{self.program}: the time for all of it is over", 0.0)
        return _command.run([self.program, *arguments], limit)


def _said(text: str, pattern: t.Pattern[str]) -> str:
    return next((line.strip() for line in text.splitlines() if pattern.search(line)), "")


def _gpu(row: Row) -> Gpu:
    def clocks(kind: str) -> Clocks:
        return Clocks(*(_integer(row.number(f"clocks.{kind}.{domain}")) for domain in Clocks._fields))

    def text(name: str) -> str:
        return row.values.get(name) or ""

    reasons = next((row.values[name] for name in (*_FORMER, *_FORMER.values()) if row.values.get(name)), None)
    return Gpu(
        _integer(row.number("index")) or 0,
        text("uuid"),
        text("pci.bus_id"),
        text("name"),
        text("driver_version"),
        values.flag(row.values.get("persistence_mode")),
        clocks("max"),
        clocks("current"),
        clocks("applications"),
        clocks("default_applications"),
        values.mask(reasons),
    )


def _integer(value: float | None) -> int | None:
    return None if value is None else int(value)
