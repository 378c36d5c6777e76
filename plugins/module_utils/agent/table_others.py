# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts of other health checkers, handed on where the configuration says so. Private, stdlib only."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Check

CHECKS: dict[str, Check] = {
    "nhc": Check("checks_others:nhc", 0.001, 1, ()),
    "healthagent": Check("checks_others:healthagent", 0.2, 8, ()),
}
# What healthagent watches by itself, all the time. The boot, prolog and epilog suites keep theirs: it has none of them.
HEALTHAGENT = (
    "gpu",
    "gpu_xid",
    "gpu_memory_errors",
    "gpu_persistence",
    "gpu_clock_limits",
    "gpu_nvlink_errors",
    "infiniband_ports",
    "infiniband_flaps",
)
