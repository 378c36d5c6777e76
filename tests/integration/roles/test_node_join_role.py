# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role against an emulated scontrol: who is held, what role node_repair is asked for, and what is left alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, interpreter, of_clone
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.installation import digest

ROOT = Path(__file__).resolve().parents[3]
HELD = "hpcai:joining:not certified beside proven nodes yet"
STUB = [
    {
        "ansible.builtin.copy": {
            "dest": "{{ folder }}/asked",
            "content": "{{ node_repair_hosts }} beside {{ node_repair_partners }}",
        }
    }
]
# Among the facts of the host, as if setup had said it.
FACT = {
    "ansible.builtin.set_fact": {"machine_id": "{{ its_machine_id }}", "cacheable": True},
    "when": "its_machine_id is defined",
}
TASK = {"ansible.builtin.include_role": {"name": "node_join"}}
PLAY = [{"hosts": "localhost", "gather_facts": False, "tasks": [FACT, TASK]}]


class Site:
    """A controller, eight nodes, and a certificate that cleared seven of them beside others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "runs/first", "roles/node_repair/tasks"):
            (folder / name).mkdir(parents=True)
        shutil.copytree(ROOT / "roles/node_join", folder / "roles/node_join")
        main = folder / "roles/node_join/tasks/main.yml"
        main.write_text(main.read_text().replace("hpcai.gpu_cluster.node_repair", "node_repair"))
        (folder / "roles/node_repair/tasks/main.yml").write_text(json.dumps(STUB))
        stand_in(folder / "bin/scontrol", "scontrol_join.py")
        answer(folder / "bin/sinfo", status=1)
        about = {"status": "cleared", "tests": 7, "posterior": 0.001, "installation": digest("0" * 32)}
        cleared = {f"c{n}": about for n in range(1, 8)}
        (folder / "runs/first/certificate.json").write_text(json.dumps({"schema": 1, "nodes": cleared}))

    def join(self, nodes: dict[str, str], *more: str, fails: bool = False, **given: t.Any) -> dict[str, t.Any]:
        """Run the role; return what was done in Slurm, what node_repair was asked for, and the output."""
        (self.folder / "slurm.json").write_text(json.dumps({"nodes": nodes, "did": []}))
        (self.folder / "play.json").write_text(json.dumps(PLAY))
        known = {
            "ansible_python_interpreter": interpreter(),
            "folder": str(self.folder),
            "node_join_certification_dir": str(self.folder / "runs"),
            "certification_user": "root",
        }
        words = ("--connection=local", "-i", "localhost,", "-e", json.dumps({**known, **given}), *more, "play.json")
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        done: subprocess.CompletedProcess[str]
        done = ansible_playbook(*words, cwd=self.folder, env=of_clone(self.folder, PATH=path))
        assert bool(done.returncode) is fails, done.stdout + done.stderr
        asked = self.folder / "asked"
        return {
            "did": json.loads((self.folder / "slurm.json").read_text())["did"],
            "asked": asked.read_text() if asked.exists() else "",
            "said": done.stdout,
        }


@pytest.fixture
def site(tmp_path: Path) -> Site:
    if os.geteuid():
        pytest.skip("the role becomes root")
    return Site(tmp_path)


OLD = {f"c{number}": "IDLE" for number in range(1, 8)}


def test_a_new_node_is_held_and_certified_beside_its_own_leaf(site: Site) -> None:
    found = site.join({**OLD, "c8": "IDLE"})
    assert found["did"] == [f"update nodename=c8 state=drain reason={HELD}"]
    assert found["asked"] == "c8 beside c[1,5-7]"


def test_check_mode_and_a_second_run_change_nothing(site: Site) -> None:
    found = site.join({**OLD, "c8": "IDLE"}, "--check")
    assert (found["did"], found["asked"]) == ([], "")
    assert "changed: [localhost]" in found["said"]
    found = site.join(OLD)
    assert (found["did"], found["asked"]) == ([], "")


def test_a_persons_drain_stays_and_is_named(site: Site) -> None:
    found = site.join({**OLD, "c8": "IDLE+DRAIN rack is moved"})
    assert (found["did"], found["asked"]) == ([], "")
    assert "c8: left as it is, its reason is of ops: rack is moved" in found["said"]


def test_a_node_whose_slurmd_does_not_run_yet_is_held_for_later(site: Site) -> None:
    found = site.join({**OLD, "c8": "DOWN* Not responding"})
    assert found["did"] == [f"update nodename=c8 state=drain reason={HELD}"]
    assert found["asked"] == ""


def test_a_named_node_that_runs_jobs_is_held_and_the_run_says_that_it_is_not_certified(site: Site) -> None:
    found = site.join({**OLD, "c3": "ALLOCATED"}, fails=True, node_join_hosts="c3")
    assert found["did"] == [f"update nodename=c3 state=drain reason={HELD}"]
    assert "Not certified: c3. c3: is held, and its jobs have not ended yet" in found["said"]


def test_nobody_is_held_before_the_first_certification(site: Site) -> None:
    shutil.rmtree(site.folder / "runs")
    found = site.join({**OLD, "c8": "IDLE"})
    assert (found["did"], found["asked"]) == ([], "")


def test_a_node_that_was_installed_anew_is_held_without_being_named(site: Site) -> None:
    node = {"node_join_compute_hosts": ["localhost"], "slurm_node": {"name": "c3"}}
    assert site.join(OLD, its_machine_id="0" * 32, **node)["did"] == []
    found = site.join(OLD, its_machine_id="1" * 32, **node)
    assert found["did"] == [f"update nodename=c3 state=drain reason={HELD}"]
    assert found["asked"] == "c3 beside c[1-2,4-5]"
    assert "c3: was installed anew" in found["said"]
    assert site.join(OLD, its_machine_id="1" * 32, node_join_reinstalled=False, **node)["did"] == []
