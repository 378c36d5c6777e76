# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands around the table of nccl-tests: parameters, devices, footer."""

from __future__ import annotations

import math
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nccl_tests_model import Device, Row
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import number

# Version, program, parameters: the first lines of a run, as many of them as its version has.
MARKS = (
    re.compile(r"nccl-tests version (\S+)(?:.* nccl-library=(\d+))?"),
    re.compile(r"Collective test starting: *(\S+)"),
    re.compile(r"nThread +(\d+) +nGpus +(\d+) +minBytes "),
)
CONCLUDED = "Collective test concluded:"
COMPILED = re.compile(r"NCCL Tests compiled with NCCL (\d+\.\d+)")
OUT_OF_BOUNDS = re.compile(r"Out of bounds values *: *(\d+) *(OK|FAILED)?")
AVERAGE = re.compile(r"Avg bus bandwidth *: *(\S+) *(OK|FAILED)?")
LIBRARY = re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)")
NOTES = re.compile(r"error: \S|Reducing maxBytes|Blocking |Parallel Init|Per-Iteration|GPU memory")
NOTES_BEFORE = re.compile(r"Writing JSON output|skipping json output")
# These words stand at the begin of a line without # in 1.0.
BARE = ("nThread ", "Out of bounds values", "Avg bus bandwidth")

_DEVICE = re.compile(
    r"Rank +(\d+) +(?:Group +(\d+) +)?(?:Pid +(\d+) +)?on +(\S+) +device +(\d+) +\[([^\]]*)\] *(.*)", re.ASCII
)
_RANK = re.compile(r"Rank +(\d{1,9}) ", re.ASCII)
# What busbw / algbw is for n ranks; others have 1 whatever n is.
_PARTED = ("all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter")
# One rank has busbw 0, two have half of algbw at least.
_ALONE = 0.4


def device(text: str) -> Device | None:
    """Return the rank that a line describes in full."""
    match = _DEVICE.match(text)
    if not match or max(len(match.group(index) or "") for index in (1, 2, 3, 5)) > 9:
        return None
    rank, group, pid, host, index, bus_id, name = match.groups()
    return Device(int(rank), _integer(group), _integer(pid), host, int(index), bus_id, name.strip())


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)


def rank(text: str) -> int | None:
    """Return the number of a rank whose line may be cut off behind it."""
    match = _RANK.match(text)
    return int(match.group(1)) if match else None


def collective(program: str | None) -> str | None:
    """Return all_reduce for .../all_reduce_perf or all_reduce_perf_mpi."""
    name = (program or "").replace("\\", "/").rpartition("/")[2].partition("_perf")
    return name[0] if name[0] and name[1] else None


def product(threads: str, gpus: str) -> int | None:
    """Return the ranks of one process."""
    numbers = [number(threads), number(gpus)]
    found = [value for value in numbers if isinstance(value, int) and 0 < value < 1 << 16]
    return found[0] * found[1] if len(found) == 2 else None


def library(text: str | None) -> str | None:
    """Return 2.21.5 for 22105; before 2.9 a number was 2804 for 2.8.4."""
    code = number(text or "")
    if not isinstance(code, int) or not 1000 <= code < 10**7:
        return None
    scale = 10000 if code >= 10000 else 1000
    return f"{code // scale}.{code % scale // 100}.{code % 100}"


def ranks_of_devices(highest: int | None, per_process: int | None) -> int | None:
    """Return the ranks of a list that may have lost lines: each process has 2048 bytes for those of its GPUs."""
    if highest is None:
        return None
    count = highest + 1
    return -(-count // per_process) * per_process if per_process else count


def ranks_of_rows(rows: t.Sequence[Row], name: str | None) -> int | None:
    """Read the ranks back from busbw / algbw, which both are rounded; None if several numbers would fit."""
    low, high = 0.0, float("inf")
    for timing in [timing for row in rows for timing in row.timings]:
        if timing.algbw and timing.busbw is not None and timing.algbw >= 1:
            a, b = _half_digit(timing.algbw), _half_digit(timing.busbw)
            low = max(low, (timing.busbw - b) / (timing.algbw + a))
            high = min(high, (timing.busbw + b) / (timing.algbw - a))
    if low <= high < _ALONE:
        return 1
    # Only all_reduce sends more than it has, and only for two ranks just as much, as a broadcast does.
    twice = name == "all_reduce" or (name is None and low > 1)
    if not twice and (high >= 1 if name is None else name not in _PARTED):
        return None
    return _only_fit(low / 2, high / 2) if twice else _only_fit(low, high)


def _half_digit(value: float) -> float:
    """Six characters hold two decimals below 1000, one below 10000 and none above."""
    return 0.005 if value < 1000 else 0.05 if value < 10000 else 0.5


def _only_fit(low: float, high: float) -> int | None:
    """Return the n of which (n - 1) / n lies between the limits, if there is one only."""
    if not 0 <= low <= high < 1:
        return None
    first = math.ceil(1 / (1 - low) - 1e-9)
    return first if first == math.floor(1 / (1 - high) + 1e-9) else None
