# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU lists as Linux writes them ("0-23,48-71") and masks as numactl, srun and taskset read them. Pure, private."""

from __future__ import annotations

import re
import typing as t

# Far above what Linux can be built for; keeps "0-999999999" from filling the memory.
MAX_CPUS = 65536
_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


class TopologyError(ValueError):
    """A CPU list, an address or a topology makes no sense; the text is fit for the user."""


def parse(text: str) -> list[int]:
    """Return the CPUs of a list in ascending order; an empty list is a node without CPUs."""
    cpus: set[int] = set()
    for part in text.strip().split(",") if text.strip() else []:
        match = _PART.fullmatch(part.strip())
        first, last = (int(match.group(1)), int(match.group(2) or match.group(1))) if match else (1, 0)
        if last < first or last >= MAX_CPUS:
            raise TopologyError(f"{text.strip()!r} is no CPU list")
        cpus.update(range(first, last + 1))
    return sorted(cpus)


def write(cpus: t.Iterable[int]) -> str:
    """Return the shortest list of ranges."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def mask(cpus: t.Iterable[int]) -> str:
    """Return the mask in lower-case hexadecimal, any width, without 0x and leading zeros."""
    return f"{sum(1 << cpu for cpu in set(cpus)):x}"


def split(text: str, parts: int) -> list[str]:
    """Cut a CPU list into disjoint lists of nearly the same size.

    The second hardware threads are listed as a range of their own ("0-47,96-143"), so ranges of one length are each
    cut alike: then the two threads of a core stay together.
    """
    cpus = parse(text)
    if len(cpus) < parts:
        raise TopologyError(f"the {len(cpus)} CPUs {text!r} cannot be split among {parts} GPUs")
    ranges = [parse(part) for part in write(cpus).split(",")]
    alike = len({len(part) for part in ranges}) == 1 and len(ranges[0]) >= parts
    pieces = ranges if alike else [cpus]
    return [
        write(
            cpu for piece in pieces for cpu in piece[number * len(piece) // parts : (number + 1) * len(piece) // parts]
        )
        for number in range(parts)
    ]
