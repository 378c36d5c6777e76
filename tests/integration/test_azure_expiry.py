# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""expire.yml on a fresh subscription, and the job that it leaves there: it runs, with the rights that it was given."""

from __future__ import annotations

import time
import typing as t

from patience import patience
from test_azure_infra import PLACE, Role, role, running, warm
from test_azure_shared_groups import OURS, day, play

__all__ = ["role", "running", "warm"]
RG, HOME, TAGS = "resourceGroups/c1-rg", "resourceGroups/c1-expiry-rg", "2021-04-01"
ACCOUNT = f"{HOME}/providers/Microsoft.Automation/automationAccounts/c1-expiry"
IDENTITY = f"{RG}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/c1-locker"
READER = "providers/Microsoft.Authorization/roleDefinitions/acdd72a7-3385-48ef-bd42-f606fba81ae7"


def own(name: str) -> dict[str, t.Any]:
    return {**PLACE, "tags": {**OURS, "hpcai-resource": name}}


def cluster(role: Role) -> str:
    """Make a group with an identity that has a role above it; return the assignment's id."""
    role.azure.control("settings", {"unregistered": ["Microsoft.Automation"]})
    role.azure.arm("PUT", RG, TAGS, own("resourceGroups/c1-rg"))
    made = role.azure.arm("PUT", IDENTITY, "2024-11-30", own("c1-rg/userAssignedIdentities/c1-locker")).body
    said = {"principalId": made["properties"]["principalId"], "principalType": "ServicePrincipal"}
    said["roleDefinitionId"] = f"{role.azure.subscription}/{READER}"
    name = "providers/Microsoft.Authorization/roleAssignments/66666666-6666-4666-8666-666666666666"
    assert role.azure.arm("PUT", name, "2022-04-01", {"properties": said}).status == 201
    return f"{role.azure.subscription}/{name}"


def due(role: Role, *groups: str) -> None:
    """Let the day of some groups have come."""
    for group in groups:
        tags = role.azure.arm("GET", group, TAGS).body["tags"]
        role.azure.arm("PATCH", group, TAGS, {"tags": {**tags, "expires-on": "2020-01-01T00:00:00Z"}})


def job(role: Role) -> t.Any:
    """Have the schedule's time come, and return the job when it has ended."""
    listed = role.azure.arm("GET", f"{ACCOUNT}/schedules", "2023-11-01").body["value"]
    made = role.azure.control("fire", {"schedule": listed[-1]["name"]})
    assert len(made) == 1, "each schedule starts the runbook once"
    until = time.monotonic() + patience(90)
    while time.monotonic() < until:
        ended = [one for one in role.azure.control("jobs") if one["id"] == made[0]]
        if ended:
            return ended[0]
        time.sleep(0.1)
    raise AssertionError("the job does not end")


def test_the_job_deletes_what_is_due_and_nothing_before(role: Role) -> None:
    assignment = cluster(role)
    play(role, "expire.yml")
    asked = {"azure_teardown_cluster": "c1", "azure_teardown_expires_on": day(2), "azure_teardown_schedule": True}
    first = role(**asked)
    assert first.changed, first.output
    again = role(**asked)
    assert again.changed == 0, again.output  # a link cannot be changed, and a second one was refused with 409

    early = job(role)
    assert (early["status"], "c1 stays: c1-" in early["output"]) == ("Completed", True), early
    due(role, RG)
    assert "c1 stays: c1-expiry-rg is due on" in job(role)["output"], "the last day of all groups counts"

    due(role, HOME)
    stranger = f"{RG}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/theirs"
    role.azure.arm("PUT", stranger, "2024-11-30", PLACE)
    refused = job(role)
    assert refused["status"] == "Failed" and "Nothing was deleted" in refused["output"], refused
    assert "userAssignedIdentities/theirs" in refused["output"]
    role.azure.arm("DELETE", stranger, "2024-11-30")

    before = role.there()
    done = job(role)
    assert done["status"] == "Completed", done
    assert "Role assignments of" in done["output"] and "destroy.yml deletes them" in done["output"], done["output"]
    assert f"{role.azure.subscription}/{RG}" in before
    until = time.monotonic() + patience(30)
    while role.there() != {assignment} and time.monotonic() < until:
        time.sleep(0.1)
    assert role.there() == {assignment}, "what lies above the groups is destroy.yml's"


def test_the_job_keeps_its_own_group_while_azure_keeps_another(role: Role) -> None:
    cluster(role)
    play(role, "expire.yml")
    role(azure_teardown_cluster="c1", azure_teardown_expires_on=day(2), azure_teardown_schedule=True)
    due(role, RG, HOME)
    role.azure.control("settings", {"denied": ["Microsoft.Resources/subscriptions/resourceGroups/delete"]})
    kept = job(role)
    assert kept["status"] == "Failed" and "Not everything was deleted" in kept["output"], kept
    assert {f"{role.azure.subscription}/{RG}", f"{role.azure.subscription}/{HOME}"} <= role.there()
