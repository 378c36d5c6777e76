# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How playbooks have nodes and let them go, against emulated commands of a Slurm with power saving."""

from __future__ import annotations

import json
import os
import re
import typing as t
from pathlib import Path

import yaml
from ansible_playbook import ansible_playbook, interpreter, of_clone
from stand_in import stand_in

ROOT = Path(__file__).resolve().parents[3]


class Cluster:
    """An inventory, and Slurm's commands beside it."""

    def __init__(self, directory: Path, boots: t.Mapping[str, int]) -> None:
        self.directory, self.state = directory, directory / "slurm.json"
        nodes = {
            name: {"boots": looks, "looks": 0, "address": number, "state": "IDLE+CLOUD+POWERED_DOWN"}
            for number, (name, looks) in enumerate(boots.items(), 1)
        }
        self.state.write_text(json.dumps({"nodes": nodes, "jobs": {}, "did": []}))
        (directory / "bin").mkdir()
        for name in ("squeue", "sbatch", "scancel", "scontrol", "sinfo"):
            stand_in(directory / "bin" / name, "slurm_elastic.py")
        login = {"ansible_connection": "local", "ansible_ssh_common_args": "-o ProxyJump=hpcadmin@198.51.100.7"}
        groups = {"slurm_login": {"hosts": {"scheduler": login}}, "slurm_compute": {"children": {"gpu": {}}}}
        variables = {
            "ansible_become": False,
            "ansible_python_interpreter": interpreter(),
            "cluster_sku": "ND96asr_v4",
            "cluster_user": "hpcadmin",
            "cluster_nodes": 2,
            "cluster_node_price": 27.2,
        }
        (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": groups, "vars": variables}}))
        hosts = "groups['gpu'] | map('extract', hostvars)"
        told = f"gpu: {{{{ {hosts} | map(attribute='ansible_host') | join(' ') }}}}"
        jump = f" by {{{{ {hosts} | map(attribute='ansible_ssh_common_args') | unique | join }}}}"
        show = {
            "hosts": "slurm_login",
            "gather_facts": False,
            "tasks": [{"ansible.builtin.debug": {"msg": told + jump}}],
        }
        steps = [
            {"ansible.builtin.import_playbook": str(ROOT / f"playbooks/elastic_steps/{name}.yml")}
            for name in ("resume", "suspend")
        ]
        (directory / "play.yml").write_text(yaml.safe_dump([steps[0], show, steps[1]]))

    def play(self, *options: str) -> tuple[int, str]:
        env = of_clone(self.directory, PATH=f"{self.directory}/bin:{os.environ['PATH']}")
        done = ansible_playbook("-i", "hosts.yml", "play.yml", *options, cwd=self.directory, env=env)
        return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)

    @property
    def slurm(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads(self.state.read_text()))


def test_nodes_are_priced_awaited_added_to_the_inventory_and_let_go(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, {"n1": 1, "n2": 3, "n3": 1})
    status, told = cluster.play()
    assert status == 0, told[-3000:]
    assert "Slurm creates n1, n2, for about 54.40 an hour, kept for 120 minutes at most" in told
    assert re.search(r"After \d+ s 2 of 2 nodes are up", told)
    assert "gpu: 10.80.1.1 10.80.1.2 by -o ProxyJump=hpcadmin@198.51.100.7" in told
    assert "n1, n2 is powered down now" in told
    assert cluster.slurm["jobs"] == {}
    assert {node["state"] for node in cluster.slurm["nodes"].values()} == {"IDLE+CLOUD+POWERED_DOWN"}


def test_check_mode_says_the_price_and_creates_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, {"n1": 1, "n2": 1})
    status, told = cluster.play("--check")
    assert status == 0, told[-3000:]
    assert "for about 54.40 an hour" in told
    assert not [line for line in cluster.slurm["did"] if line.startswith(("sbatch", "scancel", "scontrol update"))]


