# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rolling upgrade of the driver: real apt and dpkg on one node in a directory, an emulated scontrol and reboot."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from driver_machine import ARCHITECTURE, NEW, OLD, Node, Repository

pytestmark = pytest.mark.skipif(
    not (shutil.which("apt-get") and shutil.which("gpg")) or ARCHITECTURE != "amd64",
    reason="needs apt and gpg on amd64",
)
SCONTROL = """\
#!{python}
import json, pathlib, sys
path = pathlib.Path({path!r})
slurm = json.loads(path.read_text())
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
if sys.argv[1] == "--version":
    print("slurm 22.05.8")
elif sys.argv[1:3] == ["show", "node"]:
    for name, node in slurm["nodes"].items():
        state = node["state"] + "+DRAIN" * node["drain"]
        told = f" Reason={{node['reason']}} [root@2026-11-21T20:00:00]" if node["reason"] else ""
        print(f"NodeName={{name}} CPUTot=4 NodeAddr={{name}} State={{state}} Partitions=main{{told}}")
elif sys.argv[1] == "update":
    slurm["did"].append(f"{{words['nodename']}} {{words['state']}} {{words.get('reason', '')}}".strip())
    node = slurm["nodes"][words["nodename"]]
    node.update(drain=words["state"] == "drain", reason=node.pop("then", words.get("reason", "")))
    path.write_text(json.dumps(slurm))
"""


@pytest.fixture(name="repository", scope="module")
def fixture_repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("archive") / "repository")


class Site:
    """A node that runs the old driver, and what Slurm knows."""

    def __init__(self, folder: Path, repository: Repository) -> None:
        self.node, self.path = Node(folder, repository, "nvidia_driver", "driver_upgrade"), folder / "slurm.json"
        self.node.tool("scontrol", SCONTROL.format(python=sys.executable, path=str(self.path)))
        self.node.tool("sinfo", "#!/bin/sh\nexit 1\n")
        starts = 'for unit in "$NODE_ROOT"/units/*.enabled; do : >"${unit%.enabled}.active"; done\n'
        self.node.tool("node-reboot", f'#!/bin/sh\necho reboot >>"$NODE_ROOT/reboots"\nmodprobe nvidia\n{starts}')
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
    reboot = site.node.folder / "bin/node-reboot"
    good = reboot.read_text()
    site.node.tool("node-reboot", '#!/bin/sh\necho reboot >>"$NODE_ROOT/reboots"\n')  # the old driver comes back
    proof = site.node.folder / "roles/nvidia_driver/tasks/proof.yml"
    proof.write_text(proof.read_text().replace("retries: 30", "retries: 1"))
    done = site.upgrade("c1")
    assert failed(done)
    assert f"driver {OLD} is loaded, not {NEW}" in done.stdout
    assert site.rebooted
    assert site.node.packages()["nvidia-kernel-open-dkms"] == f"{NEW}-1 hold"
    why = "hpcai:driver:refuse parts of the driver that disagree failed"
    assert site.did == [f"c1 drain hpcai:driver:upgrade to {NEW}", f"c1 drain {why}"]
    site.node.tool("node-reboot", good)
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
