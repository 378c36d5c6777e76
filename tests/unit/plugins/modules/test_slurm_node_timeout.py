# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module slurm_node_timeout as a process, with a slurmctld that answers and one that does not."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest
from module_process import Machine
from stand_in import answer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="slurm.conf is root's")
CONF = "ClusterName=c\nSlurmdTimeout=120\n"
SILENCE = "slurm_reconfigure error: Unable to contact slurm controller (connect failure)\n"


class Timeout(Machine):
    module = "slurm_node_timeout"

    def run(self, state: str, **params: t.Any) -> dict[str, t.Any]:
        return self(state=state, path=str(self.folder / "slurm.conf"), **params)


@pytest.fixture
def timeout(tmp_path: Path) -> Timeout:
    machine = Timeout(tmp_path)
    (tmp_path / "slurm.conf").write_text(CONF)
    answer(machine.bin / "scontrol")
    return machine


def test_it_is_raised_once_and_restored(timeout: Timeout) -> None:
    raised = timeout.run("raised")
    assert raised["changed"] and raised["reconfigured"] and "warnings" not in raised
    assert "SlurmdTimeout=3600" in (timeout.folder / "slurm.conf").read_text()
    assert not timeout.run("raised")["changed"]
    assert timeout.run("restored")["changed"]
    assert (timeout.folder / "slurm.conf").read_text() == CONF


@pytest.mark.parametrize("state", ["raised", "restored"])
def test_a_controller_that_was_not_told_is_named(timeout: Timeout, state: str) -> None:
    """With the old timeout slurmctld takes jobs from nodes that are silent for the upgrade."""
    if state == "restored":
        timeout.run("raised")
    answer(timeout.bin / "scontrol", err=SILENCE, status=1)
    done = timeout.run(state)
    assert done["changed"] and not done["reconfigured"]
    warning = str(done["warnings"])
    assert "scontrol reconfigure" in warning and "Unable to contact slurm controller" in warning
    assert str(timeout.folder / "slurm.conf") in warning
