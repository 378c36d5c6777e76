# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What provision.yml writes beside the inventory is all that later runs need: nothing is typed or exported again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_playbook import play_here
from patience import patience
from stand_in import stand_in

ROOT = Path(__file__).resolve().parents[3]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBGC5EmSxTKWqtnSx5nFMFh0Xxk8o4hYlXQqSvKu7JcW"
DONE = {
    "ansible_connection": "local",
    "ansible_host": "198.51.100.7",
    "ansible_user": "hpcadmin",
    "cyclecloud_server_result": {"port": 8443, "user": "hpcadmin", "ca": "a certificate\n"},
    "cyclecloud_cluster_result": {
        "scheduler": {"name": "scheduler", "address": "10.80.0.5", "host_keys": [KEY]},
        "login": [{"name": "login-1", "address": "10.80.0.6"}],
    },
}
INFRA = {
    "server": {"private_address": "10.80.0.4"},
    "subscription": "00000000-0000-0000-0000-000000000001",
    "subnet_id": "/subscriptions/x/resourceGroups/train-rg/providers/Microsoft.Network/virtualNetworks/v/subnets/c",
}


class Site:
    """A copy of inventories/azure_ndv4, where Azure and CycleCloud have done their part."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.inventory = directory, directory / "train"
        shutil.copytree(ROOT / "inventories/azure_ndv4", self.inventory)
        # The first step of provision.yml has written this; the scenario azure runs that one.
        self.config = self.inventory / ".cyclecloud/ssh_config"
        self.config.parent.mkdir(mode=0o700)
        self.config.touch()
        hosts = {
            "azure_control": {"hosts": {"localhost": {"azure_infra_result": INFRA}}},
            "cyclecloud_server": {"hosts": {"train-cyclecloud": DONE}},
        }
        (directory / "done.yml").write_text(yaml.safe_dump({"all": {"children": hosts}}))

    def run(self, *words: str) -> str:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "CYCLECLOUD_"))}
        more = {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".build/collections"),
            "HPCAI_REPORT_DIR": str(self.directory / "report"),
            "HOME": str(self.directory),
        }
        program = str(Path(sys.executable).with_name(words[0]))
        done = subprocess.run(
            [program, *words[1:]], cwd=ROOT, env={**clean, **more}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def provision(self, *options: str) -> int:
        """Run what writes the way in; returns the number of changes."""
        playbook = str(ROOT / "playbooks/provision_steps/inventory.yml")
        told = self.run("ansible-playbook", f"-i{self.inventory}", f"-i{self.directory}/done.yml", *options, playbook)
        found = re.search(r"changed=(\d+)", told)
        assert found
        return int(found[1])


def test_check_mode_tells_what_would_be_written(tmp_path: Path) -> None:
    """The directory is there or not: the first step of provision.yml makes it, when it is no check."""
    site = Site(tmp_path)
    assert site.provision("--check") > 0
    site.config.unlink()
    site.config.parent.rmdir()
    assert site.provision("--check") > 0
    assert not site.config.parent.exists()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    made = Site(tmp_path_factory.mktemp("site"))
    assert made.provision() > 0
    return made


def test_a_later_run_knows_the_machines_and_the_jump_host(site: Site) -> None:
    listed: t.Any = json.loads(site.run("ansible-inventory", f"-i{site.inventory}", "--list"))
    assert listed["slurm_controller"]["hosts"] == ["scheduler"]
    assert sorted(listed["slurm_login"]["hosts"]) == ["login-1", "scheduler"]
    variables = listed["_meta"]["hostvars"]["login-1"]
    assert variables["ansible_ssh_common_args"] == f"-F {site.config} -o ProxyJump=hpcadmin@198.51.100.7"
    assert (variables["ansible_host"], variables["ansible_user"]) == ("10.80.0.6", "hpcadmin")
    server = listed["_meta"]["hostvars"]["train-cyclecloud"]
    assert (server["ansible_host"], server["ansible_ssh_common_args"]) == ("198.51.100.7", f"-F {site.config}")
    # Names of cluster and user stand in group_vars/all.yml alone.
    assert not {"cluster", "user"} & set(yaml.safe_load((site.inventory / "cluster.cyclecloud.yml").read_text()))


def test_the_connection_is_the_user_s_alone_and_no_secret_is_in_it(site: Site) -> None:
    files = [
        site.inventory / name for name in ("cluster.hosts.yml", ".cyclecloud/ca.pem", ".cyclecloud/connection.json")
    ]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    known = json.loads(files[-1].read_text())
    assert known == {
        "url": "https://10.80.0.4:8443",
        "ca_path": str(files[1]),
        "username": "hpcadmin",
        "cluster": "train",
        "user": "hpcadmin",
        "bastion": "hpcadmin@198.51.100.7",
        "ssh_config": str(site.config),
        "subscription": INFRA["subscription"],
        "subnet": INFRA["subnet_id"],
        "connect_timeout": 0,
    }


def test_the_scheduler_is_known_by_the_keys_that_azure_read(site: Site) -> None:
    known = (site.inventory / ".cyclecloud/known_hosts").read_text()
    assert known == f"10.80.0.5 {KEY}\n"


BASTION = "/subscriptions/s1/resourceGroups/hub-rg/providers/Microsoft.Network/bastionHosts/hub"
PROXY = ROOT / "playbooks/provision_steps/files/bastion_proxy.py"


class Service:
    """What listens on the machine behind the Bastion: it greets, and sends back what it gets."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client = self.socket.accept()[0]
            client.sendall(b"SSH-2.0-emulated\r\n")
            while data := client.recv(4096):
                client.sendall(data)
            client.close()


