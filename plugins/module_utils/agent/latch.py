# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's state on a node, and what stays a finding until the node has booted again. Pure, private, stdlib only.

``{schema, node, boot_id, physical_host, latched: {key: record}, suites: {name: {time, records}}, kept: {name: value}}``
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import CLASSES, VERDICTS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json, finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Host

SCHEMA = 1
# A fault that repeats under ever new names must not fill the disk.
MOST = 256
# Under this name is kept when which fault was cleared by hand.
FORGIVEN = "forgiven"
_MISSED = {"fail", "error"}


def fresh(node: str, host: Host) -> Json:
    """Return the state of a node of which nothing is known."""
    return {"schema": SCHEMA, "node": node, **host._asdict(), "latched": {}, "suites": {}, "kept": {}}


def read(text: str | None, node: str, host: Host) -> tuple[Json, str]:
    """Return the state, and why it is empty if it should not be; what another boot left is gone on purpose."""
    if text is None:
        return fresh(node, host), ""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as exc:
        return fresh(node, host), f"it is no JSON: {exc}"
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        return fresh(node, host), f"it is no mapping with schema {SCHEMA}"
    before = raw.get("boot_id")
    if before and host.boot_id and before != host.boot_id:
        return fresh(node, host), ""
    parts: Json = {name: raw.get(name) for name in ("latched", "suites", "kept")}
    if not all(isinstance(part, dict) for part in parts.values()):
        return fresh(node, host), "latched, suites and kept are no mappings"
    latched = {name: one for name, one in parts["latched"].items() if sound(one)}
    suites = {name: one for name, one in parts["suites"].items() if _run(one)}
    lost = len(parts["latched"]) - len(latched) + len(parts["suites"]) - len(suites)
    found = {**fresh(node, host), "latched": latched, "suites": suites, "kept": parts["kept"]}
    return found, f"{lost} of its entries are damaged" if lost else ""


def sound(one: t.Any) -> bool:
    """Return whether something is a check record that can be relied on, and does not contradict itself."""
    if not isinstance(one, dict):
        return False
    texts = all(isinstance(one.get(name), str) for name in ("check", "verdict", "reason"))
    parts = all(isinstance(one.get(name), dict) for name in ("scope", "context"))
    if not texts or not parts or finite(one.get("time")) is None or not isinstance(one.get("metrics"), list):
        return False
    metrics = [item.get("verdict") if isinstance(item, dict) else None for item in one["metrics"]]
    if not all(isinstance(verdict, str) and verdict in VERDICTS for verdict in (one["verdict"], *metrics)):
        return False
    contradicts = one["verdict"] == "pass" and not _MISSED.isdisjoint(metrics)
    return one.get("class") in _classes(one["verdict"]) and not contradicts


def _classes(verdict: str) -> t.Sequence[t.Any]:
    """Return what can be to blame: whoever drains nodes goes by it."""
    return CLASSES if verdict in ("fail", "warn") else ("infra",) if verdict == "error" else (None,)


def _run(one: t.Any) -> bool:
    whole = isinstance(one, dict) and finite(one.get("time")) is not None and isinstance(one.get("records"), list)
    return whole and all(sound(record) for record in one["records"])


def key(record: Json) -> str:
    """Return what two reports of the same fault have in common: check, code and part."""
    code = record["context"].get("code")
    scope = json.dumps(record["scope"], sort_keys=True, default=str)
    return ":".join([record["check"], "" if code is None else str(code), "" if scope == "{}" else scope])


def forgiven(kept: Json, gone: t.Mapping[str, Json], time: float) -> Json:
    """Return what is kept after faults were cleared: else their old messages and counts would latch them again."""
    checks = {one["check"] for one in gone.values()}
    before = kept.get(FORGIVEN)
    known: Json = before if isinstance(before, dict) else {}
    rest = {name: value for name, value in kept.items() if name not in checks}
    return {**rest, FORGIVEN: {**known, **dict.fromkeys(gone, time)}}


def over(kept: t.Any, record: Json, last: float | None) -> bool:
    """Return whether a fault was cleared after it was last seen."""
    cleared = finite(kept.get(key(record))) if isinstance(kept, dict) else None
    return cleared is not None and last is not None and last <= cleared


def merge(state: Json, suite: str, time: float, records: t.Sequence[Json], kept: Json) -> Json:
    """Return the state after a suite: the first report of a latched fault is the one that stays."""
    latched = dict(state["latched"])
    for record in records:
        if record["context"].get("latched") and record["verdict"] in ("fail", "warn") and len(latched) < MOST:
            latched.setdefault(key(record), record)
    suites = {**state["suites"], suite: {"time": time, "records": list(records)}}
    return {**state, "latched": latched, "suites": suites, "kept": {**state["kept"], **kept}}
