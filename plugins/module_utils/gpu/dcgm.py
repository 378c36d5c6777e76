# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dcgm_diag and dcgm_health: run dcgmi, decide what of its answer is believed, and make a check record of it."""

from __future__ import annotations

import re
import socket
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks, _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    judge,
    metric,
    overall,
    record,
    validate_expectation,
    validate_seconds,
    validate_units,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch, busy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import dcgm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause

# The request. Pure.


DIAG, HEALTH = "dcgm_diag", "dcgm_health"
TESTS, INCIDENTS = "tests", "incidents"
PLACES = ("/usr/bin", "/usr/local/bin")
# Patience, not a verdict: dcgmi itself says seconds, 2 minutes and 15 minutes, its manual 1 to 2 hours for level 4.
TIMEOUTS = {1: 120.0, 2: 900.0, 3: 3600.0, 4: 14400.0}
_SHORT = 1
DIAG_SPEC: dict[str, Json] = {
    "level": {"type": "int", "default": _SHORT, "choices": list(TIMEOUTS)},
    "tests": {"type": "list", "elements": "str", "default": []},
    "parameters": {"type": "dict", "default": {}},
    "gpus": {"type": "raw"},
    "path": {"type": "str"},
    "embedded": {"type": "bool", "default": False},
    "timeout": {"type": "float"},
    **_checks.SPEC,
    **_checks.NODE,
}
HEALTH_SPEC: dict[str, Json] = {
    "path": {"type": "str"},
    "enable_watches": {"type": "bool", "default": False},
    "timeout": {"type": "float", "default": 20},
    **_checks.SPEC,
    **_checks.NODE,
}
_TEST = re.compile(r"[A-Za-z][A-Za-z0-9 _-]{0,60}")
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9 _-]{0,60}\.[A-Za-z0-9_]{1,60}")
# CUDA_VISIBLE_DEVICES of a job changes nothing of what the host engine tests, and dcgmi would print a warning of it.
# Without a host engine `dcgmi diag` starts one of its own, `dcgmi discovery` says so.
_SCRIPT = """\
unset CUDA_VISIBLE_DEVICES
if [ "$1" = standalone ]; then "$2" discovery -l >&2 || exit; fi
shift
exec "$@"
"""


class DcgmRequestError(ValueError):
    """The request makes no sense; the text is fit for the user."""


def arguments(params: t.Mapping[str, t.Any], gpus: t.Sequence[int] | None) -> list[str]:
    """Return the arguments of ``dcgmi diag``; raises DcgmRequestError for what it would take for something else."""
    bad = [test for test in params["tests"] if not _TEST.fullmatch(test)]
    if bad:
        raise DcgmRequestError(f"tests {', '.join(bad)}: names such as pcie or memory_bandwidth are needed")
    pairs = {str(name): str(value) for name, value in params["parameters"].items()}
    bad = [name for name, value in pairs.items() if not _PARAMETER.fullmatch(name) or re.search(r"[;=\n]", value)]
    if bad:
        raise DcgmRequestError(f"parameters {', '.join(bad)}: test.name and a value without = and ; are needed")
    argv = ["diag", "-j", "-r", ",".join(params["tests"]) or str(params["level"])]
    # Up to 3.3 -i takes numbers of GPUs, since 4.0 entities, of which a number is a GPU.
    argv += ["-i", ",".join(map(str, gpus))] if gpus else []
    return [*argv, *(["-p", ";".join(f"{name}={value}" for name, value in pairs.items())] if pairs else [])]


def disturbs(params: t.Mapping[str, t.Any]) -> bool:
    """Say whether the tests compute on the GPUs: those of level 1 only look at libraries, files and counters."""
    return bool(params["tests"] or params["level"] > _SHORT)


def _validated(params: t.Mapping[str, t.Any], check: str, units: t.Mapping[str, str], timeout: float) -> None:
    for expectation in params["expect"]:
        validate_expectation(expectation)
    validate_units(params["expect"], check, units)
    validate_seconds("timeout", timeout)


# From what dcgmi printed to findings. Pure.


