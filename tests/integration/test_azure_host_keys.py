# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scheduler's host keys by Azure's agent, and what the CycleCloud machine accepts then: emulated, both of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
import warnings
from pathlib import Path

import jinja2
import pytest
from ansible_playbook import ansible_playbook
from conftest import COLLECTIONS, ROOT
from forked import run_module
from patience import patience
from stand_in import instead
from test_cyclecloud_azure import Azure, account, azure, locker, server
from test_cyclecloud_emulator import EMULATOR, Emulator

__all__ = ["azure", "server"]
Json = t.Dict[str, t.Any]
PYTHON = ROOT / ".build/azure/bin/python"
KEYS = "ansible_collections.hpcai.gpu_cluster.plugins.modules.azure_host_keys_info"
SUBNET = "rg1/v/compute"


def host_keys(azure: Azure, fails: bool = False, **options: t.Any) -> Json:
    """Run the module as Ansible does, with Azure's own libraries."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AZURE_", "ANSIBLE_"))}
    done = run_module(
        KEYS,
        input=json.dumps({"ANSIBLE_MODULE_ARGS": options}),
        env={**kept, **azure.secrets, "PYTHONPATH": str(COLLECTIONS)},
        timeout=patience(120),
        python=PYTHON,
    )
    assert done.stdout.lstrip().startswith("{"), done.stdout + done.stderr
    answer: Json = json.loads(done.stdout)
    assert bool(answer.get("failed")) is fails, answer
    assert azure.secrets["AZURE_SECRET"] not in done.stdout + done.stderr
    return answer


class Journey:
    """The modules of role cyclecloud_cluster on the CycleCloud machine."""

    def __init__(self, server: Emulator, azure: Azure) -> None:
        self.server, self.azure, self.home = server, azure, server.folder / "home"
        port = server.about["url"].rpartition(":")[2]
        (self.home / "config/cycle_server.properties").write_text(f"webServerClusterPort={port}\n")
        variables = {"PYTHONPATH": str(EMULATOR), "CS_HOME": str(self.home), "HOME": str(server.folder)}
        for name, module in {"cyclecloud": "cli", "emulator-ssh": "ssh", "cycle_server": "control"}.items():
            program = server.folder / "bin" / name if name != "cycle_server" else self.home / name
            program.parent.mkdir(exist_ok=True)
            instead(program, sys.executable, "-B", "-m", f"cyclecloud_emulator.{module}", **variables)
        state = server.folder / "state"
        state.mkdir()
        (state / "ca.pem").write_bytes(Path(server.about["ca"]).read_bytes())
        self.options: Json = {
            "name": "c1",
            "builtin": "slurm_template",
            "region": "eastus",
            "subnet_id": SUBNET,
            "node_arrays": [{"name": "hpc", "machine_type": "Standard_ND96asr_v4", "max_nodes": 1, "gpus": 8,
                             "image": "microsoft-dsvm:ubuntu-hpc:2204:22.04.2026031101"}],
            "scheduler": {"machine_type": "Standard_D8ads_v5"},
            "shared": {"size_gb": 64, "sched_size_gb": 32},
            "slurm": {"version": "25.11.5", "node_prefix": "c1-"},
            "wait": {"ready": 60, "slurm": 5, "poll": 0.2},
            "home": str(self.home),
            "program": str(server.folder / "bin/cyclecloud"),
            "config": str(server.folder / ".cycle/config.ini"),
            "state_dir": str(state),
            "ssh": str(server.folder / "bin/emulator-ssh"),
        }  # fmt: skip

    def __call__(self, fails: bool = False, **options: t.Any) -> Json:
        arguments = {**self.options, **options, "_ansible_remote_tmp": str(self.server.folder)}
        done = run_module(
            "ansible_collections.hpcai.gpu_cluster.plugins.modules.cyclecloud_cluster",
            input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
            env={**os.environ, "PYTHONPATH": str(COLLECTIONS)},
            timeout=patience(120),
        )
        assert done.stdout.lstrip().startswith("{"), done.stdout + done.stderr
        answer: Json = json.loads(done.stdout)
        assert bool(answer.get("failed")) is fails, answer
        return answer

    def logins(self) -> list[str]:
        return [one["path"] for one in self.server.control("log") if one["method"] == "SSH"]


@pytest.fixture
def journey(server: Emulator, azure: Azure) -> t.Iterator[Journey]:
    if not PYTHON.is_file():
        warnings.warn("azure_host_keys_info is NOT tested: run make azure-venv", stacklevel=2)
        pytest.skip("there is no .build/azure: run make azure-venv")
    account(server, azure)
    locker(server)
    server.control("clock", advance=600, speed=600)
    yield Journey(server, azure)
    server.cli("terminate_cluster", "c1")
    server.control("clock", advance=60)


def test_the_first_login_to_the_scheduler_is_to_the_key_that_azure_told(journey: Journey, azure: Azure) -> None:
    started = journey(until="nodes")
    assert (started["cluster"]["state"], started.get("warnings")) == ("started", None)
    assert journey.logins() == [], "nobody may log in before the keys are known"
    address = started["cluster"]["scheduler"]["address"]
    told = host_keys(azure, subnet=SUBNET, address=address)
    assert told["machine"].endswith("/virtualMachines/c1-scheduler") and len(told["host_keys"]) == 1
    assert not told["changed"]
    ready = journey(scheduler_host_keys=told["host_keys"])
    assert (ready["cluster"]["state"], ready["changed"], ready.get("warnings")) == ("ready", False, None)
    assert len(journey.logins()) == 1

    # Whoever answers in the scheduler's place has another key; the login ends before anything is asked.
    impostor = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIImpostorImpostorImpostorImpostorImpost"
    refused = journey(fails=True, scheduler_host_keys=[impostor])
    assert "Host key verification failed" in refused["msg"]

    # A machine that is made again has other keys, and they are read again.
    journey.server.cli("terminate_cluster", "c1")
    journey.server.control("clock", advance=600)
    again = journey(until="nodes")
    refused = journey(fails=True, scheduler_host_keys=told["host_keys"])
    assert "Host key verification failed" in refused["msg"]
    renewed = host_keys(azure, subnet=SUBNET, address=again["cluster"]["scheduler"]["address"])
    assert renewed["host_keys"] != told["host_keys"]
    assert journey(scheduler_host_keys=renewed["host_keys"])["cluster"]["state"] == "ready"

    # A change of the running cluster runs azslurm as root there in the same run.
    changed = journey(until="nodes", max_scaleset_size=50, scheduler_host_keys=[])
    assert changed["changed"] and not any("azslurm" in path for path in journey.logins())
    scaled = journey(max_scaleset_size=50, scheduler_host_keys=renewed["host_keys"])
    assert scaled["changed"] and any("azslurm" in path for path in journey.logins())
    assert not journey(max_scaleset_size=50, scheduler_host_keys=renewed["host_keys"])["changed"]


def test_what_azure_cannot_tell_is_explained(journey: Journey, azure: Azure) -> None:
    address = journey(until="nodes")["cluster"]["scheduler"]["address"]
    machine = host_keys(azure, subnet=SUBNET, address=address)["machine"]
    nobody = host_keys(azure, fails=True, subnet=SUBNET, address="10.0.3.77")
    assert "no network interface of this subscription has 10.0.3.77" in nobody["msg"]
    assert "is no IP address" in host_keys(azure, fails=True, subnet=SUBNET, address="scheduler")["msg"]
    gone = host_keys(azure, fails=True, machine=f"{machine}-2")
    assert "ResourceNotFound" in gone["msg"]
    azure.ask("POST", f"{machine}/deallocate", "2024-07-01")
    stopped = host_keys(azure, fails=True, machine=machine)
    assert "when the VM is not running" in stopped["msg"], stopped["msg"]


def test_the_keys_of_execute_nodes_are_read_once_each_on_the_machine_that_has_the_address(
    journey: Journey, azure: Azure
) -> None:
    journey(until="nodes", node_arrays=[{**journey.options["node_arrays"][0], "max_nodes": 3}])
    server = journey.server

    def create(count: int) -> None:
        server.ask("/clusters/c1/nodes/create", {"sets": [{"nodearray": "hpc", "count": count}]})
        server.control("clock", advance=600)

    def nodes() -> list[str]:
        listed = json.loads(server.ask("/clusters/c1/nodes")[1])["nodes"]
        return sorted(one["PrivateIp"] for one in listed if one["Template"] == "hpc")

    create(2)
    addresses = nodes()
    assert len(addresses) == 2
    first = host_keys(azure, subnet=SUBNET, addresses=[*addresses, "10.0.3.77"])
    assert [one["address"] for one in first["hosts"]] == addresses
    assert list(first["problems"]) == ["10.0.3.77"] and not first["changed"]
    assert len({key for one in first["hosts"] for key in one["host_keys"]}) == 2
    sets = f"{azure.group}/providers/Microsoft.Compute/virtualMachineScaleSets/c1-hpc/virtualMachines"
    assert {one["machine"].rpartition("/")[0] for one in first["hosts"]} == {sets}
    # Those that are known are only looked for, not asked.
    again = host_keys(azure, subnet=SUBNET, addresses=addresses, known=[first["hosts"][0]["vm_id"]])
    assert [one["host_keys"] for one in again["hosts"]] == [[], first["hosts"][1]["host_keys"]]
    # A machine that comes to the address of one that is gone is another one.
    gone = addresses[0]
    server.ask("/clusters/c1/nodes/terminate", {"ip_addresses": [gone]})
    server.control("clock", advance=600)
    create(1)
    assert nodes() == addresses, "Azure gives a free address again"
    other = host_keys(azure, subnet=SUBNET, addresses=[gone])["hosts"][0]
    assert other["vm_id"] != first["hosts"][0]["vm_id"]
    assert other["host_keys"] != first["hosts"][0]["host_keys"]


PLAY = """
- hosts: localhost
  gather_facts: false
  module_defaults:
    hpcai.gpu_cluster.cyclecloud_cluster: "{{ places }}"
  roles:
    - role: hpcai.gpu_cluster.cyclecloud_cluster
