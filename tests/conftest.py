# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let tests import the collection by its full name from a plain clone (``make venv`` makes the links)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

COLLECTIONS = Path(__file__).resolve().parents[1] / ".build" / "collections"
sys.path.insert(0, str(COLLECTIONS))


def pytest_configure(config: pytest.Config) -> None:
    """Make several processes fast, those that ansible-test starts, too."""
    # A process for each of thousands of tests costs as much as the tests, and hides what one leaves to the next.
    if config.pluginmanager.has_plugin("ansible_forked"):
        config.pluginmanager.unregister(name="ansible_forked")
    # Tests of one module stay together, so that its fixtures are made once, and no process waits for the last one.
    if config.getoption("dist", "no") == "load":
        config.option.dist = "worksteal"
