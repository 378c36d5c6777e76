# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What dcgm_diag and dcgm_health make of what dcgmi prints: verdict, class, action, and what is believed of it."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import dcgm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.users import User
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.dcgm import DcgmError, DcgmResult, DcgmTest

Json = t.Dict[str, t.Any]
FIXTURES = Path(__file__).parents[3] / "fixtures/dcgm"
DEFAULTS = {name: option.get("default") for name, option in {**dcgm._launch.SPEC, **dcgm.DIAG_SPEC}.items()}


def read(name: str) -> str:
    return next(FIXTURES.glob(f"{name}.*")).read_text()


def diag(text: str, expected: int = 0, *, rc: int | None = 0, err: str = "", **params: t.Any) -> Json:
    options = {**DEFAULTS, "name": "n1", **params}
    return dcgm.judged_diag(Outcome(rc, text, err, 1.0), options, expected, dcgm._about(options, "dcgmi diag", level=1))


def health(text: str, **params: t.Any) -> Json:
    options = {"name": "n1", "profile": None, "run": None, "expect": [], **params}
    return dcgm.judged_health(Outcome(0, text, "", 1.0), options, dcgm._about(options, "dcgmi health"))


@pytest.mark.parametrize(
    ("name", "verdict", "blame", "scope", "action", "code"),
    [
        ("authored-3.1.8-diag-r1", "fail", "hardware", {}, None, None),
        ("authored-3.3.9-diag-r1", "pass", None, {}, None, None),
        ("authored-3.3.9-diag-r1-persistence", "fail", "config", {"gpu": [3]}, None, 29),
        ("authored-3.3.9-diag-r3-memory", "fail", "hardware", {"gpu": [2, 5]}, "isolate", 52),
        ("authored-3.3.9-diag-error", "skipped", None, {}, None, None),
        ("authored-4.4.2-diag-r1", "pass", None, {}, None, None),
        ("authored-4.4.2-diag-r2-fabric", "fail", "config", {"gpu": [4]}, None, 112),
        ("authored-4.4.2-diag-error", "error", "infra", {}, None, None),
        ("authored-4.5.0-diag-skipped", "skipped", None, {}, None, None),
        ("authored-4.6.0-diag-r3", "fail", "hardware", {"gpu": [0, 1, 6]}, "isolate", 115),
        ("authored-4.6.0-diag-after-warning", "pass", None, {}, None, None),
        ("authored-4.4.2-no-hostengine", "skipped", None, {}, None, None),
        ("authored-4.5.0-diag-connection-lost", "error", "infra", {}, None, None),
        ("quoted-gcm-diag-pass", "pass", None, {}, None, None),
        ("quoted-gcm-diag-fail", "fail", "config", {}, None, None),
        ("quoted-gcm-diag-warn", "warn", "config", {}, "monitor", None),
    ],
)
def test_the_verdict_on_a_diagnostic(
    name: str, verdict: str, blame: str | None, scope: Json, action: str | None, code: int | None
) -> None:
    found = diag(read(name))
    assert (found["verdict"], found["class"], found["scope"]) == (verdict, blame, scope), found["reason"]
    assert (found["context"].get("action"), found["context"].get("code")) == (action, code)
    assert bool(found["evidence"]) is (verdict != "pass") and (verdict == "pass" or found["reason"])


def test_the_reason_has_the_worst_first_and_what_was_not_tested_last() -> None:
    reason = diag(read("authored-3.3.9-diag-r3-memory"))["reason"]
    parts = reason.split("; ")
    assert parts[0].startswith("GPU Memory on GPU 5: Found 2 faulty memory elements on GPU 5")
    assert parts[1].startswith("Targeted Power on GPU 2: Max power") and parts[2] == "not tested: Pulse Test"


def test_the_missing_host_engine_is_named_with_what_starts_it() -> None:
    reason = diag(read("authored-4.4.2-no-hostengine"))["reason"]
    assert "nv-hostengine" in reason and "nvidia-dcgm" in reason


@pytest.mark.parametrize(("expected", "verdict"), [(8, "pass"), (4, "error"), (0, "pass")])
def test_a_gpu_that_dcgm_does_not_see_is_no_pass(expected: int, verdict: str) -> None:
    found = diag(read("authored-4.4.2-diag-r1"), expected)
    assert found["verdict"] == verdict
    assert verdict == "pass" or found["reason"] == "DCGM 4.4.2 saw 8 of 4 GPUs (see gpu_count)"


def test_a_gpu_that_is_missing_hides_no_fault_of_another() -> None:
    found = diag(read("authored-4.6.0-diag-r3"), 9)
    assert (found["verdict"], found["class"], found["context"]["code"]) == ("fail", "hardware", 115)
    assert "saw 8 of 9 GPUs" in found["reason"]


@pytest.mark.parametrize(("expected", "verdict"), [(8, "error"), (0, "skipped")])
def test_no_gpu(expected: int, verdict: str) -> None:
    found = diag("", expected, rc=255, err="0 GPUs found.\n")
    assert (found["verdict"], found["reason"]) == (verdict, "DCGM found no GPU")


