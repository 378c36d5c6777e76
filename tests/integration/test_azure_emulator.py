# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulator of Azure Resource Manager is as strict as Azure: asked over HTTPS, with the standard library."""

from __future__ import annotations

import http.client
import typing as t
from pathlib import Path

import pytest
from emulated_azure import GROUP, NET, PLACE, RG, ROLE, Azure, N, fresh


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Azure]:
    azure = Azure(tmp_path_factory.mktemp("azure"))
    yield azure
    azure.close()


@pytest.fixture
def azure(running: Azure) -> Azure:
    return fresh(running)


def test_only_a_right_secret_gets_a_token(azure: Azure) -> None:
    assert azure.login().status == 200
    assert "AADSTS7000215" in azure.login("wrong").body["error_description"]
    assert azure.login(scope="https://example.org/.default").status == 400
    azure.control("secrets", {"expired_secrets": [azure.environment["AZURE_SECRET"]]})
    assert "AADSTS7000222" in azure.login().body["error_description"]
    assert azure.raw("GET", f"{azure.subscription}?api-version=2022-12-01", Authorization="Bearer no").status == 401


@pytest.mark.parametrize("version, body, code", [
    ("", PLACE, "MissingApiVersionParameter"),
    ("2010-01-01", PLACE, "NoRegisteredProviderFound"),
    (NET, {**PLACE, "propertys": {}}, "InvalidRequestContent"),
    (NET, {**PLACE, "properties": {"addressSpace": {"prefixes": []}}}, "InvalidRequestContent"),
    (NET, {**PLACE, "properties": {"addressSpace": {"addressPrefixes": "10.0.0.0/16"}}}, "InvalidRequestContent"),
    (NET, {"properties": {}}, "LocationRequired"),
    (NET, {"location": "mars"}, "LocationNotAvailableForResourceType"),
    (NET, {**PLACE, "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.1/16"]}}},
     "InvalidAddressPrefixFormat"),
])  # fmt: skip
def test_what_azure_refuses_is_refused(azure: Azure, version: str, body: t.Any, code: str) -> None:
    assert azure.arm("PUT", f"{N}/virtualNetworks/v", version, body).code == code
    assert azure.control("state")["leftovers"] == [f"{azure.subscription}/{GROUP}"]


def test_other_requests_are_refused(azure: Azure) -> None:
    assert azure.arm("PUT", f"{GROUP}/providers/Microsoft.Nothing/x/y", NET, PLACE).code == "InvalidResourceNamespace"
    assert azure.arm("PUT", f"{N}/nothings/y", NET, PLACE).code == "InvalidResourceType"
    assert azure.arm("PUT", GROUP, RG, {"location": "eastus"}).code == "InvalidResourceGroupLocation"
    assert azure.arm("GET", "resourceGroups/none", RG).code == "ResourceGroupNotFound"
    assert azure.arm("GET", "/subscriptions/none/resourceGroups", RG).code == "SubscriptionNotFound"
    assert azure.arm("PUT", GROUP, RG, PLACE, Content_Type="text/plain").status == 415


def test_a_lock_holds_and_a_group_goes_later(azure: Azure) -> None:
    lock = f"{GROUP}/providers/Microsoft.Authorization/locks/keep"
    assert azure.arm("PUT", lock, "2016-09-01", {"properties": {"level": "CanNotDelete"}}).status == 201
    assert azure.arm("DELETE", GROUP, RG).code == "ScopeLocked"
    assert azure.arm("DELETE", lock, "2016-09-01").status == 200
    started = azure.arm("DELETE", GROUP, RG)
    assert started.status == 202 and "Location" in started.headers
    assert azure.arm("PUT", GROUP, RG, PLACE).code == "ResourceGroupBeingDeleted"
    assert azure.done("GET", GROUP, RG).status in (200, 404)


