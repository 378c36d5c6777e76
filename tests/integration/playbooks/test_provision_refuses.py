# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""provision.yml on an inventory that needs what its Slurm has not: refused before Azure is asked."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, few_settings, interpreter

ROOT = Path(__file__).resolve().parents[3]
DATABASE = {"url": "train.mysql.database.azure.com", "user": "slurm"}


def provision(tmp_path: Path, **variables: t.Any) -> str:
    """Run what of the playbook always runs, and return all that it said."""
    hosts = {"localhost": {"ansible_connection": "local", "ansible_python_interpreter": interpreter()}}
    inventory = {"all": {"vars": variables, "children": {"azure_control": {"hosts": hosts}}}}
    (tmp_path / "hosts.json").write_text(json.dumps(inventory))
    words = ("-i", str(tmp_path / "hosts.json"), str(ROOT / "playbooks/provision.yml"), "--tags", "always")
    done = ansible_playbook(*words, cwd=tmp_path, env={**os.environ, "ANSIBLE_CONFIG": str(few_settings())})
    return f"rc {done.returncode}: {' '.join((done.stdout + done.stderr).split())}"


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (
            {"training_job_account": "research"},
            "training_job_account need Slurm's accounting, which this cluster has not",
        ),
        ({"certification_sbatch_options": {"qos": "high"}}, "certification_sbatch_options need Slurm's accounting"),
        (
            {"slurm_database_accounts": [{"name": "a"}], "cyclecloud_cluster_accounting": DATABASE},
            "of role slurm_database",
        ),
        (
            {"cluster_nodes_keep": True, "cyclecloud_cluster_slurm": {"version": "22.05.11-1"}},
            "cluster_nodes_keep needs Slurm 23.02",
        ),
    ],
)
def test_what_this_slurm_has_not_is_refused(tmp_path: Path, variables: dict[str, t.Any], text: str) -> None:
    said = provision(tmp_path, **variables)
    assert not said.startswith("rc 0") and "Nothing was made." in said and text in said, said


@pytest.mark.parametrize(
    "slurm", [{}, {"cyclecloud_cluster_slurm": {"version": "23.02.1"}}, {"cyclecloud_cluster_slurm": {"version": ""}}]
)
def test_with_accounting_and_a_slurm_that_can_keep_nodes_it_goes_on(tmp_path: Path, slurm: dict[str, t.Any]) -> None:
    options = {"certification_sbatch_options": {"qos": "high"}, "training_job_account": "research"}
    said = provision(tmp_path, **options, cyclecloud_cluster_accounting=DATABASE, cluster_nodes_keep=True, **slurm)
    # All refusals are passed; the next is what this inventory lacks for Azure.
    assert "Nothing was made." not in said and "ok=3" in said and "azure_infra" in said, said
