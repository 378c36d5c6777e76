# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry of the agent's checks, and which of them a suite runs. Private, stdlib only."""

from __future__ import annotations

import importlib
import math
import os
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import (
    SUITES,
    AgentCheck,
    AgentConfig,
    ConfigError,
    Context,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.read import BrokenError

HOME = "ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent"
_GPU = (
    "gpu_count gpu_model gpu_ecc gpu_remap gpu_pcie gpu_nvlink gpu_throttle gpu_temperature gpu_topology gpu_pinning"
).split()

_FULL = ("full",)
_ALWAYS = ("boot", "periodic", "full")
_ROOT = ("boot", "epilog", "periodic")
_JOB_ENDS = ("boot", "epilog", "periodic", "full")
# The checks that healthagent makes, in place of our own.
HEALTHAGENT = (
    "dcgm_health",
    "gpu",
    "gpu_xid",
    "gpu_memory_errors",
    "gpu_persistence",
    "gpu_clock_limits",
    "gpu_nvlink_errors",
    "infiniband_ports",
    "infiniband_flaps",
)

# Where each check is (file:function of this folder), what it costs in seconds on a healthy node, after how many seconds
# it hangs, the suites that run it by themselves, and the records that it owes where that is not one of its own name.
CHECKS: dict[str, AgentCheck] = {
    # Checks of a node's own state: local files, milliseconds, no call of Slurm.
    "profile": AgentCheck("checks_node:profile", 0.001, 1, _ALWAYS),
    "filesystems": AgentCheck("checks_storage:filesystems", 0.002, 3, SUITES),
    "nvme_disks": AgentCheck("checks_storage:nvme_disks", 0.003, 2, SUITES),
    "scratch_array": AgentCheck("checks_storage:scratch_array", 0.003, 2, SUITES),
    "cpus_online": AgentCheck("checks_node:cpus_online", 0.001, 2, _ALWAYS),
    "memory_errors": AgentCheck("checks_node:memory_errors", 0.002, 2, _JOB_ENDS),
    "image": AgentCheck("checks_node:image", 0.001, 1, _ALWAYS),
    "swap": AgentCheck("checks_node:swap", 0.001, 2, _ALWAYS),
    "gpu_xid": AgentCheck("checks_xid:xid", 0.03, 2, ("boot", "prolog", "epilog", "periodic"), needs_root=True),
    "infiniband_flaps": AgentCheck("checks_fabric:flaps", 0.02, 3, _JOB_ENDS),
    "infiniband_errors": AgentCheck("checks_fabric:errors", 0.02, 3, _JOB_ENDS),
    "leftover_processes": AgentCheck("checks_node:leftover", 0.05, 3, ("epilog", "periodic"), needs_root=True),
    "scratch_probe": AgentCheck("checks_storage:scratch_probe", 0.05, 6, _JOB_ENDS),
    "munge": AgentCheck("checks_shared:munge", 0.06, 6, ("periodic",), needs_root=True),
    "clock_skew": AgentCheck("checks_shared:clock_skew", 0.06, 6, ("periodic",), needs_root=True),
    "shared_directory": AgentCheck("checks_shared:shared_directory", 0.07, 6, ("boot", "periodic"), needs_root=True),
    "gpu_memory_errors": AgentCheck("checks_gpu_state:memory_errors", 2.1, 12, _JOB_ENDS),
    "gpu_persistence": AgentCheck("checks_gpu_state:persistence", 2.1, 12, _ALWAYS),
    "gpu_clock_limits": AgentCheck("checks_gpu_state:clock_limits", 2.1, 12, _ALWAYS),
    # nvidia-smi runs once for all of these.
    "gpu_clock_lock": AgentCheck("checks_gpu_state:lock", 1.5, 12, _ALWAYS, needs_root=True),
    "gpu_idle": AgentCheck("checks_gpu_state:idle", 2.2, 12, _ROOT),
    "gpu_nvlink_errors": AgentCheck("checks_gpu_state:errors", 2.5, 8, _ALWAYS),
    # Checks that are modules too.
    "latches": AgentCheck("state:latches", 0.001, 1, SUITES),
    "gpu_devices": AgentCheck("checks_gpu:devices", 0.01, 1, ("prolog", "epilog")),
    "infiniband_ports": AgentCheck("checks_fabric:ports", 0.05, 5, SUITES),
    "cpu_count": AgentCheck("checks_node:cpu_count", 0.01, 5, ("boot", "periodic", "full")),
    "memory": AgentCheck("checks_node:memory", 0.01, 5, ("boot", "periodic", "full")),
    "disk_space": AgentCheck("checks_node:disk_space", 0.05, 8, ("boot", "periodic", "full")),
    "munge_daemon": AgentCheck("checks_node:munge", 0.05, 8, ("boot", "full"), ("munge",)),
    "nvme_scratch": AgentCheck("checks_measure:scratch", 0.5, 20, ("boot", "full"), needs_root=True),
    "gpu": AgentCheck("checks_gpu:inventory", 2, 24, ("boot", "epilog", "periodic", "full"), _GPU),
    "gpu_bandwidth": AgentCheck("checks_measure:gpu_bandwidth", 20, 150, _FULL),
    "gpu_p2p": AgentCheck("checks_measure:p2p", 25, 120, _FULL),
    "nccl_tests": AgentCheck("checks_measure:nccl", 30, 300, _FULL),
    "nccl_loopback": AgentCheck("checks_measure:nccl_loopback", 60, 300, _FULL),
    "infiniband_bandwidth": AgentCheck("checks_measure:infiniband_bandwidth", 61, 300, _FULL),
    "storage_bandwidth": AgentCheck("checks_measure:storage_bandwidth", 62, 150, _FULL),
    "hpl": AgentCheck("checks_measure:hpl", 300, 960, _FULL),
    # NVIDIA DCGM, where it is installed: what it has found already, and by choice its diagnostic.
    "dcgm_health": AgentCheck("checks_others:dcgm_health", 0.2, 12, ("boot", "periodic", "full")),
    "dcgm_diag": AgentCheck("checks_others:dcgm_diag", 0.2, 1790, _FULL),
    # Verdicts of other health checkers; only where the configuration lists them.
    "nhc": AgentCheck("checks_others:nhc", 0.001, 1, ()),
    "healthagent": AgentCheck("checks_others:healthagent", 0.2, 8, ()),
}
# Slurm kills a health check after 60 s, and users wait for prolog and epilog.
BUDGETS: dict[str, float] = {"boot": 60, "prolog": 3, "epilog": 20, "periodic": 32, "full": 1800}


class SuitePlan(t.NamedTuple):
    """What a suite runs, in this order, and the seconds that it has."""

    checks: t.Sequence[str]
    budget: float


def plan(config: AgentConfig, suite: str, only: t.Sequence[str] = (), budget: float | None = None) -> SuitePlan:
    """Return the checks of a suite: those that the caller names, or the configuration's, or the agent's own."""
    if suite not in SUITES:
        raise ConfigError(f"suite {suite!r} is none of {', '.join(SUITES)}")
    other = sorted(set(config.suites) - set(SUITES))
    if other:
        raise ConfigError(f"suites {', '.join(other)}: accepted are {', '.join(SUITES)}")
    given = config.suites.get(suite)
    own = sorted((name for name, entry in CHECKS.items() if suite in entry.suites), key=lambda name: CHECKS[name].cost)
    names = list(only or (own if given is None or given.checks is None else given.checks))
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise ConfigError(f"suite {suite}: {', '.join(unknown)} is none of {', '.join(sorted(CHECKS))}")
    seconds = budget or (given.budget if given and given.budget else None) or BUDGETS[suite]
    if not math.isfinite(seconds) or seconds < 1:
        raise ConfigError(f"a budget of {seconds} s; a number of seconds from 1 is needed")
    return SuitePlan(list(dict.fromkeys(names)), seconds)


def perform(name: str, context: Context) -> list[Json]:
    """Run a check; whatever it raises is an error of the infrastructure, and so is saying nothing."""
    module, dummy, function = CHECKS[name].function.partition(":")
    if CHECKS[name].needs_root and os.geteuid() != 0:
        reason = "it needs root: the node's own health check does it"
        return [context.record(owed_name, verdict="skipped", reason=reason) for owed_name in owed(name)]
    try:
        check = getattr(importlib.import_module(f"{HOME}.{module}"), function)
        records = list(check(context))
    except BrokenError as exc:
        return errors(name, context, str(exc))
    except Exception as exc:  # a check of the agent must never take the others with it
        return errors(name, context, f"{type(exc).__name__}: {exc}")
    return records or errors(name, context, "the check returned nothing")


def errors(name: str, context: Context, reason: str) -> list[Json]:
    """Return an error for every record that a check owes."""
    return [context.record(owed_name, verdict="error", reason=reason) for owed_name in owed(name)]


def owed(name: str) -> t.Sequence[str]:
    """Return the names of the records that a check always leaves."""
    return CHECKS[name].names or (name,)
