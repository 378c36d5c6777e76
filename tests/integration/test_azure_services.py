# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the emulated services keep to: machines and scale sets, roles and identities, storage, Automation."""

from __future__ import annotations

import json
import time
import typing as t
import urllib.request
import uuid
from pathlib import Path

import pytest
from emulated_azure import GROUP, NET, PLACE, RG, ROLE, VM, Azure, C, assign, fresh, machine, network
from patience import patience

AUTO = f"{GROUP}/providers/Microsoft.Automation/automationAccounts/a"
OLD = "2023-11-01"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Azure]:
    azure = Azure(tmp_path_factory.mktemp("azure"))
    yield azure
    azure.close()


@pytest.fixture
def azure(running: Azure) -> Azure:
    return fresh(running)


def test_a_vm_is_checked_made_and_deleted(azure: Azure) -> None:
    nic, path = network(azure), f"{C}/virtualMachines/cc"
    wrong: dict[str, t.Any] = {
        "hardwareProfile": {"vmSize": "Standard_None"},
        "osProfile": {"computerName": "cc", "adminUsername": "hpc"},
        "networkProfile": {"networkInterfaces": [{"id": f"{nic}-none"}]},
    }
    for key, value in wrong.items():
        assert azure.arm("PUT", path, VM, machine(nic, **{key: value})).status == 400
    azure.control("settings", {"quota": {"standardDSv5Family": 2}})
    refused = azure.arm("PUT", path, VM, machine(nic))
    assert (refused.status, refused.code) == (409, "OperationNotAllowed")
    assert "Current Limit: 2, Current Usage: 0, Additional Required: 4" in refused.body["error"]["message"]
    azure.control("settings", {"quota": {}})
    made = azure.done("PUT", path, VM, machine(nic)).body
    assert made["properties"]["provisioningState"] == "Succeeded"
    assert "customData" not in str(made)
    assert azure.arm("DELETE", nic[len(azure.subscription) + 1 :], NET).code == "NicInUse"
    assert azure.done("DELETE", path, VM).status == 200
    assert azure.arm("DELETE", path, VM).status == 204
    kinds = [one.split("/")[-2] for one in azure.control("state")["leftovers"]]
    assert "disks" in kinds, "a disk stays unless its deleteOption says otherwise"


def test_role_assignments_follow_azures_rules(azure: Azure) -> None:
    nic = network(azure)
    principal = azure.done("PUT", f"{C}/virtualMachines/cc", VM, machine(nic)).body["identity"]["principalId"]
    assert assign(azure, principal).code == "PrincipalNotFound", "a new principal is not known everywhere"
    name = str(uuid.uuid4())
    assert assign(azure, principal, name, principalType="ServicePrincipal").status == 201
    assert assign(azure, principal, name, principalType="ServicePrincipal").status == 200
    assert assign(azure, principal, principalType="ServicePrincipal").code == "RoleAssignmentExists"
    other = str(uuid.uuid4())
    assert assign(azure, other, name, principalType="ServicePrincipal").code == "RoleAssignmentUpdateNotPermitted"
    azure.done("DELETE", GROUP, RG)
    left = azure.control("state")["leftovers"]
    assert [one.rsplit("/", 1)[-1] for one in left] == [name], "an assignment above the group outlives it"
    found = azure.arm(
        "GET", f"providers/Microsoft.Authorization/roleAssignments?$filter=principalId eq '{principal}'", ROLE
    )
    assert [one["name"] for one in found.body["value"]] == [name]


def test_a_machine_answers_where_the_test_says(tmp_path: Path) -> None:
    (tmp_path / "machines.json").write_text('{"cc": "192.0.2.7"}')
    azure = Azure(tmp_path / "azure", "--machines", str(tmp_path / "machines.json"))
    try:
        nic = network(fresh(azure))
        azure.done("PUT", f"{C}/virtualMachines/cc", VM, machine(nic))
        shown = azure.arm("GET", nic, NET).body["properties"]["ipConfigurations"][0]["properties"]
        assert shown["privateIPAddress"] == "192.0.2.7"
    finally:
        azure.close()


