# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a subscription and deleting in it, with an Azure that is a dictionary."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import ownership, teardown
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.client import AzureError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.teardown import (
    TeardownRequest,
    read_subscription,
    teardown_request,
)

SUB = "/subscriptions/s"
RG = f"{SUB}/resourceGroups/gpu-rg"
TAGS = {"created-by": "hpcai.gpu_cluster", "hpcai-cluster": "gpu", "hpcai-resource": "resourceGroups/gpu-rg"}
VM = f"{RG}/providers/Microsoft.Compute/virtualMachines/gpu-cyclecloud"
NIC = f"{RG}/providers/Microsoft.Network/networkInterfaces/nic"
IP = f"{RG}/providers/Microsoft.Network/publicIPAddresses/ip"
ROLES = f"{SUB}/providers/Microsoft.Authorization/roleAssignments"


class Azure:
    """What teardown_read.Arm describes; `busy` is what may not be deleted before other things are gone."""

    subscription = "s"

    def __init__(self, documents: dict[str, t.Any], lists: dict[str, t.Any] | None = None) -> None:
        self.documents, self.lists = documents, lists or {}
        self.busy: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.log: list[str] = []

    def get(self, path: str, version: str) -> dict[str, t.Any] | None:
        return self.documents.get(path)

    def items(self, path: str, version: str, **query: str) -> list[dict[str, t.Any]]:
        found = self.lists.get(f"{path}?{query['$filter']}" if query else path, [])
        if isinstance(found, str):
            raise AzureError(found)
        return list(found)

    def delete(self, path: str, version: str) -> bool:
        self.log.append(path)
        if path in self.errors:
            raise AzureError(self.errors[path])
        if self.busy.get(path) in self.documents:
            raise AzureError("NicInUse: a machine uses it")
        return self.documents.pop(path, None) is not None


def test_read_finds_identities_and_their_assignments_above_the_subscription() -> None:
    above = {
        "id": "/providers/Microsoft.Management/managementGroups/m/providers/Microsoft.Authorization/roleAssignments/a"
    }
    above["properties"] = {"principalId": "p1"}  # type: ignore[assignment]
    tags = {**TAGS, "hpcai-resource": "gpu-rg/virtualMachines/gpu-cyclecloud"}
    machine = {"id": VM, "type": "Microsoft.Compute/virtualMachines", "tags": tags}
    lists = {
        f"{SUB}/resourcegroups": [{"id": RG, "tags": TAGS}, {"id": f"{SUB}/resourceGroups/theirs"}],
        f"{RG}/resources": [machine],
        f"{SUB}/resources?tagName eq 'hpcai-cluster' and tagValue eq 'gpu'": [{**machine, "tags": None}],
        ROLES: [],
        f"{ROLES}?principalId eq 'p1'": [above],
    }
    azure = Azure({VM: {"identity": {"principalId": "p1"}}}, lists)
    seen, complete = read_subscription(azure, TeardownRequest("gpu", "gpu"))
    assert [found.id for found in seen.resources] == [VM]
    assert complete.principals == {"p1"}
    plan = teardown.plan(seen, complete)
    assert (plan.assignments, plan.groups, plan.refusals) == ([above["id"]], [RG], [])


def test_what_is_used_is_deleted_after_its_user_and_what_is_gone_counts_as_done() -> None:
    kinds = ("virtualMachines", "networkInterfaces", "publicIPAddresses")
    versions = {"apiVersions": ["2099-01-01-preview", "2024-05-01"]}
    provider = {"resourceTypes": [{"resourceType": kind, **versions} for kind in kinds]}
    azure = Azure(
        {f"{SUB}/providers/Microsoft.{name}": provider for name in ("Compute", "Network")} | {VM: {}, NIC: {}}
    )
    azure.busy = {NIC: VM}
    done = teardown.run(azure, [NIC, VM, IP])
    assert (done.deleted, done.gone, done.failed, done.left) == ([VM, NIC], [IP], "", [])


