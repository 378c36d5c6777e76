# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON of dcgmi diag and dcgmi health, from DCGM 3.1 to 4.6, with what dcgmi prints before or instead of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import dcgm

FIXTURES = Path(__file__).parents[3] / "fixtures/dcgm"


def read(name: str) -> str:
    return next(FIXTURES.glob(f"{name}.*")).read_text()


def only(name: str) -> dcgm.DcgmDiagRun:
    (run,) = dcgm.parse_diag(read(name)).runs
    return run


@pytest.mark.parametrize(
    ("name", "version", "tests", "gpus", "ok"),
    [
        ("authored-3.1.8-diag-r1", None, 9, 0, False),
        ("authored-3.3.9-diag-r1", "3.3.9", 9, 8, True),
        ("authored-3.3.9-diag-r3-memory", "3.3.9", 16, 8, False),
        ("authored-4.4.2-diag-r1", "4.4.2", 1, 8, True),
        ("authored-4.6.0-diag-r3", "4.6.0", 9, 8, False),
        ("authored-4.6.0-diag-after-warning", "4.6.0", 1, 8, True),
        ("authored-4.5.0-diag-skipped", "4.5.0", 1, 1, False),
        ("quoted-gcm-diag-pass", None, 9, 0, True),
        ("quoted-gcm-diag-fail", None, 9, 0, False),
        ("quoted-gcm-diag-warn", None, 9, 0, False),
    ],
)
def test_a_run_says_what_was_tested(name: str, version: str | None, tests: int, gpus: int, ok: bool) -> None:
    run = only(name)
    assert (version is None or run.version == version) and run.complete
    assert (len(run.tests), len(run.gpus), run.ok) == (tests, gpus, ok)
    assert dcgm.parse_diag(read(name)).ok is ok


def test_level_1_of_dcgm_3_names_the_gpu_and_calls_the_text_by_another_name() -> None:
    run = only("authored-3.3.9-diag-r1-persistence")
    (test,) = [test for test in run.tests if test.status == "fail"]
    ((result, error),) = test.errors
    assert (test.name, test.category, result.entity, result.id) == ("Persistence Mode", "Deployment", "GPU", 3)
    assert error.text.startswith("Persistence mode for GPU 3 is disabled.")
    assert (error.code, error.severity, error.category) == (29, "config", "software_other")
    assert run.cause and run.cause.kind == "config"


def test_dcgm_3_1_has_texts_without_codes() -> None:
    run = only("authored-3.1.8-diag-r1")
    ((dummy, error),) = [found for test in run.tests for found in test.errors]
    assert (error.code, error.severity, error.kind("Inforom")) == (None, None, "hardware")
    assert run.cause and run.cause.text.startswith("Inforom: A corrupt InfoROM")


def test_dcgm_3_2_has_the_code_beside_the_text() -> None:
    text = read("authored-3.1.8-diag-r1").replace('"status" : "Fail",', '"error_id" : 9,\n"status" : "Fail",')
    (run,) = dcgm.parse_diag(text).runs
    assert [error.code for test in run.tests for dummy, error in test.errors] == [9]


def test_the_summary_of_dcgm_4_6_repeats_no_error() -> None:
    run = only("authored-4.6.0-diag-r3")
    found = {test.name: [(result.entity, result.id, error.code) for result, error in test.errors] for test in run.tests}
    assert found["software"] == [("GPU", 6, 80)] and found["pcie"] == [("GPU", 1, 115)]
    # A test that passed has an error, and one that was skipped has one of no GPU.
    assert found["memory"] == [("GPU", 0, 56)] and found["nvbandwidth"] == [(None, None, 117)]
    assert [test.status for test in run.tests if test.name in ("memory", "nvbandwidth", "nccl_tests")] == [
        "pass",
        "skip",
        "skip",
    ]


def test_what_was_not_run_is_no_pass() -> None:
    run = only("authored-4.4.2-diag-r2-fabric")
    assert [test.status for test in run.tests] == ["fail", "not_run", "not_run"]
    assert run.cause and run.cause.kind == "config" and "Fabric Manager training failed" in run.cause.text


def test_a_status_that_nobody_knows_is_no_pass() -> None:
    (run,) = dcgm.parse_diag(read("authored-4.4.2-diag-r1").replace('"Pass"', '"Passed with remarks"')).runs
    assert (run.complete, run.ok, run.tests[0].status) == (False, False, "unknown")


