# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What belongs to a cluster, what goes with it, what forbids it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import ownership, teardown
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.ownership import AzureResource
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import (
    ObservedSubscription,
    TeardownRequest,
)

SUB = "/subscriptions/s"
RG = f"{SUB}/resourceGroups/gpu-rg"
THEIRS = f"{SUB}/resourceGroups/network-rg"
TAGS = {"created-by": "hpcai.gpu_cluster", "hpcai-cluster": "gpu"}
GROUP = AzureResource(RG, "Microsoft.Resources/resourceGroups", {**TAGS, "hpcai-resource": "resourceGroups/gpu-rg"})
ASKED = TeardownRequest("gpu", "gpu")


def resource(
    kind: str, name: str, tags: t.Mapping[str, str] | None = None, group: str = RG, managed_by: str = ""
) -> AzureResource:
    """With no tags it is one that the collection made."""
    identifier = f"{group}/providers/{kind}/{name}"
    own = {**TAGS, "hpcai-resource": ownership.own_name(identifier)}
    return AzureResource(identifier, kind, own if tags is None else tags, managed_by)


def lock(scope: str, notes: str | None = None, level: str = "CanNotDelete") -> dict[str, t.Any]:
    properties = {"level": level, **({"notes": notes} if notes else {})}
    return {"id": f"{scope}/providers/Microsoft.Authorization/locks/keep", "properties": properties}


def assignment(name: str, principal: str, description: str | None = None, scope: str = SUB) -> dict[str, t.Any]:
    properties = {"principalId": principal, "description": description}
    return {"id": f"{scope}/providers/Microsoft.Authorization/roleAssignments/{name}", "properties": properties}


VM = resource("Microsoft.Compute/virtualMachines", "gpu-cyclecloud")


def seen(**more: t.Any) -> ObservedSubscription:
    return ObservedSubscription(**{"subscription": "s", "groups": [GROUP], "resources": [VM], **more})


@pytest.mark.parametrize(
    "tags, answer",
    [
        (TAGS, False),  # an earlier version set no more, and a policy may have copied these
        (
            {"Created-By": "hpcai.gpu_cluster", "HPCAI-Cluster": "gpu", "HPCAI-Resource": "resourceGroups/gpu-rg"},
            True,  # names of tags have no case
        ),
        ({"created-by": "hpcai.gpu_cluster", "hpcai-cluster": "gpu-2"}, False),
        ({"created-by": "hpcai.gpu_cluster"}, False),
        ({"created-by": "me", "hpcai-cluster": "gpu"}, False),
        ({**TAGS, "hpcai-resource": "resourceGroups/gpu-rg"}, True),
        ({**TAGS, "hpcai-resource": "cyclecloud/gpu"}, False),  # the same on all that CycleCloud makes
        ({**TAGS, "hpcai-resource": "resourcegroups/other-rg"}, False),  # copied from another group, or with it
        (None, False),
    ],
)
def test_its_own_name_makes_it_ours(tags: dict[str, str] | None, answer: bool) -> None:
    assert ownership.ours(ownership.read_resource({"id": RG, "tags": tags}), "gpu") is answer


@pytest.mark.parametrize(
    "text, answer",
    [
        ("hpcai.gpu_cluster gpu", True),
        ("made by hpcai.gpu_cluster, for gpu; do not touch", True),
        ("hpcai.gpu_cluster gpu-2", False),
        ("gpu", False),
        ("", False),
    ],
)
def test_a_note_names_collection_and_cluster(text: str, answer: bool) -> None:
    assert ownership.marked(text, "gpu") is answer


@pytest.mark.parametrize(
    "one, scope, answer",
    [
        (RG, SUB, True),
        (RG, RG, True),
        (f"{RG}-2", RG, False),
        (RG.upper(), RG, True),
        (SUB, RG, False),
    ],
)
def test_below(one: str, scope: str, answer: bool) -> None:
    assert ownership.below(one, scope) is answer


def test_a_group_of_ours_goes_with_everything_in_it() -> None:
    plan = teardown.plan(seen(), ASKED)
    assert (plan.groups, plan.resources, plan.refusals) == ([RG], [], [])
    assert plan.contents == {"gpu-rg": ["Microsoft.Compute/virtualMachines gpu-cyclecloud"]}


