# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registration that goes on while nodes are prepared: what the run says of it when it waits for it."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_playbook import Ended, play_here
from stand_in import stand_in

ROOT = Path(__file__).resolve().parents[3]


def run(
    place: Path,
    *options: str,
    wait: bool = False,
    restarted: bool = True,
    refused: str = "nothing is",
    fails: bool = False,
) -> Ended:
    """Play the role's registration and the play that waits for it, with a sacctmgr whose database is empty."""
    register = yaml.safe_load((ROOT / "roles/slurm_database/tasks/main.yml").read_text())[-1]
    plays = yaml.safe_load((ROOT / "playbooks/configure_steps/slurm.yml").read_text())
    (waits,) = [play["tasks"] for play in plays if play["hosts"] == "slurm_database"]
    stand_in(place / "sacctmgr", "sacctmgr_changes.sh", refused=refused)
    given: dict[str, t.Any] = {
        "slurm_cluster_name": "lab",
        "slurm_database_port": 6819,
        "slurm_database_qos": [{"name": "long"}],
        "slurm_database_accounts": [{"name": "research"}],
        "slurm_database_users": [],
        "slurm_database_wait": wait,
        "__slurm_database_daemon": {"changed": restarted},
        "ansible_async_dir": str(place / "jobs"),
    }
    return play_here(place, [register, *waits], given, *options, fails=fails, PATH=f"{place}:{os.environ['PATH']}")


def added(place: Path) -> list[str]:
    lines = (place / "done").read_text().splitlines()
    made = [line.removeprefix("-i -Q add ") for line in lines if " show " not in line]
    return [*sorted(made[:2]), *made[2:]]


def recap(said: str) -> str:
    return next(" ".join(line.split()[2:4]) for line in said.splitlines() if line.startswith("localhost "))


@pytest.mark.parametrize("wait", [True, False])
def test_what_was_registered_is_one_change_and_nothing_is_left_of_the_wait(tmp_path: Path, wait: bool) -> None:
    done = run(tmp_path, wait=wait)
    assert added(tmp_path) == ["cluster lab", "qos long", "account research cluster=lab"]
    assert recap(done.stdout) == f"ok={1 if wait else 3} changed=1"
    jobs = tmp_path / "jobs"
    assert jobs.exists() is not wait and not list(jobs.glob("*"))


def test_a_slurmdbd_that_ran_as_it_should_is_waited_for(tmp_path: Path) -> None:
    done = run(tmp_path, restarted=False)
    assert added(tmp_path) == ["cluster lab", "qos long", "account research cluster=lab"]
    assert recap(done.stdout) == "ok=1 changed=1" and not (tmp_path / "jobs").exists()


def test_a_registration_that_fails_meanwhile_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    done = run(tmp_path, refused="add account", fails=True)
    assert "cannot add account research" in done.stdout and "not allowed" in done.stdout
    assert added(tmp_path) == ["cluster lab", "qos long"]


def test_check_mode_begins_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "--check")
    assert recap(done.stdout) == "ok=1 changed=1"
    assert added(tmp_path) == [] and not (tmp_path / "jobs").exists()