_TAIL, _MOST, _WIDEST = 2000, 4, 300
_UNITS = {DIAG: {"failed": TESTS, "skipped": TESTS}, HEALTH: {"failures": INCIDENTS, "warnings": INCIDENTS}}
_UNCONNECTED = re.compile(
    r"^.*(?:[Uu]nable to establish a connection to the specified host|Unable to connect to host engine).*$", re.M
)
_OCCUPIED = re.compile(r"diag instance is already running|while DCGM is paused|modules are paused")
_NO_GPU = re.compile(r"^0 GPUs found", re.M)
# What DCGM's severities ask for, in the words of the agent; what has none is for a person to look into.
_ACTIONS = {"isolate": "isolate", "reset": "reset", "monitor": "monitor"}
_VERDICTS = ("fail", "error", "warn")
_CLASSES = ("hardware", "fabric", "config", "software", "infra")
_URGENT = ("isolate", "reboot", "reset", "", "monitor")


class DcgmFinding(t.NamedTuple):
    """One thing that is wrong, and the action that DCGM asks for."""

    verdict: str
    blame: str
    text: str
    action: str = ""
    code: int | None = None
    gpu: int | None = None

    @property
    def rank(self) -> tuple[int, int, int]:
        return _VERDICTS.index(self.verdict), _CLASSES.index(self.blame), _URGENT.index(self.action)


def diag_findings(tests: t.Sequence[dcgm.DcgmTest]) -> list[DcgmFinding]:
    """Return what the tests hold against the node, the worst first; a test that was skipped holds nothing."""
    findings = []
    for test in tests:
        for result in test.results:
            if result.status in ("skip", "not_run"):
                continue
            findings += [_finding(test.name, result, error) for error in result.errors]
            # The summary of a test has the status of its worst result, which has said why.
            explained = result.errors or (result.entity is None and test.errors)
            if result.status in ("fail", "warn") and not explained:
                findings.append(_finding(test.name, result, dcgm.DcgmError(f"{result.status}, without a reason")))
    return sorted(findings, key=lambda finding: finding.rank)


def _finding(test: str, result: dcgm.DcgmResult, error: dcgm.DcgmError) -> DcgmFinding:
    """An error beside a test that passed is worth a warning: DCGM 4.5 passes memory that it could not allocate."""
    blame = error.kind(test)
    verdict = "warn" if result.status != "fail" else "error" if blame == "infra" else "fail"
    where = f" on {result.entity} {result.id}" if result.entity and result.id is not None else ""
    action = {"fail": _ACTIONS.get(error.severity or "", ""), "warn": "monitor"}.get(verdict, "")
    gpu = result.id if result.entity == "GPU" else None
    blame = "software" if verdict == "warn" and blame == "infra" else blame
    return DcgmFinding(verdict, blame, f"{test}{where}: {error.text}"[:_WIDEST], action, error.code, gpu)


def health_findings(incidents: t.Sequence[dcgm.DcgmIncident]) -> list[DcgmFinding]:
    """Return what the report holds against the node, the worst first."""
    findings = []
    for incident in incidents:
        if incident.health == "Healthy":
            continue
        verdict = {"Failure": "fail", "Warning": "warn"}.get(incident.health, "error")
        gpu = incident.id if incident.entity == "GPU" else None
        text = f"{incident.system} of {incident.entity} {incident.id}: {incident.text or incident.health}"[:_WIDEST]
        blame = "infra" if verdict == "error" else dcgm.health_kind(incident)
        action = {"fail": _health_action(incident.text), "warn": "monitor"}.get(verdict, "")
        findings.append(DcgmFinding(verdict, blame, text, action, None, gpu))
    return sorted(findings, key=lambda finding: finding.rank)


def _health_action(text: str) -> str:
    """Return the action that the driver itself asks for, where the text has it (dcgm_errors.h, GPU_RECOVERY)."""
    action = re.search(r"\((?:GPU_(RESET)|NODE_(REBOOT)|DRAIN_AND_(RESET))\)", text)
    return "isolate" if action is None else next(filter(None, action.groups())).lower()


