# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvbandwidth: the tests and what they measure on the emulated machine."""

from __future__ import annotations

import typing as t

from emulation.binding import distance
from emulation.machine import Gpu, Machine

Rows = t.List[t.List[t.Optional[float]]]


class Matrix(t.NamedTuple):
    """One printed table."""

    key: str
    title: str
    rows: Rows
    latency: bool = False


class Result(t.NamedTuple):
    """What became of one test."""

    key: str
    status: str
    matrices: tuple[Matrix, ...] = ()
    message: str = ""


class Kind(t.NamedTuple):
    """What a test measures: between host and GPUs, between GPUs or inside one; the arrow of its title; its speed."""

    shape: str
    arrow: str
    figure: str
    factor: float = 1.0


def _kinds(suffix: str, share: float) -> dict[str, Kind]:
    """Copies by copy engines (ce) and by kernels (sm) are the same tests at other speeds."""
    return {
        f"host_to_device_memcpy_{suffix}": Kind("host", "->", "h2d", share),
        f"device_to_host_memcpy_{suffix}": Kind("host", "<-", "d2h", share),
        f"host_to_device_bidirectional_memcpy_{suffix}": Kind("host", "<->", "h2d", 0.75 * share),
        f"device_to_host_bidirectional_memcpy_{suffix}": Kind("host", "<->", "d2h", 0.75 * share),
        f"device_to_device_memcpy_read_{suffix}": Kind("peers", "->", "p2p", share),
        f"device_to_device_memcpy_write_{suffix}": Kind("peers", "<-", "p2p", share),
        f"device_to_device_bidirectional_memcpy_read_{suffix}": Kind("both", "Read", "p2p", share),
        f"device_to_device_bidirectional_memcpy_write_{suffix}": Kind("both", "Write", "p2p", share),
        f"all_to_host_memcpy_{suffix}": Kind("host", "<-", "d2h", 0.95 * share),
        f"host_to_all_memcpy_{suffix}": Kind("host", "->", "h2d", 0.95 * share),
        f"all_to_one_write_{suffix}": Kind("total", "<-", "p2p", share),
        f"one_to_all_read_{suffix}": Kind("total", "<-", "p2p", share),
    }


KINDS: dict[str, Kind] = {
    **_kinds("ce", 1.0),
    **_kinds("sm", 0.97),
    "host_device_latency_sm": Kind("latency", "<->", "latency"),
    "device_to_device_latency_sm": Kind("peer latency", "<->", "latency"),
    "device_local_copy": Kind("local", "", "d2d"),
}


def key(word: str) -> str:
    """A test by name or by its number in the list; what does not exist stays what it is."""
    return list(KINDS)[int(word)] if word.isdigit() and int(word) < len(KINDS) else word


def measure(machine: Machine, name: str, unbound: bool) -> Result:
    """Measure one test; it binds itself to the CPUs near each GPU unless told not to."""
    if name not in KINDS:
        text = f"Testcase index {name} out of bound!" if name.isdigit() else f"Testcase {name} not found!"
        return Result(name, "ERROR", message=text)
    kind, gpus = KINDS[name], machine.cuda_gpus()
    if kind.shape in ("peers", "both", "total", "peer latency") and len(gpus) < 2:
        return Result(name, "Waived")
    how = "SM" if name.endswith("_sm") else "CE"
    if kind.shape == "both":
        return Result(name, "Passed", _both(machine, name, kind, how, gpus))
    rows, title = (
        _rows(machine, name, kind, gpus, unbound),
        f"memcpy {how} {_ends(kind.shape, kind.arrow)} bandwidth (GB/s)",
    )
    if kind.shape == "local":
        title = "memcpy local GPU(column) bandwidth (GB/s)"
    if kind.shape == "latency":
        title = "memory latency SM CPU(row) <-> GPU(column) (ns)"
    if kind.shape == "peer latency":
        title = "Device to Device Latency SM GPU(row) <-> GPU(column) (ns)"
    return Result(name, "Passed", (Matrix(name, title, rows, kind.figure == "latency"),))


def _ends(shape: str, arrow: str) -> str:
    return f"{'CPU' if shape == 'host' else 'GPU'}(row) {arrow} GPU(column)"


def _rows(machine: Machine, name: str, kind: Kind, gpus: list[Gpu], unbound: bool) -> Rows:
    speed = machine["speed"]
    if kind.shape == "latency":
        return [[speed["latency_ns"] * machine.jitter(name, gpu.index) / machine.speed(gpu) for gpu in gpus]]
    if kind.shape == "peer latency":
        return _pairs(machine, name, gpus, lambda one, other: 1.3 * speed["latency_ns"])
    if kind.shape == "peers":
        return _pairs(machine, name, gpus, lambda one, other: kind.factor * peers(machine, one, other))
    if kind.shape == "total":
        rest = len(gpus) - 1
        return [[kind.factor * rest * speed["p2p"] * machine.speed(g) * machine.jitter(name, g.index) for g in gpus]]
    return [[kind.factor * copy(machine, kind.figure, gpu, name, unbound) for gpu in gpus]]


def copy(machine: Machine, figure: str, gpu: Gpu, what: str, unbound: bool) -> float:
    """A copy between host and GPU, or inside the GPU."""
    speed = machine["speed"][figure] * machine.speed(gpu) * machine.jitter(what, gpu.index)
    if figure == "d2d":
        return float(speed)
    lanes = machine.width(gpu) / machine["gpu"]["pcie_width"]
    return float(speed * lanes * (distance(machine, gpu) if unbound else 1.0))


def peers(machine: Machine, one: Gpu, other: Gpu) -> float:
    """A copy between two GPUs: the slower of the two decides, and the links that both have."""
    links = min(machine.active_links(one), machine.active_links(other)) / max(machine["gpu"]["nvlinks"], 1)
    share = links if machine["gpu"]["nvlinks"] else 1.0
    return float(machine["speed"]["p2p"] * share * min(machine.speed(one), machine.speed(other)))


def _pairs(machine: Machine, name: str, gpus: list[Gpu], speed: t.Callable[[Gpu, Gpu], float]) -> Rows:
    return [
        [None if one == other else speed(one, other) * machine.jitter(name, one.index, other.index) for other in gpus]
        for one in gpus
    ]


def _both(machine: Machine, name: str, kind: Kind, how: str, gpus: list[Gpu]) -> tuple[Matrix, ...]:
    found = []
    for part, share in ((f"{kind.arrow}1", 1.0), (f"{kind.arrow}2", 1.0), ("Total", 2.0)):
        table = f"{name}_{part.lower()}"
        rows = _pairs(machine, table, gpus, lambda one, other: share * kind.factor * peers(machine, one, other))  # noqa: B023
        found.append(Matrix(table, f"memcpy {how} GPU(row) <-> GPU(column) {part} bandwidth (GB/s)", rows))
    return tuple(found)
