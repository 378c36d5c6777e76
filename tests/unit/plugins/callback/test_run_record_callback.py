# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.callback import run_record

COLLECTIONS = Path(run_record.__file__).parents[5]
PLAYBOOK = """
- hosts: localhost
  gather_facts: false
  vars: {run_stage: configure, cluster_name: lab}
  tasks:
    - name: Change something in secret
      ansible.builtin.debug: {msg: s3cret}
      changed_when: true
      no_log: true
    - name: Fail and recover
      block: [{ansible.builtin.fail: {msg: foreseen}}]
      rescue: [{ansible.builtin.meta: noop}]
- hosts: nobody
  vars: {run_stage: provision}
- hosts: localhost
  gather_facts: false
  vars: {run_stage: train}
  tasks:
    - name: Fail in secret, and go on
      ansible.builtin.fail: {msg: "s3cret {{ item }}"}
      loop: [1, 2]
      no_log: true
      ignore_errors: true
    - name: Fail in secret
      ansible.builtin.fail: {msg: s3cret}
      no_log: true
"""


def play(tmp_path: Path, *arguments: str) -> Path:
    book, config = tmp_path / "book.yml", tmp_path / "ansible.cfg"
    book.write_text(PLAYBOOK)
    config.write_text(
        f"[defaults]\ncollections_path = {COLLECTIONS}\ncallbacks_enabled = hpcai.gpu_cluster.run_record\n"
        "[callback_run_record]\nreport_dir = report\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "HPCAI_"))}
    environment.update(ANSIBLE_CONFIG=str(config), ANSIBLE_LOCAL_TEMP=str(tmp_path), HPCAI_RUN="r1")
    command = [sys.executable, "-m", "ansible.cli.playbook", "-i", "localhost,", "-c", "local", str(book), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "run record was not written" not in done.stderr
    return tmp_path / "report" / "run.json"


def test_a_real_run_is_recorded_without_its_secrets(tmp_path: Path) -> None:
    path = play(tmp_path)
    assert "s3cret" not in path.read_text()
    found = json.loads(path.read_text())
    assert found["cluster"] == "lab"
    assert [(s["run"], s["stage"], s["state"]) for s in found["stages"]] == [
        ("r1", "configure", "done"),
        ("r1", "provision", "done"),
        ("r1", "train", "failed"),
    ]
    configure, provision, train = found["stages"]
    assert configure["changes"] == {"localhost": 1}
    assert provision["skipped"] == "no host of the inventory belongs to it"
    assert train["failures"] == {"localhost": "Fail in secret: the task failed; its result is hidden (no_log)"}


@pytest.mark.parametrize("argument", ["--check"])
def test_check_mode_leaves_no_record(tmp_path: Path, argument: str) -> None:
    assert not play(tmp_path, argument).exists()


def test_the_machine_type_is_that_of_the_nodes(tmp_path: Path) -> None:
    """The control host comes first in most runs, and what the inventory has for all hosts need not be the nodes'."""
    hosts = tmp_path / "hosts.yml"
    nodes = {"slurm_compute": {"hosts": {"c1": {"cluster_sku": "ND96asr_v4"}}}}
    hosts.write_text(json.dumps({"all": {"vars": {"cluster_sku": "lab"}, "children": nodes}}))
    found = json.loads(play(tmp_path, "-i", str(hosts)).read_text())
    assert (found["cluster"], found["sku"]) == ("lab", "ND96asr_v4")
