# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the commands of a build, and say why one failed. Private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run

_SHOWN = 15
_TROUBLE = re.compile(r"\berror\b|\bfatal\b|CMake Error|No such file|undefined reference|\*\*\*", re.IGNORECASE)


class BuildError(ValueError):
    """A command of a build failed; the text is fit for the user."""


class Step(t.NamedTuple):
    argv: t.Sequence[str]
    environment: t.Mapping[str, str] = {}


def run_steps(steps: t.Iterable[Step], environment: t.Mapping[str, str], timeout: float) -> float:
    """Run the commands one after the other, each within ``timeout`` seconds; return the seconds they took."""
    seconds = 0.0
    for step in steps:
        outcome = run(step.argv, timeout, environment={**environment, **step.environment})
        seconds += outcome.seconds
        if outcome.rc != 0:
            raise BuildError(f"{' '.join(step.argv)} failed: {trouble(outcome)}")
    return seconds


def trouble(outcome: Outcome) -> str:
    """Pick the lines that say why; compilers say it first, make says last that something went wrong."""
    lines = [line for line in f"{outcome.out}\n{outcome.err}".splitlines() if line.strip()]
    telling = [line for line in lines if _TROUBLE.search(line)] or lines
    status = "it did not end in time" if outcome.rc is None else f"exit status {outcome.rc}"
    return "\n".join([status, *telling[:_SHOWN]])
