# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CycleCloud emulator before the ARM emulator: credentials a locker, machines that come and go."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import time
import typing as t
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path

import pytest
from conftest import ROOT
from patience import patience
from test_cyclecloud_emulator import Emulator

Json = t.Dict[str, t.Any]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEmuLatedCycleCloudKeyForNodesThatAreNotThere test"
BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"


class Azure:
    """A subscription with a network, asked as the service principal."""

    def __init__(self, folder: Path) -> None:
        argv = [sys.executable, "-B", str(ROOT / "tests/emulators/azure"), "--dir", str(folder), "--fresh"]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while not (folder / "azure.json").exists() and time.monotonic() < end:
            time.sleep(0.05)
        self.about: Json = json.loads((folder / "azure.json").read_text())
        self.secrets: Json = json.loads((folder / "environment.json").read_text())
        self.trust = ssl.create_default_context(cafile=self.about["ca"])
        self.subscription = f"/subscriptions/{self.about['subscription']}"
        self.group = f"{self.subscription}/resourceGroups/rg1"
        form = {"client_id": self.about["client"], "client_secret": self.secrets["AZURE_SECRET"]}
        form.update(grant_type="client_credentials", scope="https://management.azure.com/.default")
        path = f"/{self.about['tenant']}/oauth2/v2.0/token"
        self.token = ""
        self.token = self._send("POST", path, urllib.parse.urlencode(form).encode())["access_token"]
        for name in ("Compute", "Network", "Storage", "ManagedIdentity"):
            self.register(f"{self.subscription}/providers/Microsoft.{name}")
        told = {"X-Emulator": "1", "Content-Type": "application/json"}
        self._send("POST", "/_emulator/settings", b'{"assignment_delay": 0}', **told)
        self.ask("PUT", self.group, "2021-04-01", {"location": "eastus"})
        subnet = {"name": "compute", "properties": {"addressPrefix": "10.0.0.0/20"}}
        space = {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}, "subnets": [subnet]}
        self.make("Microsoft.Network/virtualNetworks/v", "2024-05-01", space)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()

    def _send(self, method: str, path: str, data: bytes | None, **headers: str) -> Json:
        request = urllib.request.Request(self.about["url"] + path, data, headers, method=method)
        with urllib.request.urlopen(request, context=self.trust, timeout=patience(30)) as answer:
            return t.cast(Json, json.loads(answer.read() or b"{}"))

    def ask(self, method: str, path: str, version: str, body: Json | None = None) -> Json:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return self._send(method, f"{path}?api-version={version}", data, **headers)

    def register(self, provider: str) -> None:
        """A fresh subscription has used nothing yet."""
        self.ask("POST", f"{provider}/register", "2021-04-01")
        end = time.monotonic() + patience(30)
        while self.ask("GET", provider, "2021-04-01")["registrationState"] != "Registered":
            assert time.monotonic() < end
            time.sleep(0.05)

    def make(self, what: str, version: str, properties: Json, **more: t.Any) -> Json:
        """Put a resource into the group and wait for it."""
        path = f"{self.group}/providers/{what}"
        self.ask("PUT", path, version, {"location": "eastus", "properties": properties, **more})
        for dummy in range(100):
            found = self.ask("GET", path, version)
            if found["properties"].get("provisioningState") == "Succeeded":
                return found
            time.sleep(0.05)
        raise AssertionError(found)

    def grant(self, principal: str, role: str) -> None:
        definition = f"{self.subscription}/providers/Microsoft.Authorization/roleDefinitions/{role}"
        said = {"roleDefinitionId": definition, "principalId": principal, "principalType": "ServicePrincipal"}
        path = f"{self.subscription}/providers/Microsoft.Authorization/roleAssignments/{uuid.uuid4()}"
        self.ask("PUT", path, "2022-04-01", {"properties": said})

    def made(self) -> dict[str, Json]:
        """What lies in the group, by type and name, without what belongs to others."""
        found = self.ask("GET", f"{self.group}/resources", "2021-04-01")["value"]
        return {f"{one['type'].rpartition('/')[2]}/{one['name']}": one for one in found if "OsDisk" not in one["name"]}


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Azure]:
    running = Azure(tmp_path_factory.mktemp("azure"))
    yield running
    running.close()


@pytest.fixture
def server(azure: Azure, tmp_path: Path) -> t.Iterator[Emulator]:
    (tmp_path / "home").mkdir()
    place = {key: azure.about[key] for key in ("url", "ca", "metadata")}
    (tmp_path / "home/emulator.json").write_text(json.dumps({**place, "vm": "cc"}))
    running = Emulator(tmp_path)
    about = running.about
    login = [f"--url={about['url']}", f"--username={about['user']}", f"--password={about['password']}"]
    running.cli("initialize", "--batch", *login)
    yield running
    running.close()


def account(server: Emulator, azure: Azure, rc: int = 0, verb: str = "create", **changes: t.Any) -> str:
    given = {
        "Name": "azure",
        "Provider": "azure",
        "AzureRMSubscriptionId": azure.about["subscription"],
        "AzureRMTenantId": azure.about["tenant"],
        "Environment": "public",
        "Location": "eastus",
        "AzureResourceGroup": "rg1",
        "RMStorageAccount": "hpcailocker",
        "RMStorageContainer": "cyclecloud",
        "AzureRMApplicationId": azure.about["client"],
        "AzureRMApplicationSecret": azure.secrets["AZURE_SECRET"],
        **changes,
    }
    (server.folder / "account.json").write_text(json.dumps({k: v for k, v in given.items() if v is not None}))
    argv = ["account", verb, *(["azure"] if verb == "edit" else []), "-f", "account.json"]
    return server.cli(*argv, rc=rc)