def test_an_unregistered_provider_is_registered_first(azure: Azure) -> None:
    azure.control("settings", {"unregistered": ["Microsoft.Network"], "registration_delay": 0.05})
    body = {**PLACE, "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}}
    assert azure.arm("PUT", f"{N}/virtualNetworks/v", NET, body).code == "MissingSubscriptionRegistration"
    state = azure.arm("POST", "providers/Microsoft.Network/register", "2016-02-01").body["registrationState"]
    assert state == "Registering"
    while azure.arm("GET", "providers/Microsoft.Network", "2016-02-01").body["registrationState"] != "Registered":
        pass
    assert azure.arm("PUT", f"{N}/virtualNetworks/v", NET, body).status == 201


def test_faults_happen_when_asked_for(azure: Azure) -> None:
    vnet, body = (
        f"{N}/virtualNetworks/v",
        {**PLACE, "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}},
    )
    match = {"method": "PUT", "path": "virtualNetworks"}
    azure.control("faults", [{"match": match, "do": {"error": "RequestDisallowedByPolicy"}}])
    refused = azure.arm("PUT", vnet, NET, body)
    assert refused.body["error"]["additionalInfo"][0]["type"] == "PolicyViolation"
    assert "Retry-After" not in refused.headers, "the SDKs would try again"
    for do, there in (({"reset": "before"}, 404), ({"reset": "after"}, 200)):
        azure.control("faults", [{"match": match, "do": do}])
        with pytest.raises((http.client.HTTPException, OSError)):
            azure.arm("PUT", vnet, NET, body)
        assert azure.arm("GET", vnet, NET).status == there
    azure.control(
        "faults", [{"match": match, "do": {"throttle": 0.1}}, {"match": match, "do": {"status": 500, "after": True}}]
    )
    assert (azure.arm("PUT", vnet, NET, body).status, azure.arm("PUT", vnet, NET, body).status) == (429, 500)
    azure.control("faults", [{"match": match, "do": {"error": "AllocationFailed", "later": True}}])
    operation = azure.arm("PUT", vnet, NET, body).headers["Azure-AsyncOperation"]
    while (told := azure.arm("GET", operation, "").body)["status"] == "InProgress":
        pass
    assert (told["status"], told["error"]["code"]) == ("Failed", "AllocationFailed")


def test_lists_come_in_pages_and_can_be_filtered(azure: Azure) -> None:
    azure.control("settings", {"page_size": 2})
    for number in range(5):
        azure.arm("PUT", f"resourceGroups/g{number}", RG, {**PLACE, "tags": {"number": str(number % 2)}})
    found, place = [], "resourcegroups?$filter=tagName eq 'number' and tagValue eq '0'"
    version = RG
    while place:
        answer = azure.arm("GET", place, version).body
        found += [one["name"] for one in answer["value"]]
        place, version = answer.get("nextLink", ""), ""
    assert found == ["g0", "g2", "g4"]


def test_a_denied_action_names_itself(azure: Azure) -> None:
    azure.control("settings", {"denied": ["Microsoft.Network/natGateways/write"]})
    refused = azure.arm("PUT", f"{N}/natGateways/n", NET, {**PLACE, "sku": {"name": "Standard"}})
    assert refused.status == 403 and "'Microsoft.Network/natGateways/write'" in refused.body["error"]["message"]
    found = azure.arm("GET", f"{GROUP}/providers/Microsoft.Authorization/permissions", ROLE).body["value"]
    assert any("Microsoft.Network/natGateways/write" in one["notActions"] for one in found)


def test_the_state_survives_a_restart_and_keeps_secrets_to_itself(tmp_path: Path) -> None:
    azure = Azure(tmp_path)
    azure.arm("PUT", GROUP, RG, PLACE)
    azure.close()
    azure.start()
    try:
        assert azure.arm("GET", GROUP, RG).status == 200, "the token of before is good too"
        secret = azure.environment["AZURE_SECRET"]
        told = str(azure.control("state")) + str(azure.control("log"))
        assert secret not in told and azure.token not in told
        assert (tmp_path / "state.json").stat().st_mode & 0o77 == 0
    finally:
        azure.close()
