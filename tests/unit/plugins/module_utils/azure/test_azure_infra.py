# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names, rules, roles and refusals of role azure_infra; comparing resources; explaining errors; credentials."""

from __future__ import annotations

import datetime
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import assignments, client, infra, ownership
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.assignments import AssignmentRequest

SUBSCRIPTION = "22222222-2222-4222-8222-222222222222"
NOW = datetime.datetime(2026, 11, 22, tzinfo=datetime.timezone.utc)
GUID = "44444444-4444-4444-8444-444444444444"
OTHERS = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/net/providers/Microsoft"
SUBNET = f"{OTHERS}.Network/virtualNetworks/v/subnets/nodes"
INPUTS: dict[str, t.Any] = {
    "cluster": "train",
    "subscription": SUBSCRIPTION,
    "location": "South Central US",
    "resource_group": "train-rg",
    "tags": {"team": "vision"},
    "expires_on": "",
    "address_space": ["10.80.0.0/16"],
    "subnets": {"server": "10.80.0.0/24", "compute": "10.80.4.0/22"},
    "allowed_sources": ["198.51.100.0/24"],
    "https_ports": [443, 8443],
    "public_address": False,
    "existing_subnet_id": "",
    "existing_server_subnet_id": "",
    "storage_account": "",
    "container": "cyclecloud",
    "existing_storage_account_id": "",
    "existing_locker_identity_id": "",
    "orchestration": "managed_identity",
    "service_principal": {},
    "secret_warning_days": 30,
    "role_scope": "subscription",
    "server_ssh_public_key": "ssh-ed25519 AAAAC3Nz me@here",
    "server_image": "Canonical:ubuntu-24_04-lts:server:latest",
    "server_zone": "",
    "server_user": "hpcadmin",
    "bastion_id": "",
}
PRINCIPAL = {"client_id": GUID, "object_id": GUID, "secret_expires": "2027-06-01"}


def inputs(**changes: t.Any) -> dict[str, t.Any]:
    return {**INPUTS, **changes}


def test_the_account_is_always_the_same_and_nobody_else_s() -> None:
    name = infra.account_name(SUBSCRIPTION, "train-large-model-2026-eastus")
    assert re.fullmatch(r"trainlargemodel2[0-9a-f]{8}", name)
    assert name == infra.account_name(SUBSCRIPTION.upper(), "train-large-model-2026-eastus")
    assert name != infra.account_name(GUID, "train-large-model-2026-eastus")
    assert len(infra.account_name(SUBSCRIPTION, "a" * 32)) == 24


def test_what_is_made_and_what_is_looked_at() -> None:
    made = infra.plan(INPUTS)
    assert made["location"] == "southcentralus"
    assert set(made["resources"]["own"]) == set(made["ids"])
    assert "address" not in made["ids"]
    assert "address" in infra.plan(inputs(public_address=True))["ids"]
    ours = {"team": "vision", "hpcai-cluster": "train", "created-by": "hpcai.gpu_cluster"}
    assert made["tags"]["nat"] == {**ours, "hpcai-resource": "train-rg/natGateways/train-nat"}
    assert made["group_tags"] == {**ours, "hpcai-resource": "resourceGroups/train-rg"}
    assert made["server_subnet"] == {"resource_group": "train-rg", "vnet": "train-vnet", "name": "server"}


def test_what_is_brought_along_is_not_made() -> None:
    account = f"{OTHERS}.Storage/storageAccounts/mine"
    made = infra.plan(inputs(existing_subnet_id=SUBNET, existing_storage_account_id=account))
    assert made["resources"]["own"] == ["group", "container", "locker_identity", "nic", "server"]
    assert made["resources"]["theirs"] == ["account", "compute_subnet", "server_subnet"]
    assert made["ids"]["container"] == f"{account}/blobServices/default/containers/cyclecloud"
    assert made["server_subnet"] == {"resource_group": "net", "vnet": "v", "name": "nodes"}


def test_tags_can_not_be_taken_from_us() -> None:
    assert infra.plan(inputs(tags={"hpcai-cluster": "other"}))["tags"]["nat"]["hpcai-cluster"] == "train"
    made = infra.plan(inputs(orchestration="service_principal", service_principal=PRINCIPAL))
    assert made["group_tags"]["hpcai-secret-expires"] == "2027-06-01"
    assert "hpcai-secret-expires" not in made["tags"]["server"]


