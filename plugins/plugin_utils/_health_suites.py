# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent's configuration says of its suites, beside another health checker or without one. Pure; private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import registry
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import (
    SUITES,
    AgentConfig,
    ConfigError,
    check,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.registry import CHECKS, plan

PROGRAMS = ("agent", "nhc", "healthagent")
# slurmd kills a health check after 60 s and takes a job's start for lost after 10 (BatchStartTimeout).
MOST = {"prolog": 5.0, "periodic": 50.0}


def suites(settings: t.Mapping[str, t.Any], program: str) -> dict[str, t.Any]:
    """Return the suites as the agent takes them; raises ConfigError for what it, or Slurm, would not."""
    if program not in PROGRAMS:
        raise ConfigError(f"program {program!r} is none of {', '.join(PROGRAMS)}")
    strange = sorted(set(settings) - set(SUITES))
    if strange:
        raise ConfigError(f"suites {', '.join(strange)}: there are {', '.join(SUITES)}")
    config = check({"schema": 1, "node": "n1", "suites": dict(settings)})
    for name in settings:
        budget = plan(config, name).budget
        if budget > MOST.get(name, budget):
            raise ConfigError(f"suite {name} has {budget:g} s, and Slurm waits {MOST[name]:g} s at most")
    merged = {name: dict(suite) for name, suite in settings.items()}
    if program != "agent":
        merged["periodic"] = {**merged.get("periodic", {}), "checks": _beside(config, program)}
    return merged


def _beside(config: AgentConfig, program: str) -> list[str]:
    left = registry.HEALTHAGENT if program == "healthagent" else ()
    own = [name for name in plan(config, "periodic").checks if name in CHECKS and name not in left]
    return [*own, *([] if program in own else [program])]
