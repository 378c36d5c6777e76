# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry of the agent's checks, and which of them a suite runs. Private, stdlib only."""

from __future__ import annotations

import importlib
import math
import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import table_measured, table_others, table_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import SUITES, Check, Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.config import Config, ConfigError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.access import BrokenError

HOME = "ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent"
CHECKS: dict[str, Check] = {**table_state.CHECKS, **table_measured.CHECKS, **table_others.CHECKS}
# Slurm kills a health check after 60 s, and users wait for prolog and epilog.
BUDGETS: dict[str, float] = {"boot": 60, "prolog": 3, "epilog": 20, "periodic": 30, "full": 1800}


class Plan(t.NamedTuple):
    """What a suite runs, in this order, and the seconds that it has."""

    checks: t.Sequence[str]
    budget: float


def plan(config: Config, suite: str, only: t.Sequence[str] = (), budget: float | None = None) -> Plan:
    """Return what a suite runs: what the caller names, the configuration, or the agent's own list."""
    if suite not in SUITES:
        raise ConfigError(f"suite {suite!r} is none of {', '.join(SUITES)}")
    other = sorted(set(config.suites) - set(SUITES))
    if other:
        raise ConfigError(f"suites {', '.join(other)}: accepted are {', '.join(SUITES)}")
    given = config.suites.get(suite)
    own = sorted((name for name, one in CHECKS.items() if suite in one.suites), key=lambda name: CHECKS[name].cost)
    names = list(only or (own if given is None or given.checks is None else given.checks))
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise ConfigError(f"suite {suite}: {', '.join(unknown)} is none of {', '.join(sorted(CHECKS))}")
    seconds = budget or (given.budget if given and given.budget else None) or BUDGETS[suite]
    if not math.isfinite(seconds) or seconds < 1:
        raise ConfigError(f"a budget of {seconds} s; a number of seconds from 1 is needed")
    return Plan(list(dict.fromkeys(names)), seconds)


def perform(name: str, context: Context) -> list[Json]:
    """Run a check; whatever it raises is an error of the infrastructure, and so is saying nothing."""
    module, dummy, function = CHECKS[name].place.partition(":")
    if CHECKS[name].needs_root and os.geteuid() != 0:
        reason = "it needs root: the node's own health check does it"
        return [context.record(one, verdict="skipped", reason=reason) for one in owed(name)]
    try:
        check = getattr(importlib.import_module(f"{HOME}.{module}"), function)
        found = list(check(context))
    except BrokenError as exc:
        return errors(name, context, str(exc))
    except Exception as exc:  # a check of the agent must never take the others with it
        return errors(name, context, f"{type(exc).__name__}: {exc}")
    return found or errors(name, context, "the check returned nothing")


def errors(name: str, context: Context, reason: str) -> list[Json]:
    """Return an error for every record that a check owes."""
    return [context.record(one, verdict="error", reason=reason) for one in owed(name)]


def owed(name: str) -> t.Sequence[str]:
    """Return the names of the records that a check always leaves."""
    return CHECKS[name].names or (name,)
