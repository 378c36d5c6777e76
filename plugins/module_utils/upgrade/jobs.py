# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs before and after slurmctld was exchanged: none may be lost. No I/O; private to this collection."""

from __future__ import annotations

import collections
import typing as t

Job = t.Mapping[str, t.Any]
_HARMED = ("NODE_FAIL", "BOOT_FAIL")


def missing(before: t.Sequence[Job], now: t.Sequence[Job]) -> list[int]:
    """Jobs that Slurm does not list any more: they ended, or are lost."""
    there = {job["job_id"] for job in now}
    return [job["job_id"] for job in before if job["job_id"] not in there]


def ends(text: str) -> dict[int, str]:
    """Read ``sacct -X -n -P -o JobIDRaw,State``; a user's cancel counts as an end as any other."""
    rows = (line.split("|") for line in text.splitlines())
    return {int(row[0]): row[1].split()[0] for row in rows if len(row) == 2 and row[0].isdigit() and row[1]}


def problems(before: t.Sequence[Job], now: t.Sequence[Job], ended: t.Mapping[int, str]) -> list[str]:
    """Say which jobs the upgrade cost; empty when none."""
    here = {job["job_id"]: job["state"] for job in now}
    found = []
    for job in before:
        number, state = job["job_id"], here.get(job["job_id"]) or ended.get(job["job_id"], "")
        if not state or (number not in here and state in ("PENDING", "RUNNING")):
            found.append(f"job {number} ({job['name']} of {job['user']}, {job['state']} before) is gone")
        elif state in _HARMED or (job["state"] == "RUNNING" and state == "PENDING"):
            found.append(f"job {number} ({job['name']} of {job['user']}) ran before and is {state} now")
    return found


def counts(jobs: t.Sequence[Job]) -> dict[str, int]:
    """How many jobs are in which state."""
    return dict(sorted(collections.Counter(job["state"] for job in jobs).items()))
