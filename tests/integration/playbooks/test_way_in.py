# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What provision.yml writes beside the inventory is all that later runs need: nothing is typed or exported again."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

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


class Site:
    """A copy of inventories/azure_ndv4, where Azure and CycleCloud have done their part."""

    def __init__(self, place: Path) -> None:
        self.place, self.inventory = place, place / "train"
        shutil.copytree(ROOT / "inventories/azure_ndv4", self.inventory)
        # The first step of provision.yml has written this; the scenario azure runs that one.
        self.config = self.inventory / ".cyclecloud/ssh_config"
        self.config.parent.mkdir(mode=0o700)
        self.config.touch()
        hosts = {
            "azure_control": {
                "hosts": {"localhost": {"azure_infra_result": {"server": {"private_address": "10.80.0.4"}}}}
            },
            "cyclecloud_server": {"hosts": {"train-cyclecloud": DONE}},
        }
        (place / "done.yml").write_text(yaml.safe_dump({"all": {"children": hosts}}))

    def run(self, *words: str) -> str:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "CYCLECLOUD_"))}
        more = {
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".build/collections"),
            "HPCAI_REPORT_DIR": str(self.place / "report"),
            "HOME": str(self.place),
        }
        program = str(Path(sys.executable).with_name(words[0]))
        done = subprocess.run(
            [program, *words[1:]], cwd=ROOT, env={**clean, **more}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def provision(self) -> int:
        """Run what writes the way in; returns the number of changes."""
        playbook = str(ROOT / "playbooks/provision_steps/inventory.yml")
        told = self.run("ansible-playbook", f"-i{self.inventory}", f"-i{self.place}/done.yml", playbook)
        found = re.search(r"changed=(\d+)", told)
        assert found
        return int(found[1])


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
    }


def test_the_scheduler_is_known_by_the_keys_that_azure_read(site: Site) -> None:
    known = (site.inventory / ".cyclecloud/known_hosts").read_text()
    assert known == f"10.80.0.5 {KEY}\n"


def test_a_second_run_changes_nothing(site: Site) -> None:
    assert site.provision() == 0
