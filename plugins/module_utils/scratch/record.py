# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check record of the NVMe scratch, for Ansible and for the boot alike. No I/O; private."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, judge, metric, overall, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Plan

CHECK = "nvme_scratch"
_WORST_FIRST = ("error", "fail", "warn")


class Told(t.NamedTuple):
    """For whom a record is made: by whom it is asked for and how."""

    node: str
    expect: t.Sequence[Json] = ()
    profile: str | None = None
    run: str | None = None
    door: str = "module"


def measured(plan: Plan) -> list[Json]:
    """Return what there is to count."""
    return [
        metric("disks", len(plan.disks), "disks"),
        metric("members", plan.members, "disks"),
        metric("size", plan.size, "bytes"),
    ]


def conclude(plan: Plan, problem: tuple[str, str] | None, told: Told, begin: float) -> Json:
    """Return the record of a plan; ``problem`` is the class and the text of a step that failed.

    The planner's verdict stands, unless a step failed or the profile expects more than there is.
    """
    metrics = judge(CHECK, measured(plan), told.expect)
    verdict, blame, reason = plan.verdict, plan.blame, plan.reason
    if problem:
        blame, reason = problem
        verdict = "error" if blame == "infra" else "fail"
    expected = overall(metrics)
    if verdict != "skipped" and _rank(expected) < _rank(verdict):
        verdict, blame, reason = expected, "hardware", ""
    return record(
        CHECK,
        told.node,
        time=begin,
        seconds=time.time() - begin,
        verdict=verdict,
        metrics=metrics,
        blame=blame or "hardware",
        reason=reason,
        run=told.run,
        scope={"array": plan.array, "disks": list(plan.disks)} if plan.disks else {},
        evidence="\n".join(str(finding) for finding in plan.findings),
        context={"tool": "mdadm", "profile": told.profile, "door": told.door, "path": plan.path, "source": plan.source},
    )


def _rank(verdict: str) -> int:
    return _WORST_FIRST.index(verdict) if verdict in _WORST_FIRST else len(_WORST_FIRST)
