# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast a collective is on the emulated machines: the slowest part of any of them decides."""

from __future__ import annotations

import functools
import typing as t

from emulation.job import Job
from emulation.machine import Gpu, Machine

# Bytes of an element.
TYPES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4, "double": 8,
    "bfloat16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1,
}  # fmt: skip
# Those whose buffers hold one part per rank.
SHARED = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "hypercube")
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
# In place they overwrite what would have to be compared.
NEVER_IN_PLACE = ("alltoall", "sendrecv")
LATENCY_US = {"node": 12.0, "network": 32.0}
SOCKET = 3.2  # GB/s between two nodes over IP


class Timing(t.NamedTuple):
    """One measurement; ``wrong`` is nothing where results were not compared."""

    time_us: float
    algbw: float
    busbw: float
    wrong: int | None


class Row(t.NamedTuple):
    """One line of the table."""

    size: int
    count: int
    type: str
    redop: str
    root: int
    out_of_place: Timing
    in_place: Timing


class Rank(t.NamedTuple):
    """One GPU that takes part."""

    rank: int
    host: str
    device: int
    gpu: Gpu


class Model:
    """A collective of all ranks of a job."""

    def __init__(self, machine: Machine, job: Job, each: int, collective: str) -> None:
        self.machine = machine
        self.job = job
        self.collective = collective
        self.ranks = _ranks(machine, job, each)

    @property
    def factor(self) -> float:
        """Bus bandwidth over algorithm bandwidth."""
        n = len(self.ranks)
        if self.collective == "all_reduce":
            return 2 * (n - 1) / n
        return (n - 1) / n if self.collective in SHARED else 1.0 if n > 1 else 0.0

    @property
    def network(self) -> str:
        return "Socket" if any(host.faults.get("socket_network") for host in self._hosts()) else "IB"

    def _hosts(self) -> list[Machine]:
        return [self.machine.other(host) for host in dict.fromkeys(self.job.hosts)]

    @functools.cached_property
    def plateau(self) -> float:
        """Bus bandwidth at large sizes, GB/s."""
        inside = self.machine["busbw"]["1"][self.collective]
        slowest = min((self._speed(rank) for rank in self.ranks), default=1.0)
        if self.job.nodes == 1:
            return float(inside * slowest)
        if self.network == "Socket" or not self.machine["nics"]:
            return SOCKET
        between = self.machine["busbw"]["2"][self.collective]
        return float(min(between * slowest * min(_ports(host) for host in self._hosts()), inside * slowest))

    def _speed(self, rank: Rank) -> float:
        host = self.machine.other(rank.host)
        links = host["gpu"]["nvlinks"]
        return host.speed(rank.gpu) * (host.active_links(rank.gpu) / links if links else 1.0)

    def timing(self, size: int, in_place: bool, checked: bool) -> Timing:
        """Latency, then the wire; around the middle both at once, so the curve rises softly."""
        jitter = self.machine.jitter(self.collective, size, in_place)
        wrong = self.wrong(size) if checked and not (in_place and self.collective in NEVER_IN_PLACE) else None
        latency = LATENCY_US["network" if self.job.nodes > 1 else "node"]
        if not self.factor:
            algbw = 0.4 * self.machine["speed"]["d2d"]
            return Timing(*_bandwidths(size, latency / 4 + size / algbw / 1e3, 0.0), wrong)
        wire = size * self.factor / self.plateau / 1e3
        spent = (latency + wire + 0.2 * (latency * wire) ** 0.5) * jitter
        return Timing(*_bandwidths(size, spent, self.factor), wrong)

    def wrong(self, size: int) -> int:
        """Elements that are not what they should be, on any of the hosts."""
        bad = [host.faults.get("wrong_results") for host in self._hosts()]
        hit = any(self.collective in ([one] if isinstance(one, str) else one) for one in bad if one)
        return max(1, size // 4096) if hit and size >= 4096 else 0


def _bandwidths(size: int, spent_us: float, factor: float) -> tuple[float, float, float]:
    algbw = size / spent_us / 1e3
    return spent_us, algbw, algbw * factor


def _ports(machine: Machine) -> float:
    """The share of its network that a host has: every rank uses its own adapter, and the slowest decides."""
    ports = [nic for nic in machine["nics"] if nic["link_layer"] == "InfiniBand"]
    up = [nic for nic in ports if not machine.listed("ib_down", nic["name"])]
    slowest = min((float(machine.fault("ib_slow", nic["name"], 1.0)) for nic in up), default=1.0)
    return max(slowest * len(up) / len(ports), 0.01) if ports else 1.0


def _ranks(machine: Machine, job: Job, each: int) -> list[Rank]:
    """The GPU of every rank; a process has as many as it was told, one rank for each."""
    found: list[Rank] = []
    local: dict[str, int] = {}
    for host in job.hosts:
        first = local.get(host, 0)
        local[host] = first + each
        gpus = machine.other(host).cuda_gpus()
        for device in range(first, first + each):
            if device < len(gpus):
                found.append(Rank(len(found), host, device, gpus[device]))
    return found


def rows(model: Model, low: int, high: int, options: t.Mapping[str, str]) -> list[Row]:
    """The table for all sizes that were asked for."""
    factor, step = int(options["f"]), int(options["i"] or 0) or 1 << 20
    found, size = [], low
    while size <= high:
        found.append(_row(model, size, options))
        size = size * factor if factor > 1 else size + step
        if size == 0:
            break
    return found


def _row(model: Model, wanted: int, options: t.Mapping[str, str]) -> Row:
    """Sizes are cut down to what can be divided among the ranks, so several may be the same, or none."""
    kind = options["d"] if options["d"] in TYPES else "float"
    n, element = max(len(model.ranks), 1), TYPES[kind]
    count = wanted // element
    size = count * element
    if model.collective in SHARED:
        count = (count // n) & -(16 // element)
        size = count * n * element
    checked = int(options["c"]) > 0
    return Row(
        size,
        count,
        kind,
        options["o"] if model.collective in REDUCING else "none",
        int(options["r"]) if model.collective in ROOTED else -1,
        model.timing(size, False, checked),
        model.timing(size, True, checked),
    )