def test_a_managed_identity_may_do_what_its_role_says(azure: Azure) -> None:
    principal = azure.done("PUT", f"{C}/virtualMachines/cc", VM, machine(network(azure))).body["identity"][
        "principalId"
    ]
    ask = f"{azure.said['metadata']}/metadata/identity/oauth2/token?api-version=2018-02-01&resource={azure.url}"
    with urllib.request.urlopen(
        urllib.request.Request(ask, headers={"Metadata": "true"}), timeout=patience(20)
    ) as answer:
        token = json.load(answer)["access_token"]
    own = azure.token
    azure.token = token
    assert azure.arm("GET", GROUP, RG).code == "AuthorizationFailed"
    azure.token = own
    assert assign(azure, principal, principalType="ServicePrincipal").status == 201
    azure.token = token
    assert azure.arm("GET", GROUP, RG).status == 200
    assert assign(azure, principal).code == "AuthorizationFailed", "a Contributor may not give roles"


def test_a_scale_set_counts_against_the_quota(azure: Azure) -> None:
    network(azure)
    subnet = f"{azure.subscription}/{GROUP}/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
    said = machine("none")["properties"]
    part = {"name": "i", "properties": {"subnet": {"id": subnet}}}
    nic = {"name": "n", "properties": {"primary": True, "ipConfigurations": [part]}}
    user = {key: value for key, value in said["osProfile"].items() if key != "computerName"}
    profile = {"osProfile": {**user, "computerNamePrefix": "gpu-"}, "storageProfile": said["storageProfile"]}
    profile["networkProfile"] = {"networkInterfaceConfigurations": [nic]}
    image = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2404", "version": "24.04.2026070901"}
    profile["storageProfile"] = {"imageReference": image}
    body = {**PLACE, "sku": {"name": "Standard_ND96asr_v4", "capacity": 2}}
    body["properties"] = {"virtualMachineProfile": profile, "upgradePolicy": {"mode": "Manual"}}
    azure.control("settings", {"quota": {"Standard NDASv4_A100 Family": 192}})
    path = f"{C}/virtualMachineScaleSets/gpu"
    assert azure.done("PUT", path, VM, body).status == 200
    grown = {**body, "sku": {"name": "Standard_ND96asr_v4", "capacity": 3}}
    assert azure.arm("PUT", path, VM, grown).code == "OperationNotAllowed"
    found = azure.arm("GET", f"{path}/virtualMachines", VM).body["value"]
    assert [one["instanceId"] for one in found] == ["0", "1"]
    azure.done("DELETE", f"{path}/virtualMachines/0", VM)
    assert azure.arm("GET", path, VM).body["sku"]["capacity"] == 1
    used = azure.arm("GET", "providers/Microsoft.Compute/locations/southcentralus/usages", VM).body["value"]
    assert [one["currentValue"] for one in used if "NDASv4_A100" in one["name"]["value"]] == [96]


