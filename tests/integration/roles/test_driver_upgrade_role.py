# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rolling upgrade of the driver: real apt and dpkg on one node in a directory, an emulated scontrol and reboot."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest
from driver_machine import ARCHITECTURE, NEW, OLD, Node, Repository
from stand_in import answer, stand_in

pytestmark = pytest.mark.skipif(
    not (shutil.which("apt-get") and shutil.which("gpg")) or ARCHITECTURE != "amd64",
    reason="needs apt and gpg on amd64",
)


@pytest.fixture(name="repository", scope="module")
def fixture_repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("archive") / "repository")


class Site:
    """A node that runs the old driver, and what Slurm knows."""

    def __init__(self, folder: Path, repository: Repository) -> None:
        self.node, self.path = Node(folder, repository, "nvidia_driver", "driver_upgrade"), folder / "slurm.json"
        stand_in(self.node.bin / "scontrol", "scontrol_upgrade.py")
        answer(self.node.bin / "sinfo", status=1)
        stand_in(self.node.bin / "node-reboot", "node_reboot.sh", loads="yes")
        self.node.add_repository()
        assert self.node.module("nvidia_driver", version=OLD)["changed"]
        self.node.reboot()
        subprocess.run(["systemctl", "enable", "nvidia-persistenced"], env=self.node.environment, check=True)

    def slurm(self, **nodes: dict[str, t.Any]) -> None:
        idle = {"state": "IDLE", "drain": False, "reason": ""}
        self.path.write_text(json.dumps({"nodes": {name: {**idle, **node} for name, node in nodes.items()}, "did": []}))

    def upgrade(self, *hosts: str, **given: t.Any) -> subprocess.CompletedProcess[str]:
        inputs = {"driver_upgrade_controller_host": "c1", "driver_upgrade_jobs_timeout": 1, "nvidia_driver_dcgm": False}
        return self.node.play("driver_upgrade", hosts=f"{','.join(hosts)},", **{**inputs, **given})

    @property
    def did(self) -> list[str]:
        return list(json.loads(self.path.read_text())["did"])

    @property
    def rebooted(self) -> bool:
        return (self.node.root / "reboots").exists()


@pytest.fixture(name="site")
def fixture_site(tmp_path: Path, repository: Repository) -> Site:
    return Site(tmp_path, repository)


def failed(done: subprocess.CompletedProcess[str]) -> bool:
    return bool(re.search(r"failed=[1-9]", done.stdout)) or done.returncode != 0


def test_a_node_is_drained_exchanged_and_rebooted_and_resumed_once_it_is_proved(site: Site) -> None:
    site.slurm(c1={})
    reboot = stand_in(site.node.bin / "node-reboot", "node_reboot.sh")  # the old driver comes back
    proof = site.node.folder / "roles/nvidia_driver/tasks/proof.yml"
    proof.write_text(proof.read_text().replace("retries: 30", "retries: 1"))
    done = site.upgrade("c1")
    assert failed(done)
    assert f"driver {OLD} is loaded, not {NEW}" in done.stdout
    assert site.rebooted
    assert site.node.packages()["nvidia-kernel-open-dkms"] == f"{NEW}-1 hold"
    why = "hpcai:driver:refuse parts of the driver that disagree failed"
    assert site.did == [f"c1 drain hpcai:driver:upgrade to {NEW}", f"c1 drain {why}"]
    stand_in(reboot, "node_reboot.sh", loads="yes")
    again = site.upgrade("c1")  # takes up what the first run left
    assert not failed(again), again.stdout + again.stderr
    assert site.did[-1] == "c1 undrain"


def test_jobs_that_do_not_end_stop_the_upgrade_before_the_next_node(site: Site) -> None:
    site.slurm(c1={"state": "ALLOCATED"}, c2={})
    done = site.upgrade("c1", "c2")
    assert failed(done)
    assert site.did[0] == f"c1 drain hpcai:driver:upgrade to {NEW}"
    assert site.did[1:] == ["c1 drain hpcai:driver:wait until the jobs of the node have ended failed"]
    assert not site.rebooted
    assert site.node.packages()["nvidia-kernel-open-dkms"].startswith(OLD)


def test_a_fault_that_is_found_meanwhile_keeps_its_reason(site: Site) -> None:
    site.slurm(c1={"state": "ALLOCATED", "then": "hpcai:gpu_ecc:GPU 3"})
    assert failed(site.upgrade("c1"))
    assert site.did == [f"c1 drain hpcai:driver:upgrade to {NEW}"]


def test_a_drain_of_a_person_stays(site: Site) -> None:
    site.slurm(c1={"drain": True, "reason": "broken fan"})
    done = site.upgrade("c1")
    assert not failed(done), done.stdout + done.stderr
    assert site.did == []
    assert site.node.packages()["nvidia-kernel-open-dkms"].startswith(NEW)
    assert "stays as it was: IDLE, broken fan" in done.stdout