def test_of_a_group_that_was_brought_along_only_ours_goes_and_in_order() -> None:
    made = [
        resource("Microsoft.ManagedIdentity/userAssignedIdentities", "gpu-locker", group=THEIRS),
        resource("Microsoft.Network/virtualNetworks", "gpu-vnet", group=THEIRS),
        resource("Microsoft.Network/virtualNetworks", "corporate", {}, group=THEIRS),
        resource("Microsoft.Network/networkInterfaces", "gpu-nic", group=THEIRS),
        resource("Microsoft.Compute/virtualMachines", "gpu-cyclecloud", group=THEIRS),
        resource("Microsoft.Compute/virtualMachines", "gpu-cyclecloud/extensions/x", group=THEIRS),
    ]
    plan = teardown.plan(seen(groups=[], resources=made), ASKED)
    names = [found.rsplit("/", 1)[-1] for found in plan.resources]
    assert names == ["gpu-cyclecloud", "gpu-nic", "gpu-vnet", "gpu-locker"]
    assert plan.groups == []


@pytest.mark.parametrize(
    "stranger, also, refused",
    [
        (resource("Microsoft.Sql/servers", "theirs", {}), [], True),
        (resource("Microsoft.Sql/servers", "theirs", {}), [f"{RG}/providers/microsoft.sql/servers/THEIRS"], False),
        (resource("Microsoft.Compute/virtualMachines", "n1", {"clustername": "gpu"}), [], False),
        (resource("Microsoft.Compute/virtualMachines", "n1", {"clustername": "other"}), [], True),
        (resource("Microsoft.Compute/disks", "os", {}, managed_by=VM.id.upper()), [], False),
        (resource("Microsoft.Compute/virtualMachines", "gpu-cyclecloud/extensions/x", {}), [], False),
        (resource("Microsoft.Sql/servers", "theirs", {}, group=THEIRS), [], False),
    ],
)
def test_what_others_made_in_our_group_stops_it(stranger: AzureResource, also: list[str], refused: bool) -> None:
    plan = teardown.plan(seen(resources=[VM, stranger]), ASKED._replace(also=also))
    assert bool(plan.refusals) is refused
    assert all(stranger.id in text and "azure_teardown_also" in text for text in plan.refusals)


OLD = GROUP._replace(tags=TAGS)
CYCLE = GROUP._replace(tags={**GROUP.tags, "clustername": "gpu"})
NSG = "Microsoft.Network/networkSecurityGroups"


@pytest.mark.parametrize(
    "group, tags, refused",
    [
        (GROUP, {**TAGS, "hpcai-resource": "GPU-rg/networksecuritygroups/N"}, False),  # Azure changes the case
        (GROUP, {**TAGS, "hpcai-resource": "resourceGroups/gpu-rg"}, True),
        (GROUP, TAGS, True),
        (GROUP, {**TAGS, "hpcai-resource": "networkSecurityGroups/n"}, True),  # an earlier version wrote that
        (GROUP, {**TAGS, "hpcai-resource": "other-rg/networkSecurityGroups/n"}, True),  # deployed from a template
        (GROUP, {**TAGS, "hpcai-resource": "cyclecloud/gpu"}, False),
        (GROUP, {**TAGS, "hpcai-resource": "cyclecloud/gpu-2"}, True),
        (GROUP, {**TAGS, "clustername": "gpu"}, False),
        (CYCLE, {**TAGS, "clustername": "gpu"}, True),  # from the group
        (OLD, TAGS, True),
        (OLD, {**TAGS, "hpcai-resource": "resourceGroups/gpu-rg"}, True),
    ],
)
def test_tags_that_a_policy_copied_make_nothing_ours(group: AzureResource, tags: dict[str, str], refused: bool) -> None:
    stranger = resource(NSG, "n", tags)
    plan = teardown.plan(seen(groups=[group], resources=[stranger]), ASKED._replace(also=[RG]))
    assert bool(plan.refusals) is refused
    assert all(
        "as if a policy had copied them" in text and "gpu-rg/networkSecurityGroups/n" in text for text in plan.refusals
    )
    assert all(f"{stranger.id} (" in text and "azure_teardown_also" in text for text in plan.refusals)


def test_a_group_with_tags_that_a_policy_copied_is_refused_and_named() -> None:
    """A subscription's tags are copied to all groups: two of ours made any of them go with everything in it."""
    theirs = AzureResource(THEIRS, "Microsoft.Resources/resourceGroups", TAGS)
    inherited = resource("Microsoft.Sql/servers", "payroll", TAGS, group=THEIRS)
    observed = seen(groups=[GROUP, theirs], resources=[VM, inherited])
    plan = teardown.plan(observed, ASKED)
    assert (plan.groups, plan.resources) == ([RG], [])
    assert len(plan.refusals) == 1 and THEIRS in plan.refusals[0] and "azure_teardown_also" in plan.refusals[0]
    allowed = teardown.plan(observed, ASKED._replace(also=[THEIRS.upper()]))
    assert allowed.groups == [RG, THEIRS]
    assert len(allowed.refusals) == 1 and inherited.id in allowed.refusals[0]


