# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts of NHC and healthagent: what they say counts, and silence is no health."""

from __future__ import annotations

import json
import random
import time
import typing as t
from pathlib import Path

import pytest
from stand_in import answer

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import checks_others, registry, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import AgentConfig, Context

# Printed by NHC of commit 9c4a38c with -a -l -.
NHC = """ERROR:  nhc:  Health check failed:  check_fs_mount:  /scratch not mounted
ERROR:  nhc:  Health check failed:  check_ps_daemon:  No instance of chronyd found running
ERROR:  nhc:  2 health checks failed.
"""
# The shape of healthagent's README, commit b8c76db.
HEALTH: dict[str, t.Any] = {
    "gpu": {
        "GpuCountCheck": {"status": "OK", "last_update": "2026-07-13T21:40:08 UTC"},
        "GpuHealthCheck": {"status": "Error", "error_count": 1, "description": "GPU 3 row remap failure detected"},
        "GpuMemoryCheck": {"status": "NA"},
    },
    "network": {"NetworkInterfaceCheck": {"status": "Warning", "message": "IPoIB not in state up"}},
    "systemd": {"SystemdServiceCheck": {"status": "Error", "message": "slurmd.service failed"}},
}


def context(**options: t.Any) -> Context:
    return Context(AgentConfig(node="n1", checks=options), "periodic")


def nhc(tmp_path: Path, status: int, text: str, age: float = 10, **more: t.Any) -> dict[str, t.Any]:
    (tmp_path / "nhc").write_text(f"{int(time.time() - age)} {status}\n{text}")
    (one,) = checks_others.nhc(context(nhc={"result": str(tmp_path / "nhc"), **more}))
    return one


def test_what_nhc_refuses_is_a_failure(tmp_path: Path) -> None:
    one = nhc(tmp_path, 2, NHC)
    assert (one["verdict"], one["class"]) == ("fail", "software")
    assert (
        one["reason"] == "check_fs_mount:  /scratch not mounted; check_ps_daemon:  No instance of chronyd found running"
    )
    assert nhc(tmp_path, 2, NHC, drains=True)["verdict"] == "warn"
    assert nhc(tmp_path, 0, "")["verdict"] == "pass"


@pytest.mark.parametrize(
    ("status", "text", "age"), [(124, "", 10), (1, "bash: nope", 10), (0, "", 4000), (0, "", -400)]
)
def test_an_nhc_that_hangs_or_breaks_is_no_health(tmp_path: Path, status: int, text: str, age: float) -> None:
    one = nhc(tmp_path, status, text, age)
    assert (one["verdict"], one["class"]) == ("error", "infra")


def test_an_nhc_that_has_not_run_yet_is_skipped_and_nonsense_is_an_error(tmp_path: Path) -> None:
    missing = checks_others.nhc(context(nhc={"result": str(tmp_path / "none")}))
    assert missing[0]["verdict"] == "skipped"
    (tmp_path / "nhc").write_text("today fine\n")
    assert checks_others.nhc(context(nhc={"result": str(tmp_path / "nhc")}))[0]["verdict"] == "error"


def health(tmp_path: Path, text: str, status: int = 0) -> list[dict[str, t.Any]]:
    program = answer(tmp_path / "health", text, status=status)
    return checks_others.healthagent(context(healthagent={"program": str(program)}))


def test_what_healthagent_says_is_taken_over(tmp_path: Path) -> None:
    found = {one["scope"]["check"]: one for one in health(tmp_path, json.dumps(HEALTH))}
    told = {name: (one["verdict"], one["class"]) for name, one in found.items()}
    assert told == {
        "GpuCountCheck": ("pass", None),
        "GpuHealthCheck": ("fail", "hardware"),
        "GpuMemoryCheck": ("skipped", None),
        "NetworkInterfaceCheck": ("warn", "fabric"),
        "SystemdServiceCheck": ("fail", "software"),
    }
    assert "row remap failure" in found["GpuHealthCheck"]["reason"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", "{", '{"gpu": {}}', '{"gpu": {"X": {}}}', '{"gpu": {"X": 3}}']
)
def test_a_healthagent_without_an_answer_is_no_health(tmp_path: Path, text: str) -> None:
    assert {one["verdict"] for one in health(tmp_path, text)} == {"error"}


def test_a_healthagent_that_does_not_run_is_no_health(tmp_path: Path) -> None:
    assert health(tmp_path, json.dumps(HEALTH), status=255)[0]["verdict"] == "error"
    gone = checks_others.healthagent(context(healthagent={"program": str(tmp_path / "none")}))
    assert gone[0]["verdict"] == "error"


def test_hostile_answers_neither_crash_nor_pass() -> None:
    rng = random.Random(6)
    values = [
        None,
        True,
        3,
        -1.5,
        "Error",
        "ok",
        "",
        [],
        ["OK"],
        {},
        {"status": ["OK"]},
        {"status": "Fine"},
        {"status": None},
    ]

    def any_of(depth: int) -> t.Any:
        if depth and rng.random() < 0.7:
            return {rng.choice(["gpu", "network", "x", ""]): any_of(depth - 1) for dummy in range(rng.randrange(4))}
        return rng.choice(values)

    for dummy in range(5000):
        found = checks_others._reports(context(), any_of(3))
        assert found and all(state.sound(one) and one["verdict"] != "pass" for one in found)


def test_what_is_left_to_healthagent_are_checks_of_the_periodic_suite() -> None:
    for name in registry.HEALTHAGENT:
        assert "periodic" in registry.CHECKS[name].suites, name
