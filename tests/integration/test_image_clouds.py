# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What image.yml does in a cloud: the real azure.azcollection against the emulator, and an emulated gcloud.

What it does on the machine before is shown on a virtual machine (scenario machine), and is a play of one task here.
"""

from __future__ import annotations

import json
import os
import re
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import Ended, ansible_playbook, of_clone
from azure_collection import PYTHON, collection, emulated, warm_sdks
from emulated_azure import GROUP, VM, Azure, C, fresh, machine, network
from stand_in import answer
from warm import Warm

ROOT = Path(__file__).resolve().parents[2]
GALLERY = "2023-07-03"
PREPARED = {
    "hosts": "image:!image_generalized",
    "gather_facts": False,
    "tasks": [{"name": "Prepare", "ansible.builtin.set_fact": {"node_image_result": {"image": {}}}}],
}
IMAGE = {"resource_group": "c1-rg", "machine": "bake", "gallery": "nodes", "definition": "gpu-node", "version": "1.0.0"}


class Site:
    """The plays of image.yml around a machine that is prepared in between, or not."""

    def __init__(self, directory: Path, environment: t.Mapping[str, str], *options: str) -> None:
        self.directory, self.environment, self.options = directory, environment, options
        (directory / "bin").mkdir()
        answer(directory / "bin/waagent", calls=directory / "agent")

    def run(self, *options: str, prepared: bool = True, **variables: t.Any) -> Ended:
        steps = ROOT / "playbooks/image_steps"
        check, image = ({"import_playbook": str(steps / name)} for name in ("cloud_check.yml", "cloud_image.yml"))
        (self.directory / "play.json").write_text(json.dumps([check, *([PREPARED] if prepared else []), image]))
        host = {"ansible_connection": "local", "ansible_become": False, **variables}
        (self.directory / "hosts.json").write_text(json.dumps({"all": {"children": {"image": {"hosts": {"b": host}}}}}))
        path = f"{self.directory}/bin:{os.environ['PATH']}"
        words = ("-i", "hosts.json", *self.options, *options, "play.json")
        python = {"python": PYTHON} if "AZURE_SECRET" in self.environment else {}
        return ansible_playbook(*words, cwd=self.directory, env={**self.environment, "PATH": path}, **python)

    @property
    def agent(self) -> list[str]:
        """Return what was asked of Azure's agent."""
        path = self.directory / "agent"
        return path.read_text().splitlines() if path.exists() else []


def told(done: Ended) -> str:
    return " ".join((done.stdout + done.stderr).split())


def changed(done: Ended) -> int:
    return sum(int(number) for number in re.findall(r"changed=(\d+)", done.stdout))


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Azure]:
    with emulated(tmp_path_factory, "images in Azure are") as running:
        yield running


@pytest.fixture(scope="module")
def warm() -> t.Iterator[Warm]:
    with warm_sdks() as process:
        yield process


@pytest.fixture
def site(azure: Azure, warm: Warm, tmp_path: Path) -> Site:
    """A site with a machine that runs in Azure."""
    profile = {"securityType": "TrustedLaunch", "uefiSettings": {"vTpmEnabled": True, "secureBootEnabled": False}}
    nic = network(fresh(azure))
    azure.done("PUT", f"{C}/virtualMachines/bake", VM, machine(nic, securityProfile=profile))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AZURE_", "ANSIBLE_"))}
    paths = f"{ROOT}/.build/collections:{collection().parents[1]}"
    places = {"ANSIBLE_COLLECTIONS_PATH": paths, "ANSIBLE_HOME": str(tmp_path), "ANSIBLE_NOCOLOR": "1"}
    python = f"ansible_python_interpreter={warm.interpreter}"
    return Site(tmp_path, {**kept, **azure.environment, **places}, "-e", python)


def bake(site: Site, *options: str, prepared: bool = True, **image: t.Any) -> Ended:
    return site.run(*options, prepared=prepared, image_azure={**IMAGE, **image})


def states(azure: Azure) -> list[str]:
    view = azure.arm("GET", f"{C}/virtualMachines/bake/instanceView", VM).body
    return [one["code"] for one in view["statuses"]]


def version(azure: Azure, number: str = "1.0.0") -> t.Any:
    return azure.arm("GET", f"{C}/galleries/nodes/images/gpu-node/versions/{number}", GALLERY)


def test_a_machine_becomes_a_version_in_a_gallery_and_machines_start_from_it(azure: Azure, site: Site) -> None:
    planned = bake(site, "--check")
    assert planned.returncode == 0 and changed(planned) and site.agent == [], told(planned)
    assert version(azure).status == 404 and "PowerState/running" in states(azure)

    done = bake(site)
    assert done.returncode == 0, told(done)
    assert site.agent == ["-force -deprovision+user"], "the user by whom it was baked would be in the image"
    assert {"PowerState/deallocated", "OSState/generalized"} <= set(states(azure))
    found = version(azure).body
    assert found["properties"]["provisioningState"] == "Succeeded" and found["id"] in told(done)
    assert found["properties"]["storageProfile"]["source"]["virtualMachineId"].endswith("/virtualMachines/bake")
    assert [one["name"] for one in found["properties"]["publishingProfile"]["targetRegions"]] == ["southcentralus"]

    azure.done("DELETE", f"{C}/virtualMachines/bake", VM)
    node = machine(f"{azure.subscription}/{GROUP}/providers/Microsoft.Network/networkInterfaces/n")
    node["properties"]["storageProfile"] = {"imageReference": {"id": found["id"]}}
    assert azure.done("PUT", f"{C}/virtualMachines/node", VM, node).body["properties"]["vmId"]