def az(directory: Path, service: Service) -> dict[str, str]:
    """Put an emulated az into a directory; return the environment that finds it."""
    program = directory / "bin/az"
    program.parent.mkdir()
    (directory / "az.target").write_text(str(service.port))
    stand_in(program, "az_bastion.py")
    return {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}


def test_ssh_goes_through_the_bastion_and_closes_its_session(tmp_path: Path) -> None:
    service = Service()
    environment = az(tmp_path, service)
    words = [sys.executable, str(PROXY), "--bastion", BASTION, "--target", "/subscriptions/s1/vm", "--port", "22"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as run:
        assert run.stdin and run.stdout
        assert run.stdout.readline() == b"SSH-2.0-emulated\r\n"
        sent = os.urandom(300_000)
        writing = threading.Thread(target=lambda: (run.stdin.write(sent), run.stdin.flush()))
        writing.start()
        assert run.stdout.read(len(sent)) == sent
        writing.join()
        run.stdin.close()
        assert run.wait(30) == 0
    assert (tmp_path / "az.log").read_text() == "s1 /subscriptions/s1/vm 22\nsession closed\n"


def test_ssh_that_is_ended_leaves_no_tunnel(tmp_path: Path) -> None:
    environment = az(tmp_path, Service())
    words = [sys.executable, str(PROXY), "--bastion", BASTION, "--target", "/subscriptions/s1/vm"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as run:
        assert run.stdout
        assert run.stdout.readline().startswith(b"SSH-2.0")
        run.send_signal(signal.SIGHUP)
        assert run.wait(30) == 1
    assert (tmp_path / "az.log").read_text().endswith("session closed\n")


@pytest.mark.parametrize(
    ("bastion", "path", "told"),
    [
        (BASTION.replace("/hub", "/other"), "", "az ended with 1: ERROR: (ResourceNotFound)"),
        ("hub", "", "is no resource ID of an Azure Bastion"),
        (BASTION, "nowhere", "install the Azure CLI, then 'az extension add --name bastion'"),
    ],
)
def test_why_there_is_no_tunnel_is_told(tmp_path: Path, bastion: str, path: str, told: str) -> None:
    environment = az(tmp_path, Service())
    if path:
        environment["PATH"] = path
    words = [sys.executable, str(PROXY), "--bastion", bastion, "--target", "/subscriptions/s1/vm"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert told in done.stderr


def test_the_written_configuration_leads_ssh_through_the_bastion(tmp_path: Path) -> None:
    """With the real ssh, also where it jumps on: what it runs is the program, and what answers is behind az."""
    beside = tmp_path / "a 100% odd place/.cyclecloud"
    beside.mkdir(parents=True)
    shutil.copy(PROXY, beside)
    tasks = [{"ansible.builtin.template": {"src": str(ROOT / "playbooks/provision_steps/templates/ssh_config.j2"),
                                           "dest": str(beside / "ssh_config")}}]  # fmt: skip
    machine = {"id": "/subscriptions/s1/it's a machine", "vm_id": "1234"}
    given = {
        "azure_infra_result": {"bastion": BASTION},
        "provision_machine": machine,
        "provision_address": "10.80.0.4",
        "provision_private_key": "",
        "provision_write_dir": str(beside.parent),
        "provision_known_hosts": str(beside / "known_hosts"),
    }
    play_here(tmp_path, tasks, given)
    environment = az(tmp_path, Service())
    words = ["ssh", "-F", str(beside / "ssh_config"), "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "me@10.80.0.4"]
    done = subprocess.run(
        [*words, "true"], env=environment, capture_output=True, text=True, check=False, timeout=patience(60)
    )
    assert done.returncode == 255, done.stderr
    assert (tmp_path / "az.log").read_text().startswith(f"s1 {machine['id']} 22\n"), done.stderr


def test_a_second_run_changes_nothing(site: Site) -> None:
    assert site.provision() == 0
