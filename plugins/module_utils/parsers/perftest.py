# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""perftest (ib_write_bw, ib_read_bw, ib_send_bw ..): tables, --output=bandwidth, --out_json; server and client mixed.

``MB/sec`` and ``MiB/sec`` both mean 2^20 bytes, ``Gb/sec`` is decimal. A server prints what the client measured, so
the two sides of one run are one `Run`. Only InfiniBand proves InfiniBand: look at `Run.link_layer`.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._perftest_block import Block
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._perftest_reader import Reader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines

GBPS = {"MB/sec": 0.008388608, "MiB/sec": 0.008388608, "Gb/sec": 1.0}
# The same words as those of sysfs and ibstat.
_LINKS = {"IB": "InfiniBand"}


@dataclass(frozen=True)
class Row:
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
class Run:
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
    rows: list[Row]
    limit_missed: bool
    notes: list[str]
    complete: bool
    ok: bool
    cause: Cause | None

    def bandwidth(self, size: int | None = None) -> float | None:
        """Return the average in Gb/s at a size, by default the largest; of both directions if it is bidirectional."""
        rows = [row for row in self.rows if size in (None, row.size)]
        return max(rows, key=lambda row: row.size or 0).average_gbps if rows else None


def parse(source: Source, unit: str | None = None) -> Log[Run]:
    """Read a log or a file of --out_json; never raises.

    ``--output=bandwidth`` and JSON do not say their unit: give it ("Gb/sec" with --report_gbits, else "MiB/sec"), or
    their numbers are not converted and the run is not ok.
    """
    reader = Reader()
    for line in lines(source):
        reader.see(line)
    blocks = reader.finish()
    runs = [_run(block, unit) for block in blocks]
    cause = reader.outside or next((run.cause for run in runs if run.cause), None)
    return Log(runs, cause)


def _run(block: Block, unit: str | None) -> Run:
    shown = block.units[0] if block.units else unit if block.unitless else None
    factor = GBPS.get(shown or "")
    rows = [_row(cells, factor) for cells in block.rows.values()]
    cause = block.cause
    if cause is None and len(block.units) > 1:
        cause = Cause(
            f"server and client print {' and '.join(block.units)}: no telling which number is which", "config"
        )
    if cause is None and rows and all(row.iterations == 0 for row in rows):
        cause = Cause("0 iterations: no message got through", "fabric")  # the exit status is 0 all the same
    numeric = any(row.average_gbps is not None for row in rows)
    return Run(
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
        complete=block.complete,
        ok=block.complete and cause is None and numeric,
        cause=cause,
    )


def _row(cells: t.Mapping[str, float | None], factor: float | None) -> Row:
    def gbps(name: str) -> float | None:
        value = cells.get(name)
        return None if value is None or factor is None else value * factor

    # Without an iteration there was no measurement, and a peak is not taken in -D runs: both are printed as zero.
    moved = cells.get("iterations") != 0
    peaked = moved and bool(cells.get("peak"))
    return Row(
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
