# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What check mode knows of a slurmd that the real run would restart."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import yaml
from ansible_playbook import play_here

ROOT = Path(__file__).resolve().parents[3]
KEY = "/etc/munge/munge.key"


def written(folder: Path, given: dict[str, t.Any]) -> list[str]:
    """Return what the role says to service_current of files that roles before it would have written."""
    told = {"content": "{{ __slurm_compute_written }}", "dest": str(folder / "told.json")}
    tasks = [
        {"ansible.builtin.include_vars": str(ROOT / "roles/slurm_compute/vars/main.yml")},
        {"ansible.builtin.copy": told},
    ]
    play_here(folder, tasks, given)
    return t.cast("list[str]", json.loads((folder / "told.json").read_text()))


def test_check_mode_knows_of_a_key_and_of_a_drop_in_that_are_not_written_yet(tmp_path: Path) -> None:
    given = {
        "munge_result": {"changed": True, "written": [KEY]},
        "boot_order_result": {"changed": True, "written": ["/drop-in"]},
        "pyxis_result": {"changed": True},
    }
    assert written(tmp_path, given) == ["/drop-in", KEY, "/etc/slurm/plugstack.conf.d/pyxis.conf"]
    assert written(tmp_path, {"pyxis_result": {"changed": False}}) == []


def test_the_key_is_among_the_files_that_restart_slurmd_and_role_munge_says_what_became_of_it() -> None:
    compute = yaml.safe_load((ROOT / "roles/slurm_compute/tasks/main.yml").read_text())
    (service,) = [task["hpcai.gpu_cluster.service_current"] for task in compute if "restart_on" in str(task)]
    assert KEY in service["restart_on"] and service["written"] == "{{ __slurm_compute_written }}"
    munge = yaml.safe_load((ROOT / "roles/munge/tasks/main.yml").read_text())
    (run,) = [task for task in munge if task.get("register") == "munge_result"]
    assert run["hpcai.gpu_cluster.service_current"]["files"][0]["path"] == KEY
