# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Suites of the agent's configuration."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.health_suites import health_suites
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import check
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.registry import HEALTHAGENT


def test_alone_the_agent_decides() -> None:
    given = {"prolog": {"budget": 2}, "periodic": {"checks": ["disk_space"], "budget": 20}}
    assert health_suites({}) == {}
    assert health_suites(given) == given


def test_nhc_s_verdict_is_one_more_check() -> None:
    assert health_suites({"periodic": {"checks": ["disk_space"]}}, "nhc")["periodic"]["checks"] == ["disk_space", "nhc"]
    own = health_suites({}, "nhc")["periodic"]["checks"]
    assert own[-1] == "nhc" and "gpu" in own


def test_nothing_runs_twice_beside_healthagent() -> None:
    found = health_suites({"periodic": {"budget": 25}, "prolog": {"budget": 2}}, "healthagent")
    assert found["prolog"] == {"budget": 2} and found["periodic"]["budget"] == 25
    names = found["periodic"]["checks"]
    assert names[-1] == "healthagent" and not set(names) & set(HEALTHAGENT) and "disk_space" in names


def test_the_agent_takes_what_is_drawn() -> None:
    for program in ("agent", "nhc", "healthagent"):
        found = check.check({"schema": 1, "node": "n1", "suites": health_suites({"prolog": {"budget": 2}}, program)})
        assert found.suites["prolog"].budget == 2


@pytest.mark.parametrize(
    ("given", "program", "says"),
    [
        ([], "agent", "takes a dictionary"),
        ({}, "monit", "monit"),
        ({"daily": {}}, "agent", "daily"),
        ({"prolog": {"budget": 6}}, "agent", "waits 5 s"),
        ({"periodic": {"budget": 55}}, "nhc", "waits 50 s"),
        ({"boot": {"budget": 0}}, "agent", "budget"),
        ({"boot": {"checks": ["gpus"]}}, "agent", "gpus"),
        ({"boot": {"check": ["gpu"]}}, "agent", "boot"),
    ],
)
def test_what_would_not_work_is_refused(given: t.Any, program: str, says: str) -> None:
    with pytest.raises(AnsibleFilterError, match=says):
        health_suites(given, program)