def test_storage_names_and_what_cannot_be_changed(azure: Azure) -> None:
    path = f"{GROUP}/providers/Microsoft.Storage/storageAccounts"
    body = {**PLACE, "kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
    azure.control("settings", {"taken_names": ["taken"]})
    assert azure.arm("PUT", f"{path}/taken", "2023-05-01", body).code == "StorageAccountAlreadyTaken"
    assert azure.arm("PUT", f"{path}/Wrong-Name", "2023-05-01", body).code == "AccountNameInvalid"
    made = azure.done("PUT", f"{path}/locker", "2023-05-01", body).body
    assert made["properties"]["primaryEndpoints"]["blob"] == "https://locker.blob.core.windows.net/"
    hns = {**body, "properties": {"isHnsEnabled": True}}
    assert azure.arm("PUT", f"{path}/locker", "2023-05-01", hns).code == "AccountPropertyCannotBeUpdated"
    container = f"{path}/locker/blobServices/default/containers/c-1"
    assert azure.arm("PUT", container, "2023-05-01", {"properties": {}}).status == 201
    azure.control("settings", {"denied": ["Microsoft.Storage/storageAccounts/listKeys/action"]})
    assert azure.arm("POST", f"{path}/locker/listKeys", "2023-05-01").code == "AuthorizationFailed"


def test_a_runbook_is_published_before_it_is_linked(azure: Azure) -> None:
    assert azure.arm("PUT", AUTO, OLD, {**PLACE, "properties": {"sku": {"name": "Basic"}}}).status == 201
    book = {**PLACE, "properties": {"runbookType": "PowerShell72"}}
    assert azure.arm("PUT", f"{AUTO}/runbooks/destroy", OLD, book).status == 201
    soon = {"startTime": "2020-01-01T00:00:00+00:00", "frequency": "OneTime"}
    assert azure.arm("PUT", f"{AUTO}/schedules/s", OLD, {"name": "s", "properties": soon}).status == 400
    later = {**soon, "startTime": "2099-01-01T00:00:00+00:00"}
    assert azure.arm("PUT", f"{AUTO}/schedules/s", OLD, {"name": "s", "properties": later}).status == 201
    link = {"properties": {"runbook": {"name": "destroy"}, "schedule": {"name": "s"}, "parameters": {"group": "c1-rg"}}}
    path = f"{AUTO}/jobSchedules/{uuid.uuid4()}"
    assert azure.arm("PUT", path, OLD, link).status == 400
    text = {"Authorization": f"Bearer {azure.token}", "Content_Type": "text/powershell"}
    place = f"{azure.subscription}/{AUTO}/runbooks/destroy"
    assert azure.raw("PUT", f"{place}/draft/content?api-version={OLD}", b"Get-Date", **text).status == 202
    azure.done("POST", f"{AUTO}/runbooks/destroy/publish", OLD)
    assert azure.arm("GET", f"{AUTO}/runbooks/destroy/content", OLD).body == b"Get-Date"
    assert azure.arm("PUT", path, OLD, link).status == 201
    assert azure.arm("PUT", path, OLD, link).status == 409, "a link cannot be updated"
    azure.arm("DELETE", f"{AUTO}/schedules/s", OLD)
    assert azure.arm("GET", f"{AUTO}/jobSchedules", OLD).body["value"] == []


def test_a_batch_answers_each_request(azure: Azure) -> None:
    urls = [f"{azure.subscription}/{place}?api-version={RG}" for place in (GROUP, "resourceGroups/none", "resources")]
    body = {"requests": [{"httpMethod": "GET", "url": url} for url in urls]}
    found = azure.arm("POST", "/batch", "2015-11-01", body).body["responses"]
    assert [one["httpStatusCode"] for one in found] == [200, 404, 200]


def test_marketplace_terms_come_before_the_machine(azure: Azure) -> None:
    nic = network(azure)
    plan = {"name": "cyclecloud8-gen2", "publisher": "azurecyclecloud", "product": "azure-cyclecloud"}
    image = {
        "publisher": "azurecyclecloud",
        "offer": "azure-cyclecloud",
        "sku": "cyclecloud8-gen2",
        "version": "latest",
    }
    body = machine(nic, storageProfile={"imageReference": image})
    path = f"{C}/virtualMachines/cc"
    assert azure.arm("PUT", path, VM, body).code == "VMMarketplaceInvalidInput"
    assert azure.arm("PUT", path, VM, {**body, "plan": plan}).code == "MarketplacePurchaseEligibilityFailed"
    offer = "publishers/azurecyclecloud/offers/azure-cyclecloud/plans/cyclecloud8-gen2/agreements/current"
    terms = f"providers/Microsoft.MarketplaceOrdering/offerTypes/virtualmachine/{offer}"
    said = azure.arm("GET", terms, "2021-01-01").body
    said["properties"]["accepted"] = True
    assert azure.arm("PUT", terms, "2021-01-01", said).status == 200
    assert azure.arm("PUT", path, VM, {**body, "plan": plan}).status == 201


def test_a_fresh_subscription_has_registered_nothing(running: Azure) -> None:
    running.control("reset", {})
    running.token = ""
    assert running.arm("PUT", GROUP, RG, PLACE).status == 201
    account = {**PLACE, "properties": {"sku": {"name": "Basic"}}}
    assert running.arm("PUT", AUTO, OLD, account).code == "MissingSubscriptionRegistration"


def test_the_link_of_a_schedule_keeps_names_in_lower_case_and_runbooks_know_environments(azure: Azure) -> None:
    new = "2024-10-23"
    azure.arm("PUT", AUTO, OLD, {**PLACE, "properties": {"sku": {"name": "Basic"}}})
    place = f"{AUTO}/runtimeEnvironments/python-3-10"
    runtime = {"runtime": {"language": "Python", "version": "3.10"}}
    assert azure.arm("PUT", place, OLD, {**PLACE, "properties": runtime}).code == "NoRegisteredProviderFound"
    old = {"runtime": {"language": "Python", "version": "2.6"}}
    assert azure.arm("PUT", place, new, {**PLACE, "properties": old}).status == 400
    assert azure.arm("PUT", place, new, {**PLACE, "properties": runtime}).status == 201
    book = {**PLACE, "properties": {"runbookType": "Python", "runtimeEnvironment": "python-3-10"}}
    assert azure.arm("PUT", f"{AUTO}/runbooks/b", OLD, book).status == 400
    assert azure.arm("PUT", f"{AUTO}/runbooks/b", new, book).status == 201
    text = {"Authorization": f"Bearer {azure.token}", "Content_Type": "text/powershell"}
    script = f"{azure.subscription}/{AUTO}/runbooks/b/draft/content?api-version={new}"
    assert azure.raw("PUT", script, b"print(6 * 7)", **text).status == 202
    azure.done("POST", f"{AUTO}/runbooks/b/publish", new)
    later = {"startTime": "2099-01-01T00:00:00+00:00", "frequency": "OneTime"}
    azure.arm("PUT", f"{AUTO}/schedules/s", OLD, {"name": "s", "properties": later})
    link = {"runbook": {"name": "b"}, "schedule": {"name": "s"}, "parameters": {"Cluster": "Train"}}
    made = azure.arm("PUT", f"{AUTO}/jobSchedules/{uuid.uuid4()}", OLD, {"properties": link})
    assert made.body["properties"]["parameters"] == {"cluster": "Train"}
    (job,) = azure.control("fire", {"schedule": "s"})
    until = time.monotonic() + patience(30)
    while not azure.control("jobs") and time.monotonic() < until:
        time.sleep(0.05)
    ended = azure.control("jobs")[-1]
    assert (ended["id"], ended["status"], ended["output"]) == (job, "Completed", "42\n")


def test_a_listing_of_the_subscription_leaves_out_what_may_not_be_read(azure: Azure) -> None:
    principal = azure.done("PUT", f"{C}/virtualMachines/cc", VM, machine(network(azure))).body["identity"][
        "principalId"
    ]
    azure.arm("PUT", "resourceGroups/other", RG, PLACE)
    definition = "providers/Microsoft.Authorization/roleDefinitions/b24988ac-6180-42a0-ab88-20f7382dd24c"
    said = {"principalId": principal, "principalType": "ServicePrincipal"}
    said["roleDefinitionId"] = f"{azure.subscription}/{definition}"
    azure.control("settings", {"assignment_delay": 60})
    name = f"{GROUP}/providers/Microsoft.Authorization/roleAssignments/{uuid.uuid4()}"
    assert azure.arm("PUT", name, ROLE, {"properties": said}).status == 201
    ask = f"{azure.said['metadata']}/metadata/identity/oauth2/token?api-version=2018-02-01&resource={azure.url}"
    asked = urllib.request.Request(ask, headers={"Metadata": "true"})
    with urllib.request.urlopen(asked, timeout=patience(20)) as answer:
        azure.token = json.load(answer)["access_token"]
    assert azure.arm("GET", "resourceGroups", RG).body["value"] == [], "an assignment has no effect at once"
    own, azure.token = azure.token, ""
    azure.control("settings", {"assignment_delay": 0})
    azure.token = own
    assert [one["name"] for one in azure.arm("GET", "resourceGroups", RG).body["value"]] == ["c1-rg"]
    assert azure.arm("GET", "resources", RG).body["value"]
    answer = azure.arm("GET", "providers/Microsoft.Network/networkInterfaces", NET)
    assert answer.status == 200, answer
    listed = answer.body["value"]
    assert [one["name"] for one in listed] == ["n"]
    assert azure.arm("GET", "resourceGroups/other/resources", RG).code == "AuthorizationFailed"
    assert azure.arm("GET", "providers/Microsoft.Authorization/roleAssignments", ROLE).code == "AuthorizationFailed"


@pytest.mark.parametrize("version, private", [("2024-07-01", None), ("2025-07-01", False)])
def test_a_subnet_is_private_in_newer_versions(azure: Azure, version: str, private: bool | None) -> None:
    vnet = f"{GROUP}/providers/Microsoft.Network/virtualNetworks/v"
    subnet = {"name": "s", "properties": {"addressPrefix": "10.0.1.0/24"}}
    space = {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}, "subnets": [subnet]}
    azure.done("PUT", vnet, version, {**PLACE, "properties": space})
    shown = azure.arm("GET", f"{vnet}/subnets/s", version).body["properties"]
    assert shown.get("defaultOutboundAccess") is private
