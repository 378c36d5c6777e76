# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A check of what earlier runs of this boot latched. Private, stdlib only."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context


def latches(context: Context) -> list[Json]:
    """Return what is latched as it was found; a state that cannot be read may have held anything."""
    found = list(context.latched.values())
    if context.problem:
        reason = f"{context.config.home}/state.json: {context.problem}; faults of this boot may be forgotten"
        return [*found, context.record("latches", verdict="error", reason=reason)]
    return found or [context.record("latches", verdict="pass", reason="nothing is latched")]