def opened(side: str, **changes: t.Any) -> list[tuple[t.Any, t.Any]]:
    rules = infra.rules(inputs(**changes))[side]
    return [
        (rule["source_address_prefix"], rule["destination_port_range"]) for rule in rules if rule["access"] == "Allow"
    ]


def test_only_what_is_needed_is_open() -> None:
    assert opened("server") == [
        ("10.80.4.0/22", "9443"),
        ("198.51.100.0/24", "22"),
        ("198.51.100.0/24", ["443", "8443"]),
    ]
    assert opened("server", allowed_sources=[]) == [("10.80.4.0/22", "9443")]
    assert opened("compute", allowed_sources=[]) == [("10.80.0.0/24", "22"), ("10.80.4.0/22", "*")]
    assert opened("server", allowed_sources=["192.0.2.0/24", "198.51.100.7"])[1] == (
        ["192.0.2.0/24", "198.51.100.7"],
        "22",
    )


@pytest.mark.parametrize("side", ["server", "compute"])
def test_the_last_rule_closes_and_priorities_differ(side: str) -> None:
    rules = infra.rules(INPUTS)[side]
    assert (rules[-1]["access"], rules[-1]["priority"], rules[-1]["source_address_prefix"]) == ("Deny", 4096, "*")
    assert len({rule["priority"] for rule in rules}) == len({rule["name"] for rule in rules}) == len(rules)


def given(**changes: t.Any) -> list[tuple[str, str]]:
    return [
        (one["role"], one["scope"].rsplit("/", 1)[-1]) for one in infra.roles(inputs(**changes), "machine", "locker")
    ]


def test_roles() -> None:
    account = infra.plan(INPUTS)["names"]["account"]
    assert given() == [
        ("Contributor", SUBSCRIPTION),
        ("Storage Blob Data Contributor", SUBSCRIPTION),
        ("Storage Blob Data Reader", account),
    ]
    narrow = given(role_scope="resource_group")
    assert narrow[:3] == [
        ("Contributor", "train-rg"),
        ("Storage Blob Data Contributor", "train-rg"),
        ("Reader", SUBSCRIPTION),
    ]
    assert ("Network Contributor", "nodes") in given(role_scope="resource_group", existing_subnet_id=SUBNET)
    assert all(one["description"] == "hpcai.gpu_cluster train" for one in infra.roles(INPUTS, "machine", "locker"))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"cluster": "Train_1"}, ["azure_infra_cluster"]),
        ({"cluster": ""}, ["azure_infra_cluster"]),
        ({"subscription": ""}, ["azure_infra_subscription"]),
        ({"server_ssh_public_key": "ssh-dss AAAA"}, ["azure_infra_server_ssh_public_key"]),
        ({"server_user": "root"}, ["azure_infra_server_user"]),
        ({"server_image": "ubuntu"}, ["azure_infra_server_image"]),
        ({"allowed_sources": ["0.0.0.0/0"]}, ["whole Internet"]),
        ({"allowed_sources": ["::/0", "here"]}, ["whole Internet", "no address range"]),
        ({"public_address": True, "allowed_sources": []}, ["azure_infra_public_address is of no use"]),
        ({"subnets": {"server": "10.80.0.0/24"}}, ["needs compute"]),
        ({"subnets": {"server": "10.80.0.0/24", "compute": "10.81.0.0/24"}}, ["is not inside"]),
        ({"subnets": {"server": "10.80.4.0/24", "compute": "10.80.4.0/22"}}, ["overlap"]),
        ({"subnets": {"server": "10.80.4.1/24", "compute": "x"}}, ["no address range", "no address range"]),
        ({"subnets": {}, "existing_subnet_id": SUBNET}, []),
        ({"existing_subnet_id": "nodes"}, ["azure_infra_existing_subnet_id"]),
        ({"existing_server_subnet_id": SUBNET}, ["needs azure_infra_existing_subnet_id"]),
        ({"existing_subnet_id": SUBNET.replace("resourceGroups", "resourcegroups")}, []),
        ({"existing_locker_identity_id": "x"}, ["azure_infra_existing_locker_identity_id"]),
        ({"bastion_id": "hub-bastion"}, ["azure_infra_bastion_id"]),
        ({"expires_on": "soon"}, ["azure_infra_expires_on"]),
        ({"orchestration": "service_principal"}, ["client_id", "object_id"]),
        ({"orchestration": "service_principal", "service_principal": PRINCIPAL}, []),
        (
            {"orchestration": "service_principal", "service_principal": {**PRINCIPAL, "secret_expires": "2026-01-01"}},
            ["expired on 2026-01-01"],
        ),
        ({"https_ports": [443, 70000]}, ["70000"]),
        ({"cluster": "-", "server_zone": "4", "container": "C"}, ["cluster", "container", "zone"]),
    ],
)
def test_refusals(changes: dict[str, t.Any], told: list[str]) -> None:
    found = infra.refusals(inputs(**changes), NOW)
    assert len(found) == len(told), found
    assert all(text in line for text, line in zip(told, found)), found


