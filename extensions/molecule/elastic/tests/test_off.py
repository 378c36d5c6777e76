# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What test_elastic.py left is switched off, but for what is an administrator's; instances of others are left alone."""

from __future__ import annotations

import re

from cluster_lab import eventually
from conftest import WAIT, ElasticLab


def release(lab: ElasticLab) -> tuple[int, int]:
    found = re.search(r"(\d+)\.(\d+)", lab.root("sinfo -V"))
    assert found
    return int(found[1]), int(found[2])


def test_idle_nodes_are_gone(lab: ElasticLab) -> None:
    for name in ("e1", "e2", "e3"):
        eventually(lambda: not lab.exists(name), WAIT, f"{name} removed")  # noqa: B023
        eventually(lambda: lab.node(name)[0] >= {"IDLE", "POWERED_DOWN"}, WAIT, f"{name} off")  # noqa: B023
    assert "suspend: removed e2" in lab.log()
    eventually(lambda: lab.node("c1")[0] == {"IDLE"}, WAIT, "the node that stays")


def test_the_drain_survives(lab: ElasticLab) -> None:
    keeps = release(lab) >= (23, 2)
    assert ("SuspendExcStates" in lab.root("cat /etc/slurm/slurm.conf")) == keeps
    if not keeps:
        eventually(lambda: not lab.exists("e4"), WAIT, "switched off, for this Slurm cannot leave it running")
    assert lab.exists("e4") == keeps  # for longer than the idle ones before it
    states, reason = lab.node("e4")
    assert ("DRAIN" in states, reason) == (True, "ops: cable swap")


def test_a_stray_instance_is_removed_and_a_foreign_one_is_not(lab: ElasticLab) -> None:
    cluster = "lab"  # cluster_name of the lab's inventory
    lab.cloud("POST", "e2", "other")
    lab.cloud("POST", "e3", cluster)
    eventually(lambda: not lab.exists("e3"), WAIT, "the stray instance removed")
    assert lab.exists("e2")
    lab.cloud("DELETE", "e2", "other")
