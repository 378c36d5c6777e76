# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight and the generic modules with Azure's own libraries, old and new, against the emulator."""

from __future__ import annotations

import json
import os
import typing as t
import warnings
from pathlib import Path

import pytest
from forked import run_module
from patience import patience
from running import Azure

ROOT = Path(__file__).resolve().parents[2]

# The release that azure.azcollection pins, and the newest.
PYTHONS = {"pinned": ROOT / ".build/azure/bin/python", "newest": ROOT / ".build/azure-newest/bin/python"}
HINT = "make azure-venv" if not PYTHONS["pinned"].is_file() else "make azure-newest-venv"
Json = t.Dict[str, t.Any]
CYCLECLOUD = "azurecyclecloud:azure-cyclecloud:cyclecloud8-gen2:latest"
GPU = {"name": "gpu", "size": "Standard_ND96asr_v4", "count": 4, "image": "microsoft-dsvm:ubuntu-hpc:2204:latest"}
SERVER = {"name": "cyclecloud", "size": "Standard_D4s_v5", "image": "Canonical:ubuntu-24_04-lts:server:latest"}
IDENTITY = "resourceGroups/c1-rg/providers/Microsoft.ManagedIdentity/userAssignedIdentities/c1-locker"


class Modules:
    """Modules as Ansible starts them, in one of the environments."""

    def __init__(self, azure: Azure, python: Path) -> None:
        self.azure, self.python = azure, python

    def __call__(self, module: str, check: bool = False, fails: bool = False, **options: t.Any) -> Json:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("AZURE_", "ANSIBLE_"))}
        environment = {**kept, **self.azure.environment, "PYTHONPATH": str(ROOT / ".build/collections")}
        arguments = {"ANSIBLE_MODULE_ARGS": {**options, "_ansible_check_mode": check}}
        name = f"ansible_collections.hpcai.gpu_cluster.plugins.modules.{module}"
        given = json.dumps(arguments)
        done = run_module(name, input=given, env=environment, timeout=patience(120), python=self.python)
        assert done.stdout.lstrip().startswith("{"), done.stdout + done.stderr
        answer: Json = json.loads(done.stdout)
        assert bool(answer.get("failed")) is fails, answer
        assert self.azure.environment["AZURE_SECRET"] not in done.stdout + done.stderr
        return answer

    def preflight(self, *nodes: Json, **options: t.Any) -> Json:
        given = {"location": "South Central US", "resource_group": "c1-rg", "nodes": list(nodes)}
        return self("azure_compute_preflight", **{**given, **options})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Azure]:
    azure = Azure(tmp_path_factory.mktemp("azure"))
    yield azure
    azure.close()


@pytest.fixture(params=PYTHONS)
def modules(request: pytest.FixtureRequest, running: Azure) -> Modules:
    python = PYTHONS[request.param]
    if not python.is_file():
        reason = f"the {request.param} azure-mgmt-compute is NOT tested: run {HINT}"
        warnings.warn(reason, stacklevel=2)
        pytest.skip(reason)
    settings = {"delay": 0.02, "group_delete_delay": 0.05, "replication_delay": 0, "unregistered": []}
    running.control("reset", {"settings": settings})
    running.token = ""
    return Modules(running, python)


def checks(answer: Json) -> list[tuple[str, str, bool]]:
    return sorted((one["check"], one["subject"], one["blocks"]) for one in answer["findings"])


def test_all_is_well_and_pinned(modules: Modules) -> None:
    answer = modules.preflight({**GPU, "gpus": 8, "rdma": True, "nvme": True, "price": 27.2}, SERVER)
    assert answer["findings"] == []
    assert answer["ready"]
    assert answer["images"][GPU["image"]]["urn"] == "microsoft-dsvm:ubuntu-hpc:2204:22.04.2026031101"
    gpu = answer["nodes"][0]
    assert (gpu["cores"], gpu["gpus"], gpu["family"]) == (384, 8, "standardNDASv4_A100Family")
    assert answer["cost"]["hour"] == 108.8
    assert not [
        one
        for one in modules.azure.control("log")
        if one["method"] not in ("GET", "HEAD") and "token" not in one["path"]
    ]


