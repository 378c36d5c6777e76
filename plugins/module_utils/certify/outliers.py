# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which values of a fleet lie too far under the rest. Pure, private.

A limit that does not grow with the fleet accuses in proportion to it (z < -2: 23 healthy of 1,000). So a value has to
lie further below the median than chance takes one of N in 20 fleets, and by a material share of it as well. The spread
of a few values is itself uncertain: with 5 of them that takes more than twice as far as if it were known.
"""

from __future__ import annotations

import statistics
import typing as t

LEAST = 5  # values; of fewer the spread says nothing
_CHANCE = 0.05
_FEW = 6.0  # so many values double the distance; fits normal noise from 5 values to 128 (4,000 draws of each)
_MAD = 1.4826  # standard deviations of a normal distribution in one median absolute deviation


class Limit(t.NamedTuple):
    """The middle of a fleet and the value under which one lies outside."""

    median: float
    low: float


def limit(values: t.Sequence[float], material: float, tries: int = 0) -> Limit | None:
    """Return the limit of these values, or nothing when they are too few to be compared.

    ``tries`` is how many values will be held against it, if that is more than there are now.
    """
    if len(values) < LEAST:
        return None
    median = statistics.median(values)
    spread = _MAD * statistics.median(abs(value - median) for value in values)
    far = statistics.NormalDist().inv_cdf(1 - _CHANCE / max(tries, len(values))) * (1 + _FEW / len(values)) * spread
    return Limit(median, median - max(far, material * abs(median)))


def below(values: t.Mapping[str, float], material: float) -> dict[str, Limit]:
    """Return the names whose value lies outside, with the limit."""
    found = limit(list(values.values()), material)
    return {name: found for name, value in values.items() if found and value < found.low}
