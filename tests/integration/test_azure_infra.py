# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role azure_infra with the real azure.azcollection against the emulator.

That it makes everything, nothing twice and goes on after a failure is shown by scenario azure, too; here it takes
minutes, and is left out unless HPCAI_TEST_SLOW is set.
"""

from __future__ import annotations

import json
import os
import re
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook
from azure_collection import PYTHON, collection, emulated, warm_sdks
from running import Azure
from warm import Warm

ROOT = Path(__file__).resolve().parents[2]

Json = t.Dict[str, t.Any]
PLACE = {"location": "southcentralus"}
PLAY = """
- hosts: localhost
  gather_facts: false
  roles:
    - role: hpcai.gpu_cluster.azure_infra
  post_tasks:
    - ansible.builtin.copy: {content: "{{ azure_infra_result | to_json }}", dest: result.json, mode: "0600"}
      check_mode: false
      changed_when: false
"""
SETTINGS: Json = {
    "azure_infra_cluster": "c1",
    "azure_infra_location": "South Central US",
    "azure_infra_server_ssh_public_key": "ssh-ed25519 " + "A" * 68,
    "azure_infra_allowed_sources": ["198.51.100.0/24"],
    "azure_infra_nodes": [{"name": "gpu", "size": "Standard_ND96asr_v4", "count": 4, "price": 27.2}],
}
SLOW = pytest.mark.skipif(not os.environ.get("HPCAI_TEST_SLOW"), reason="HPCAI_TEST_SLOW is not set")
WOULD = re.compile(r"would be made: (\S+?)\"")
RECAP = re.compile(r"^localhost .*?changed=(\d+) .*?failed=(\d+)", re.MULTILINE)


class Done(t.NamedTuple):
    """One run of the role."""

    changed: int
    output: str
    result: Json

    @property
    def told(self) -> str:
        return " ".join(self.output.split())


class Role:
    """The role as a user starts it."""

    def __init__(self, azure: Azure, directory: Path, interpreter: Path) -> None:
        self.azure, self.directory, self.interpreter = azure, directory, interpreter
        (directory / "play.yml").write_text(PLAY)

    def __call__(self, *options: str, fails: bool = False, **settings: t.Any) -> Done:
        (self.directory / "settings.json").write_text(json.dumps({**SETTINGS, **settings}))
        (self.directory / "result.json").write_text("{}")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("AZURE_", "ANSIBLE_"))}
        paths = f"{ROOT}/.build/collections:{collection().parents[1]}"
        places = {"ANSIBLE_COLLECTIONS_PATH": paths, "ANSIBLE_HOME": str(self.directory), "ANSIBLE_NOCOLOR": "1"}
        python = f"ansible_python_interpreter={self.interpreter}"
        words = ("play.yml", "-e", "@settings.json", "-e", python, *options)
        environment = {**kept, **self.azure.environment, **places}
        done = ansible_playbook(*words, cwd=self.directory, env=environment, python=PYTHON)
        output = done.stdout + done.stderr
        recap = RECAP.search(output)
        assert recap, output
        assert bool(int(recap[2])) is fails, output
        assert self.azure.environment["AZURE_SECRET"] not in output
        return Done(int(recap[1]), output, json.loads((self.directory / "result.json").read_text()))

    def there(self) -> set[str]:
        """Return what was made, without what a resource brings along by itself."""
        brought = ("/blobServices/default", "/fileServices/default")
        listed = [one for one in self.azure.control("state")["leftovers"] if not one.endswith(brought)]
        return {one for one in listed if "/securityRules/" not in one and "/disks/" not in one}

    def delete(self, *places: str) -> None:
        for place, version in zip(places[::2], places[1::2]):
            assert self.azure.done("DELETE", f"resourceGroups/c1-rg/providers/{place}", version).status < 400


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Azure]:
    with emulated(tmp_path_factory, "role azure_infra is") as azure:
        yield azure


@pytest.fixture(scope="module")
def warm() -> t.Iterator[Warm]:
    with warm_sdks() as process:
        yield process


@pytest.fixture
def role(running: Azure, warm: Warm, tmp_path: Path) -> Role:
    settings = {"delay": 0.02, "group_delete_delay": 0.05, "replication_delay": 1, "unregistered": []}
    running.control("reset", {"settings": settings})
    running.token = ""
    return Role(running, tmp_path, warm.interpreter)


@SLOW
def test_from_nothing_and_again(role: Role) -> None:
    role.azure.control("settings", {"unregistered": ["Microsoft.Compute", "Microsoft.ManagedIdentity"]})
    planned = role("--check")
    assert planned.changed
    assert role.there() == set()
    assert not [one for one in role.azure.control("log") if one["method"] in ("PUT", "PATCH", "DELETE")]
    made = role()
    assignments = {one for one in role.there() if "roleAssignments" in one}
    assert {one.lower() for one in assignments} == {one.lower() for one in made.result["role_assignments"]}
    assert set(WOULD.findall(planned.output)) == role.there() - assignments
    assert len(assignments) == 3
    server = made.result["server"]
    assert server["address"] == server["private_address"] != ""
    assert server["image"] == "Canonical:ubuntu-24_04-lts:server:24.04.202510100"
    assert made.result["preflight"]["cost"]["hour"] == 108.8
    # A newer image does not move a machine that is there, and its nodes may use the quota by now.
    role.azure.control("settings", {"usage": {"Standard NDASv4_A100 Family": 700}})
    for options in ([], ["--check"]):
        again = role(*options)
        assert again.changed == 0, again.output
        assert {**again.result, "preflight": {}} == {**made.result, "preflight": {}}


@SLOW
def test_a_run_that_failed_is_continued(role: Role) -> None:
    fault = {"match": {"method": "PUT", "path": "virtualMachines/"}, "times": 1, "do": {"error": "AllocationFailed"}}
    role.azure.control("faults", [fault])
    failed = role(fails=True)
    assert "Create the CycleCloud machine" in failed.told
    assert "wait, or try another size or region" in failed.told
    assert "the next run goes on from there" in failed.told
    role.delete("Microsoft.Network/networkInterfaces/c1-cyclecloud-nic", "2024-07-01")
    planned = role("--check")
    names = sorted(one.rsplit("/", 1)[-1] for one in WOULD.findall(planned.output))
    assert names == ["c1-cyclecloud", "c1-cyclecloud-nic"]
    assert role(azure_infra_public_address=True).result["server"]["address"] != ""
    assert role(azure_infra_public_address=True).changed == 0


def brought(role: Role) -> Json:
    """Make what a site may have already; returns settings that use it, with a storage account that will not do."""
    azure, group = role.azure, "resourceGroups/shared/providers"
    azure.arm("PUT", "resourceGroups/shared", "2021-04-01", PLACE)
    space = {"addressSpace": {"addressPrefixes": ["10.9.0.0/16"]}}
    azure.done("PUT", f"{group}/Microsoft.Network/virtualNetworks/v", "2024-07-01", {**PLACE, "properties": space})
    subnet = azure.done(
        "PUT",
        f"{group}/Microsoft.Network/virtualNetworks/v/subnets/s",
        "2024-07-01",
        {"properties": {"addressPrefix": "10.9.1.0/24"}},
    ).body["id"]
    account, sku = f"{group}/Microsoft.Storage/storageAccounts", {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2"}
    for name, nested in (("sharedlocker", False), ("nested", True)):
        body = {**PLACE, **sku, "properties": {"isHnsEnabled": nested}}
        assert azure.done("PUT", f"{account}/{name}", "2023-05-01", body).status == 200
    identity = azure.arm("PUT", f"{group}/Microsoft.ManagedIdentity/userAssignedIdentities/i", "2024-11-30", PLACE).body
    principal = {"client_id": identity["properties"]["clientId"], "object_id": identity["properties"]["principalId"]}
    return {
        "azure_infra_existing_subnet_id": subnet,
        "azure_infra_existing_storage_account_id": f"{azure.subscription}/{account}/nested",
        "azure_infra_existing_locker_identity_id": identity["id"],
        "azure_infra_orchestration": "service_principal",
        "azure_infra_service_principal": {**principal, "secret_expires": "2099-01-01"},
        "azure_infra_role_scope": "resource_group",
    }


def test_what_is_brought_along_and_will_not_do_is_refused(role: Role) -> None:
    settings = brought(role)
    before = role.there()
    assert "hierarchical namespace" in role(fails=True, **settings).told
    subnet = settings["azure_infra_existing_subnet_id"]
    gone = role(fails=True, **{**settings, "azure_infra_existing_subnet_id": f"{subnet}x"})
    assert f"These do not exist: {subnet}x" in gone.told
    assert role.there() == before


def test_a_bastion_is_a_way_in_if_it_lets_ssh_clients_in(role: Role) -> None:
    """In check mode, from nothing: what would be made is told, and the security groups would let the Bastion in."""
    azure, group = role.azure, "resourceGroups/hub-rg/providers/Microsoft.Network"
    azure.arm("PUT", "resourceGroups/hub-rg", "2021-04-01", PLACE)
    place = {"name": "AzureBastionSubnet", "properties": {"addressPrefix": "10.90.0.0/26"}}
    space = {"addressSpace": {"addressPrefixes": ["10.90.0.0/24"]}, "subnets": [place]}
    azure.done("PUT", f"{group}/virtualNetworks/hub", "2024-07-01", {**PLACE, "properties": space})
    subnet = f"{azure.subscription}/{group}/virtualNetworks/hub/subnets/AzureBastionSubnet"
    sku = {"sku": {"name": "Standard"}}
    body = {**PLACE, **sku, "properties": {"publicIPAllocationMethod": "Static"}}
    address = azure.done("PUT", f"{group}/publicIPAddresses/hub", "2024-07-01", body).body["id"]
    configuration = {"name": "ip", "properties": {"subnet": {"id": subnet}, "publicIPAddress": {"id": address}}}

    def bastion(tier: str, tunneling: bool) -> str:
        said = {"ipConfigurations": [configuration], "enableTunneling": tunneling}
        body = {**PLACE, "sku": {"name": tier}, "properties": said}
        return str(azure.done("PUT", f"{group}/bastionHosts/hub", "2024-07-01", body).body["id"])

    settings = {"azure_infra_allowed_sources": [], "azure_infra_bastion_id": bastion("Basic", False)}
    refused = role("--check", fails=True, **settings)
    assert "lets no SSH client in: its tier is Basic" in refused.told
    assert "az network bastion update --ids" in refused.told
    gone = role(
        "--check", fails=True, **{**settings, "azure_infra_bastion_id": f"{settings['azure_infra_bastion_id']}x"}
    )
    assert "These do not exist" in gone.told
    bastion("Standard", True)
    planned = role("--check", **settings)
    assert "c1-cyclecloud" in planned.output
    assert planned.result["bastion"] == settings["azure_infra_bastion_id"]
    tasks = [
        {"ansible.builtin.include_role": {"name": "hpcai.gpu_cluster.azure_infra", "public": True}},
        {"ansible.builtin.debug": {"msg": "opened: {{ __azure_infra_plan['rules']['server'] | to_json }}"}},
    ]
    (role.directory / "play.yml").write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}])
    )
    told = role("--check", **settings).told.replace("\\", "")
    assert '"destination_port_range": "22"' in told and '"source_address_prefix": "10.90.0.0/26"' in told


@SLOW
def test_what_is_brought_along_is_used(role: Role) -> None:
    settings = brought(role)
    account = settings["azure_infra_existing_storage_account_id"]
    settings["azure_infra_existing_storage_account_id"] = account.replace("nested", "sharedlocker")
    before = role.there()
    made = role(**settings)
    own = [one.rsplit("/", 1)[-1] for one in role.there() - before if "roleAssignments" not in one]
    assert sorted(own) == ["c1-cyclecloud", "c1-cyclecloud-nic", "c1-rg", "cyclecloud"]
    assert len(made.result["role_assignments"]) == 7
    assert made.result["secret_expires"] == "2099-01-01"
    assert made.result["server"]["principal_id"] == ""
    assert role(**settings).changed == 0


def test_nothing_is_made_where_something_blocks(role: Role) -> None:
    role.azure.control(
        "settings", {"quota": {"Standard NDASv4_A100 Family": 10}, "denied": ["Microsoft.Authorization/*/write"]}
    )
    failed = role(fails=True)
    assert "384 cores are needed and 10 are free" in failed.told
    assert "may not do Microsoft.Authorization/roleAssignments/write" in failed.told
    refused = role(fails=True, azure_infra_cluster="C_1", azure_infra_allowed_sources=["0.0.0.0/0"])
    assert "azure_infra_cluster is 'C_1'" in refused.told
    assert "the whole Internet" in refused.told
    assert role.there() == set()


IMAGE = {"azure_infra_server_image": "azurecyclecloud:azure-cyclecloud:cyclecloud8-gen2:latest"}


def test_a_marketplace_image_wants_its_terms_accepted(role: Role) -> None:
    assert "az vm image terms accept" in role(fails=True, **IMAGE).told
    assert role.there() == set()


@SLOW
def test_the_terms_of_a_marketplace_image_are_accepted(role: Role) -> None:
    made = role(azure_infra_server_accept_terms=True, **IMAGE)
    assert made.result["server"]["image"] == "azurecyclecloud:azure-cyclecloud:cyclecloud8-gen2:8.9.320260812"
    assert role(azure_infra_server_accept_terms=True, **IMAGE).changed == 0