@pytest.mark.parametrize(
    ("expires", "told"),
    [("2027-06-01", ""), ("2026-12-01", "in 9 days"), (None, "is not known")],
)
def test_the_secret_s_end_is_warned_about(expires: str | None, told: str) -> None:
    principal = {**PRINCIPAL, "secret_expires": expires}
    found = infra.warnings(inputs(orchestration="service_principal", service_principal=principal), NOW)
    assert told in "".join(found)
    assert bool(found) == bool(told)
    assert infra.warnings(INPUTS, NOW) == []


HUB = f"{OTHERS}.Network/virtualNetworks/hub"
BASTION = f"{OTHERS}.Network/bastionHosts/hub"


def way_in(tier: str = "Standard", tunneling: bool = True, peering: str = "Connected") -> infra.Bastion:
    place = {"properties": {"subnet": {"id": f"{HUB}/subnets/AzureBastionSubnet"}}}
    there = {"enableTunneling": tunneling, "ipConfigurations": [place]}
    peer = {"remoteVirtualNetwork": {"id": HUB.upper()}, "peeringState": peering}
    peerings = [{"name": "to-hub", "properties": peer}] if peering else []
    observed = {
        "bastion": {"id": BASTION, "sku": {"name": tier}, "properties": there},
        "vnet": {"id": f"{OTHERS}/v", "name": "train-vnet", "properties": {"virtualNetworkPeerings": peerings}},
    }
    return infra.bastion(inputs(bastion_id=BASTION), observed)


def test_a_bastion_has_to_let_ssh_clients_in() -> None:
    good = way_in()
    assert (good.refused, good.warnings) == ([], [])
    assert good.subnet["bastion_subnet"]["id"] == f"{HUB}/subnets/AzureBastionSubnet"
    assert "its tier is Basic" in way_in("Basic").refused[0]
    assert "its tier is Developer" in way_in("Developer").refused[0]
    assert "native client support is off" in way_in(tunneling=False).refused[0]
    assert (
        "peering" in way_in(peering="Initiated").warnings[0] and "Initiated" in way_in(peering="Initiated").warnings[0]
    )
    assert "it is not there" in way_in(peering="").warnings[0]
    assert infra.bastion(inputs(), {}) == ({}, [], [])


def test_a_bastion_is_looked_at_and_not_made() -> None:
    resources = infra.plan(inputs(bastion_id=BASTION))["resources"]
    assert resources["look"]["bastion"]["id"] == BASTION
    assert "bastion" in resources["theirs"] and "bastion" not in resources["own"]
    subnet = {"properties": {"addressPrefix": None, "addressPrefixes": ["10.90.0.0/26"]}}
    assert infra.bastion_sources(subnet) == ["10.90.0.0/26"]
    assert infra.bastion_sources({"properties": {"addressPrefix": "10.90.0.0/26"}}) == ["10.90.0.0/26"]
    assert infra.bastion_sources(None) == []


def test_a_refused_input_does_not_break_the_plan() -> None:
    broken = inputs(cluster="", subnets={}, service_principal=None, tags=None, existing_subnet_id="x", location="")
    assert infra.plan(broken)["server_subnet"] == {}


WISH = AssignmentRequest("/subscriptions/S", "Contributor", "P1")


def listed(**changes: t.Any) -> dict[str, t.Any]:
    properties = {
        "scope": "/subscriptions/s",
        "principalId": "p1",
        "roleDefinitionId": "/subscriptions/S/providers/Microsoft.Authorization/roleDefinitions/"
        + WISH.definition.upper(),
    }
    return {"id": "there", "properties": {**properties, **changes}}


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([listed()], "there"),
        ([], ""),
        ([listed(scope="/subscriptions/s/resourceGroups/g")], ""),
        ([listed(principalId="p2")], ""),
        ([listed(roleDefinitionId="/x/acdd72a7-3385-48ef-bd42-f606fba81ae7"), listed()], "there"),
        ([{}], ""),
    ],
)
def test_an_assignment_is_found_under_any_name(entries: list[dict[str, t.Any]], found: str) -> None:
    assert assignments.match(WISH, entries) == found


