# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a variable of the inventory to topology.conf: tasks and template of role slurm, nothing goes to /etc/slurm."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_playbook import play_here

ROOT = Path(__file__).resolve().parents[3]
FABRIC = ROOT / "tests/unit/fixtures/ibnetdiscover/authored-fat-tree.txt"
NODES = [{"name": f"c{number}", "host": f"node-{number}"} for number in range(1, 5)]
TREE = "SwitchName=p1leaf1 Nodes=c[1-2]\nSwitchName=p1leaf2 Nodes=c[3-4]\nSwitchName=p1spine1 Switches=p1leaf[1-2]\n"


def drawn(folder: Path, said: str = "", *options: str, **given: t.Any) -> str:
    """Return topology.conf as the role would write it."""
    role = {"name": "hpcai.gpu_cluster.slurm", "tasks_from": "topology", "public": True}
    text = "{{ lookup('ansible.builtin.template', '" + str(ROOT / "roles/slurm/templates/topology.conf.j2") + "') }}"
    tasks = [
        {"ansible.builtin.include_role": role},
        # Role defaults are looked at before a role starts, also those that it will not use.
        {"ansible.builtin.assert": {"that": "slurm_topology_host == given_host | default('localhost')"}},
        {"ansible.builtin.copy": {"content": text, "dest": str(folder / "topology.conf")}},
    ]
    known = {"slurm_node_hosts": [], "slurm_nodes": NODES, "slurm_elastic_nodes": [], "slurm_version": "24.11.5"}
    done = play_here(folder, tasks, {**known, "__slurm_release": "24.11.5", **given}, *options, fails=bool(said))
    assert said in done.stdout, done.stdout
    if said or "--check" in options:
        return ""
    lines = (folder / "topology.conf").read_text().splitlines()
    return "".join(f"{line}\n" for line in lines if not line.startswith("#"))


def test_a_file_of_ibnetdiscover_becomes_a_tree_and_blocks(tmp_path: Path) -> None:
    given = {"slurm_topology_source": "infiniband", "slurm_topology_file": str(FABRIC)}
    assert drawn(tmp_path, **given) == TREE
    blocks = drawn(tmp_path, **given, slurm_topology_plugin="block", slurm_topology_block_sizes=[2, 4])
    assert blocks == "BlockName=p1leaf1 Nodes=c[1-2]\nBlockName=p1leaf2 Nodes=c[3-4]\nBlockSizes=2,4\n"


def test_a_wrong_name_stops_before_anything_is_written(tmp_path: Path) -> None:
    given = {"slurm_topology_source": "infiniband", "slurm_topology_file": str(FABRIC)}
    drawn(tmp_path, "names leads to nodes that Slurm does not have: c9", **given, slurm_topology_names={"c1": "c9"})
    assert not (tmp_path / "topology.conf").exists()


def test_without_ibnetdiscover_the_run_says_what_to_install_and_check_mode_goes_on(tmp_path: Path) -> None:
    given = {"slurm_topology_source": "infiniband", "slurm_topology_host": "localhost"}
    drawn(tmp_path, "Install infiniband-diags", **given)
    drawn(tmp_path, "", "--check", **given)


def test_the_fabric_is_discovered_on_the_first_node_if_there_is_one(tmp_path: Path) -> None:
    given = {"slurm_topology_source": "infiniband", "slurm_topology_file": str(FABRIC)}
    drawn(tmp_path, **given, slurm_node_hosts=["node-1", "node-2"], given_host="node-1")
