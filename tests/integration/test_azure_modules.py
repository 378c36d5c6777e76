# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""azure.azcollection itself against the emulator, under Azure's own names: made, unchanged the second time, deleted."""

from __future__ import annotations

import json
import os
import subprocess
import typing as t
from pathlib import Path

import pytest
from azure_collection import PYTHON, collection, emulated
from patience import patience
from running import Azure

EMULATOR = Path(__file__).parents[1] / "emulators/azure"

Json = t.Any
GROUP = {"resource_group": "c1-rg"}
TAGS = {"tags": {"hpcai-cluster": "c1"}}
CYCLECLOUD = {"publisher": "azurecyclecloud", "product": "azure-cyclecloud", "name": "cyclecloud8-gen2"}
IMAGE = {"publisher": "azurecyclecloud", "offer": "azure-cyclecloud", "sku": "cyclecloud8-gen2"}


class Modules:
    """The modules, with the environment of one emulator."""

    def __init__(self, azure: Azure, directory: Path) -> None:
        self.azure = azure
        (directory / "ansible_collections").mkdir()
        (directory / "ansible_collections/azure").symlink_to(collection().parent)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("AZURE_", "ANSIBLE_"))}
        environment = {**kept, **azure.environment, "PYTHONPATH": str(directory), "HOME": str(directory)}
        self.process = subprocess.Popen([PYTHON, EMULATOR / "modules.py"], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip

    def __call__(self, module: str, /, **options: Json) -> Json:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([module, options]) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert not answer.get("failed"), f"{module}: {answer['msg']}"
        return answer

    def twice(self, module: str, /, **options: Json) -> Json:
        """Run a module: it changes something; and again: it changes nothing."""
        assert self(module, **options)["changed"], module
        again = self(module, **options)
        assert not again["changed"], f"{module} changes something the second time"
        return again


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Modules]:
    with emulated(tmp_path_factory, "azure.azcollection is") as azure:
        azure.control(
            "settings", {"delay": 0.02, "group_delete_delay": 0.05, "replication_delay": 0, "unregistered": []}
        )
        running = Modules(azure, tmp_path_factory.mktemp("modules"))
        yield running
        running.process.communicate(timeout=patience(60))


def network(modules: Modules) -> None:
    ssh = {"name": "ssh", "protocol": "Tcp", "destination_port_range": "22", "priority": 100}
    sources = ["192.0.2.0/24", "198.51.100.0/24"]
    nodes = {"name": "nodes", "protocol": "Tcp", "destination_port_range": ["9443", "443"], "priority": 110}
    rules = [{**ssh, "source_address_prefix": sources}, {**nodes, "source_address_prefix": "VirtualNetwork"}]
    modules.twice("securitygroup", **GROUP, name="nsg", purge_rules=True, rules=rules, **TAGS)
    modules.twice("virtualnetwork", **GROUP, name="v", address_prefixes_cidr=["10.0.0.0/16"], **TAGS)
    modules.twice("publicipaddress", **GROUP, name="ip", sku="Standard", allocation_method="Static", **TAGS)
    modules.twice("natgateway", **GROUP, name="nat", sku={"name": "standard"}, public_ip_addresses=["ip"], **TAGS)
    subnet = {"virtual_network": "v", "name": "compute", "address_prefix_cidr": "10.0.1.0/24", "nat_gateway": "nat"}
    storage = [{"service": "Microsoft.Storage", "locations": ["southcentralus"]}]
    modules.twice("subnet", **GROUP, **subnet, security_group="nsg", service_endpoints=storage)
    part = [{"name": "primary", "primary": True}]
    place = {"virtual_network": "v", "subnet_name": "compute", "create_with_security_group": False}
    modules.twice("networkinterface", **GROUP, name="nic", **place, ip_configurations=part, **TAGS)