def _judged(
    check: str,
    findings: t.Sequence[DcgmFinding],
    counts: t.Mapping[str, int],
    params: t.Mapping[str, t.Any],
    common: Json,
    rest: str = "",
) -> Json:
    """Return the record of findings; expectations on how many there are can only make it worse."""
    metrics = [metric(name, count, _UNITS[check][name]) for name, count in counts.items()]
    metrics = judge(check, metrics, params["expect"])
    expected = overall(metrics)
    worst = findings[0] if findings else None
    verdicts = {expected if expected in _VERDICTS else "pass", worst.verdict if worst else "pass"}
    verdict = next(verdict for verdict in (*_VERDICTS, "pass") if verdict in verdicts)
    texts = list(dict.fromkeys(finding.text for finding in findings))
    more = [f"{len(texts) - _MOST} more"] if len(texts) > _MOST else []
    missed = _checks.explain(metrics)
    gpus = sorted({finding.gpu for finding in findings if finding.gpu is not None})
    more_known = {"action": worst.action, "code": worst.code} if worst else {}
    about = {**common["context"], **{key: value for key, value in more_known.items() if value not in (None, "")}}
    return record(
        check,
        verdict=verdict,
        blame=worst.blame if worst and worst.blame != "infra" else "config",
        metrics=metrics,
        reason="; ".join(filter(None, [*texts[:_MOST], *more, missed, rest])),
        scope={"gpu": gpus} if gpus else {},
        **{**common, "context": about, "evidence": common["evidence"] if verdict != "pass" else ""},
    )


def judged_diag(outcome: Outcome, params: t.Mapping[str, t.Any], expected: int, common: Json) -> Json:
    """Return the record of what dcgmi printed; its exit status alone proves nothing."""
    printed = f"{outcome.out}\n{outcome.err}".strip()
    common = {**common, "evidence": printed[-_TAIL:]}
    log = dcgm.parse_diag(outcome.out)
    diag = log.runs[-1] if log.runs else None
    if diag is None:
        verdict, reason = _nothing(outcome, printed, expected, log.cause)
        return record(DIAG, verdict=verdict, reason=reason, **common)
    common["context"].update(version=diag.version, driver=diag.driver)
    problem = diag.error and " ".join(diag.error.split())[:_WIDEST]
    if problem:
        return record(DIAG, verdict="skipped" if _OCCUPIED.search(problem) else "error", reason=problem, **common)
    if outcome.rc is None or not diag.complete:
        return record(DIAG, verdict="error", reason=_unfinished(outcome, diag), **common)
    findings = diag_findings(diag.tests)
    # Without numbers of GPUs in the output nothing can be said; with named ones DCGM may list more than it tested.
    seen, named = len(diag.gpus), "-i" in common["context"]["argv"]
    if expected and seen and (seen < expected or (seen > expected and not named)):
        text = f"DCGM {diag.version or '3'} saw {seen} of {expected} GPUs (see gpu_count)"
        findings = sorted([*findings, DcgmFinding("error", "infra", text)], key=lambda finding: finding.rank)
    left = [test for test in diag.tests if test.status in ("skip", "not_run")]
    rest = f"not tested: {', '.join(dict.fromkeys(test.name for test in left))}" if left else ""
    if not findings and len(left) == len(diag.tests):
        return record(DIAG, verdict="skipped", reason="; ".join([rest, *_reasons(left)][:_MOST]), **common)
    counts = {"failed": sum(test.status == "fail" for test in diag.tests), "skipped": len(left)}
    common["samples"] = [{"test": test.name, "category": test.category, "status": test.status} for test in diag.tests]
    return _judged(DIAG, findings, counts, params, common, rest)


def _reasons(tests: t.Sequence[dcgm.DcgmTest]) -> list[str]:
    results = [result for test in tests for result in test.results]
    texts = [text for result in results for text in (*(error.text for error in result.errors), *result.info)]
    return list(dict.fromkeys(text[:_WIDEST] for text in texts))


