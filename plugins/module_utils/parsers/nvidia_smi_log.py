# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all outputs of nvidia-smi have in common."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause


class AnyRun(t.Protocol):
    """One output: ``ok`` when it is complete and nothing was complained about."""

    @property
    def cause(self) -> Cause | None: ...

    @property
    def ok(self) -> bool: ...


RunT = t.TypeVar("RunT", bound=AnyRun)


@dataclass(frozen=True)
class Log(t.Generic[RunT]):
    """All outputs in a text; where there is none, ``cause`` says why if nvidia-smi did."""

    runs: list[RunT]
    cause: Cause | None

    @property
    def ok(self) -> bool:
        return bool(self.runs) and self.cause is None and all(run.ok for run in self.runs)


def log_of(runs: list[RunT], early: t.Sequence[Cause] = ()) -> Log[RunT]:
    """Make a log, with the first complaint as its cause; ``early`` ones belong to no output."""
    causes = [run.cause for run in runs if run.cause]
    return Log(runs, next(iter([*early, *causes]), None))
