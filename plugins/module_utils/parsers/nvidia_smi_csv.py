# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi --query-gpu=.. --format=csv[,noheader][,nounits]`` and its sisters (--query-compute-apps ..)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text as words
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, Log, log_of

# Field names without a dot or an underscore; any other small word is prose.
_SMALL = {"count", "fan", "hostname", "index", "name", "pid", "pstate", "serial", "timestamp", "type", "uuid"}
_MOST = 16
# A name begins small; capitals are in it: pci.baseClass, fabric.cliqueId, encoder.stats.sessionCount.
_HEAD = re.compile(r"([a-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)(?: \[([^\[\],]+)\])?")
# Other names that can be asked for (nvidia-smi --help-query-gpu); the header has the first one.
_ALIASES = {
    "gpu_bus_id": "pci.bus_id",
    "gpu_name": "name",
    "gpu_serial": "serial",
    "gpu_uuid": "uuid",
    "gpu_operation_mode.current": "gom.current",
    "gpu_operation_mode.pending": "gom.pending",
    "inforom.image": "inforom.img",
    "inforom.power": "inforom.pwr",
    "retired_pages.sbe": "retired_pages.single_bit_ecc.count",
    "retired_pages.dbe": "retired_pages.double_bit.count",
    "temperature": "temperature.gpu",
    **{f"clocks.{short}": f"clocks.current.{long}" for short, long in (("gr", "graphics"), ("mem", "memory"))},
    **{f"clocks.{name}": f"clocks.current.{name}" for name in ("graphics", "memory", "sm", "video")},
    **{
        f"clocks.{kind}.{short}": f"clocks.{kind}.{long}"
        for kind in ("applications", "default_applications", "max")
        for short, long in (("gr", "graphics"), ("mem", "memory"))
    },
}


@dataclass(frozen=True)
class CsvRow:
    """Texts by field; what is no value (N/A, ERR!, [Not Supported] ..) is None.

    ``errors`` has the errors that stand in place of values, such as ``GPU is lost``, ``Unknown Error`` and ``ERR!``.
    """

    values: dict[str, str | None]
    errors: dict[str, str] = field(default_factory=dict)

    def number(self, name: str) -> float | None:
        """Return a number, with or without its unit in the cell."""
        return words.quantity(self.values.get(name) or "")[0]

    def fault(self, named: t.Sequence[str], vital: t.Sequence[str] = ()) -> str:
        """Return why the GPU of this row cannot be used; empty when it can.

        What it is ``named`` by needs a value, and ``vital`` is what every GPU can tell that answers: it may lack
        there, but not be an error.
        """
        name = next((name for name in named if self.values.get(name) is None), None)
        name = name or next((name for name in vital if name in self.errors), None)
        return f"{name} is {self.errors.get(name) or 'not shown'}" if name else ""


@dataclass(frozen=True)
class CsvRun:
    """One table. ``rejected`` are lines that do not fit its header: then a number could belong to another field."""

    fields: list[str]
    units: dict[str, str]
    rows: list[CsvRow] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    messages: list[nvidia_smi_values.Message] = field(default_factory=list)
    cut: bool = False

    @property
    def cause(self) -> Cause | None:
        return self.messages[0] if self.messages else None

    @property
    def complete(self) -> bool:
        return bool(self.rows) and not self.rejected and not self.cut

    @property
    def ok(self) -> bool:
        return self.complete and not self.messages


def parse_csv(source: words.Source, fields: t.Sequence[str] = ()) -> Log[CsvRun]:
    """Read tables; ``fields`` are the names that were asked for and needed where there is no header."""
    runs = [CsvRun(list(fields), {})] if fields else []
    early: list[nvidia_smi_values.Message] = []
    tail = words.Tail()
    for line in words.lines(source, tail):
        complaint = nvidia_smi_values.complaint(line)
        cells = [cell.strip() for cell in line.split(",")]
        if complaint:
            (runs[-1].messages if runs else early).append(complaint)
            # A complaint can stand in a cell, too: then the row is a row.
            if not (runs and len(cells) == len(runs[-1].fields) > 1):
                continue
        table = _table(cells, runs, early)
        if table:
            runs = [*(run for run in runs if run.rows), table]
            early = []
        elif line and runs:
            _row(runs[-1], line, cells)
    if tail.cut and runs:
        # The last number may have lost digits: it is kept, and not to be trusted.
        runs[-1] = replace(runs[-1], cut=True)
    return log_of([run for run in runs if run.rows or run.messages or not fields], early)


def _table(cells: t.Sequence[str], runs: t.Sequence[CsvRun], early: list[nvidia_smi_values.Message]) -> CsvRun | None:
    """Return a table if the cells are a header: the first one, or the fields that were asked for, or the same again."""
    heads = [match.groups() for match in map(_HEAD.fullmatch, cells) if match]
    names = [name for name, dummy in heads]
    if len(names) != len(cells):
        return None
    if runs:
        fields = runs[-1].fields
        if [_canonical(name) for name in names] != [_canonical(name) for name in fields]:
            return None
    elif all(name in _SMALL or "." in name or "_" in name for name in names):
        fields = names
    else:
        return None
    messages = runs[-1].messages if runs and not runs[-1].rows else early
    units = {name: unit for name, (dummy, unit) in zip(fields, heads) if unit}
    return CsvRun(fields, units, messages=messages)


def _canonical(name: str) -> str:
    """Return a name as headers have it; R535 renamed the throttle reasons and knows both names."""
    name = _ALIASES.get(name, name)
    return name.replace("clocks_throttle_reasons.", "clocks_event_reasons.")


def _damaged_header(run: CsvRun, cells: t.Sequence[str]) -> bool:
    """Say whether cells are the names of their own fields, so that the rest of the line is a name that was damaged."""
    heads = [_HEAD.fullmatch(cell) for cell in cells]
    same = [head and _canonical(head.group(1)) == _canonical(name) for head, name in zip(heads, run.fields)]
    return sum(map(bool, same)) >= min(2, len(cells))


def _row(run: CsvRun, line: str, cells: t.Sequence[str]) -> None:
    if len(cells) == len(run.fields) and not _damaged_header(run, cells):
        errors = {name: nvidia_smi_values.failed(cell) for name, cell in zip(run.fields, cells)}
        values = {name: nvidia_smi_values.value(cell) for name, cell in zip(run.fields, cells)}
        run.rows.append(CsvRow(values, {name: error for name, error in errors.items() if error}))
    elif len(run.rejected) < _MOST:
        run.rejected.append(line)
