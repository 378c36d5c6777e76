# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab that converge has made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cluster_lab import ROOT, Lab

STATE = Path(os.environ.get("LAB_STATE", ROOT / ".build/molecule"))


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab(Path(__file__).parents[1], STATE)
