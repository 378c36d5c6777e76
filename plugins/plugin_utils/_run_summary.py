# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table that ends a run on the terminal: one line per stage of the run. Pure; private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import joined, subject
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.text import duration, plural, short
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import worst

_MARKS = {"done": "ok", "failed": "FAILED", "running": "ended early"}
_FAILURE_LIMIT = 300
Record = t.Mapping[str, t.Any]


def summary(record: Record, run: str) -> list[str]:
    """Return aligned lines: stage, how it ended, how long it took, what changed, what was found."""
    stages = _together([stage for stage in record.get("stages", []) if stage.get("run") == run])
    trainings = [training for training in record.get("training", []) if training.get("run") == run]
    rows = [_row(stage, trainings if stage["stage"] == "train" else []) for stage in stages]
    widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
    title = f"{subject(record)}, run {run}"
    lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[4]]).rstrip() for row in rows]
    return [title, *(f"  {line}" for line in lines)]


def artifacts(record: Record, place: str) -> dict[str, t.Any]:
    """Return what a later job has to know of each stage of the latest run; a few words, as AWX stores it in each job.

    A name for each stage: AWX gives a job the artifacts of all jobs before it, and says nothing about their order.
    """
    stages = record.get("stages") or []
    run = stages[-1].get("run") if stages else None
    return {
        f"hpcai_{stage['stage']}": {
            "run": run,
            "state": stage["state"],
            "verdict": worst(stage.get("verdicts") or ()),
            "counts": dict(stage.get("verdicts") or {}),
            "place": place,
        }
        for stage in stages
        if stage.get("run") == run
    }


def _together(stages: t.Sequence[Record]) -> list[Record]:
    """Return one entry for each name: plays of two stages may alternate, and a stage may be asked for twice."""
    parts: dict[str, list[Record]] = {}
    for stage in stages:
        parts.setdefault(stage["stage"], []).append(stage)
    return [joined(own) if len(own) > 1 else own[0] for own in parts.values()]


def _row(stage: Record, trainings: t.Sequence[Record]) -> list[str]:
    changes = sum(stage.get("changes", {}).values())
    state = "skipped" if stage.get("skipped") else _MARKS.get(stage["state"], stage["state"])
    return [
        stage["stage"],
        state,
        _plain(duration(stage.get("seconds"))),
        f"changed={changes}",
        "; ".join(_plain(text) for text in _details(stage, trainings)),
    ]


def _details(stage: Record, trainings: t.Sequence[Record]) -> list[str]:
    failed: dict[str, list[str]] = {}
    for name, text in sorted(stage.get("failures", {}).items()):
        failed.setdefault(_start(text), []).append(name)
    lines = [f"{', '.join(names)}: {text}" for text, names in failed.items()]
    if stage.get("skipped"):
        lines.append(str(stage["skipped"]))
    counts = stage.get("verdicts", {})
    if counts:
        lines.append("checks: " + ", ".join(f"{number} {verdict}" for verdict, number in counts.items()))
    for training in trainings:
        loss = training.get("loss") or [None]
        hosts = {rank.get("host") for rank in training.get("ranks") or []}
        lines.append(
            f"job {training.get('job_id')}: loss {short(loss[0])} to {short(loss[-1])}, "
            f"{short(training.get('samples_per_second'))} samples/s, "
            f"{plural(len(training.get('ranks') or []), 'rank')} on {plural(len(hosts), 'node')}"
        )
    return lines


def _start(text: str) -> str:
    """Return as much of a failure as a line of a terminal bears; that there was more is to be seen."""
    line = text.splitlines()[0]
    return line if len(line) <= _FAILURE_LIMIT else f"{line[: _FAILURE_LIMIT - 1]}…"


def _plain(text: str) -> str:
    """Leave out what only a page can show well: narrow and unbreakable spaces."""
    return text.replace("\u202f", "").replace("\u00a0", " ")
