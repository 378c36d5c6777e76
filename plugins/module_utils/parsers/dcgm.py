# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DCGM 3 and 4: ``dcgmi diag -j`` and ``dcgmi health -c -j``, with whatever dcgmi prints around the documents.

The two forms of ``dcgmi diag`` are those of dcgmi/Diag.cpp: "DCGM GPU Diagnostic" with results by ``gpu_id`` up to
3.3, "DCGM Diagnostic" with results by entity and a summary of each test since 4.0.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import json_text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause, Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines

Facts = t.Dict[str, t.Any]

_LONGEST = 1000
_NAMES = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
# In the head of both forms, and in no name of a test: one of them is called "Diagnostic".
_DIAG_MARK, _HEALTH_MARK = ' Diagnostic"', '"body"'
# dcgmi writes these instead of a document, or into the document as its runtime error.
_FAILURES = [
    (r"[Uu]nable to establish a connection to the specified host|Unable to connect to host engine", "infra"),
    (r"Unable to start an embedded host engine", "infra"),
    (r"Health watches not enabled", "config"),
    (r"Unable to (?:complete diagnostic|check health watches)|Diagnostic could not be run|homogeneous group", "infra"),
    (r"NVVS binary was not found|nvvs binary was not found", "software"),
    (r"^Error: ", "infra"),
]

# dcgmErrorSeverity_enum of dcgm_errors.h. Before 3.3 the numbers were others, and none was printed.
SEVERITIES = ("none", "monitor", "isolate", "unknown", "triage", "config", "reset")
# dcgmErrorCategory_enum of dcgm_errors.h.
CATEGORIES = (
    "none",
    "perf_threshold",
    "perf_violation",
    "software_config",
    "software_library",
    "software_xid",
    "software_cuda",
    "software_eud",
    "software_other",
    "hardware_thermal",
    "hardware_memory",
    "hardware_nvlink",
    "hardware_nvswitch",
    "hardware_pcie",
    "hardware_power",
    "hardware_other",
    "internal_other",
)
# DCGM_FR_ABORTED, a signal ended the test: no setting that somebody could mend, whatever its severity says.
ABORTED = 47
_STATUSES = {"pass": "pass", "fail": "fail", "warn": "warn", "skip": "skip", "skipped": "skip", "not run": "not_run"}
_KINDS = {"perf": "hardware", "hardware": "hardware", "internal": "infra", "software": "software"}
# Who reported it, not what is broken: the field diagnostic and the driver's Xids tell of hardware as well.
_REPORTERS = ("software_xid", "software_eud")
# Up to 3.1 there are no codes. What the tests of level 1 look at, by dcgmi/Diag.cpp's names of them.
_KIND_OF_TEST = {
    "persistence mode": "config",
    "environment variables": "config",
    "permissions and os blocks": "config",
    "graphics processes": "config",
    "denylist": "software",
    "blacklist": "software",
    "nvml library": "software",
    "cuda main library": "software",
    "cuda toolkit library": "software",
    "software": "software",
}


@dataclass(frozen=True)
class DcgmError:
    """What DCGM complains about; ``severity`` and ``category`` are names of dcgm_errors.h, None before 3.3."""

    text: str
    code: int | None = None
    severity: str | None = None
    category: str | None = None

    def kind(self, test: str) -> str:
        """Return the class to blame, as DCGM's own table of errors has it (dcgm_errors.c)."""
        if self.code == ABORTED:
            return "infra"
        if self.severity == "config" or self.category == "software_config":
            return "config"
        if self.category in _REPORTERS and self.severity in ("isolate", "reset"):
            return "hardware"
        known = _KINDS.get((self.category or "").partition("_")[0])
        return known or _KIND_OF_TEST.get(test.lower(), "hardware")


@dataclass(frozen=True)
class DcgmResult:
    """The result of one test for one entity; without an entity it is about all of them."""

    entity: str | None
    id: int | None
    status: str
    errors: list[DcgmError] = field(default_factory=list)
    info: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DcgmTest:
    """One test; ``status`` is the worst of its results and its summary."""

    name: str
    category: str
    status: str
    results: list[DcgmResult] = field(default_factory=list)

    @property
    def errors(self) -> list[tuple[DcgmResult, DcgmError]]:
        return [(result, error) for result in self.results for error in result.errors]


@dataclass(frozen=True)
class DcgmDiagRun:
    """One run of ``dcgmi diag``. ``gpus`` are DCGM's numbers of those that it found or tested.

    It is ok when it is complete, some test passed, none failed, and no error stands beside a test that passed.
    """

    version: str | None
    driver: str | None
    gpus: list[int]
    tests: list[DcgmTest]
    error: str | None
    complete: bool
    ok: bool
    cause: Cause | None