def test_what_an_earlier_run_has_left_is_finished(azure: Azure, site: Site) -> None:
    fault = {"match": {"method": "PUT", "path": "/versions/"}, "times": 1, "do": {"error": "Conflict", "status": 409}}
    azure.control("faults", [fault])
    assert bake(site).returncode != 0 and version(azure).status == 404
    (site.directory / "agent").unlink()
    done = bake(site)
    assert done.returncode == 0, told(done)
    assert version(azure).status == 200 and site.agent == [], "nobody can log in to it any more"


def test_nothing_is_replaced_and_no_machine_is_made_useless_for_nothing(azure: Azure, site: Site) -> None:
    assert bake(site).returncode == 0
    again = bake(site)
    assert again.returncode and "there already" in told(again)
    away = bake(site, machine="other", version="1.0.1")
    assert away.returncode and "other" in told(away) and changed(away) == 0
    assert "image_azure lacks nothing and has colour" in told(bake(site, colour="red"))
    assert "a version of three numbers" in told(bake(site, version="1.0"))
    assert version(azure, "1.0.1").status == 404 and len(site.agent) == 1


def test_a_machine_that_was_not_prepared_becomes_no_image(azure: Azure, site: Site) -> None:
    done = bake(site, prepared=False)
    assert done.returncode and "was not prepared in this run" in told(done)
    assert version(azure).status == 404 and "PowerState/running" in states(azure) and site.agent == []


def test_the_emulated_gallery_refuses_what_azure_does(azure: Azure, site: Site) -> None:
    place, source = {"location": "southcentralus"}, f"{azure.subscription}/{C}/virtualMachines/bake"

    def put(path: str, **properties: t.Any) -> tuple[int, str]:
        done = azure.arm("PUT", f"{C}/galleries/{path}", GALLERY, {**place, "properties": properties})
        return done.status, (done.body.get("error") or {}).get("code", "")

    linux = {"osType": "Linux", "osState": "Generalized", "hyperVGeneration": "V2"}
    name = {"publisher": "a", "offer": "b", "sku": "c"}
    assert put("no-dashes") == (400, "InvalidParameter")
    assert put("nodes/images/gpu", **linux, identifier=name) == (404, "ParentResourceNotFound")
    azure.done("PUT", f"{C}/galleries/nodes", GALLERY, {**place, "properties": {}})
    assert put("nodes/images/gpu", osType="Linux", identifier=name) == (400, "InvalidParameter")
    body = {**place, "properties": {**linux, "identifier": name}}
    azure.done("PUT", f"{C}/galleries/nodes/images/gpu", GALLERY, body)
    assert put("nodes/images/other", **linux, identifier=name) == (409, "Conflict")
    assert put("nodes/images/gpu", **{**linux, "hyperVGeneration": "V1"}, identifier=name)[0] == 409
    vm = {"storageProfile": {"source": {"virtualMachineId": source}}}
    assert put("nodes/images/gpu/versions/1", **vm) == (400, "InvalidParameter")
    assert put("nodes/images/gpu/versions/1.0.0", **vm) == (409, "OperationNotAllowed")
    assert azure.arm("POST", f"{C}/virtualMachines/bake/generalize", VM).status == 409
    azure.done("POST", f"{C}/virtualMachines/bake/deallocate", VM)
    assert azure.arm("POST", f"{C}/virtualMachines/bake/generalize", VM).status == 200
    assert azure.arm("POST", f"{C}/virtualMachines/bake/start", VM).status == 409
    assert put("nodes/images/gpu/versions/1.0.0", **vm) == (400, "InvalidParameter"), "Trusted Launch"
    far = {**vm, "publishingProfile": {"targetRegions": [{"name": "westeurope"}]}}
    assert put("nodes/images/gpu/versions/1.0.0", **far) == (400, "InvalidParameter")
    assert azure.arm("DELETE", f"{C}/galleries/nodes", GALLERY).status == 409


@pytest.fixture
def project(tmp_path: Path) -> Site:
    """A site with a machine in a project of Google's."""
    world = tmp_path / "world"
    world.mkdir()
    instance = {"zone": "us-central1-b", "status": "TERMINATED"}
    (world / "state.json").write_text(json.dumps({"instances": {"bake": instance}}))
    return Site(tmp_path, of_clone(tmp_path, GCLOUD_EMULATOR_DIR=str(world), ANSIBLE_NOCOLOR="1"))


def test_a_machine_becomes_an_image_of_google_once(project: Site) -> None:
    gcloud = str(ROOT / "tests/emulators/google/gcloud")
    image = {"project": "example-1", "zone": "us-central1-b", "disk": "bake", "name": "node-1", "gcloud": gcloud}
    state = project.directory / "world/state.json"
    assert changed(project.run("--check", image_google=image)) == 1 and not json.loads(state.read_text())["images"]
    unprepared = project.run(prepared=False, image_google=image)
    assert unprepared.returncode and "was not prepared in this run" in told(unprepared)
    done = project.run(image_google={**image, "family": "node"})
    assert done.returncode == 0, told(done)
    made = json.loads(state.read_text())["images"]["node-1"]
    assert (made["sourceDisk"], made["sourceDiskZone"], made["family"]) == ("bake", "us-central1-b", "node")
    again = project.run(image_google=image)
    assert again.returncode and "There is an image node-1" in told(again)
    del image["zone"]
    assert "image_google lacks zone" in told(project.run(image_google=image))