"""


def test_the_role_lets_nobody_log_in_before_it_has_the_keys(journey: Journey, azure: Azure, tmp_path: Path) -> None:
    """As provision.yml calls it, in check mode and twice."""
    places = {name: journey.options[name] for name in ("home", "program", "config", "state_dir")}
    same = {
        f"cyclecloud_cluster_{name}": journey.options[name] for name in ("region", "subnet_id", "node_arrays", "ssh")
    }
    same.update(
        {f"cyclecloud_cluster_{name}": journey.options[name] for name in ("scheduler", "shared", "slurm", "wait")}
    )
    settings = {"places": places, "cluster_name": "c1", "cyclecloud_cluster_template": "builtin", **same}
    settings["cyclecloud_cluster_slurm"] = dict(journey.options["slurm"])
    settings["cyclecloud_cluster_azure_host"] = "localhost"
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AZURE_", "ANSIBLE_"))}
    paths = {"ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_HOME": str(tmp_path), "ANSIBLE_NOCOLOR": "1"}

    def play(*options: str) -> str:
        python = f"ansible_python_interpreter={PYTHON}"
        words = ("play.yml", "-e", "@settings.json", "-e", python, *options)
        done = ansible_playbook(*words, cwd=tmp_path, env={**kept, **azure.secrets, **paths}, python=PYTHON)
        assert done.returncode == 0, done.stdout + done.stderr
        assert azure.secrets["AZURE_SECRET"] not in done.stdout + done.stderr
        return done.stdout

    assert "host_keys |" not in play("--check")
    first = play()
    assert "Cluster c1 is ready" in first and "first contact" not in first
    assert first.index("Read the host keys of the scheduler") < first.index("Wait for Slurm, and make")
    known = list((Path(places["state_dir"]) / "known_hosts").iterdir())
    assert [path.name.endswith(".given") for path in known] == [True], "nothing was kept of a first contact"
    assert "changed=0" in play()


BESIDE = """
- ansible.builtin.import_playbook: {known}
  vars: {{run_stage: configure}}
