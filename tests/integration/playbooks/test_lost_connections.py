# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An SSH connection that is lost once ends no run: in a clone, in a site's repository, for a cluster in Azure."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from ansible_playbook import ansible_playbook, few_settings
from stand_in import stand_in

ROOT = Path(__file__).resolve().parents[3]
# Where an answer is lost, the node has done what it was told, and is told again.
AZURE = yaml.safe_load((ROOT / "inventories/azure_ndv4/group_vars/all.yml").read_text())["ansible_ssh_retries"]
SETTINGS = {
    "a clone": (ROOT / "ansible.cfg", {}),
    "a site": (ROOT / "site_template/ansible.cfg", {}),
    "a cluster in Azure": (few_settings(), {"ansible_ssh_retries": AZURE}),
    "nothing": (few_settings(), {}),
}


@pytest.mark.parametrize("lost", ["connection", "answer"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_connection_that_is_lost_once_is_made_again(settings: str, lost: str, tmp_path: Path) -> None:
    config, variables = SETTINGS[settings]
    program = stand_in(tmp_path / "ssh", "ssh_lost_once.sh", directory=tmp_path, lost=lost)
    tasks = [{"ansible.builtin.raw": f"echo did >>{tmp_path}/done"}, {"ansible.builtin.raw": "echo after"}]
    (tmp_path / "play.json").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    given = {"ansible_host": "192.0.2.1", "ansible_ssh_executable": str(program), **variables}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"node": given}}}))
    own = {"ANSIBLE_CONFIG": str(config), "HPCAI_REPORT_DIR": str(tmp_path / "report"), "HOME": str(tmp_path)}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    own["ANSIBLE_COLLECTIONS_PATH"] = str(ROOT / ".build/collections")
    words = ("-i", "hosts.json", "play.json")
    done = ansible_playbook(*words, cwd=tmp_path, env={**environment, **own})
    told = done.stdout + done.stderr
    if settings == "nothing":
        assert done.returncode == 4 and "Connection reset by peer" in told, told
        return
    assert done.returncode == 0 and "ok=2" in told and "unreachable=0" in told, told
    assert (tmp_path / "done").read_text().split() == ["did"] * (1 if lost == "connection" else 2)
    if config.parent != few_settings().parent:
        calls = (tmp_path / "calls").read_text()
        assert "ServerAliveInterval=30 -o ServerAliveCountMax=10" in calls, calls