def _nothing(outcome: Outcome, printed: str, expected: int, cause: Cause | None) -> tuple[str, str]:
    """Return the verdict on an answer without a document."""
    unconnected = _UNCONNECTED.search(printed)
    taken = busy(outcome.err)
    if taken:
        return "skipped", taken
    if unconnected:
        text = unconnected.group().strip()
        return "skipped", f"nv-hostengine does not answer (start the service nvidia-dcgm): {text}"
    if _NO_GPU.search(outcome.err):
        return ("error" if expected else "skipped"), "DCGM found no GPU"
    problem = cause.text if cause and outcome.rc is not None else outcome.problem
    return "error", f"{problem or 'dcgmi ended well'}; it printed no JSON of a result as DCGM 3 and 4 do"


def _unfinished(outcome: Outcome, diag: dcgm.DcgmDiagRun) -> str:
    unknown = [test.name for test in diag.tests if test.status == "unknown"]
    if outcome.rc is None:
        return outcome.problem
    if unknown:
        return f"dcgmi printed a status that is none of Pass, Fail, Warn, Skip and Not Run for {', '.join(unknown)}"
    return "the output of dcgmi breaks off" if diag.tests else "dcgmi printed no test"


def judged_health(outcome: Outcome, params: t.Mapping[str, t.Any], common: Json) -> Json:
    """Return the record of a report of health."""
    printed = f"{outcome.out}\n{outcome.err}".strip()
    common = {**common, "evidence": printed[-_TAIL:]}
    log = dcgm.parse_health(outcome.out)
    report = log.runs[-1] if log.runs else None
    if report is None:
        verdict, reason = _nothing(outcome, printed, 0, log.cause)
        if unwatched(outcome):
            reason = "no health watch is enabled: dcgmi health -s a enables all, until nv-hostengine is restarted"
            verdict = "skipped"
        return record(HEALTH, verdict=verdict, reason=reason, **common)
    if outcome.rc is None or not report.complete:
        reason = outcome.problem if outcome.rc is None else f"overall health is {report.overall!r}, or dcgmi broke off"
        return record(HEALTH, verdict="error", reason=reason, **common)
    findings = health_findings(report.incidents)
    if not findings and report.overall != "Healthy":
        verdict = "fail" if report.overall == "Failure" else "warn"
        text = f"overall health is {report.overall}, without an incident"
        findings = [DcgmFinding(verdict, "hardware", text, "isolate" if verdict == "fail" else "monitor")]
    counts = {
        "failures": sum(finding.verdict == "fail" for finding in findings),
        "warnings": sum(finding.verdict == "warn" for finding in findings),
    }
    return _judged(HEALTH, findings, counts, params, common)


def unwatched(outcome: Outcome) -> bool:
    return "Health watches not enabled" in outcome.out


# Run dcgmi.


