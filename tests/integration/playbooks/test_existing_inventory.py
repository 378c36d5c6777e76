# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""inventories/existing_slurm as it is copied: which disks its nodes are judged by."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, of_clone

INVENTORY = Path(__file__).resolve().parents[3] / "inventories/existing_slurm"
ARRAY = {"certification_scratch_dir": "/raid", "certification_scratch_disks": 8}


@pytest.mark.parametrize(("given", "wanted"), [({}, {}), (ARRAY, {"mount": "/raid", "count": 8})])
def test_disks_of_others_are_judged_only_where_the_site_says_so(
    tmp_path: Path, given: dict[str, t.Any], wanted: dict[str, t.Any]
) -> None:
    kept = {
        "dest": str(tmp_path / "scratch.json"),
        "content": "{{ __certification_scratch | default({}, true) | to_json }}",
    }
    # The role's variables are wanted, and not what it does.
    role = {"ansible.builtin.import_role": {"name": "hpcai.gpu_cluster.certification"}, "when": False}
    play = {
        "hosts": "slurm_login",
        "connection": "local",
        "gather_facts": False,
        "tasks": [role, {"ansible.builtin.copy": kept}],
    }
    (tmp_path / "play.json").write_text(json.dumps([play]))
    words = ("-i", INVENTORY, "-e", json.dumps({**given, "ansible_python_interpreter": sys.executable}), "play.json")
    done = ansible_playbook(*words, cwd=tmp_path, env=of_clone(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    scratch = json.loads((tmp_path / "scratch.json").read_text())
    assert {key: scratch.get(key) for key in wanted} == wanted and bool(scratch) is bool(wanted)
