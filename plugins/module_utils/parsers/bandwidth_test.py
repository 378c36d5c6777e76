# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""bandwidthTest of the CUDA samples (up to 12.8): text, --csv, quick, range and shmoo mode, several runs in one log.

`Run.bandwidth` is the number to hold against a limit for one GPU: it is None for a sum over several GPUs. Device to
device numbers count each byte twice, once read and once written. ``Result = PASS`` says nothing about speed.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._bandwidth_test_reader import Reader, Started
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines

_PER_GB = {"GB/s": 1, "MB/s": 1000}


@dataclass(frozen=True)
class Row:
    """One transfer size; ``bandwidth`` is in GB/s, from what was printed in ``unit`` (MB/s before CUDA 10.1, +-3 %)."""

    size: int
    bandwidth: float | None
    printed: float | None
    unit: str


@dataclass(frozen=True)
class Block:
    """One table; ``devices`` GPUs are summed in it. Device to device copies have no kind of host memory."""

    direction: str
    memory: str | None
    write_combined: bool
    devices: int
    rows: list[Row]

    @property
    def largest(self) -> Row | None:
        """Return the row of the largest size: the one to judge."""
        return max(self.rows, key=lambda row: row.size, default=None)

    @property
    def maximum(self) -> float | None:
        """Return the highest bandwidth of all sizes; small device to device copies may come from a cache."""
        return max((row.bandwidth for row in self.rows if row.bandwidth is not None), default=None)


@dataclass(frozen=True)
class Run:
    """One start of the program. ``fallback`` is a GPU number that does not exist: GPU 0 was measured in its stead."""

    device: int | None
    device_name: str | None
    devices: int
    mode: str | None
    fallback: int | None
    blocks: list[Block]
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


def parse(source: Source) -> Log[Run]:
    """Read one or several runs."""
    reader = Reader()
    for line in lines(source):
        reader.see(line)
    reader.see("")
    runs = [_run(run) for run in reader.runs]
    cause = reader.causes.cause
    return Log(runs, cause)


def _run(found: Started) -> Run:
    blocks = [_block(block) for block in found.blocks if block["rows"]]
    cause, complete = found.causes.cause, found.result is not None
    device, name = found.named[0] if len(found.named) == 1 else (None, None)
    devices = max([len(found.named), 1, *(block.devices for block in blocks)])
    ok = complete and cause is None and any(block.maximum is not None for block in blocks)
    return Run(device, name, devices, found.mode, found.fallback, blocks, found.result, complete, ok, cause)


def _block(found: dict[str, t.Any]) -> Block:
    # The text form names a kind of host memory for copies inside the GPU as well.
    host = None if found["direction"] == "d2d" else found["memory"]
    return Block(**{**found, "memory": host, "rows": [_row(*row) for row in found["rows"]]})


def _row(size: int, printed: float | None, unit: str) -> Row:
    return Row(size, None if printed is None else printed / _PER_GB[unit], printed, unit)