def test_everything_that_is_wrong_is_told_at_once(modules: Modules) -> None:
    modules.azure.control(
        "settings",
        {
            "quota": {"Standard NDASv4_A100 Family": 200, "lowPriorityCores": 50, "cores": 300},
            "sku_restrictions": {
                "Standard_ND96isr_H100_v5": "absent",
                "Standard_ND96asr_v4": [{"zones": ["1"]}],
            },
            "unregistered": ["Microsoft.Storage"],
            "denied": ["Microsoft.Authorization/*/write"],
        },
    )
    answer = modules.preflight(
        {**GPU, "zone": "1", "gpus": 4},
        {**GPU, "name": "spot", "spot": True, "count": 1},
        {"name": "h100", "size": "Standard_ND96isr_H100_v5"},
        {"name": "none", "size": "Standard_D4s_v5", "image": "Canonical:ubuntu-24_04-lts:server:1.2.3"},
        {"name": "nowhere", "size": "Standard_D4s_v5", "image": "nobody:nothing:never:latest"},
        {"name": "arm", "size": "Standard_D4s_v5", "image": "Canonical:ubuntu-24_04-lts:server-arm64:latest"},
        {"name": "market", "size": "Standard_D4s_v5", "image": CYCLECLOUD},
    )
    scope = modules.azure.subscription
    assert checks(answer) == [
        ("image", "arm", True),
        ("image", "none", True),
        ("image", "nowhere", True),
        ("permissions", scope, True),
        ("provider", "Microsoft.Storage", False),
        ("quota", "gpu", True),
        ("quota", "gpu, none, nowhere, arm, market", True),
        ("quota", "spot", True),
        ("size", "gpu", True),
        ("size", "gpu", True),
        ("size", "h100", True),
        ("terms", "market", True),
    ]
    assert all(one["action"] for one in answer["findings"])
    assert answer["unregistered"] == ["Microsoft.Storage"]
    assert "zones left: 2" in " ".join(answer["text"])


def test_a_group_elsewhere_and_running_nodes(modules: Modules) -> None:
    modules.azure.arm("PUT", "resourceGroups/c1-rg", "2021-04-01", {"location": "eastus"})
    modules.azure.control("settings", {"quota": {"cores": 1}})
    answer = modules.preflight(SERVER, quota_blocks=False)
    assert [one[0] for one in checks(answer)] == ["group", "quota"]
    assert not answer["ready"]
    modules.azure.control("settings", {"unregistered": ["Microsoft.Compute"]})
    answer = modules.preflight(SERVER, location="eastus")
    assert answer["ready"]
    assert (
        modules.azure.arm("GET", "providers/Microsoft.Compute", "2021-04-01").body["registrationState"]
        == "NotRegistered"
    )


def test_what_cannot_be_looked_at_is_told_with_a_remedy(modules: Modules) -> None:
    for options, told in (
        ({"secret": "wrong~secret"}, "AZURE_SECRET wants the secret's value"),
        ({"subscription_id": "99999999-9999-4999-8999-999999999999"}, "Check AZURE_SUBSCRIPTION_ID"),
        ({"location": "mars"}, "Check the name of the region"),
        ({"auth_source": "credential_file", "profile": "no"}, "Which subscription"),
    ):
        answer = modules("azure_compute_preflight", fails=True, **{"location": "eastus", "nodes": [SERVER], **options})
        assert told in answer["msg"], answer["msg"]
        assert "wrong~secret" not in json.dumps(answer)


def test_a_resource_is_made_kept_and_deleted(modules: Modules) -> None:
    modules.azure.arm("PUT", "resourceGroups/c1-rg", "2021-04-01", {"location": "southcentralus"})
    place = {"id": f"{modules.azure.subscription}/{IDENTITY}", "api_version": "2024-11-30"}
    body = {"location": "South Central US", "tags": {"a": "1"}}
    assert modules("azure_resource", check=True, **place, body=body)["changed"]
    assert modules("azure_resource_info", resources={"x": place})["resources"] == {"x": {}}
    made = modules("azure_resource", **place, body=body)
    assert made["resource"]["properties"]["principalId"]
    for check in (True, False):
        assert not modules("azure_resource", check=check, **place, body=body)["changed"]
    more = modules("azure_resource", **place, body={**body, "tags": {"b": "2"}})
    assert more["diff"]["before"]["tags"] == {}
    assert more["resource"]["tags"] == {"a": "1", "b": "2"}
    assert modules("azure_resource", **place, state="absent")["changed"]
    assert not modules("azure_resource", **place, state="absent")["changed"]