"""


def test_playbooks_know_the_nodes_before_they_log_in(journey: Journey, azure: Azure, tmp_path: Path) -> None:
    """With the real ssh: which key it would ask of the machine at an address, and of the next one there."""
    server, place = journey.server, tmp_path / "site/.cyclecloud"
    place.mkdir(parents=True)
    journey(until="nodes", node_arrays=[{**journey.options["node_arrays"][0], "max_nodes": 3}])
    server.ask("/clusters/c1/nodes/create", {"sets": [{"nodearray": "hpc", "count": 1}]})
    server.control("clock", advance=600)
    listed = json.loads(server.ask("/clusters/c1/nodes")[1])["nodes"]
    (address,) = [one["PrivateIp"] for one in listed if one["Template"] == "hpc"]
    said = {"subscription": azure.about["subscription"], "subnet": SUBNET}
    (place / "connection.json").write_text(json.dumps(said))
    nodes = {"c1-hpc-1": {"ansible_host": address}, "by-name": {"ansible_host": "by-name"}}
    here = {"localhost": {"ansible_connection": "local", "ansible_python_interpreter": str(PYTHON)}}
    groups = {"azure_control": {"hosts": here}, "slurm_compute": {"hosts": nodes}}
    (place.parent / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    (tmp_path / "play.yml").write_text(BESIDE.format(known=ROOT / "playbooks/elastic_steps/known.yml"))
    # As provision.yml writes it.
    template = (ROOT / "playbooks/provision_steps/templates/ssh_config.j2").read_text()
    config = jinja2.Template(template).render(
        provision_address="10.0.0.4",
        provision_machine={"vm_id": "server"},
        provision_known_hosts=str(place / "known_hosts"),
        provision_write_dir=str(place.parent),
        azure_infra_result={"bastion": ""},
    )
    (place / "ssh_config").write_text(config)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AZURE_", "ANSIBLE_"))}
    paths = {"ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "ANSIBLE_HOME": str(tmp_path), "ANSIBLE_NOCOLOR": "1"}

    def play(**secrets: str) -> str:
        words = ("play.yml", "-i", "site/hosts.json")
        done = ansible_playbook(*words, cwd=tmp_path, env={**kept, **secrets, **paths}, python=PYTHON)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def asked() -> dict[str, str]:
        words = ["ssh", "-G", "-F", str(place / "ssh_config"), address]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return dict(line.split(" ", 1) for line in told.splitlines() if " " in line)

    assert "changed=1 " in play(**azure.secrets)
    first, known = asked(), (place / "known_nodes").read_text()
    assert str(place / "known_nodes") in first["userknownhostsfile"].replace('"', "").split()
    assert known.startswith(f"{first['hostkeyalias']} ssh-ed25519 ")
    assert "changed=0 " in play(**azure.secrets)
    # Another machine comes to the address: it is known by its own key, and the old one's is forgotten.
    server.ask("/clusters/c1/nodes/terminate", {"ip_addresses": [address]})
    server.control("clock", advance=600)
    server.ask("/clusters/c1/nodes/create", {"sets": [{"nodearray": "hpc", "count": 1}]})
    server.control("clock", advance=600)
    assert "changed=1 " in play(**azure.secrets)
    assert asked()["hostkeyalias"] != first["hostkeyalias"]
    assert known.split()[2] not in (place / "known_nodes").read_text()
    # Without a login at Azure nothing is forgotten, and it is said.
    kept_text = (place / "known_nodes").read_text()
    assert "SSH asks about the keys of these nodes" in play()
    assert (place / "known_nodes").read_text() == kept_text
    # A cluster that is not of CycleCloud is left alone.
    (place / "connection.json").unlink()
    assert "changed=0 " in play(**azure.secrets)