def test_names_are_the_same_for_the_same_and_others_for_others() -> None:
    assert WISH.name == AssignmentRequest("/subscriptions/s", "contributor".title(), "p1").name
    assert len({WISH.name, WISH._replace(principal="P2").name, WISH._replace(role="Reader").name}) == 3
    body = WISH.body("S")["properties"]
    assert body["principalType"] == "ServicePrincipal"
    assert body["roleDefinitionId"].endswith("/b24988ac-6180-42a0-ab88-20f7382dd24c")


class Arm:
    """Answers in order."""

    subscription = "S"

    def __init__(self, *answers: tuple[int, str]) -> None:
        self.answers = list(answers)
        self.listed: list[dict[str, t.Any]] = []

    def send(self, method: str, path: str, version: str, body: t.Any) -> tuple[int, dict[str, t.Any]]:
        status, code = self.answers.pop(0)
        if code == "RoleAssignmentExists":
            self.listed = [listed()]
        return status, {"error": {"code": code, "message": "."}} if status >= 400 else {"id": "made"}

    def items(self, path: str, version: str, **query: str) -> list[dict[str, t.Any]]:
        assert query["$filter"] == "principalId eq 'P1'"
        return self.listed


@pytest.mark.parametrize(
    ("answers", "made"),
    [
        ([(201, "")], "made"),
        ([(400, "PrincipalNotFound"), (400, "PrincipalNotFound"), (201, "")], "made"),
        ([(409, "RoleAssignmentExists")], "there"),
    ],
)
def test_assignments_are_made_once(answers: list[tuple[int, str]], made: str) -> None:
    assert assignments.make(Arm(*answers), WISH, lambda: True) == made


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("PrincipalNotFound", "run again in some minutes"),
        ("RoleAssignmentUpdateNotPermitted", "Identity not found"),
        ("AuthorizationFailed", "lacks the right"),
    ],
)
def test_what_stays_refused_is_told_with_a_remedy(code: str, advice: str) -> None:
    with pytest.raises(client.AzureError, match=advice):
        assignments.make(Arm((400, code)), WISH, lambda: False)


def test_unknown_roles_are_refused() -> None:
    assert assignments.refusals([WISH, WISH._replace(role=GUID)]) == []
    assert "Emperor" in assignments.refusals([WISH._replace(role="Emperor")])[0]


@pytest.mark.parametrize(
    ("wanted", "there", "same"),
    [
        ({}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, True),
        ({"a": {"b": 1}}, {"a": None}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, True),
        ({"location": "South Central US"}, {"location": "southcentralus"}, True),
        ({"a": 1}, {}, False),
        ({"id": "/subscriptions/s/resourceGroups/g"}, {"id": "/subscriptions/s/resourcegroups/G"}, True),
        ({"name": "g"}, {"name": "G"}, False),
    ],
)
def test_comparing(wanted: dict[str, t.Any], there: dict[str, t.Any], same: bool) -> None:
    assert ownership.fits(wanted, there) is same


def test_what_is_sent_keeps_tags_of_others() -> None:
    there = {"id": "x", "tags": {"theirs": "1"}, "properties": {"accepted": False, "signature": "s"}}
    assert ownership.request_body({"tags": {"ours": "2"}}, there, False) == {"tags": {"theirs": "1", "ours": "2"}}
    assert ownership.request_body({"location": "x"}, None, False) == {"location": "x"}
    whole = ownership.request_body({"properties": {"accepted": True}}, there, True)
    assert whole["properties"] == {"accepted": True, "signature": "s"}
    assert ownership.part({"properties": {"accepted": True}}, there) == {"properties": {"accepted": False}}


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("(QuotaExceeded) no", "Ask for quota"),
        (
            "OperationNotAllowed: Operation could not be completed as it results in exceeding approved cores",
            "Ask for quota",
        ),
        ("InvalidTemplateDeployment: x; SkuNotAvailable: y", "not offered to this subscription"),
        ("OverconstrainedAllocationRequest", "ask for less"),
        ("ZonalAllocationFailed", "another zone"),
        ("AADSTS7000222: expired", "make a new one"),
        ("nothing we know", ""),
    ],
)
def test_remedies(text: str, advice: str) -> None:
    told = client.explain(text)
    assert told.startswith(text.rstrip(". "))
    assert (advice in told) if advice else (told == text)
    assert client.explain(told) == told


