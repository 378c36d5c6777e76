# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a runbook is published again, and what of it is somebody else's."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import runbook
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.client import AzureError

SCRIPT = "Write-Output 1\n"
KIND = runbook.RunbookKind("PowerShell")
BODY: dict[str, t.Any] = {"name": "expire", "location": "eastus", "tags": {"created-by": "hpcai.gpu_cluster"}}


def observed(**changes: t.Any) -> dict[str, t.Any]:
    properties = {"runbookType": "PowerShell", "state": "Published", "description": runbook.mark(SCRIPT)}
    tags = changes.pop("tags", BODY["tags"])
    return {"location": "East US", "tags": tags, "properties": {**properties, **changes}}


def test_what_is_as_requested_is_left_alone() -> None:
    assert runbook.plan(BODY, SCRIPT, KIND, observed(), SCRIPT) == runbook.RunbookPlan({}, [])
    assert runbook.plan(BODY, SCRIPT, KIND, observed(), "\ufeffWrite-Output 1\r\n") == runbook.RunbookPlan({}, [])


@pytest.mark.parametrize(
    "changes, published, different",
    [
        ({}, "Remove-AzResourceGroup -Name everything -Force\n", "script"),  # somebody published another one
        ({}, None, "script"),
        ({"description": "mine"}, SCRIPT, "description"),
        ({"state": "New"}, SCRIPT, "state"),
        ({"tags": {}}, SCRIPT, "tags"),
        ({"tags": None}, SCRIPT, "tags"),
    ],
)
def test_every_difference_is_seen(changes: dict[str, t.Any], published: str | None, different: str) -> None:
    """Once only the description was compared, so a script that somebody replaced went on running."""
    assert list(runbook.plan(BODY, SCRIPT, KIND, observed(**changes), published).differences) == [different]


def test_a_draft_of_somebody_stays_and_is_told() -> None:
    plan = runbook.plan(BODY, SCRIPT, KIND, observed(state="Edit"), SCRIPT)
    assert plan.differences == {} and "the draft stays" in plan.warnings[0]
    assert list(runbook.plan(BODY, SCRIPT, KIND, observed(state="Edit", description=""), None).differences) == [
        "description",
        "script",
    ]


def test_another_type_is_refused() -> None:
    with pytest.raises(AzureError, match="its type is Python3, and Azure does not change the type"):
        runbook.plan(BODY, SCRIPT, KIND, observed(runbookType="Python3"), SCRIPT)


def test_a_runbook_that_is_not_there_is_made() -> None:
    assert runbook.plan(BODY, SCRIPT, KIND, None, None).differences == {"runbook": "absent"}


def test_another_runtime_environment_is_a_difference_and_azures_own_is_not() -> None:
    python = runbook.RunbookKind("Python", "python-3-10")
    there = observed(runbookType="Python", runtimeEnvironment="Python-3.8")
    assert runbook.plan(BODY, SCRIPT, python, there, SCRIPT).differences == {"environment": "Python-3.8"}
    there = observed(runbookType="Python", runtimeEnvironment="python-3-10")
    assert runbook.plan(BODY, SCRIPT, python, there, SCRIPT).differences == {}
    assert runbook.plan(BODY, SCRIPT, KIND, observed(runtimeEnvironment="PowerShell-5.1"), SCRIPT).differences == {}
