# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What role slurm_upgrade says at its end of nodes that slurmctld knows, and of those that have not registered yet."""

from __future__ import annotations

from pathlib import Path

import yaml
from ansible_playbook import play_here

FINISH = Path(__file__).resolve().parents[3] / "roles/slurm_upgrade/tasks/finish.yml"


def test_a_node_that_has_not_registered_yet_has_no_version(tmp_path: Path) -> None:
    shown = yaml.safe_load(FINISH.read_text())[-1]
    nodes = [{"name": f"c{n}", "version": release} for n, release in enumerate(["24.11.5", None, "24.11.5", "22.05.8"])]
    plan = {"ansible.builtin.set_fact": {"slurm_upgrade_plan": {"silent": ["c1"]}}}
    given = {"__slurm_upgrade_now": {"version": "24.11.5", "nodes": nodes}, "slurm_upgrade_backup_dir": "/b"}
    done = play_here(tmp_path, [plan, shown], {**given, "__slurm_upgrade_is_first": True})
    versions = "{'22.05.8': 'c3', '24.11.5': 'c[0,2]'}"
    assert f"slurmctld 24.11.5; nodes by version: {versions}; not yet registered: c1" in done.stdout