@pytest.mark.parametrize(
    ("text", "rc", "err", "reason"),
    [
        ("", 0, "", "dcgmi ended well"),
        ("Successfully ran diagnostic for group.\n| Denylist | Pass |\n", 0, "", "as DCGM 3 and 4 do"),
        ("", 254, "Error: Couldn't find match for argument for arg -Q.\n", "Couldn't find match"),
        ("", None, "dcgmi did not end within 120 s", "did not end within"),
        ('{\n"DCGM 5 Diagnostic" : \n{\n"tests" : []\n}\n}\n', 0, "", "as DCGM 3 and 4 do"),
    ],
)
def test_what_is_no_result_of_dcgm_3_or_4_is_an_error(text: str, rc: int | None, err: str, reason: str) -> None:
    found = diag(text, rc=rc, err=err)
    assert (found["verdict"], found["class"]) == ("error", "infra") and reason in found["reason"]


def test_a_result_of_a_program_that_was_ended_is_not_believed() -> None:
    found = diag(read("authored-4.4.2-diag-r1"), rc=None, err="dcgmi did not end within 120 s")
    assert (found["verdict"], found["reason"]) == ("error", "dcgmi did not end within 120 s")


def test_a_status_that_nobody_knows_is_an_error() -> None:
    found = diag(read("authored-4.4.2-diag-r1").replace('"Pass"', '"Passed"'))
    assert found["verdict"] == "error" and "none of Pass, Fail, Warn, Skip and Not Run for software" in found["reason"]


@pytest.mark.parametrize(
    ("status", "severity", "category", "verdict", "blame", "action"),
    [
        ("fail", "isolate", "hardware_memory", "fail", "hardware", "isolate"),
        ("fail", "reset", "hardware_memory", "fail", "hardware", "reset"),
        ("fail", "monitor", "hardware_thermal", "fail", "hardware", "monitor"),
        ("fail", "triage", "software_cuda", "fail", "software", ""),
        ("fail", "config", "software_other", "fail", "config", ""),
        ("fail", "triage", "internal_other", "error", "infra", ""),
        ("fail", None, None, "fail", "hardware", ""),
        ("warn", "isolate", "hardware_memory", "warn", "hardware", "monitor"),
        ("pass", "triage", "software_other", "warn", "software", "monitor"),
        ("pass", "triage", "internal_other", "warn", "software", "monitor"),
    ],
)
def test_severity_and_category_of_dcgm_become_action_and_class(
    status: str, severity: str | None, category: str | None, verdict: str, blame: str, action: str
) -> None:
    result = DcgmResult("GPU", 2, status, [DcgmError("broken", 1, severity, category)])
    (found,) = dcgm.diag_findings([DcgmTest("memtest", "Stress", status, [result])])
    assert (found.verdict, found.blame, found.gpu) == (verdict, blame, 2)
    assert found.action == action
    assert found.text == "memtest on GPU 2: broken"


def test_an_aborted_test_says_nothing_of_the_node() -> None:
    result = DcgmResult("GPU", 2, "fail", [DcgmError("aborted", 47, "config", "software_other")])
    (found,) = dcgm.diag_findings([DcgmTest("memtest", "Stress", "fail", [result])])
    assert (found.verdict, found.blame) == ("error", "infra")


def test_an_expectation_can_ask_that_nothing_was_skipped() -> None:
    limit = {"check": "dcgm_diag", "metric": "skipped", "op": "==", "value": 0, "unit": "tests", "source": "site"}
    text = read("authored-4.6.0-diag-r3").replace('"Fail"', '"Pass"').replace('"error_id"', '"x"')
    assert diag(read("authored-4.4.2-diag-r1"), expect=[limit])["verdict"] == "pass"
    found = diag(text, expect=[{**limit, "verdict": "warn"}])
    assert found["verdict"] == "warn" and "skipped: 2 tests, expected == 0" in found["reason"]


@pytest.mark.parametrize(
    ("name", "verdict", "blame", "scope", "action"),
    [
        ("authored-4.4.2-health", "pass", None, {}, None),
        ("authored-3.3.9-health-warning", "warn", "hardware", {"gpu": [0]}, "monitor"),
        ("authored-4.6.0-health-failure", "fail", "hardware", {"gpu": [3, 5, 7]}, "isolate"),
        ("authored-4.4.2-no-hostengine", "skipped", None, {}, None),
        ("authored-4.4.2-health-no-watches", "skipped", None, {}, None),
        ("authored-4.4.2-diag-r1", "error", "infra", {}, None),
    ],
)
def test_the_verdict_on_a_report_of_health(
    name: str, verdict: str, blame: str | None, scope: Json, action: str | None
) -> None:
    found = health(read(name))
    assert (found["verdict"], found["class"], found["scope"]) == (verdict, blame, scope), found["reason"]
    assert found["context"].get("action") == action


