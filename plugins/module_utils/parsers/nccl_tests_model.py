# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of nccl-tests is. `nccl_tests` has the functions that read one."""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause


@dataclass(frozen=True)
class Device:
    """One rank; ``bus_id`` as printed: ``0x07`` by old versions, ``0001:00:00`` by new ones."""

    rank: int
    group: int | None
    pid: int | None
    host: str
    device: int
    bus_id: str
    name: str


@dataclass(frozen=True)
class Timing:
    """Bandwidths in decimal GB/s. ``wrong`` counts elements, ``deviation`` (up to 2.11) is the largest difference."""

    time_us: float | None
    algbw: float | None
    busbw: float | None
    wrong: float | None
    deviation: float | None


@dataclass(frozen=True)
class Row:
    """One line of the table; ``size`` is in bytes of the whole operation, ``count`` in elements of one rank."""

    size: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out_of_place: Timing | None
    in_place: Timing | None

    @property
    def timings(self) -> list[Timing]:
        return [timing for timing in (self.out_of_place, self.in_place) if timing]


@dataclass(frozen=True)
class Run:
    """One table and what stands around it; None is what the log does not say."""

    collective: str | None
    program: str | None
    version: str | None
    nccl_version: str | None
    layout: str
    devices: list[Device]
    ranks: int | None
    nodes: int | None
    rows: list[Row]
    out_of_bounds: int | None
    correct: bool | None
    average_busbw: float | None
    validated: bool
    complete: bool
    notes: list[str] = field(default_factory=list)
    cause: Cause | None = None

    @property
    def ok(self) -> bool:
        return self.complete and self.cause is None and self.peak_busbw is not None

    @property
    def peak_busbw(self) -> float | None:
        speeds = [timing.busbw for row in self.rows for timing in row.timings if timing.busbw is not None]
        return max(speeds, default=None)

    @property
    def largest(self) -> Row | None:
        """Return the last of the rows with the largest size."""
        return max(reversed(self.rows), key=lambda row: row.size, default=None)

    def busbw(self, size: int) -> float | None:
        """Return the bandwidth of the last row of that size, out of place where it was measured."""
        for row in reversed(self.rows):
            if row.size == size and row.timings:
                return row.timings[0].busbw
        return None
