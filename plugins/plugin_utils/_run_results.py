# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What of a task result may go into a file: named keys and nothing else. Private."""

from __future__ import annotations

import math
import typing as t

MESSAGE_LIMIT = 600
CHECK_KEYS: tuple[str, ...] = (
    "schema",
    "run",
    "node",
    "check",
    "time",
    "seconds",
    "verdict",
    "class",
    "reason",
    "scope",
)
CHECK_KEYS += ("metrics", "samples", "evidence", "context")
JOB_KEYS = ("name", "job_id", "state", "exit_code", "signal", "nodes", "start", "end", "output")
TRAINING_KEYS: tuple[str, ...] = (
    *JOB_KEYS,
    "ranks",
    "world_size",
    "backend",
    "model",
    "torch",
    "steps",
    "epochs",
    "batch_size",
)
TRAINING_KEYS += ("loss", "samples", "samples_per_second", "seconds", "learned")
FACTS = {
    "distribution": "os",
    "distribution_version": "os_version",
    "kernel": "kernel",
    "processor_vcpus": "cores",
    "memtotal_mb": "memory_mb",
    "architecture": "architecture",
}
JsonDict = t.Dict[str, t.Any]


class Picked(t.NamedTuple):
    """The few things of a task result that a run record may hold."""

    checks: list[JsonDict]
    training: list[JsonDict]
    facts: JsonDict


def plain(value: t.Any) -> t.Any:
    """Copy into plain JSON types; what JSON cannot say becomes null (numbers) or text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, t.Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return str(value)


def hidden(result: t.Mapping[str, t.Any]) -> bool:
    """Tell whether Ansible or the task asked not to show this result."""
    return bool(result.get("censored") or result.get("_ansible_no_log"))


def pick(result: t.Mapping[str, t.Any], gathered: bool = False) -> Picked:
    """Take check records, training facts and (when the task gathered facts) node facts; nothing else."""
    if hidden(result):
        return Picked([], [], {})
    several = result.get("checks")
    checks = [_known(item, CHECK_KEYS) for item in [result.get("check"), *_list(several)] if _is_check(item)]
    training = result.get("training")
    runs = [_known(training, TRAINING_KEYS)] if isinstance(training, t.Mapping) and "state" in training else []
    for item in _list(result.get("results")):
        if isinstance(item, t.Mapping):
            inner = pick(item)
            checks, runs = checks + inner.checks, runs + inner.training
    return Picked(checks, runs, _node_facts(result.get("ansible_facts")) if gathered else {})


def failure_text(result: t.Mapping[str, t.Any]) -> str:
    """Say in one short text why a task failed."""
    if hidden(result):
        return "the task failed; its result is hidden (no_log)"
    for item in _list(result.get("results")):
        if isinstance(item, t.Mapping) and (item.get("failed") or item.get("unreachable")):
            return failure_text(item)
    message = result.get("msg") or "the task failed without a message"
    text = " ".join("\n".join(str(line) for line in _list(message) or [message]).split())
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"


def is_rescued(task: t.Any) -> bool:
    """Tell whether a task stands in the main part of a block that has a rescue part: its failure is foreseen."""
    child, parent = task, task._parent
    while parent is not None:
        if getattr(parent, "rescue", None) and any(child._uuid == other._uuid for other in parent.block):
            return True
        child, parent = parent, parent._parent
    return False


def _list(value: t.Any) -> list[t.Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _is_check(value: t.Any) -> bool:
    return isinstance(value, t.Mapping) and "check" in value and "verdict" in value


def _known(value: t.Mapping[str, t.Any], keys: t.Iterable[str]) -> JsonDict:
    return {key: plain(value[key]) for key in keys if key in value}


def _node_facts(facts: t.Any) -> JsonDict:
    if not isinstance(facts, t.Mapping):
        return {}
    values = {name: facts.get(f"ansible_{fact}", facts.get(fact)) for fact, name in FACTS.items()}
    return {name: plain(value) for name, value in values.items() if value is not None}
