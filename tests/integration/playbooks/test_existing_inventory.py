# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""inventories/existing_slurm as it is copied: which disks its nodes are judged by."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, interpreter, of_clone

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
    words = ("-i", INVENTORY, "-e", json.dumps({**given, "ansible_python_interpreter": interpreter()}), "play.json")
    done = ansible_playbook(*words, cwd=tmp_path, env=of_clone(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    scratch = json.loads((tmp_path / "scratch.json").read_text())
    assert {key: scratch.get(key) for key in wanted} == wanted and bool(scratch) is bool(wanted)


def test_a_pytorch_that_is_there_is_used_and_none_is_built(tmp_path: Path) -> None:
    python, shared = "/opt/conda/envs/torch/bin/python", tmp_path / "shared"
    given = {
        "ansible_connection": "local",
        "ansible_python_interpreter": interpreter(),
        "cluster_python": python,
        "cluster_shared_dir": str(shared),
        "report_dir": str(tmp_path / "report"),
    }
    of_roles = {name: f"{{{{ {name}_python }}}}" for name in ("training_job", "certification")}
    play = {
        "hosts": "slurm_login",
        "gather_facts": False,
        "tasks": [
            *(
                {"ansible.builtin.import_role": {"name": f"hpcai.gpu_cluster.{name}"}, "when": False}
                for name in of_roles
            ),
            {"ansible.builtin.copy": {"dest": f"{tmp_path}/pythons.json", "content": json.dumps(of_roles)}},
        ],
    }
    (tmp_path / "play.json").write_text(json.dumps([{"import_playbook": "hpcai.gpu_cluster.stack"}, play]))
    words = ("-i", INVENTORY, "-e", json.dumps(given), "play.json")
    done = ansible_playbook(*words, cwd=tmp_path, env=of_clone(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not shared.exists()
    assert json.loads((tmp_path / "pythons.json").read_text()) == dict.fromkeys(of_roles, python)


def test_a_python_that_is_given_needs_no_directory_for_another(tmp_path: Path) -> None:
    given = {"cluster_python": "/opt/torch/bin/python", "ddp_launch_dir": "/d", "ddp_launch_user": "trainer"}
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.import_role": {"name": "hpcai.gpu_cluster.ddp_launch"}, "when": False},
            {"ansible.builtin.debug": {"var": "ddp_launch_python"}},
        ],
    }
    (tmp_path / "play.json").write_text(json.dumps([play]))
    words = ("--connection=local", "-i", "localhost,", "-e", json.dumps(given), "play.json")
    done = ansible_playbook(*words, cwd=tmp_path, env=of_clone(tmp_path))
    assert done.returncode == 0 and '"ddp_launch_python": "/opt/torch/bin/python"' in done.stdout, done.stdout
