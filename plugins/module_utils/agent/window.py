# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much counters grew within a time, from what earlier runs of this boot kept. Private, stdlib only."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context

Sample = t.Tuple[float, float]
# More than a day of one health check a minute; older ones are thinned out.
_MOST = 400


def grown(context: Context, name: str, values: t.Mapping[str, float | None], seconds: float) -> dict[str, float]:
    """Return by how much each counter grew within the last seconds, and keep what is needed to tell so again.

    The first value of a boot is where growth starts. A counter that fell was reset, and has grown from zero.
    """
    now, before = context.now(), _before(context.kept(name))
    result: dict[str, float] = {}
    kept: dict[str, list[Sample]] = {}
    for key, value in values.items():
        if finite(value) is None or value is None:
            continue
        history = [one for one in before.get(key, []) if one[0] <= now]
        result[key] = sum(_steps([*history, (now, value)], now - seconds))
        # The last one from before the window is where it starts.
        old = [one for one in history if one[0] < now - seconds][-1:]
        young = [one for one in history if one[0] >= now - seconds]
        kept[key] = [*old, *_thin(young), (now, value)]
    context.keep(name, kept)
    return result


def _steps(samples: t.Sequence[Sample], since: float) -> t.Iterator[float]:
    for (dummy, old), (time, new) in zip(samples, samples[1:]):
        if time >= since:
            yield new - old if new >= old else new


def _thin(samples: t.Sequence[Sample]) -> list[Sample]:
    """Drop every other sample of too many; the sum of steps that rise stays the same."""
    return list(samples) if len(samples) < _MOST else list(samples[::2])


def _before(kept: t.Any) -> dict[str, list[Sample]]:
    """Return what was kept, without what is no sample: the file may be damaged."""
    if not isinstance(kept, dict):
        return {}
    found: dict[str, list[Sample]] = {}
    for key, rows in kept.items():
        good = [(row[0], row[1]) for row in rows if _sound(row)] if isinstance(rows, list) else []
        found[str(key)] = sorted(good)
    return found


def _sound(row: t.Any) -> bool:
    return isinstance(row, (list, tuple)) and len(row) == 2 and all(finite(one) is not None for one in row)