def test_a_group_of_somebody_else_is_not_taken_for_being_named() -> None:
    theirs = AzureResource(THEIRS, "Microsoft.Resources/resourceGroups", {})
    assert teardown.plan(seen(groups=[GROUP, theirs]), ASKED._replace(also=[THEIRS])).groups == [RG]


def test_what_was_deployed_from_our_exported_template_stays() -> None:
    """It has the same names and tags, in another group."""
    copies = [VM._replace(id=VM.id.replace(RG, THEIRS))]
    group = GROUP._replace(id=THEIRS)
    plan = teardown.plan(seen(groups=[GROUP, group], resources=[VM, *copies]), ASKED)
    assert (plan.groups, plan.resources, plan.refusals) == ([RG], [], [])
    assert [THEIRS in note for note in plan.notes] == [True, True]


def test_in_a_group_with_cyclecloud_s_mark_the_mark_proves_nothing() -> None:
    group = AzureResource(THEIRS, "Microsoft.Resources/resourceGroups", {**TAGS, "hpcai-resource": "cyclecloud/gpu"})
    inherited = resource("Microsoft.Sql/servers", "payroll", group.tags, group=THEIRS)
    plan = teardown.plan(seen(groups=[group], resources=[inherited]), ASKED)
    assert (plan.groups, plan.resources) == ([], [])
    assert [THEIRS in note for note in plan.notes] == [True, True]


@pytest.mark.parametrize(
    "said, goes",
    [
        ({"hpcai-resource": "network-rg/networkSecurityGroups/n"}, True),
        ({"hpcai-resource": "networkSecurityGroups/n"}, False),
        ({"hpcai-resource": "cyclecloud/gpu"}, True),
        ({"clustername": "gpu"}, False),
        ({}, False),
    ],
)
def test_outside_our_groups_only_what_says_its_own_name_goes(said: dict[str, str], goes: bool) -> None:
    found = resource(NSG, "n", {**TAGS, **said}, group=THEIRS)
    plan = teardown.plan(seen(resources=[found]), ASKED)
    assert plan.resources == ([found.id] if goes else [])
    assert [found.id in note for note in plan.notes] == ([] if goes else [True])


@pytest.mark.parametrize("scope", [SUB, RG, VM.id])
def test_a_lock_of_an_administrator_stops_it(scope: str) -> None:
    plan = teardown.plan(seen(locks=[lock(scope, "production, ask Anna")]), ASKED)
    assert plan.locks == []
    assert "production, ask Anna" in plan.refusals[0]
    assert f"az lock delete --ids {scope}/providers" in plan.refusals[0]


def test_our_locks_go_and_those_elsewhere_do_not_matter() -> None:
    mine = lock(RG, "hpcai.gpu_cluster gpu")
    plan = teardown.plan(seen(locks=[mine, lock(THEIRS), lock(f"{RG}-2")]), ASKED)
    assert (plan.locks, plan.refusals) == ([mine["id"]], [])


def test_assignments_by_principal_by_mark_and_by_record() -> None:
    there = [
        assignment("by-principal", "p1"),
        assignment("by-mark", "brought", "hpcai.gpu_cluster gpu"),
        assignment("recorded", "brought"),
        assignment("theirs", "brought"),
        assignment("theirs-too", "brought", "hpcai.gpu_cluster gpu-2"),
    ]
    asked = ASKED._replace(principals=["p1"], recorded=[there[2]["id"].upper()])
    plan = teardown.plan(seen(assignments=[*there, there[0]]), asked)
    assert [found.rsplit("/", 1)[-1] for found in plan.assignments] == ["by-mark", "by-principal", "recorded"]


def test_nothing_is_empty_and_what_cyclecloud_left_elsewhere_is_told() -> None:
    left = resource("Microsoft.Compute/disks", "sched", {"clustername": "gpu"}, group=THEIRS)
    plan = teardown.plan(seen(groups=[], resources=[left]), ASKED)
    assert not (plan.groups or plan.resources or plan.locks or plan.assignments)
    assert left.id in plan.notes[0]