@pytest.mark.parametrize(
    ("asked", "action"), [("GPU_RESET", "reset"), ("NODE_REBOOT", "reboot"), ("DRAIN_AND_RESET", "reset")]
)
def test_the_action_that_the_driver_asks_for(asked: str, action: str) -> None:
    text = read("authored-4.6.0-health-failure").replace("NODE_REBOOT", asked)
    found = dcgm.health_findings(dcgm.dcgm.parse_health(text).runs[0].incidents)
    assert [one.action for one in found if "Recovery action" in one.text] == [action]


def test_a_failure_without_an_incident_is_a_failure() -> None:
    found = health(read("authored-4.4.2-health").replace("Healthy", "Failure"))
    assert (found["verdict"], found["class"]) == ("fail", "hardware")
    assert health(read("authored-4.4.2-health").replace("Healthy", "Internal error"))["verdict"] == "error"


# What is run, and when nothing is.


@pytest.mark.parametrize(
    ("params", "argv"),
    [
        ({}, "diag -j -r 1"),
        ({"level": 3}, "diag -j -r 3"),
        ({"level": 3, "tests": ["pcie", "memtest"]}, "diag -j -r pcie,memtest"),
        ({"parameters": {"memtest.test_duration": 60, "pcie.test_nvlink_status": "false"}}, "diag -j -r 1 -p "
         "memtest.test_duration=60;pcie.test_nvlink_status=false"),
    ],
)  # fmt: skip
def test_the_command_line(params: Json, argv: str) -> None:
    assert " ".join(dcgm.arguments({**DEFAULTS, **params}, None)) == argv
    assert " ".join(dcgm.arguments({**DEFAULTS, **params}, [0, 2])).count(" -i 0,2") == 1


@pytest.mark.parametrize(
    "params",
    [
        {"tests": ["pcie;id"]},
        {"tests": ["-f"]},
        {"parameters": {"memtest": 1}},
        {"parameters": {"memtest.x": "1;pcie.y=2"}},
        {"gpus": "all"},
        {"timeout": float("inf")},
        {"nodes": 2},
        {"launcher": "srun", "container_image": "x"},
        {"expect": [{"check": "dcgm_diag", "metric": "failed", "op": "==", "value": 0, "unit": "GPUs", "source": "s"}]},
    ],
)
def test_options_that_make_no_sense_are_refused(params: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcgm, "run", lambda *dummy, **more: pytest.fail("something was run"))
    monkeypatch.setattr(dcgm._launch, "launcher", lambda *dummy: ("/usr/bin/srun", {}))
    with pytest.raises(ValueError, match=r"\w"):
        dcgm.diag({**DEFAULTS, **params}, False)


class World:
    """dcgmi that prints a text, and the processes that nvidia-smi shows before and after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *users: t.Sequence[User]) -> None:
        self.ran: list[list[str]] = []
        self.text = read("authored-4.4.2-diag-r1")
        looks = iter(users)
        monkeypatch.setattr(dcgm._launch, "find", lambda *dummy, **more: "/usr/bin/dcgmi")
        monkeypatch.setattr(dcgm.users, "read_users", lambda *dummy: list(next(looks)))
        monkeypatch.setattr(dcgm, "run", self.run)

    def run(self, argv: t.Sequence[str], *dummy: t.Any) -> Outcome:
        self.ran.append(list(argv))
        return Outcome(0, self.text, "8 GPUs found.\n", 3.0)


JOB = User("n1", 3, "GPU-3", 4711, "/home/u/train")
OWN = User("n1", 3, "GPU-3", 4712, "/usr/libexec/datacenter-gpu-manager-4/nvvs")


@pytest.mark.parametrize("params", [{"level": 2}, {"level": 4}, {"tests": ["pcie"]}])
def test_nothing_computes_beside_a_job(params: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, [JOB])
    (found,) = dcgm.diag({**DEFAULTS, **params}, False)["checks"]
    assert (found["verdict"], found["reason"]) == ("skipped", "in use: GPU 3 of n1 by train (pid 4711)")
    assert world.ran == []


def test_level_1_computes_nothing_and_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    result = dcgm.diag({**DEFAULTS, "gpus": 8}, False)
    assert result["checks"][0]["verdict"] == "pass" and [test["name"] for test in result["tests"]] == ["software"]
    assert world.ran[0][-6:] == ["standalone", "/usr/bin/dcgmi", "diag", "-j", "-r", "1"]


def test_programs_that_came_meanwhile_leave_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, [OWN], [JOB, OWN])
    world.text = read("authored-4.6.0-diag-r3")
    (found,) = dcgm.diag({**DEFAULTS, "level": 3}, False)["checks"]
    assert (found["verdict"], found["class"]) == ("unjudged", None)
    assert found["reason"].startswith("in use: GPU 3 of n1 by train (pid 4711), since the tests began; pcie on GPU 1")


def test_check_mode_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert dcgm.diag({**DEFAULTS, "level": 3}, True)["checks"][0]["reason"] == "check mode"
    assert world.ran == []
