# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stranger's repository, as docs/howto/reuse_roles.md has it, walked by Molecule with the collection's tarball.

The scenario ``scratch`` is walked on the virtual machine of our scenario ``machine``.
"""

from __future__ import annotations

import re
import subprocess
import typing as t
from pathlib import Path

import pytest
from lab_image import lab_image
from stranger import Stranger

STEPS = ["destroy", "syntax", "create", "converge", "idempotence", "verify", "destroy"]


def left() -> list[str]:
    """Return which containers and networks of the page's scenario there are."""
    found = []
    for words in (["ps", "--all", "--format={{.Names}}"], ["network", "ls", "--format={{.Name}}"]):
        listed = subprocess.run(["podman", *words], capture_output=True, text=True, check=True).stdout
        found += [name for name in listed.split() if name.startswith("molecule-slurm")]
    return found


@pytest.fixture
def stranger(tmp_path: Path) -> t.Iterator[Stranger]:
    somebody = Stranger(tmp_path)
    somebody.install()
    yield somebody
    if left():
        somebody.run("molecule", "destroy", "--scenario-name", "slurm")


def test_molecule_test_brings_a_stranger_s_slurm_up_and_down(stranger: Stranger) -> None:
    said = stranger.run("molecule", "test", "-s", "slurm", NODE_IMAGE=lab_image(), seconds=900)
    assert re.findall(r"slurm > (\w+)\] Executed: Successful", said) == STEPS, said
    # The roles are those of the tarball: no other place has the collection.
    assert "hpcai.gpu_cluster.slurm_controller : " in said
    assert not stranger.home.joinpath(".ansible/collections/ansible_collections/hpcai/gpu_cluster/lab").exists()
    assert left() == []
