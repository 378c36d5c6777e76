# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long silence has to last before it means something, learnt from those who were not silent. Pure, private.

Times until a job begins are spread like waiting times: of n of them the slowest is about H(n) = 1 + 1/2 + ... + 1/n
times their mean. So the slowest of the others tells the mean, and the mean how long a sound node may take: the fewer
others there are, the more times the slowest of them.
"""

from __future__ import annotations

import math
import typing as t

_CHANCE = 1e-4  # that a sound node takes longer
_LEAST = 1.5  # times the slowest of the others, however many they are
MORE = 3.0  # times as long for who is asked again


def enough(least: float, others: t.Sequence[float]) -> float:
    """Return after how many seconds a node is silent that others, given the same, took so long to answer."""
    if not others:
        return least
    slowest = sum(1.0 / n for n in range(1, len(others) + 1))
    return max(least, max(others) * max(_LEAST, math.log(1.0 / _CHANCE) / slowest))
