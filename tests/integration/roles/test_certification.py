# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role certification refuses before it starts, and what it tells its nodes of DCGM."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, interpreter, of_clone

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import check, checks_others, registry

ROOT = Path(__file__).resolve().parents[3]
TOLD = {
    "suites": "{{ __certification_node['suites'] }}",
    "checks": "{{ __certification_node['checks'] }}",
    "seconds": "{{ __certification_parameters['suite_timeout'] | int }}",
}
PLAY = [
    {
        "hosts": "localhost",
        "gather_facts": False,
        "vars_files": [f"{ROOT}/roles/certification/{name}/main.yml" for name in ("defaults", "vars")],
        "tasks": [{"ansible.builtin.copy": {"dest": "{{ folder }}/told.json", "content": "{{ told | to_json }}"}}],
        "vars": {"told": TOLD, "cluster_sku": "ND96asr_v4", "cluster_name": "c", "cluster_shared_dir": "/shared"},
    }
]


def told(folder: Path, **inputs: t.Any) -> dict[str, t.Any]:
    (folder / "play.json").write_text(json.dumps(PLAY))
    given = {"ansible_python_interpreter": interpreter(), "folder": str(folder), **inputs}
    words = ("--connection=local", "-i", "localhost,", "-e", json.dumps(given), "play.json")
    done = ansible_playbook(*words, cwd=folder, env=of_clone(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads((folder / "told.json").read_text()))


def test_by_default_nothing_is_said_of_dcgm(tmp_path: Path) -> None:
    assert told(tmp_path) == {"suites": {}, "checks": {}, "seconds": 1800}


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_level_extends_the_stage_by_what_the_agent_may_take(tmp_path: Path, level: int) -> None:
    found = told(tmp_path, certification_dcgm_level=level, certification_check_options={"gpu_idle": {"x": 1}})
    assert found["checks"] == {"dcgm_diag": {"level": level}, "gpu_idle": {"x": 1}}
    assert found["seconds"] == 1800 + checks_others.DIAG_TIMEOUTS[level]
    config = check.check({"schema": 1, "node": "n1", "suites": found["suites"], "checks": found["checks"]})
    assert "dcgm_diag" in registry.plan(config, "full").checks


def test_a_list_of_checks_gets_the_diagnostics_as_well(tmp_path: Path) -> None:
    found = told(tmp_path, certification_dcgm_level=2, certification_checks=["gpu", "dcgm_diag"])
    assert found["suites"] == {"full": {"checks": ["gpu", "dcgm_diag"]}}
    found = told(tmp_path, certification_dcgm_level="2", certification_checks=["gpu"])
    assert found["suites"] == {"full": {"checks": ["gpu", "dcgm_diag"]}}


def refused(folder: Path, **inputs: t.Any) -> str:
    """Return what the role's end says of a machine type; without a Slurm none of its runs is green."""
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "roles": ["hpcai.gpu_cluster.certification"],
        "vars": {
            "cluster_name": "c",
            "cluster_shared_dir": str(folder / "shared"),
            "certification_dir": str(folder / "runs"),
        },
    }
    (folder / "play.json").write_text(json.dumps([play]))
    given = {"ansible_python_interpreter": interpreter(), **inputs}
    words = ("--connection=local", "-i", "localhost,", "-e", json.dumps(given), "play.json")
    done = ansible_playbook(*words, cwd=folder, env=of_clone(folder))
    assert done.returncode != 0
    return done.stdout + done.stderr


@pytest.mark.parametrize("sku", ["generic", "dgx-h100"])
def test_a_machine_type_of_which_nothing_is_expected_is_refused_before_anything_is_made(
    tmp_path: Path, sku: str
) -> None:
    text = refused(tmp_path, cluster_sku=sku)
    assert f"Nothing is expected of machine type {sku}" in text and f"profiles/{sku}.yml" in text
    assert not (tmp_path / "runs").exists()


def test_who_asks_for_no_verdict_gets_what_there_is(tmp_path: Path) -> None:
    assert "Nothing is expected" not in refused(tmp_path, cluster_sku="generic", certification_fail_on=["drained"])