@dataclass(frozen=True)
class DcgmIncident:
    """What ``dcgmi health`` holds against one subsystem of one entity: ``health`` is Warning or Failure."""

    entity: str
    id: int | None
    system: str
    health: str
    text: str


@dataclass(frozen=True)
class DcgmHealthReport:
    """One report of ``dcgmi health -c``; ``overall`` is Healthy, Warning or Failure."""

    overall: str | None
    incidents: list[DcgmIncident]
    complete: bool
    ok: bool
    cause: Cause | None


def parse_diag(source: Source) -> Log[DcgmDiagRun]:
    """Read the JSON of ``dcgmi diag -j``; what dcgmi says instead of it is the cause."""
    return _parse(source, _DIAG_MARK, _diag)


def parse_health(source: Source) -> Log[DcgmHealthReport]:
    """Read the JSON of ``dcgmi health -c -j``; what dcgmi says instead of it is the cause."""
    return _parse(source, _HEALTH_MARK, _health)


RunT = t.TypeVar("RunT", DcgmDiagRun, DcgmHealthReport)


def _parse(source: Source, mark: str, read: t.Callable[[json_text.Read], RunT | None]) -> Log[RunT]:
    runs: list[RunT] = []
    causes = FirstCause(_FAILURES)
    for line, document in json_text.split(lines(source), mark):
        run = read(json_text.read(document)) if document is not None else None
        if document is None:
            causes.see(line)
        elif run is not None:
            runs.append(run)
            if run.cause:
                causes.add(run.cause)
    return Log(runs, causes.cause)


# dcgmi diag


def _diag(document: json_text.Read) -> DcgmDiagRun | None:
    top = _dictionary(document.data)
    name = next((name for name in _NAMES if name in top), None)
    if name is None:
        return None
    body, metadata = _dictionary(top.get(name)), _dictionary(top.get("metadata"))
    version = _text(metadata.get("version")) or _text(top.get("version")) or _text(body.get("version"))
    driver = _text(metadata.get("Driver Version Detected")) or _text(top.get("Driver Version Detected"))
    tests = [
        _test(_dictionary(test), _text(_dictionary(category).get("category")) or "")
        for category in _items(body.get("test_categories"))
        for test in _items(_dictionary(category).get("tests"))
        if isinstance(test, dict)
    ]
    error = _text(body.get("runtime_error"))
    complete = document.whole and bool(tests or error) and all(test.status != "unknown" for test in tests)
    cause = _diag_cause(tests, error)
    good = cause is None and any(test.status == "pass" for test in tests)
    gpus = _gpus(top, tests)
    return DcgmDiagRun(version, driver, gpus, tests, error, complete, complete and good, cause)


def _test(test: Facts, category: str) -> DcgmTest:
    name = _text(test.get("name")) or "?"
    results = [_result(_dictionary(result)) for result in _items(test.get("results"))]
    if isinstance(test.get("test_summary"), dict):
        summary = _result(test["test_summary"])
        # Since 4.6 the summary repeats the errors of all entities.
        known = {(error.code, error.text) for result in results for error in result.errors}
        own = [error for error in summary.errors if (error.code, error.text) not in known]
        if own or not results or summary.status not in {result.status for result in results}:
            results.append(DcgmResult(None, None, summary.status, own, summary.info))
    statuses = [result.status for result in results]
    worst = next((status for status in ("fail", "unknown", "warn", "pass", "skip") if status in statuses), None)
    return DcgmTest(name, category, worst or ("not_run" if statuses else "unknown"), results)


def _result(result: Facts) -> DcgmResult:
    entity, number = _text(result.get("entity_group")), _number(result.get("entity_id"))
    for key, group in (("gpu_id", "GPU"), ("gpu_ids", "GPU"), ("cpu_id", "CPU")):
        if entity is None and key in result:
            entity, number = group, _number(result[key])
    status = _STATUSES.get((_text(result.get("status")) or "").lower(), "unknown")
    errors = [error for item in _list(result.get("warnings")) for error in _errors(item, result.get("error_id"))]
    info = [text for text in map(_text, _list(result.get("info"))) if text]
    return DcgmResult(entity, number, status, errors, info)


def _errors(item: t.Any, code: t.Any) -> t.Iterator[DcgmError]:
    """Yield the error, whose text has no other place in level 1 of DCGM 3.3 than ``warnings``, again.

    Up to 3.2 it is a text, with its code (since 3.2) beside it.
    """
    entry = item if isinstance(item, dict) else {"warning": item, "error_id": code}
    text = _text(entry.get("warning")) or _text(entry.get("warnings"))
    number = _number(entry.get("error_id"))
    if text or number:
        severity = _named(entry.get("error_severity"), SEVERITIES)
        yield DcgmError(text or f"error {number}", number, severity, _named(entry.get("error_category"), CATEGORIES))


