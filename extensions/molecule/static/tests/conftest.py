# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines that were bare, and the two inventories that were copied for them."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest
from cluster_lab import ROOT, Lab

SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(ROOT / ".build/molecule-static")))


class Site(Lab):
    """One site: its inventory is given by name."""

    inventory = "static"

    def inventories(self) -> list[str]:
        return [str(self.state / self.inventory), str(self.state / "containers.yml")]


@pytest.fixture(scope="session")
def lab() -> Site:
    return Site(SCENARIO, STATE)


@pytest.fixture
def theirs(lab: Site) -> t.Iterator[Site]:
    """The same machines, as a user of a Slurm that somebody else runs."""
    lab.inventory = "existing_slurm"
    yield lab
    lab.inventory = "static"
