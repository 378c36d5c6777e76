# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scenario ``scratch`` of docs/howto/reuse_roles.md: nvme_scratch alone, from the tarball, somewhere else."""

from __future__ import annotations

import json
import re
import tempfile
import typing as t
from pathlib import Path

import pytest
import yaml
from conftest import MOUNT, STATE, Lab, Node
from stranger import Stranger


@pytest.fixture
def somebody() -> t.Iterator[Stranger]:
    # The path of a home is part of that of SSH's sockets, which has to be short.
    with tempfile.TemporaryDirectory(prefix="hpcai-") as place:
        yield Stranger(Path(place))


def test_molecule_test_makes_a_stranger_s_scratch(lab: Lab, node: Node, somebody: Stranger) -> None:
    # As if nobody had run the role, but for the packages.
    rc, text, dummy = lab.scratch("-e", "nvme_scratch_state=absent nvme_scratch_unmount=true")
    assert rc == 0, text
    node.run("umount /nvme; rmdir /nvme")
    node.erase_all()
    somebody.install()
    inventory = somebody.repository / "molecule/scratch/inventory.yml"
    (host,) = yaml.safe_load(inventory.read_text())["all"]["hosts"]
    reached = {
        "ansible_host": "127.0.0.1",
        "ansible_port": node.machine.spec.port,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(STATE / "ssh_key"),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={STATE}/known_hosts",
        "ansible_python_interpreter": "/usr/local/sbin/lab_python",
    }
    inventory.write_text(json.dumps({"all": {"hosts": {host: reached}}}))
    said = somebody.run("molecule", "test", "-s", "scratch", seconds=900)
    done = re.findall(r"scratch > (\w+)\] Executed: Successful", said)
    assert done == ["syntax", "converge", "idempotence", "verify"], said
    assert node.run(f"findmnt {MOUNT}")[0] == 0
    assert node.root("cat /sys/block/md*/md/raid_disks") == "8"