def server(modules: Modules) -> Json:
    key = {"path": "/home/hpc/.ssh/authorized_keys", "key_data": "ssh-ed25519 " + "A" * 68}
    size = {"vm_size": "Standard_D4s_v5", "managed_disk_type": "Premium_LRS", "os_disk_size_gb": 256}
    user = {"admin_username": "hpc", "ssh_password_enabled": False, "ssh_public_keys": [key]}
    image = {"image": {**IMAGE, "version": "8.9.320260812"}, "plan": CYCLECLOUD, "accept_terms": True}
    more = {"custom_data": "#cloud-config\n{}", "vm_identity": {"type": "SystemAssigned"}}
    more["boot_diagnostics"] = {"enabled": True, "type": "managed"}
    modules.twice(
        "virtualmachine", **GROUP, name="cc", network_interfaces=["nic"], **size, **user, **image, **more, **TAGS
    )
    path = {
        "provider": "Compute",
        "resource_type": "virtualMachines",
        "resource_name": "cc",
        "api_version": "2024-07-01",
    }
    assert modules("virtualmachine_info", **GROUP, name="cc")["vms"][0]["power_state"] == "running"
    return modules("resource_info", **GROUP, **path)["response"][0]["identity"]["principalId"]


def test_a_deployment_is_made_once_and_deleted(modules: Modules) -> None:
    scope = modules.azure.subscription
    modules.twice("resourcegroup", name="c1-rg", location="southcentralus", **TAGS)
    network(modules)
    account = {"account_type": "Standard_LRS", "kind": "StorageV2", "is_hns_enabled": False}
    modules.twice("storageaccount", **GROUP, name="c1locker", **account, minimum_tls_version="TLS1_2", **TAGS)
    identity = {"provider": "ManagedIdentity", "resource_type": "userAssignedIdentities", "resource_name": "locker"}
    modules.twice("resource", **GROUP, **identity, api_version="2024-11-30", idempotency=True,
                  body={"location": "southcentralus", **TAGS})  # fmt: skip
    principal = server(modules)
    role = f"{scope}/providers/Microsoft.Authorization/roleDefinitions/b24988ac-6180-42a0-ab88-20f7382dd24c"
    name = "0a0a0a0a-0a0a-4a0a-8a0a-0a0a0a0a0a0a"
    who = {"assignee_object_id": principal, "role_definition_id": role}
    modules.twice("roleassignment", scope=scope, name=name, **who)
    modules.twice("lock", **GROUP, name="keep", level="can_not_delete")
    modules("lock", **GROUP, name="keep", state="absent")
    modules("virtualmachine", **GROUP, name="cc", state="absent", remove_on_absent=["all"])
    modules("roleassignment", scope=scope, name=name, state="absent")
    modules("resourcegroup", name="c1-rg", state="absent", force_delete_nonempty=True)
    assert modules.azure.control("state")["leftovers"] == []


@pytest.mark.skipif(
    not os.environ.get("HPCAI_TEST_SLOW"), reason="HPCAI_TEST_SLOW is not set; no role of ours uses these"
)
def test_automation_is_made_once_and_deleted(modules: Modules) -> None:
    modules("resourcegroup", name="a-rg", location="southcentralus")
    where: Json = {"resource_group": "a-rg", "automation_account_name": "auto"}
    modules.twice("automationaccount", resource_group="a-rg", name="auto", **TAGS)
    modules.twice("automationrunbook", **where, name="destroy", runbook_type="PowerShell", log_progress=True)
    schedule = {"provider": "Automation", "resource_type": "automationAccounts", "resource_name": "auto"}
    said = {"startTime": "2099-01-01T00:00:00+00:00", "frequency": "OneTime", "timeZone": "Etc/UTC"}
    modules.twice("resource", resource_group="a-rg", **schedule, api_version="2023-11-01", idempotency=True,
                  subresource=[{"type": "schedules", "name": "s"}], body={"name": "s", "properties": said})  # fmt: skip
    modules("automationrunbook", **where, name="destroy", state="absent")
    modules("automationaccount", resource_group="a-rg", name="auto", state="absent")
    modules("resourcegroup", name="a-rg", state="absent")
    assert modules.azure.control("state")["leftovers"] == []