def test_it_ends_at_what_cannot_be_deleted_and_says_what_is_left() -> None:
    lock = f"{RG}/providers/Microsoft.Authorization/locks/l"
    role = f"{ROLES}/r"
    azure = Azure({lock: {}, role: {}, RG: {}})
    azure.errors = {role: "AuthorizationFailed: no right"}
    done = teardown.run(azure, [lock, role, RG])
    assert (done.deleted, done.left) == ([lock], [role, RG])
    assert "AuthorizationFailed" in done.failed
    assert RG not in azure.log


def test_two_that_hold_each_other_do_not_go_round_for_ever() -> None:
    groups = [f"{SUB}/resourceGroups/{name}" for name in "ab"]
    azure = Azure({name: {} for name in groups})
    azure.busy = {groups[0]: groups[1], groups[1]: groups[0]}
    done = teardown.run(azure, groups)
    assert (done.deleted, done.left) == ([], groups)
    assert "NicInUse" in done.failed


def test_a_group_that_is_being_deleted_is_waited_for() -> None:
    azure = Azure({RG: {}})
    azure.errors = {RG: "ResourceGroupBeingDeleted"}
    done = teardown.run(azure, [RG], lambda seconds: azure.documents.clear())
    assert (done.deleted, done.failed) == ([RG], "")


def test_a_type_without_version_is_told() -> None:
    done = teardown.run(Azure({}), [VM])
    assert "names no api-version of Microsoft.Compute/virtualMachines" in done.failed


def test_the_server_and_its_addresses() -> None:
    found = ownership.read_resource({"id": VM, "type": "Microsoft.Compute/virtualMachines", "tags": TAGS})
    seen = teardown.ObservedSubscription("s", [], [found])
    card = {
        "properties": {
            "ipConfigurations": [{"properties": {"privateIPAddress": "10.0.0.4", "publicIPAddress": {"id": IP}}}]
        }
    }
    body = {"osProfile": {"adminUsername": "ops"}, "networkProfile": {"networkInterfaces": [{"id": NIC}]}}
    azure = Azure({VM: {"properties": body}, NIC: card, IP: {"properties": {"ipAddress": "192.0.2.7"}}})
    answer = teardown.server(azure, seen, "gpu")
    assert (answer["user"], answer["address"], answer["private_address"]) == ("ops", "192.0.2.7", "10.0.0.4")
    assert teardown.server(azure, seen, "other") == {}


@pytest.mark.parametrize(
    "listed, names, notes",
    [
        ([{"id": "/v/mine", "properties": {"tags": TAGS}}, {"id": "/v/theirs"}], ["/v/mine"], 0),
        ("409 MissingSubscriptionRegistration: Microsoft.KeyVault", [], 0),
        ("403 AuthorizationFailed", [], 1),
    ],
)
def test_deleted_vaults(listed: t.Any, names: list[str], notes: int) -> None:
    azure = Azure({}, {f"{SUB}/providers/Microsoft.KeyVault/deletedVaults": listed})
    found, said = teardown.vaults(azure, teardown.ObservedSubscription("s", [], []), "gpu")
    assert (found, len(said)) == (names, notes)


def test_options_and_listing() -> None:
    wanted = teardown_request({"cluster": "gpu", "nodes_cluster": None, "also": ["x"], "role_assignments": ["r"]})
    assert wanted == TeardownRequest("gpu", "gpu", ["x"], ["r"])
    plan = teardown.TeardownPlan(["/a"], ["/l"], ["/r"], [RG], {"gpu-rg": ["T one"]}, [], [])
    assert teardown.listing(plan) == [
        "lock /l", "role assignment /a", "resource /r", f"resource group {RG} with everything in it", "  T one",
    ]  # fmt: skip
    assert teardown.targets(plan, ["groups", "locks"]) == ["/l", RG]