def test_secrets_are_taken_out_of_errors() -> None:
    told = client.explain("POST body client_secret=abc~1&grant_type=x, Authorization: Bearer eyJ0.x.y failed")
    assert "abc~1" not in told
    assert "eyJ0" not in told


def test_details_of_errors_are_told() -> None:
    policy = {"type": "PolicyViolation", "info": {"policyDefinitionDisplayName": "no public addresses"}}
    document = {
        "error": {
            "code": "InvalidTemplateDeployment",
            "message": "failed",
            "details": [{"code": "SkuNotAvailable", "message": "gone"}, {"code": "X", "additionalInfo": [policy]}],
        }
    }
    told = client.error_text(document)
    assert told == "InvalidTemplateDeployment: failed; SkuNotAvailable: gone; X; policy 'no public addresses'"
    assert client.error_text({"error": "invalid_client", "error_description": "AADSTS1"}) == "invalid_client: AADSTS1"
    assert client.error_text({}) == "nothing"


NONE: dict[str, t.Any] = dict.fromkeys(client.SPEC)
ENVIRONMENT = {"AZURE_SUBSCRIPTION_ID": "s", "AZURE_TENANT": "t", "AZURE_CLIENT_ID": "c", "AZURE_SECRET": "x"}
AWX = {"AZURE_SUBSCRIPTION_ID": "s"}  # what AWX's own credential sets in any case
FILE = "[default]\nsubscription_id=f\nclient_id=c\ntenant=t\nsecret=a%b\n[other]\nsubscription_id=o\n"


@pytest.mark.parametrize(
    ("options", "environment", "file", "expected"),
    [
        ({}, ENVIRONMENT, "", ("secret", "s", "x")),
        ({"subscription_id": "p"}, ENVIRONMENT, FILE, ("secret", "p", "x")),
        ({}, {}, FILE, ("secret", "f", "a%b")),
        ({"profile": "other"}, {}, FILE, ("cli", "o", "")),
        ({"auth_source": "credential_file"}, ENVIRONMENT, FILE, ("secret", "f", "a%b")),
        ({"auth_source": "msi"}, {"AZURE_SUBSCRIPTION_ID": "s"}, "", ("msi", "s", "")),
        ({"auth_source": "msi"}, {**AWX, "AZURE_AD_USER": "", "AZURE_PASSWORD": ""}, "", ("msi", "s", "")),
        ({}, {**ENVIRONMENT, "AZURE_AD_USER": "u", "AZURE_PASSWORD": "p"}, "", ("secret", "s", "x")),
        ({"subscription_id": "s"}, {}, "", ("cli", "s", "")),
        ({"x509_certificate_path": "/c.pem"}, {**ENVIRONMENT, "AZURE_SECRET": ""}, "", ("certificate", "s", "")),
    ],
)
def test_credentials(
    tmp_path: Path, options: dict[str, str], environment: dict[str, str], file: str, expected: tuple[str, str, str]
) -> None:
    (tmp_path / ".azure").mkdir()
    (tmp_path / ".azure/credentials").write_text(file)
    found = client.read_settings({**NONE, **options}, environment, tmp_path)
    assert (found.source, found.subscription, found.secret) == expected


@pytest.mark.parametrize(
    ("options", "environment", "told"),
    [
        ({}, {}, "Which subscription"),
        ({"auth_source": "env"}, {"AZURE_SUBSCRIPTION_ID": "s"}, "incomplete"),
        ({}, {**AWX, "AZURE_AD_USER": "u", "AZURE_PASSWORD": "p"}, "client, tenant and secret of the credential"),
        ({}, {**AWX, "AZURE_AD_USER": "", "AZURE_PASSWORD": ""}, "client, tenant and secret of the credential"),
    ],
)
def test_credentials_that_do_not_do(
    tmp_path: Path, options: dict[str, str], environment: dict[str, str], told: str
) -> None:
    with pytest.raises(client.AzureError, match=told):
        client.read_settings({**NONE, **options}, environment, tmp_path)