@pytest.mark.parametrize("name", ["authored-3.3.9-diag-error", "authored-4.4.2-diag-error"])
def test_a_runtime_error_is_a_document(name: str) -> None:
    run = only(name)
    assert run.error and not run.ok and run.cause and not run.tests
    assert run.cause.kind in ("infra", "software")


def test_a_document_without_a_test_is_no_result() -> None:
    log = dcgm.parse_diag('{\n"DCGM Diagnostic" : \n{\n},\n"metadata" : \n{\n"version" : "4.4.2"\n}\n}\n')
    assert not log.ok and [run.complete for run in log.runs] == [False]


@pytest.mark.parametrize("parse", [dcgm.parse_diag, dcgm.parse_health])
@pytest.mark.parametrize(
    ("name", "kind"), [("authored-4.4.2-no-hostengine", "infra"), ("authored-4.4.2-health-no-watches", "config")]
)
def test_what_dcgmi_says_instead_of_a_document_is_the_cause(parse: object, name: str, kind: str) -> None:
    log = parse(read(name))  # type: ignore[operator]
    assert not log.runs and log.cause.kind == kind


@pytest.mark.parametrize("end", range(1, 40))
def test_a_document_that_breaks_off_is_not_complete(end: int) -> None:
    for name in ("authored-4.4.2-diag-r1", "authored-3.3.9-diag-r1", "authored-4.4.2-health"):
        text = read(name).rstrip()
        parse = dcgm.parse_health if "health" in name else dcgm.parse_diag
        assert not parse(text[: len(text) * end // 40]).ok


@pytest.mark.parametrize(
    ("severity", "category", "test", "kind"),
    [
        ("isolate", "hardware_memory", "memtest", "hardware"),
        ("reset", "hardware_other", "software", "hardware"),
        ("triage", "perf_threshold", "targeted_stress", "hardware"),
        ("config", "hardware_pcie", "software", "config"),
        ("triage", "software_config", "software", "config"),
        ("triage", "software_library", "software", "software"),
        ("monitor", "software_cuda", "pcie", "software"),
        # DCGM_FR_UNCONTAINED_ERROR and DCGM_FR_EUD_TEST_FAILED are the hardware's, told by driver and field diagnostic.
        ("isolate", "software_xid", "software", "hardware"),
        ("isolate", "software_eud", "eud", "hardware"),
        ("triage", "software_eud", "eud", "software"),
        ("triage", "internal_other", "pcie", "infra"),
        (None, None, "Persistence Mode", "config"),
        (None, None, "NVML Library", "software"),
        (None, None, "GPU Memory", "hardware"),
        ("unknown", "unknown", "memtest", "hardware"),
    ],
)
def test_the_class_to_blame_is_that_of_dcgms_own_table(
    severity: str | None, category: str | None, test: str, kind: str
) -> None:
    assert dcgm.DcgmError("x", 1, severity, category).kind(test) == kind


def test_a_report_of_health() -> None:
    (report,) = dcgm.parse_health(read("authored-4.4.2-health")).runs
    assert (report.overall, report.incidents, report.ok) == ("Healthy", [], True)
    (report,) = dcgm.parse_health(read("authored-4.6.0-health-failure")).runs
    found = {(one.entity, one.id, one.system, one.health): dcgm.health_kind(one) for one in report.incidents}
    assert found == {
        ("ConnectX", 2, "ConnectX system", "Warning"): "fabric",
        ("GPU", 3, "Memory system", "Failure"): "hardware",
        ("GPU", 3, "Power system", "Warning"): "hardware",
        ("GPU", 5, "Driver", "Failure"): "hardware",
        ("GPU", 7, "Internal error", "Failure"): "hardware",
        ("Switch", 0, "Internal error", "Warning"): "hardware",
    }
    assert report.complete and not report.ok
    assert report.cause and report.cause.text.startswith("Memory system of GPU 3: Detected 1 volatile double-bit ECC")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("IMEX daemon status is NOT_READY (not READY)", "software"),
        ("GPU 0: Fabric State is Failed (3). Ensure that the FabricManager is running without errors.", "software"),
        ("Detected 1 Fabric Health: Incorrect Configuration for GPU 0", "config"),
        ("GPU 7 has fallen off the bus", "hardware"),
    ],
)
def test_words_of_health_that_are_not_the_hardwares(text: str, kind: str) -> None:
    assert dcgm.health_kind(dcgm.DcgmIncident("GPU", 0, "NVLINK system", "Failure", text)) == kind