def locker(server: Emulator) -> Json:
    server.control("clock", advance=30)
    return next(one for one in server.control("state")["records"] if one["AdType"] == "Cloud.Locker")


def test_machines_come_and_go(server: Emulator, azure: Azure) -> None:
    assert "AADSTS7000215" in account(server, azure, rc=1, AzureRMApplicationSecret="wrong")
    account(server, azure)
    assert locker(server)["State"] == "Created"
    assert azure.secrets["AZURE_SECRET"] not in (server.folder / "home/data/state.json").read_text()
    template = (ROOT / "tests/emulators/cyclecloud/cyclecloud_emulator/slurm.txt").read_text()
    volume = "    [[[volume shared]]]\n        Size = 64\n        Persistent = true\n\n    [[nodearray login]]"
    (server.folder / "c1.txt").write_text(template.replace("    [[nodearray login]]", volume))
    parameters = {
        "Region": "eastus",
        "SubnetId": "rg1/v/compute",
        "Credentials": "azure",
        "NodeTags": {"hpcai-cluster": "c1"},
    }
    (server.folder / "c1.json").write_text(json.dumps(parameters))
    server.cli("import_cluster", "c1", "-c", "Slurm", "-f", "c1.txt", "-p", "c1.json")
    server.cli("start_cluster", "c1")
    server.control("clock", advance=600, speed=600)
    made = server.nodes(nodearray="gpu", count=2)
    assert made["changed"], made
    there = azure.made()
    assert {"virtualMachines/c1-scheduler", "networkInterfaces/c1-scheduler-nic", "disks/c1-scheduler-shared"} <= set(
        there
    )
    assert there["virtualMachineScaleSets/c1-gpu"]["tags"]["hpcai-cluster"] == "c1"
    assert there["virtualMachineScaleSets/c1-gpu"]["sku"]["capacity"] == 2
    server.cli("terminate_cluster", "c1")
    server.control("clock", advance=60)
    server.cli("delete_cluster", "c1")
    left = {name for name, one in azure.made().items() if (one.get("tags") or {}).get("ClusterName") == "c1"}
    assert left == {"disks/c1-scheduler-shared"}


def test_what_azure_refuses_fails_the_node(server: Emulator, azure: Azure) -> None:
    account(server, azure)
    locker(server)
    parameters = {"Region": "eastus", "SubnetId": "rg1/v/nosuch", "Credentials": "azure"}
    (server.folder / "c2.json").write_text(json.dumps(parameters))
    server.cli("create_cluster", "slurm_template_4.0.10", "c2", "-p", "c2.json")
    server.cli("start_cluster", "c2")
    server.control("clock", advance=600)
    found = server.module("cyclecloud_cluster_info", cluster="c2")
    assert not found["ready"] and "nosuch" in found["failed_nodes"][0], found
    assert not [name for name in azure.made() if "c2-" in name]


def test_a_managed_identity_and_its_roles(server: Emulator, azure: Azure) -> None:
    subnet = f"{azure.group}/providers/Microsoft.Network/virtualNetworks/v/subnets/compute"
    address = {"name": "ip", "properties": {"subnet": {"id": subnet}}}
    nic = azure.make("Microsoft.Network/networkInterfaces/cc-nic", "2024-05-01", {"ipConfigurations": [address]})
    path = "/home/hpcadmin/.ssh/authorized_keys"
    linux = {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [{"path": path, "keyData": KEY}]}}
    image = {"publisher": "microsoft-dsvm", "offer": "ubuntu-hpc", "sku": "2204", "version": "latest"}
    properties = {
        "hardwareProfile": {"vmSize": "Standard_D4s_v5"},
        "storageProfile": {"imageReference": image, "osDisk": {"createOption": "FromImage"}},
        "osProfile": {"computerName": "cc", "adminUsername": "hpcadmin", "linuxConfiguration": linux},
        "networkProfile": {"networkInterfaces": [{"id": nic["id"]}]},
    }
    identity = {"type": "SystemAssigned"}
    vm = azure.make("Microsoft.Compute/virtualMachines/cc", "2024-07-01", properties, identity=identity)
    own = {"AzureRMUseManagedIdentity": True, "AzureRMApplicationId": None, "AzureRMApplicationSecret": None}
    own["LockerAuthMode"] = "ManagedIdentity"
    refused = account(server, azure, rc=1, **own)
    assert "SubscriptionNotFound" in refused or "AuthorizationFailed" in refused or "Contributor" in refused, refused
    azure.grant(vm["identity"]["principalId"], CONTRIBUTOR)
    account(server, azure, **own)
    failed = locker(server)
    assert failed["State"] == "Failed" and "Storage Blob Data Contributor" in failed["Message"], failed
    azure.grant(vm["identity"]["principalId"], BLOB_CONTRIBUTOR)
    server.control("clock", advance=300)
    account(server, azure, verb="edit", **{**own, "RMStorageContainer": "other"})
    assert locker(server)["State"] == "Created"


def test_a_locker_needs_a_flat_account(server: Emulator, azure: Azure) -> None:
    more = {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2"}
    azure.make("Microsoft.Storage/storageAccounts/hpcaitree", "2023-05-01", {"isHnsEnabled": True}, **more)
    account(server, azure, RMStorageAccount="hpcaitree")
    failed = locker(server)
    assert failed["State"] == "Failed" and "hierarchical namespace" in failed["Message"]
