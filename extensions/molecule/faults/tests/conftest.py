# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab of the scenario default, for tests that break it and want it whole again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cluster_lab import ROOT, Lab, healthy

__all__ = ["healthy"]

SCENARIO = Path(__file__).parents[2] / "default"
STATE = Path(os.environ.get("LAB_STATE", ROOT / ".build/molecule"))


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab(SCENARIO, STATE)
