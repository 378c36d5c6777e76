# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verdicts of check records counted and summed up; planned = reached + untested, always. Private."""

from __future__ import annotations

import typing as t

# The worst first. A verdict that is not in this list counts as "error": never as a pass.
VERDICTS = ("fail", "error", "warn", "unjudged", "pass", "skipped")
UNTESTED = ("error", "skipped")
Record = t.Mapping[str, t.Any]


def verdict_of(record: Record) -> str:
    """Return the record's verdict; an unknown one is an error."""
    verdict = str(record.get("verdict"))
    return verdict if verdict in VERDICTS else "error"


def count(records: t.Iterable[Record]) -> dict[str, int]:
    """Count records per verdict, the worst first, without zeros."""
    verdicts = [verdict_of(record) for record in records]
    return {verdict: verdicts.count(verdict) for verdict in VERDICTS if verdict in verdicts}


def worst(verdicts: t.Iterable[str]) -> str:
    """Return the worst verdict; nothing at all is unjudged."""
    present = set(verdicts)
    return next((verdict for verdict in VERDICTS if verdict in present), "unjudged")


def summary(records: t.Iterable[Record]) -> dict[str, t.Any]:
    """Sum up check records: counts, the worst verdict, the worst per node, what was not tested and why."""
    rows = list(records)
    nodes: dict[str, list[str]] = {}
    for row in rows:
        nodes.setdefault(str(row.get("node", "")), []).append(verdict_of(row))
    untested = [
        {
            "node": str(row.get("node", "")),
            "check": str(row.get("check", "")),
            "verdict": verdict_of(row),
            "reason": str(row.get("reason") or "no reason given"),
        }
        for row in rows
        if verdict_of(row) in UNTESTED
    ]
    return {
        "counts": count(rows),
        "worst": worst(verdict_of(row) for row in rows),
        "nodes": {node: worst(verdicts) for node, verdicts in nodes.items()},
        "planned": len(rows),
        "reached": len(rows) - len(untested),
        "untested": untested,
    }
