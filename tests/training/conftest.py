# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""These tests use the hosts and the playbook runner of the integration tests."""

from __future__ import annotations

import json
import typing as t

import pytest
import torch_stack
from plain_hosts import PlainHosts, Unable


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[PlainHosts]:
    try:
        made = PlainHosts(tmp_path_factory.mktemp("hosts"))
    except Unable as exc:
        pytest.skip(str(exc))
    yield made
    made.close()


@pytest.fixture(scope="module")
def records() -> t.Iterator[list[dict[str, t.Any]]]:
    """What the tests found of each package; that of others stays for ``make training-table``."""
    found: list[dict[str, t.Any]] = []
    yield found
    if found:
        new = torch_stack.NEW
        known = json.loads(new.read_text()) if new.exists() else []
        new.write_text(json.dumps(torch_stack.merged(known, found), indent=1) + "\n")
