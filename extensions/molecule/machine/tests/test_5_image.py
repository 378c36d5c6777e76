# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A new machine becomes the source of an image by image.yml, and starts from it. The last: it keeps that disk."""

from __future__ import annotations

import json
import mmap
import secrets
import typing as t
from pathlib import Path

import machine_lab
import pytest
from conftest import SCENARIO, STATE, Json, Node
from patience import patience

from ansible_collections.hpcai.gpu_cluster.lab.machine import machine

# None of these has a newline: what is searched for is in one piece on the disk.
PLANTED = {
    "/etc/munge/munge.key": 1024,
    "/etc/hpcai/cifs/-data": 40,
    "/root/.bash_history": 40,
    "/var/lib/cloud/instance/user-data.txt": 40,
    "/var/lib/systemd/credential.secret": 256,
}


class Bake(machine_lab.Ansible):
    """image.yml for the machine, which an inventory of its own calls by another name."""

    def __init__(self, node: Node) -> None:
        super().__init__(SCENARIO, STATE)
        self.inventory, self.image = STATE / "bake.yml", STATE / "baked.qcow2"
        self.root = node.machine.directory / "root.qcow2"
        port = node.machine.spec.port
        host = {
            "ansible_host": "127.0.0.1",
            "ansible_port": port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(STATE / "ssh_key"),
            "ansible_ssh_common_args": f"-o ControlPath={STATE}/ssh-%p -o UserKnownHostsFile={STATE}/known_hosts",
            "ansible_python_interpreter": "/usr/local/sbin/lab_python",
            # The lab gives it to its machines at each boot.
            "node_image_remove": ["/etc/lab/ssh_host_*"],
            "image_disk": str(self.root),
            "image_file": str(self.image),
        }
        self.inventory.write_text(json.dumps({"all": {"children": {"image": {"hosts": {"bake": host}}}}}))
        self.arguments = [
            argument if "hosts.yml" not in argument else f"--inventory={self.inventory}" for argument in self.arguments
        ]

    def __call__(self) -> tuple[int, str]:
        return self.playbook("image.yml", seconds=1200)


def found(image: Path, texts: t.Iterable[str]) -> list[str]:
    with image.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return [text for text in texts if content.find(text.encode()) >= 0]


@pytest.fixture(scope="module")
def planted(node: Node) -> dict[str, str]:
    """What is the machine's own or secret, on its disk and not only in its memory. The machine was never a node."""
    node.machine.kill()
    # Another file: QEMU's lock on the old one outlives its process by a moment.
    (node.machine.directory / "root.qcow2").unlink()
    machine.make_root(node.machine.directory, node.machine.spec.image)
    node.machine.start()
    node.machine.wait(patience(300))
    texts = {path: secrets.token_hex(length // 2) for path, length in PLANTED.items()}
    for path, text in texts.items():
        node.write(path, text)
    node.root("ssh-keygen -A; systemctl enable munge; sync")
    key = node.root("cat /etc/ssh/ssh_host_ed25519_key").splitlines()[2]
    return {**texts, "/etc/ssh/ssh_host_ed25519_key": key}


@pytest.fixture(scope="module")
def baked(node: Node, planted: dict[str, str]) -> tuple[Bake, Json]:
    """The image, and what was true of the machine before."""
    bake = Bake(node)
    bake.image.unlink(missing_ok=True)
    before = {"id": node.root("cat /etc/machine-id"), "slurmd": node.root("dpkg-query -W -f '${Version}' slurmd")}
    rc, text = bake()
    assert rc == 0, text[-5000:]
    return bake, before


def test_no_secret_is_anywhere_in_the_image(baked: tuple[Bake, Json], planted: dict[str, str]):
    bake, dummy = baked
    assert found(bake.root, planted.values()) == [] == found(bake.image, planted.values())
    assert found(bake.image, ["hpcai.gpu_cluster"]), "what is stored in another way cannot be searched"


def test_a_machine_starts_from_the_image_as_itself(node: Node, baked: tuple[Bake, Json], planted: dict[str, str]):
    bake, before = baked
    assert not node.machine.pid, "it has switched itself off"
    bake.image.replace(bake.root)
    node.machine.start()
    node.machine.wait(patience(300))
    assert len(node.root("cat /etc/machine-id")) == 32 and node.root("cat /etc/machine-id") != before["id"]
    key = node.root("cat /etc/ssh/ssh_host_ed25519_key")
    assert "PRIVATE KEY" in key and planted["/etc/ssh/ssh_host_ed25519_key"] not in key
    gone = [path for path in PLANTED if path != "/var/lib/systemd/credential.secret"]
    assert node.run(f"ls {' '.join(gone)} 2>/dev/null")[1] == ""
    assert node.root("systemctl --failed --plain --no-legend") == ""
    assert node.run("systemctl is-enabled munge slurmd")[1].split() == ["disabled", "disabled"]


def test_the_machine_knows_which_image_it_has(node: Node, baked: tuple[Bake, Json]):
    said = json.loads(node.root("cat /etc/ansible/facts.d/hpcai_image.fact"))
    dummy, before = baked
    assert said["packages"]["slurmd"] == before["slurmd"] and before["slurmd"].startswith(said["slurm"])
    assert said["kernel"] == node.root("uname -r") and said["system"] == "debian 12"
    assert said["collection"] == "0.1.0" and said["driver"] == ""