def test_a_cluster_of_which_no_node_comes_ends_with_the_reason(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, {"n1": -1, "n2": -1})
    status, told = cluster.play('--extra-vars={"cluster_node_price": null}')
    assert status != 0
    assert "Slurm creates n1, n2, kept for 120 minutes at most; cluster_node_price would say what that costs" in told
    assert "0 of 0 nodes are up; cannot be used: n1 DOWN+CLOUD+POWERED_DOWN: ResumeTimeout reached" in told
    assert "sinfo -R" in told
    assert cluster.slurm["jobs"] == {}, "nothing keeps asking for nodes that cost when they come"


def test_nodes_that_no_slurm_would_keep_are_refused_before_they_cost(tmp_path: Path) -> None:
    """Slurm 22.05 cannot change SuspendExcNodes while it runs; nobody is to learn that at the end of site.yml."""
    cluster = Cluster(tmp_path, {"n1": 1, "n2": 1})
    status, told = cluster.play("--extra-vars=cluster_nodes_keep=true")
    assert status != 0
    assert "Slurm 22.05.8 cannot be told while it runs, as 23.02 and newer can" in told, told[-3000:]
    assert submitted(cluster) == []


def without_first_plays(cluster: Cluster, playbook: str) -> t.Callable[..., tuple[int, str]]:
    """Return what runs a playbook of which only its own play is left: nobody has nodes created."""
    shared = cluster.directory / "shared"
    shared.mkdir()
    steps = yaml.safe_load((ROOT / "playbooks" / playbook).read_text())
    own = [step for step in steps if "ansible.builtin.import_playbook" not in step]
    (cluster.directory / "play.yml").write_text(yaml.safe_dump(own))
    given = {"cluster_name": "train", "cluster_shared_dir": str(shared), "cluster_user": "root"}

    def play(**more: t.Any) -> tuple[int, str]:
        variables = {**given, "cluster_slurm": "cyclecloud", **more}
        return cluster.play("--skip-tags=pytorch", f"--extra-vars={json.dumps(variables)}")

    return play


def submitted(cluster: Cluster) -> list[str]:
    return [line for line in cluster.slurm["did"] if line.startswith("sbatch")]


def test_a_certification_that_has_no_nodes_created_certifies_nothing(tmp_path: Path) -> None:
    """certify.yml without the step that creates nodes: CycleCloud's nodes are off until somebody wants them."""
    cluster = Cluster(tmp_path, {"n1": 1, "n2": 1})
    steps = yaml.safe_load((ROOT / "playbooks/certify.yml").read_text())
    first = [step.get("ansible.builtin.import_playbook") for step in steps[:3]]
    assert first == [None, "elastic_steps/resume.yml", None], "created before certified"
    play = without_first_plays(cluster, "certify.yml")
    status, told = play()
    assert status != 0
    assert "cluster_nodes wants 2 nodes, and nobody had Slurm create them" in told, told[-3000:]
    status, told = play(cluster_nodes="0")
    assert status != 0
    assert "power saving has switched off all of n[1-2]. Say in cluster_nodes how many" in told, told[-3000:]
    assert submitted(cluster) == []


def test_no_node_is_created_for_a_certification_that_can_clear_nobody(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, {"n1": 1, "n2": 1})
    whole = [{"ansible.builtin.import_playbook": str(ROOT / "playbooks/certify.yml")}]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(whole))
    status, told = cluster.play("--extra-vars=cluster_sku=generic")
    assert status != 0
    assert "Nothing is expected of machine type generic" in told, told[-3000:]
    assert cluster.slurm["did"] == []


def test_a_training_that_has_no_nodes_created_trains_nothing(tmp_path: Path) -> None:
    """train.yml without its first steps: its job would bring up so many nodes as the inventory knows, or two."""
    cluster = Cluster(tmp_path, {"n1": 1, "n2": 1})
    status, told = without_first_plays(cluster, "train.yml")()
    assert status != 0
    assert "cluster_nodes wants 2 nodes, and nobody had Slurm create them" in told, told[-3000:]
    assert submitted(cluster) == []
