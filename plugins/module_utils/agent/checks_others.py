# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What other health checkers find, as records like others: NVIDIA DCGM, LBNL NHC, healthagent. Private, stdlib only.

DCGM is asked where it is installed. Its health watches are asked by themselves; its diagnostic is run by choice and at
no time beside a job: in the suite full, and at the level that the configuration gives. NHC and CycleCloud's healthagent
are asked where the configuration lists them. Both count themselves as healthy when they say nothing; here that is an
error.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context

# NVIDIA DCGM.


_DCGM_HEALTH, _DCGM_DIAG = "dcgm_health", "dcgm_diag"
# Of the time that the agent gives the check: dcgmi that hangs has to be ended by then.
_PATIENCE = 6.0
# Seconds for the levels that fit a suite. dcgmi has to end by then: only it can have the host engine stop the tests.
DIAG_TIMEOUTS = {1: 120.0, 2: 900.0, 3: 1700.0}
# A suite that runs beside jobs, and has to end in seconds, can list the check as well: at level 1, without computing.
_SHORT, _SOON = 1, 15.0


def dcgm_health(context: Context) -> list[Json]:
    """Ask the host engine what its watches found; only where it runs, for the agent starts none."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import NotFound, find
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_measure import params
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import dcgm

    path = context.config.tools.get("dcgmi") or None
    if not path:
        try:
            path = find("dcgmi", None, dcgm.PLACES, role=None)
        except NotFound:
            return [context.record(_DCGM_HEALTH, verdict="skipped", reason="DCGM is not installed: there is no dcgmi")]
    enable = bool(context.config.options(_DCGM_HEALTH).get("enable_watches"))
    options = params(context, dcgm.HEALTH_SPEC, path=path, enable_watches=enable, timeout=_PATIENCE)
    return context.adopt(dcgm.health(options, False)["checks"])


def dcgm_diag(context: Context) -> list[Json]:
    """Run the diagnostic at the level that the configuration gives; without one it is not run."""
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_measure import params
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import dcgm

    chosen = context.config.options(_DCGM_DIAG)
    level = chosen.get("level") or 0
    if not level:
        return [context.record(_DCGM_DIAG, verdict="skipped", reason="not chosen: checks.dcgm_diag.level is not set")]
    if level not in DIAG_TIMEOUTS:
        reason = f"checks.dcgm_diag.level is {level!r}; accepted are {', '.join(map(str, DIAG_TIMEOUTS))}"
        return [context.record(_DCGM_DIAG, verdict="error", reason=reason)]
    alone = context.suite == "full"
    if level > _SHORT and not alone:
        reason = f"level {level} computes on GPUs, and suite {context.suite} runs beside jobs: level 1, or suite full"
        return [context.record(_DCGM_DIAG, verdict="error", reason=reason)]
    known: Json = {name: chosen[name] for name in ("parameters", "embedded") if name in chosen}
    known.update(path=context.config.tools.get("dcgmi") or None, gpus=context.config.gpus or None)
    known.update(level=level, timeout=DIAG_TIMEOUTS[level] if alone else _SOON)
    options = params(context, dcgm.DIAG_SPEC, **known)
    return context.adopt(dcgm.diag(options, False)["checks"])


# LBNL NHC and CycleCloud's healthagent.


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
