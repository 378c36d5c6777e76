# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What parsers return: the runs of a program that a text tells of."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause


class AnyRun(t.Protocol):
    """One run: ``ok`` when it is complete, says what it is run for, and nothing was complained about."""

    @property
    def cause(self) -> Cause | None: ...

    @property
    def ok(self) -> bool: ...


RunT = t.TypeVar("RunT", bound=AnyRun)


@dataclass(frozen=True)
class Log(t.Generic[RunT]):
    """All runs of a text in their order; ``cause`` also tells of failures outside of them, and where there is none.

    ``ok``: there is at least one, and neither one of them nor what stands around them leaves a doubt.
    """

    runs: list[RunT]
    cause: Cause | None
    ok: bool = field(init=False)

    def __post_init__(self) -> None:
        ok = bool(self.runs) and self.cause is None and all(run.ok for run in self.runs)
        object.__setattr__(self, "ok", ok)


def log_of(runs: list[RunT], early: t.Sequence[Cause] = ()) -> Log[RunT]:
    """Make a log, with the first complaint as its cause; ``early`` ones belong to no run."""
    causes = [run.cause for run in runs if run.cause]
    return Log(runs, next(iter([*early, *causes]), None))
