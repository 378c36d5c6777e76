# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet that the scenario has made and certified."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import fleet as fleets
import pytest

ROOT = Path(__file__).resolve().parents[4]
STATE = Path(os.environ.get("FLEET_STATE", ROOT / ".build/molecule-fleet"))


Json = t.Dict[str, t.Any]


@pytest.fixture(scope="session")
def fleet() -> fleets.Fleet:
    return fleets.Fleet(STATE)


@pytest.fixture(scope="session")
def certificate(fleet: fleets.Fleet) -> Json:
    """What converge found."""
    return fleet.certificate("converge")


@pytest.fixture
def sound(fleet: fleets.Fleet) -> fleets.Fleet:
    """The fleet with nothing hidden in it. Slurm takes its time to believe in a node again that was hung or dead."""
    away = len(fleet.with_fault("dead")) + len(fleet.with_fault("hung"))
    fleet.mend()
    fleet.wait(lambda: len(fleet.idle()) >= len(fleet.nodes) - away, fleets.LIMIT, "the other nodes idle")
    return fleet
