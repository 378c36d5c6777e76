# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm is told for containers, and what it is not told where a cluster has none."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_playbook import play_here

ROOT = Path(__file__).resolve().parents[3]
INCLUDE = "include /etc/slurm/plugstack.conf.d/*.conf"
SETTINGS = {"Prolog": "/etc/slurm/prolog.d/*", "Epilog": "/etc/slurm/epilog.d/*", "PrologFlags": "Alloc"}


@pytest.mark.parametrize(
    ("given", "settings", "plugstack"),
    [
        ({}, dict.fromkeys(SETTINGS, ""), None),
        ({"cluster_containers": False}, dict.fromkeys(SETTINGS, ""), None),
        ({"slurm_plugstack": ["optional /x.so"]}, dict.fromkeys(SETTINGS, ""), ["optional /x.so", INCLUDE]),
        ({"cluster_containers": True}, SETTINGS, [INCLUDE]),
    ],
)
def test_what_slurm_is_told(
    given: dict[str, t.Any], settings: dict[str, str], plugstack: list[str] | None, tmp_path: Path
) -> None:
    """Without containers nothing is: neither prologs nor a plugstack.conf in the place of a site's own."""
    base = "{{ __slurm_base_settings | dict2items | selectattr('key', 'in', wanted) | items2dict }}"
    told = {
        "content": {"settings": base, "files": "{{ __slurm_plugstack_files }}"},
        "dest": str(tmp_path / "told.json"),
    }
    tasks = [
        {"ansible.builtin.include_vars": str(ROOT / f"roles/slurm/{folder}/main.yml")}
        for folder in ("defaults", "vars")
    ]
    names = {
        "wanted": [*SETTINGS],
        "slurm_cluster_name": "c",
        "slurm_controller_hosts": ["ctl"],
        "slurm_node_hosts": [],
    }
    (tmp_path / "templates").symlink_to(ROOT / "roles/slurm/templates")
    play_here(tmp_path, [*tasks, {"ansible.builtin.copy": told}], {**names, **given})
    found = json.loads((tmp_path / "told.json").read_text())
    assert found["settings"] == settings
    text = found["files"].get("plugstack.conf")
    lines = None if text is None else [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines == plugstack


def test_every_host_has_a_program_before_slurm_is_told() -> None:
    """Also one without directories for users, or Slurm would fail its jobs."""
    tasks = yaml.safe_load((ROOT / "roles/enroot/tasks/present.yml").read_text())
    hooks = next(task for task in tasks if "hooks.yml" in str(task.get("ansible.builtin.import_tasks")))
    assert "when" not in hooks
    plays = yaml.safe_load((ROOT / "playbooks/configure_steps/nodes.yml").read_text())
    play = next(play for play in plays if play["name"] == "Install enroot on the nodes")
    role = next(task for task in play["tasks"] if "ansible.builtin.include_role" in task)
    assert play["hosts"] == "slurm_compute" and {"slurm", "slurm_controller"} <= set(play["tags"])
    assert role["ansible.builtin.include_role"]["name"] == "hpcai.gpu_cluster.enroot" and "tags" not in role
    assert role["ansible.builtin.include_role"]["apply"]["tags"] == play["tags"]


def test_the_unit_that_epilogs_restart_has_no_limit_of_starts() -> None:
    unit = (ROOT / "roles/enroot/templates/hpcai-enroot.service.j2").read_text()
    assert "StartLimitIntervalSec=0" in unit.partition("[Service]")[0].splitlines()


def test_a_slurmd_that_runs_is_asked_for_also_before_it_has_pyxis() -> None:
    """Else nothing would restart it when pyxis comes for the first time."""
    tasks = yaml.safe_load((ROOT / "roles/pyxis/tasks/install.yml").read_text())
    asked = next(task for task in tasks if task.get("register") == "__pyxis_before")
    assert asked["hpcai.gpu_cluster.pyxis_info"]["plugin"] == "{{ pyxis_plugin }}"


ELSE = {"enroot": "there is no directory", "pyxis": "needs pyxis_build_host"}


@pytest.mark.parametrize("role", sorted(ELSE))
@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"cluster_slurm": "cyclecloud"}, True),
        ({"agent": True}, True),
        ({"agent": True, "cluster_slurm": "ours"}, False),
        ({}, False),
    ],
)
def test_no_second_one_beside_cyclecloud_s(tmp_path: Path, role: str, given: dict[str, t.Any], refused: bool) -> None:
    """What is not refused for that reason comes to the next thing that is wrong with these inputs."""
    agent = tmp_path / "jetpack"
    if given.get("agent"):
        agent.mkdir()
    inputs = {"enroot_base_dir": f"{tmp_path}/none/enroot", "enroot_build_host": "localhost", "ansible_become": False}
    inputs |= {"cluster_shared_dir": str(tmp_path), f"__{role}_cyclecloud": str(agent), **given}
    task = {"ansible.builtin.include_role": {"name": f"hpcai.gpu_cluster.{role}"}}
    done = play_here(tmp_path, [task], inputs, fails=True)
    said = " ".join((done.stdout + done.stderr).split())
    assert ("localhost is a node of CycleCloud" in said) is refused
    assert (ELSE[role] in said) is not refused, said