def diag(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Run the diagnostic and return the module's result; raises ValueError for options that make no sense."""
    # Health, which runs every few minutes, starts without all that measures bandwidths.
    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth import parse_gpus

    gpus = parse_gpus(params["gpus"])
    named = gpus if isinstance(params["gpus"], (list, tuple)) or "," in str(params["gpus"] or "") else None
    timeout = TIMEOUTS[4 if params["tests"] else params["level"]] if params["timeout"] is None else params["timeout"]
    argv = arguments(params, named)
    _validated(params, DIAG, _UNITS[DIAG], timeout)
    common = _about(params, "dcgmi diag", level=",".join(params["tests"]) or params["level"])
    try:
        launch = _launch.here(params, job_name=DIAG, timeout=timeout)
        _fits(launch)
        path = (
            params["path"] or "dcgmi"
            if launch.kind != "local"
            else _launch.find("dcgmi", params["path"], PLACES, role=None)
        )
    except _launch.NotFound as exc:
        common["context"].update({"missing": exc.missing} if exc.missing else {})
        return _result(record(DIAG, verdict="error", reason=str(exc), **common))
    if check_mode:
        return _result(record(DIAG, verdict="skipped", reason="check mode", **common))
    computing = _users(launch, timeout) if disturbs(params) else []
    if computing:
        return _result(record(DIAG, verdict="skipped", reason=users.in_use_message(computing), **common))
    mode = "embedded" if params["embedded"] else "standalone"
    command = _launch.command(launch, ["sh", "-c", _SCRIPT, "sh", mode, path, *argv])
    outcome = run(command.argv, timeout, None, command.environment)
    common.update(seconds=outcome.seconds)
    common["context"].update(path=path, argv=[path, *argv])
    check = judged_diag(outcome, params, len(gpus or ()), common)
    computing = _users(launch, timeout) if disturbs(params) and check["verdict"] in ("fail", "warn") else []
    if computing:
        reason = f"{users.in_use_message(computing)}, since the tests began; {check['reason']}"
        check = {**check, "verdict": "unjudged", "class": None, "reason": reason}
    return _result(check, outcome)


def _fits(launch: Launch) -> None:
    if launch.ranks != 1 or launch.container_image or launch.cpu_masks:
        raise DcgmRequestError("DCGM's host engine tests all GPUs of one node: one rank, no container and no cpu_masks")


def _users(launch: Launch, timeout: float) -> list[users.User]:
    """Return the processes on GPUs; nvvs is the diagnostic's own."""
    processes = users.read_users(launch, timeout) or []
    return [user for user in processes if user.name.rpartition("/")[2] != "nvvs"]


def health(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Read the report of health and return the module's result; raises ValueError for options that make no sense."""
    _validated(params, HEALTH, _UNITS[HEALTH], params["timeout"])
    common = _about(params, "dcgmi health")
    try:
        path = _launch.find("dcgmi", params["path"], PLACES, role=None)
    except _launch.NotFound as exc:
        common["context"].update({"missing": exc.missing} if exc.missing else {})
        return {
            "changed": False,
            "checks": [record(HEALTH, verdict="error", reason=str(exc), **common)],
            "incidents": [],
        }
    argv = [path, "health", "-c", "-j"]
    outcome = run(argv, params["timeout"])
    common.update(seconds=outcome.seconds)
    common["context"].update(path=path, argv=argv)
    if params["enable_watches"] and unwatched(outcome):
        return {"changed": True, "checks": [_enabled(path, params, check_mode, common)], "incidents": []}
    reports = dcgm.parse_health(outcome.out).runs
    incidents = [incident.__dict__ for incident in reports[-1].incidents] if reports else []
    return {"changed": False, "checks": [judged_health(outcome, params, common)], "incidents": incidents}


def _enabled(path: str, params: t.Mapping[str, t.Any], check_mode: bool, common: Json) -> Json:
    """Enable all watches. Most need a minute before the first question, by dcgmi's own manual."""
    if check_mode:
        return record(HEALTH, verdict="skipped", reason="check mode: all health watches would be enabled", **common)
    outcome = run([path, "health", "-s", "a"], params["timeout"])
    if outcome.rc != 0:
        return record(HEALTH, verdict="error", reason=f"dcgmi health -s a: {outcome.problem}", **common)
    return record(HEALTH, verdict="skipped", reason="health watches were enabled now; ask after a minute", **common)


def _about(params: t.Mapping[str, t.Any], tool: str, **more: t.Any) -> Json:
    hosts = params.get("hosts") or []
    node = params["name"] or (hosts[0] if hosts else socket.gethostname().partition(".")[0])
    context = {"tool": tool, "version": None, "argv": [], "profile": params["profile"], **more}
    return {"node": node, "time": time.time(), "run": params["run"], "context": context}


def _result(check: Json, outcome: Outcome | None = None) -> Json:
    runs = dcgm.parse_diag(outcome.out).runs if outcome else []
    return {"checks": [check], "tests": [_row(test) for test in runs[-1].tests] if runs else []}


def _row(test: dcgm.DcgmTest) -> Json:
    results = [
        {**result.__dict__, "errors": [dict(error.__dict__) for error in result.errors]} for result in test.results
    ]
    return {"name": test.name, "category": test.category, "status": test.status, "results": results}