def _diag_cause(tests: t.Sequence[DcgmTest], error: str | None) -> Cause | None:
    if error:
        causes = FirstCause(_FAILURES)
        for line in error.splitlines():
            causes.see(line)
        return causes.cause or Cause(error.strip()[:400], "infra")
    for test in tests:
        for result, complaint in test.errors:
            if result.status not in ("skip", "not_run"):
                return Cause(f"{test.name}: {complaint.text}"[:400], complaint.kind(test.name))
        if test.status in ("fail", "warn"):
            return Cause(f"{test.name}: {test.status}, without a reason", DcgmError("").kind(test.name))
    return None


def _gpus(top: Facts, tests: t.Sequence[DcgmTest]) -> list[int]:
    listed = {index for index, dummy in enumerate(_items(top.get("GPU Device IDs")))}
    for group in map(_dictionary, _items(top.get("entity_groups"))):
        if group.get("entity_group") == "GPU":
            numbers = [_number(_dictionary(entity).get("entity_id")) for entity in _items(group.get("entities"))]
            listed |= {number for number in numbers if number is not None}
    # Level 1 of DCGM 3 has one result for all, and names the GPU of its last error there.
    tested = {
        result.id for test in tests for result in test.results if result.entity == "GPU" and result.id is not None
    }
    return sorted(listed | tested)


# dcgmi health


def _health(document: json_text.Read) -> DcgmHealthReport | None:
    top = _dictionary(document.data)
    body = _dictionary(top.get("body"))
    if not body or ("Health Monitor Report" not in _items(top.get("header")) and "Overall Health" not in body):
        return None
    overall = _text(_dictionary(body.get("Overall Health")).get("value"))
    incidents = [
        incident
        for group, entities in body.items()
        if group != "Overall Health"
        for number, entity in _children(entities)
        for incident in _incidents(str(group)[:_LONGEST], number, entity)
    ]
    complete = document.whole and overall in ("Healthy", "Warning", "Failure")
    cause = _health_cause(overall, incidents)
    good = cause is None and overall == "Healthy"
    return DcgmHealthReport(overall, incidents, complete, complete and good, cause)


def _incidents(group: str, number: str, entity: Facts) -> t.Iterator[DcgmIncident]:
    systems = _children(_dictionary(_dictionary(entity.get("children")).get("Errors")))
    for system, report in systems:
        # The text is wrapped at words.
        text = " ".join(piece for piece in map(_text, _items(report.get("overflow"))) if piece)
        yield DcgmIncident(group, _number(number), system, _text(report.get("value")) or "?", text[:_LONGEST])
    if not systems:
        yield DcgmIncident(group, _number(number), "?", _text(entity.get("value")) or "?", "")


def _children(node: t.Any) -> list[tuple[str, Facts]]:
    return [
        (str(name)[:_LONGEST], _dictionary(child))
        for name, child in _dictionary(_dictionary(node).get("children")).items()
    ]


def _health_cause(overall: str | None, incidents: t.Sequence[DcgmIncident]) -> Cause | None:
    bad = [incident for incident in incidents if incident.health != "Healthy"]
    worst = sorted(bad, key=lambda incident: incident.health != "Failure")
    if worst:
        first = worst[0]
        return Cause(
            f"{first.system} of {first.entity} {first.id}: {first.text or first.health}"[:400], health_kind(first)
        )
    return Cause(f"overall health: {overall}", "hardware") if overall in ("Warning", "Failure") else None


# By words of the messages in dcgm_errors.h: a report of health has neither codes nor categories. What is about all
# systems, such as the Xids after which a GPU is of no use, and about switches has "Internal error" as its system.
_HEALTH_KINDS = (
    (re.compile(r"IMEX|Fabric ?Manager|Fabric State is"), "software"),
    (re.compile(r"Incorrect Configuration"), "config"),
)


def health_kind(incident: DcgmIncident) -> str:
    """Return the class to blame for an incident."""
    known = next((kind for words, kind in _HEALTH_KINDS if words.search(incident.text)), None)
    if known:
        return known
    return "fabric" if incident.entity == "ConnectX" or incident.system.startswith("ConnectX") else "hardware"


def _dictionary(value: t.Any) -> Facts:
    return value if isinstance(value, dict) else {}


def _items(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else []


def _list(value: t.Any) -> list[t.Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _text(value: t.Any) -> str | None:
    return value.strip()[:_LONGEST] or None if isinstance(value, str) else None


def _number(value: t.Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value, re.ASCII):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None


def _named(value: t.Any, names: t.Sequence[str]) -> str | None:
    number = _number(value)
    return None if number is None else names[number] if number < len(names) else "unknown"
