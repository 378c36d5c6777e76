# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What LBNL NHC and CycleCloud's healthagent found, as records like others. Private, stdlib only.

Both count themselves as healthy when they say nothing; here that is an error.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context

NHC = "/run/hpcai/nhc"
HEALTH = "/usr/bin/health"
# A health check that is due every few minutes and has not ended for so long hangs.
STALE = 3600.0
_TIMEOUT = 6.0
_BLAME = {"gpu": "hardware", "network": "fabric"}
_VERDICT = {"OK": "pass", "Warning": "warn", "Error": "fail", "NA": "skipped"}
_FAILED = "Health check failed:"


def nhc(context: Context) -> list[Json]:
    """Read the file of its latest run: the time, its exit status and its output."""
    options = context.config.options("nhc")
    path = Path(str(options.get("result", NHC)))
    try:
        head, dummy, text = path.read_text(encoding="utf-8", errors="replace").partition("\n")
        moment, status = (int(word) for word in head.split())
    except FileNotFoundError:
        return [context.record("nhc", verdict="skipped", reason="it has not run since the node booted")]
    except (OSError, ValueError) as exc:
        return [context.record("nhc", verdict="error", reason=f"{path} cannot be read: {exc}")]
    age = context.now() - moment
    if not 0 <= age + 60 <= float(options.get("stale", STALE)) + 60:
        return [context.record("nhc", verdict="error", reason=f"it last ended {age:.0f} s ago")]
    return [_nhc(context, status, text, bool(options.get("drains")))]


def _nhc(context: Context, status: int, text: str, drains: bool) -> Json:
    failed = [line.split(_FAILED, 1)[1].strip() for line in text.splitlines() if _FAILED in line]
    if failed:
        # A node that NHC drains by itself needs no second drain.
        verdict = "warn" if drains else "fail"
        reason = "; ".join(dict.fromkeys(failed))
        return context.record("nhc", verdict=verdict, blame="software", reason=reason, evidence=text[-2000:])
    if status:
        last = ([line for line in text.splitlines() if line.strip()] or ["it said nothing"])[-1]
        return context.record("nhc", verdict="error", reason=f"exit status {status}: {last[:200]}")
    return context.record("nhc", verdict="pass")


def healthagent(context: Context) -> list[Json]:
    """Return the last reports of its daemon; no check is run for that."""
    program = str(context.config.options("healthagent").get("program", HEALTH))
    done = run([program, "-s"], _TIMEOUT)
    if done.problem:
        return [context.record("healthagent", verdict="error", reason=f"{program} -s: {done.problem}")]
    try:
        modules = json.loads(done.out)
    except (ValueError, RecursionError) as exc:
        return [context.record("healthagent", verdict="error", reason=f"{program} -s printed no JSON: {exc}")]
    return _reports(context, modules)


def _reports(context: Context, modules: t.Any) -> list[Json]:
    if not isinstance(modules, dict) or not modules:
        return [context.record("healthagent", verdict="error", reason="healthagent reports no module")]
    records = []
    for module, checks in sorted(modules.items()):
        scope = {"module": str(module)}
        if not isinstance(checks, dict) or not checks:
            reason = f"its module {module} reports no check"
            records.append(context.record("healthagent", verdict="error", reason=reason, scope=scope))
            continue
        for name, report in sorted(checks.items()):
            records.append(_report(context, {**scope, "check": str(name)}, report if isinstance(report, dict) else {}))
    return records


def _report(context: Context, scope: Json, report: Json) -> Json:
    status = report.get("status")
    verdict = _VERDICT.get(status, "error") if isinstance(status, str) else "error"
    text = next((report[key] for key in ("message", "description") if isinstance(report.get(key), str)), "")
    reason = f"{scope['module']} {scope['check']}: {text or f'status {status!r}'}"
    blame = _BLAME.get(scope["module"], "software")
    return context.record("healthagent", verdict=verdict, blame=blame, reason=reason, scope=scope)
