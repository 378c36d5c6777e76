# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Google Cloud by its command line, against the strict stand-in for gcloud in tests/emulators/google."""

from __future__ import annotations

import json
import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_playbook import ansible_playbook, of_clone

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google import google as compute
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google.google import (
    Gcloud,
    GcloudError,
    complaint,
    perform,
    spelt,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.provider import CloudNode, PowerError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.providers.google import Google

ROOT = Path(__file__).resolve().parents[2]
GCLOUD = str(ROOT / "tests/emulators/google/gcloud")
PROJECT = "example-1"
MACHINE = {
    "machine_type": "n1-standard-16",
    "image_family": "debian-12",
    "image_project": "debian-cloud",
    "boot_disk_gb": 200,
    "subnet": "train-subnet",
    "tags": ["train"],
    "accelerator": {"type": "nvidia-tesla-v100", "count": 1},
    "spot": True,
}


class World:
    """The emulated project."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def state(self) -> dict[str, t.Any]:
        path = self.directory / "state.json"
        return json.loads(path.read_text()) if path.is_file() else {}

    def left(self) -> dict[str, t.Any]:
        """What is there, without empty tables and roles that nobody has."""
        bindings = {
            role: members for roles in self.state.get("bindings", {}).values() for role, members in roles.items()
        }
        tables = {name: table for name, table in self.state.items() if table and name != "bindings"}
        return {**tables, **({"bindings": bindings} if any(bindings.values()) else {})}

    def faults(self, **what: t.Any) -> None:
        (self.directory / "faults.json").write_text(json.dumps(what))

    def log(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.directory / "log").read_text().splitlines()]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    directory = tmp_path / "google"
    directory.mkdir()
    monkeypatch.setenv("GCLOUD_EMULATOR_DIR", str(directory))
    return World(directory)


@pytest.fixture
def network(world: World) -> World:
    gcloud = Gcloud(PROJECT, GCLOUD)
    perform(gcloud, "network", "train-net", {"subnet-mode": "custom"}, "present", False)
    place = {"network": "train-net", "region": "us-central1", "range": "10.0.0.0/20"}
    perform(gcloud, "subnet", "train-subnet", place, "present", False)
    return world


def google() -> Google:
    return Google({"project": PROJECT, "zone": "us-central1-b", "gcloud": GCLOUD}, "train")


def nodes(*names: str, **more: t.Any) -> list[CloudNode]:
    return [CloudNode(name, {**MACHINE, **more}, "/etc/hpcai/power/user-data-1") for name in names]


def states(cloud: Google) -> dict[str, str]:
    return {name: instance.state for name, instance in cloud.instances().items()}


def copy_of(world: World, name: str, copy: str) -> None:
    """What Compute Engine's "Create similar" and machine images do: labels and metadata come along."""
    state = world.state
    state["instances"][copy] = {**state["instances"][name], "name": copy, "id": "5000000000000000000"}
    (world.directory / "state.json").write_text(json.dumps(state))


def test_flags_are_spelt_as_gcloud_wants_them() -> None:
    given = {"a": True, "b": False, "c": "", "d": ["x", "y"], "e": {"k": 1, "l": "m"}, "f": 3, "g": None}
    assert spelt(given) == ["--a", "--d=x,y", "--e=k=1,l=m", "--f=3"]


def test_an_error_is_said_without_gcloud_s_frame() -> None:
    text = "WARNING: x\nERROR: (gcloud.compute.instances.bulk.create) Could not fetch resource:\n"
    text += " - Quota 'CPUS' exceeded.\n"
    assert complaint(text) == "(gcloud.compute.instances.bulk.create) Could not fetch resource: Quota 'CPUS' exceeded."
    assert complaint("no such thing") == ""


@pytest.mark.parametrize(
    ("machine", "wrong"),
    [
        ({}, "machine_type is missing"),
        ({"machine_type": "x", "image": "a", "image_family": "b"}, "either image or image_family"),
        ({"machine_type": "x", "image": "a", "gpus": 8}, "gpus is unknown"),
        ({"machine_type": "x", "image": "a", "accelerator": "v100"}, "accelerator is no dictionary"),
    ],
)
def test_a_machine_that_makes_no_sense_is_refused(machine: dict[str, t.Any], wrong: str) -> None:
    assert any(wrong in text for text in compute.instance_faults(machine))


def test_nodes_are_created_in_bulk_listed_and_deleted(network: World) -> None:
    cloud = google()
    assert cloud.create(nodes("train-1", "train-2")) == {"train-1": "", "train-2": ""}
    # create() has met them while they were staged.
    assert states(cloud) == {"train-1": "running", "train-2": "running"}
    metadata = [{"key": "hpcai-instances", "value": "train-1 train-2"}]
    assert [network.state["instances"][name]["metadata"]["items"] for name in ("train-1", "train-2")] == 2 * [metadata]
    bulk = [words for words in network.log() if "bulk" in words]
    assert len(bulk) == 1
    assert {"--predefined-names=train-1,train-2", "--provisioning-model=SPOT", "--no-address"} <= set(bulk[0])
    assert "--metadata-from-file=startup-script=/etc/hpcai/power/user-data-1" in bulk[0]
    assert network.state["instances"]["train-1"]["labels"] == {"hpcai-cluster": "train", "hpcai-kind": "elastic"}
    assert cloud.create(nodes("train-1")) == {"train-1": ""}
    assert cloud.delete(["train-1", "train-9"]) == {"train-1": "", "train-9": ""}
    assert list(cloud.instances()) == ["train-2"]


def test_controller_and_login_nodes_are_none_of_the_power_programs(network: World) -> None:
    """The sweep deletes what no node of Slurm's stands for."""
    all_of_it = compute.Instances(Gcloud(PROJECT, GCLOUD), "train", "us-central1-b")
    all_of_it.create(["train-controller"], MACHINE)
    google().create(nodes("train-1"))
    assert list(google().instances()) == ["train-1"]
    google().delete(["train-controller"])
    assert sorted(all_of_it.listed()) == ["train-1", "train-controller"]
    assert "train-controller" in network.state["instances"]


def test_somebody_s_copy_of_a_node_is_never_deleted(network: World) -> None:
    """It has the labels of the node, and was deleted by the next sweep."""
    cloud = google()
    cloud.create(nodes("train-1"))
    copy_of(network, "train-1", "annas-debugging")
    copies = {name: instance.unproven for name, instance in cloud.instances().items()}
    assert copies["train-1"] == ""
    assert "its metadata hpcai-instances names train-1, so it may be somebody's copy" in copies["annas-debugging"]
    answer = cloud.delete(["train-1", "annas-debugging"])
    assert answer["train-1"] == "" and "somebody's copy" in answer["annas-debugging"]
    assert sorted(network.state["instances"]) == ["annas-debugging"]
    copy_of(network, "annas-debugging", "train-2")
    assert "an instance of this name exists, and its metadata" in cloud.create(nodes("train-2"))["train-2"]


def test_what_google_has_no_room_for_does_not_keep_the_others_from_coming(network: World) -> None:
    network.faults(no_room=["train-2"])
    found = google().create(nodes("train-1", "train-2"))
    assert (found["train-1"], bool(found["train-2"])) == ("", True)
    network.faults(quota=1)
    assert "Quota 'CPUS' exceeded" in google().create(nodes("train-3"))["train-3"]


def test_a_failure_after_the_work_is_done_is_no_failure(network: World) -> None:
    network.faults(fail=["compute instances bulk create", "compute instances delete"])
    assert google().create(nodes("train-1")) == {"train-1": ""}
    assert google().delete(["train-1"]) == {"train-1": ""}


def test_another_cluster_s_instance_is_never_deleted(network: World) -> None:
    google().create(nodes("train-1"))
    other = Google({"project": PROJECT, "zone": "us-central1-b", "gcloud": GCLOUD}, "other")
    assert other.instances() == {}
    other.delete(["train-1"])
    assert "train-1" in network.state["instances"]


def test_a_node_whose_old_instance_stands_still_is_tried_again_later(network: World) -> None:
    google().create(nodes("train-1"))
    state = network.state
    state["instances"]["train-1"]["status"] = "TERMINATED"
    (network.directory / "state.json").write_text(json.dumps(state))
    assert states(google()) == {"train-1": "stopped"}
    assert google().create(nodes("train-1")) == {"train-1": "its old instance is stopped"}


BIG = {"machine_type": "a3-highgpu-8g", "image": "train-gpu", "subnet": "train-subnet"}


@pytest.mark.parametrize("kind", ["a2-highgpu-8g", "a3-highgpu-8g", "a4-highgpu-8g", "g2-standard-48"])
def test_machine_types_with_gpus_of_their_own(network: World, kind: str) -> None:
    """No accelerator is named, so they were made to migrate, which Google refuses."""
    machines = compute.Instances(Gcloud(PROJECT, GCLOUD), "train", "us-central1-b")
    assert machines.create(["train-1"], {**BIG, "machine_type": kind}) == {"train-1": ""}
    words = next(words for words in network.log() if "bulk" in words)
    assert "--on-host-maintenance=TERMINATE" in words
    assert "--network-interface=subnet=train-subnet,nic-type=GVNIC,no-address" in words
    assert not any(word.startswith(("--accelerator", "--subnet", "--no-address")) for word in words)


def test_where_and_how_a_large_machine_is_placed(network: World) -> None:
    place = {"network": "train-net", "region": "us-central1", "range": "10.1.0.0/20"}
    perform(Gcloud(PROJECT, GCLOUD), "subnet", "train-data", place, "present", False)
    machines = compute.Instances(Gcloud(PROJECT, GCLOUD), "train", "us-central1-b")
    wanted = {"more_subnets": ["train-data"], "resource_policies": ["compact"], "reservation": "gpus", "local_ssds": 2}
    assert machines.create(["train-1"], {**BIG, **wanted}) == {"train-1": ""}
    words = next(words for words in network.log() if "bulk" in words)
    assert "--network-interface=subnet=train-data,nic-type=GVNIC,no-address" in words
    assert {"--resource-policies=compact", "--reservation-affinity=specific", "--reservation=gpus"} <= set(words)
    assert words.count("--local-ssd=interface=nvme") == 2
    wrong = compute.instance_faults({**BIG, "reservation": "gpus", "spot": True, "nic_type": "E1000"})
    assert [text.split(" ")[0] for text in wrong] == ["nic_type", "a"]


def test_the_emulator_refuses_what_google_does(network: World) -> None:
    gcloud = Gcloud(PROJECT, GCLOUD)
    flags = compute.flags(BIG, "train", "us-central1-b", names=["x"])
    for change, words in (
        ({"on-host-maintenance": ""}, "do not support live migration"),
        ({"subnet": "train-subnet"}, "At most one of"),
        ({"network-interface": compute.Repeated(["subnet=train-subnet,nic-type=VIRTIO_NET"])}, "needs the network"),
        ({"reservation": "gpus"}, "must be specified"),
    ):
        with pytest.raises(GcloudError, match=words):
            gcloud.ask(["compute", "instances", "bulk", "create"], {"predefined-names": "x", **flags, **change})


def test_a_new_account_is_asked_for_again_for_a_while(network: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gcloud, member = Gcloud(PROJECT, GCLOUD), f"serviceAccount:train-nodes@{PROJECT}.iam.gserviceaccount.com"
    role = {"role": "roles/logging.logWriter"}
    perform(gcloud, "service_account", "train-nodes", {}, "present", False)
    with pytest.raises(GcloudError, match=r"does not exist.*asked again for 0 s"):
        perform(gcloud, "role_binding", member, role, "present", False, wait=0)
    paused: list[float] = []
    # Waiting for a process sleeps too, for split seconds.
    monkeypatch.setattr("time.sleep", lambda seconds: paused.append(seconds) if seconds >= 1 else None)
    perform(gcloud, "service_account", "train-other", {}, "present", False)
    perform(gcloud, "role_binding", member.replace("nodes", "other"), role, "present", False)
    assert paused == [1.0]
    perform(gcloud, "service_account", "train-third", {}, "present", False)
    machines = compute.Instances(gcloud, "train", "us-central1-b")
    account = f"train-third@{PROJECT}.iam.gserviceaccount.com"
    assert machines.create(["train-1"], {**MACHINE, "service_account": account}) == {"train-1": ""}
    assert paused == [1.0, 1.0]


def test_without_a_login_nothing_is_known(network: World) -> None:
    network.faults(logged_out=True)
    with pytest.raises(PowerError, match="active account"):
        google().instances()


def test_the_emulator_knows_no_other_flags(network: World) -> None:
    with pytest.raises(GcloudError, match="unrecognized arguments"):
        Gcloud(PROJECT, GCLOUD).ask(["compute", "instances", "list"], {"filter": "labels.a=b", "zone": "us-central1-b"})
    with pytest.raises(GcloudError, match="not found"):
        Gcloud(PROJECT, GCLOUD).ask(["compute", "networks", "describe", "nothing"], {})


@pytest.mark.parametrize("kind", ["firewall_rule", "subnet"])
def test_a_resource_with_unknown_properties_is_refused(world: World, kind: str) -> None:
    with pytest.raises(GcloudError, match="alow is no property"):
        perform(Gcloud(PROJECT, GCLOUD), kind, "x", {"alow": "all"}, "present", False)
    assert not (world.directory / "log").exists()


def play(world: World, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    argv = ["-i", str(ROOT / "inventories/google"), *options]
    variables = {
        "google_infra_project": PROJECT,
        "google_infra_gcloud": GCLOUD,
        "google_infra_allowed_sources": ["203.0.113.7/32"],
        "google_infra_inventory_file": str(world.directory / "hosts.yml"),
        "google_infra_ssh_key": "ansible:ssh-ed25519 AAAA",
    }
    environment = of_clone(world.directory, ANSIBLE_FORCE_COLOR="false")
    argv += ["-e", json.dumps(variables), str(ROOT / "playbooks" / name)]
    return ansible_playbook(*argv, cwd=ROOT, env=environment)


def changes(done: subprocess.CompletedProcess[str]) -> int:
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return sum(int(word[len("changed=") :]) for word in done.stdout.split() if word.startswith("changed="))


def test_a_cluster_is_made_once_and_removed_with_all_that_slurm_created(world: World) -> None:
    assert changes(play(world, "provision_google.yml", "--check")) >= 2
    assert world.left() == {}
    assert changes(play(world, "provision_google.yml")) >= 2
    assert sorted(world.state["instances"]) == ["slurm-job-controller", "slurm-job-login1"]
    assert world.state["firewalls"]["slurm-job-ssh"]["sourceRanges"] == ["203.0.113.7/32"]
    hosts = yaml.safe_load((world.directory / "hosts.yml").read_text())["all"]["children"]
    assert hosts["slurm_controller"]["hosts"]["slurm-job-controller"]["ansible_host"]
    assert changes(play(world, "provision_google.yml")) == 0

    cloud = Google({"project": PROJECT, "zone": "us-central1-b", "gcloud": GCLOUD}, "slurm-job")
    assert cloud.create(nodes("slurm-job-gpu-0", subnet="slurm-job-subnet")) == {"slurm-job-gpu-0": ""}
    copy_of(world, "slurm-job-gpu-0", "annas-debugging")
    copied = play(world, "destroy_google.yml", "-e", "confirm=slurm-job")
    assert "Left alone: annas-debugging has the label of slurm-job, and its metadata" in copied.stdout + copied.stderr
    assert copied.returncode != 0 and "is already being used by 'instances/annas-debugging'" in copied.stdout
    assert sorted(world.state["instances"]) == ["annas-debugging"]
    Gcloud(PROJECT, GCLOUD).ask(["compute", "instances", "delete", "annas-debugging"], {"zone": "us-central1-b"})
    refused = play(world, "destroy_google.yml")
    assert refused.returncode != 0 and "-e confirm=slurm-job" in refused.stdout
    assert changes(play(world, "destroy_google.yml", "-e", "confirm=slurm-job")) >= 2
    assert world.left() == {}
    assert changes(play(world, "destroy_google.yml", "-e", "confirm=slurm-job")) == 0