def test_clouds() -> None:
    document = {"authentication": {"loginEndpoint": "https://login/"}, "resourceManager": "https://arm/"}
    assert client.endpoints(document, "https://x/metadata") == ("https://login", "https://arm")
    old = [{"authentication": {"loginEndpoint": "https://login"}}]
    assert client.endpoints(old, "https://arm.local/metadata/endpoints") == ("https://login", "https://arm.local")
    with pytest.raises(client.AzureError):
        client.endpoints({"error": 1}, "https://x")


NSG = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/train-rg/providers/Microsoft.Network/networkSecurityGroups"


def security_group(side: str, *others: dict[str, t.Any]) -> dict[str, t.Any]:
    """A group as Azure shows it, with the rules of the role and those of others."""
    own = [
        {
            "name": rule["name"],
            "priority": rule["priority"],
            "direction": rule["direction"],
            "access": rule["access"],
            "description": rule["description"],
        }
        for rule in infra.rules(INPUTS)[side]
    ]
    place = f"{NSG}/train-{side}-nsg"
    listed = [
        {"id": f"{place}/securityRules/{rule['name']}", "name": rule["name"], "properties": rule}
        for rule in [*own, *others]
    ]
    return {"id": place, "name": f"train-{side}-nsg", "properties": {"securityRules": listed}}


def rule(name: str, priority: int, **properties: t.Any) -> dict[str, t.Any]:
    defaults = {"direction": "Inbound", "access": "Allow", "protocol": "Tcp", "destinationPortRange": "443"}
    return {"name": name, "priority": priority, "sourceAddressPrefix": "10.1.0.0/16", **defaults, **properties}


def reviewed(*others: dict[str, t.Any], **changes: t.Any) -> dict[str, list[str]]:
    observed = {"server_nsg": security_group("server", *others), "compute_nsg": security_group("compute")}
    return infra.rule_review(inputs(**changes), observed)


def test_a_rule_of_an_administrator_is_told_and_never_deleted() -> None:
    review = reviewed(rule("vpn", 105))
    assert (review["stale"], review["conflicts"]) == ([], [])
    assert review["opened"] == [
        "rule vpn of train-server-nsg (priority 105) lets 10.1.0.0/16 in, port 443, Tcp. Role azure_infra did not make"
        " it and leaves it"
    ]


@pytest.mark.parametrize(
    "other, told",
    [
        (rule("deny", 105, access="Deny"), ""),
        (rule("out", 105, direction="Outbound"), ""),
        (rule("out", 100, direction="Outbound"), ""),
        (rule("any", 105, sourceAddressPrefix="*", protocol="*"), "any protocol: that is the whole Internet."),
        (rule("tag", 105, sourceAddressPrefix="Internet"), "that is the whole Internet."),
        (
            rule("many", 105, sourceAddressPrefix=None, sourceAddressPrefixes=["192.0.2.1", "192.0.2.2"]),
            "lets 192.0.2.1, 192.0.2.2 in",
        ),
        (
            rule("ports", 105, destinationPortRange="", destinationPortRanges=["22", "80-90"]),
            "port 22, 80-90, Tcp.",
        ),
    ],
)
def test_only_what_opens_is_told(other: dict[str, t.Any], told: str) -> None:
    review = reviewed(other)
    assert (review["stale"], review["conflicts"]) == ([], [])
    assert len(review["opened"]) == bool(told)
    assert told in "".join(review["opened"])


def test_a_rule_of_ours_that_is_not_wanted_any_more_is_stale() -> None:
    review = reviewed(allowed_sources=[])
    assert [entry.rsplit("/", 3)[-3:] for entry in review["stale"]] == [
        ["train-server-nsg", "securityRules", "ssh"],
        ["train-server-nsg", "securityRules", "https"],
        ["train-compute-nsg", "securityRules", "ssh"],
    ]


def test_our_description_under_another_name_makes_no_rule_ours() -> None:
    """As when somebody copies a rule and changes its name and sources."""
    review = reviewed(rule("vpn", 105, description=infra.rule_mark("train", "ssh")))
    assert (review["stale"], len(review["opened"])) == ([], 1)


def test_a_rule_in_the_place_of_ours_is_a_conflict() -> None:
    review = reviewed(rule("vpn", 110))
    assert "rule vpn of train-server-nsg has priority 110, which rule ssh" in review["conflicts"][0]
    assert (review["stale"], review["opened"]) == ([], [])


def test_groups_that_do_not_exist_have_no_rules() -> None:
    assert infra.rule_review(INPUTS, {"server_nsg": None}) == {"stale": [], "opened": [], "conflicts": []}
