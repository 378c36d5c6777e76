# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role against an emulated scontrol; in the place of certification stands what the test says that it found."""

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

ROOT = Path(__file__).resolve().parents[3]
WHY = "hpcai:certification:fabric fault, run 7"
PLAY = [
    {
        "hosts": "localhost",
        "gather_facts": False,
        "module_defaults": {"hpcai.gpu_cluster.node_reconcile": {"config": "{{ folder }}/reconcile.json"}},
        "tasks": [{"ansible.builtin.include_role": {"name": "node_repair"}}],
    }
]
STUB = [
    {"ansible.builtin.command": "cp {{ folder }}/slurm.json {{ folder }}/then.json"},
    {"ansible.builtin.command": "cp {{ folder }}/state/latches.json {{ folder }}/held.json"},
    {
        "ansible.builtin.copy": {
            "dest": "{{ folder }}/asked",
            "content": "{{ certification_run }} {{ certification_reservation }} {{ certification_hosts }}",
        }
    },
    {
        "ansible.builtin.copy": {
            "dest": "{{ folder }}/level",
            "content": "{{ certification_dcgm_level | string }}",
        }
    },
    {"ansible.builtin.fail": {"msg": "certification broke down"}, "when": "found is not defined"},
    {"ansible.builtin.set_fact": {"certification_result": {"certificate": {"nodes": "{{ found }}"}}}},
]


class Site:
    """A controller with its reconciler, and two nodes that are drained."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("bin", "state", "mailbox", "roles/certification/tasks"):
            (folder / name).mkdir(parents=True)
        shutil.copytree(ROOT / "roles/node_repair", folder / "roles/node_repair")
        for path in (folder / "roles/node_repair/tasks").iterdir():
            text = path.read_text().replace("hpcai.gpu_cluster.certification", "certification")
            path.write_text(text.replace("/etc/hpcai/", f"{folder}/"))
        (folder / "roles/certification/tasks/main.yml").write_text(json.dumps(STUB))
        config = {"schema": 1, "mailbox": f"{folder}/mailbox", "state_dir": f"{folder}/state"}
        (folder / "reconcile.json").write_text(json.dumps(config))
        stand_in(folder / "bin/scontrol", "scontrol_repair.py")
        answer(folder / "bin/sinfo", status=1)
        self.slurm({"c3": WHY, "c4": "Prolog error"})

    def slurm(self, nodes: dict[str, str]) -> None:
        (self.folder / "slurm.json").write_text(json.dumps({"nodes": nodes, "kept": {}, "did": []}))

    def read(self, name: str) -> dict[str, t.Any]:
        return dict(json.loads((self.folder / name).read_text()))

    def repair(self, found: dict[str, t.Any] | None = None, *more: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "play.json").write_text(json.dumps(PLAY))
        given = {
            "ansible_python_interpreter": interpreter(),
            "folder": str(self.folder),
            "node_repair_hosts": "c[3-4]",
            "node_repair_stages": ["local"],
            "node_repair_partners": "c9",
            **({"found": found} if found is not None else {}),
        }
        words = ("--connection=local", "-i", "localhost,", "-e", json.dumps(given), *more, "play.json")
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        # The roles beside the play come before those of the collection.
        return ansible_playbook(*words, cwd=self.folder, env=of_clone(self.folder, PATH=path))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    found = Site(tmp_path)
    found.slurm({"c3": WHY, "c4": "Prolog error", "c9": ""})
    return found


def test_what_is_proved_is_given_back_and_the_rest_is_drained_again(site: Site) -> None:
    done = site.repair({"c3": {"status": "cleared"}, "c4": {"status": "watched", "reason": "slow"}})
    assert done.returncode != 0 and "c4 is watched: slow" in done.stdout, done.stdout
    then = site.read("then.json")
    assert (then["nodes"], next(iter(then["kept"].values()))["nodes"]) == ({"c3": "", "c4": "", "c9": ""}, "c[3-4,9]")
    assert site.read("held.json")["holds"] == {"c3": WHY, "c4": "hpcai:slurm:Prolog error"}
    now = site.read("slurm.json")
    assert (now["nodes"], now["kept"]) == ({"c3": "", "c4": "hpcai:slurm:Prolog error", "c9": ""}, {})
    memory = site.read("state/latches.json")
    assert (memory["holds"], list(memory["releases"])) == ({"c4": "hpcai:slurm:Prolog error"}, ["c3"])
    assert (site.folder / "asked").read_text().split()[0].startswith("20261121T213235-hpcai-repair-")


def test_dcgm_runs_at_the_level_of_the_repair(site: Site) -> None:
    site.repair()
    assert (site.folder / "level").read_text() == "0"
    site.repair(None, "-e", "node_repair_dcgm_level=3")
    assert (site.folder / "level").read_text() == "3"


def test_a_certification_that_breaks_down_proves_nothing_and_the_next_repair_may(site: Site) -> None:
    """What was measured before another reservation is not taken for it."""
    done = site.repair()
    assert done.returncode != 0 and "certification broke down" in done.stdout, done.stdout
    now = site.read("slurm.json")
    assert (now["nodes"], now["kept"]) == ({"c3": WHY, "c4": "hpcai:slurm:Prolog error", "c9": ""}, {})
    done = site.repair({name: {"status": "cleared"} for name in ("c3", "c4")})
    assert done.returncode == 0, done.stdout
    assert site.read("slurm.json")["nodes"] == {"c3": "", "c4": "", "c9": ""}
    assert site.read("state/latches.json")["holds"] == {}


def test_one_that_was_killed_goes_on_and_knows_what_its_nodes_were_drained_for(site: Site) -> None:
    site.repair()
    inside = site.read("then.json")
    (site.folder / "slurm.json").write_text(json.dumps({**inside, "did": []}))
    done = site.repair({"c4": {"status": "cleared"}})
    assert done.returncode != 0, done.stdout
    now = site.read("slurm.json")
    assert (now["nodes"], now["kept"]) == ({"c3": WHY, "c4": "", "c9": ""}, {})
    assert not any(line.startswith("create") for line in now["did"])


def test_without_a_reconciler_there_is_nothing_to_forget(site: Site) -> None:
    (site.folder / "reconcile.json").unlink()
    (site.folder / "state/latches.json").touch()
    assert site.repair({name: {"status": "cleared"} for name in ("c3", "c4")}).returncode == 0
    assert site.read("slurm.json")["nodes"] == {"c3": "", "c4": "", "c9": ""}


def test_check_mode_changes_nothing_and_a_person_s_drain_is_refused(site: Site) -> None:
    before = site.read("slurm.json")
    done = site.repair(None, "--check")
    assert site.read("slurm.json") == before
    assert "certify | Resume the nodes inside the reservation" in done.stdout
    site.slurm({**before["nodes"], "c4": "ops: cable swap"})
    done = site.repair({"c3": {"status": "cleared"}})
    assert done.returncode != 0 and "who alone gives it back: ops: cable swap" in done.stdout, done.stdout
    assert site.read("slurm.json")["did"] == []
