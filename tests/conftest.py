# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let tests import the collection by its full name from a plain clone (``make venv`` makes the links)."""

from __future__ import annotations

import gc
import typing as t
from pathlib import Path

import pytest
import yaml

COLLECTIONS = Path(__file__).resolve().parents[1] / ".build" / "collections"


def pytest_configure(config: pytest.Config) -> None:
    """Make several processes fast, those that ansible-test starts, too."""
    # Tests read the defaults and options of all roles hundreds of times, with libyaml ten times as fast.
    yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # what yaml.safe_load takes
    # A process for each of thousands of tests costs as much as the tests, and hides what one leaves to the next.
    if config.pluginmanager.has_plugin("ansible_forked"):
        config.pluginmanager.unregister(name="ansible_forked")
    # Tests of one module stay together, so that its fixtures are made once, and no process waits for the last one.
    if config.getoption("dist", "no") == "load":
        config.option.dist = "worksteal"


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over the thousands of collected tests, which stay anyhow."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def let_others_pass() -> t.Callable[[Path], None]:
    """Let every user pass through the directories down to a path: pytest's are its user's alone."""

    def open_up(path: Path) -> None:
        for folder in (path, *path.parents):
            if not folder.stat().st_mode & 0o001:  # the system's own are left as they are
                folder.chmod(0o755)

    return open_up