def test_a_provider_is_registered(modules: Modules) -> None:
    modules.azure.control("settings", {"unregistered": ["Microsoft.Network"], "registration_delay": 0.3})
    options: Json = {
        "id": f"{modules.azure.subscription}/providers/Microsoft.Network",
        "api_version": "2021-04-01",
        "body": {"registrationState": "Registered"},
        "action": "register",
        "interval": 0.1,
    }
    assert modules("azure_resource", check=True, **options)["changed"]
    assert modules("azure_resource", **options)["changed"]
    assert not modules("azure_resource", **options)["changed"]


def test_terms_are_accepted_whole(modules: Modules) -> None:
    where = "offerTypes/virtualmachine/publishers/azurecyclecloud/offers/azure-cyclecloud/plans/cyclecloud8-gen2"
    options: Json = {
        "id": f"{modules.azure.subscription}/providers/Microsoft.MarketplaceOrdering/{where}/agreements/current",
        "api_version": "2021-01-01",
        "body": {"properties": {"accepted": True}},
        "whole": True,
    }
    node = {"name": "market", "size": "Standard_D4s_v5", "image": CYCLECLOUD}
    assert checks(modules.preflight(node)) == [("terms", "market", True)]
    assert checks(modules.preflight(node, accept_terms=True)) == [("terms", "market", False)]
    assert modules("azure_resource", **options)["changed"]
    assert not modules("azure_resource", **options)["changed"]
    assert modules.preflight(node)["findings"] == []


def test_roles_are_given_once_under_any_name(modules: Modules) -> None:
    modules.azure.control("settings", {"replication_delay": 2})
    modules.azure.arm("PUT", "resourceGroups/c1-rg", "2021-04-01", {"location": "southcentralus"})
    made = modules.azure.arm("PUT", IDENTITY, "2024-11-30", {"location": "southcentralus"})
    principal = made.body["properties"]["principalId"]
    wish = {"scope": modules.azure.subscription, "role": "Reader", "principal": principal}
    later = {**wish, "scope": f"{modules.azure.subscription}/resourceGroups/c1-rg"}
    planned = modules("azure_role_assignments", check=True, assignments=[{**wish, "principal": ""}])
    assert (planned["changed"], planned["ids"]) == (True, [])
    given = modules("azure_role_assignments", assignments=[wish, later], interval=0.5)
    assert given["changed"]
    again = modules("azure_role_assignments", assignments=[wish, later])
    assert (again["changed"], again["ids"]) == (False, given["ids"])
    modules.azure.arm("DELETE", given["ids"][0], "2022-04-01")
    base = f"{modules.azure.subscription}/providers/Microsoft.Authorization"
    role = f"{base}/roleDefinitions/acdd72a7-3385-48ef-bd42-f606fba81ae7"
    body = {"properties": {"roleDefinitionId": role, "principalId": principal, "principalType": "ServicePrincipal"}}
    other = f"{base}/roleAssignments/88888888-8888-4888-8888-888888888888"
    assert modules.azure.arm("PUT", other, "2022-04-01", body).status == 201
    adopted = modules("azure_role_assignments", assignments=[wish])
    assert (adopted["changed"], adopted["ids"]) == (False, [other])


@pytest.mark.parametrize(
    "fault",
    [{"reset": "after"}, {"reset": "before"}, {"status": 500, "after": True}, {"throttle": 1}],
    ids=["lost answer", "lost request", "failed after the effect", "throttled"],
)
def test_a_broken_line_makes_nothing_twice(modules: Modules, fault: Json) -> None:
    modules.azure.arm("PUT", "resourceGroups/c1-rg", "2021-04-01", {"location": "southcentralus"})
    wish = {"scope": modules.azure.subscription, "role": "Reader", "principal": "44444444-4444-4444-8444-444444444444"}
    place = {"id": f"{modules.azure.subscription}/{IDENTITY}", "api_version": "2024-11-30"}
    made = modules("azure_resource", **place, body={"location": "southcentralus"})
    wish["principal"] = made["resource"]["properties"]["principalId"]
    before = len(modules.azure.control("state")["leftovers"])
    modules.azure.control("faults", [{"match": {"method": "PUT", "path": "roleAssignments"}, "times": 1, "do": fault}])
    answer = modules("azure_role_assignments", assignments=[wish], interval=0.5)
    assert len(answer["ids"]) == 1
    assert len(modules.azure.control("state")["leftovers"]) == before + 1
    assert not modules("azure_role_assignments", assignments=[wish])["changed"]
