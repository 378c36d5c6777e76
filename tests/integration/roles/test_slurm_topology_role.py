# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a variable of the inventory to topology.conf: tasks and template of role slurm, nothing goes to /etc/slurm."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import play_here

ROOT = Path(__file__).resolve().parents[3]
FABRIC = ROOT / "tests/unit/fixtures/ibnetdiscover/authored-fat-tree.txt"
NODES = [{"name": f"c{number}", "host": f"node-{number}"} for number in range(1, 5)]
TREE = "SwitchName=p1leaf1 Nodes=c[1-2]\nSwitchName=p1leaf2 Nodes=c[3-4]\nSwitchName=p1spine1 Switches=p1leaf[1-2]\n"


def drawn(folder: Path, said: str = "", *options: str, template: str = "topology.conf.j2", **given: t.Any) -> str:
    """Return topology.conf, or what another template makes, as the role would write it."""
    role = {"name": "hpcai.gpu_cluster.slurm", "tasks_from": "topology", "public": True}
    text = "{{ lookup('ansible.builtin.template', '" + str(ROOT / "roles/slurm/templates" / template) + "') }}"
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


def test_several_topologies_become_topology_yaml(tmp_path: Path) -> None:
    given = {"slurm_topology_source": "infiniband", "slurm_topology_file": str(FABRIC), "slurm_version": "25.05.1"}
    named = [{"name": "fabric"}, {"name": "racks", "plugin": "block"}]
    text = drawn(tmp_path, template="topology.yaml.j2", **given, __slurm_release="25.05.1", slurm_topologies=named)
    assert text.startswith('- topology: "fabric"\n  cluster_default: true\n  tree:\n    switches:\n')
    assert '    - block: "p1leaf2"\n      nodes: "c[3-4]"\n' in text


OURS = "#\n# Ansible managed\n#\n"
CONF = f"{OURS}ClusterName=a\nSlurmctldHost=h\nNodeName=c[1-2]\nPartitionName=p Nodes=ALL\n"
YAML = f"{OURS}- topology: a\n  flat: true\n"
TREE_CONF = f"{OURS}SwitchName=s Nodes=c[1-2]\n"


def written(folder: Path, **files: str) -> str:
    """Have slurm_config write these files beside slurm.conf; return its complaint."""
    texts = {"slurm.conf": CONF, **{name.replace("_", "."): text for name, text in files.items()}}
    task = {"hpcai.gpu_cluster.slurm_config": {"path": str(folder / "etc"), "files": texts}, "register": "done"}
    said = {"ansible.builtin.copy": {"content": "{{ done.msg | default('') }}", "dest": str(folder / "said")}}
    play_here(folder, [{**task, "ignore_errors": True}, said])
    return (folder / "said").read_text()


def test_a_topology_yaml_of_ours_goes_when_topology_conf_comes_and_a_persons_does_not(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("the files belong to root")
    yaml = tmp_path / "etc/topology.yaml"
    assert written(tmp_path, topology_yaml=YAML) == "" and yaml.read_text() == YAML
    assert written(tmp_path, topology_yaml="", topology_conf=TREE_CONF) == "" and not yaml.exists()
    yaml.write_text("- topology: theirs\n  flat: true\n")
    assert "Move topology.yaml away" in written(tmp_path, topology_yaml="", topology_conf=TREE_CONF + "# more\n")
    assert "written by somebody else" in written(tmp_path, topology_yaml=YAML)
    assert written(tmp_path, topology_yaml="") == "" and "theirs" in yaml.read_text()


def test_a_topology_conf_of_ours_goes_with_the_last_switch_and_a_persons_does_not(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("the files belong to root")
    conf = tmp_path / "etc/topology.conf"
    assert written(tmp_path, topology_conf=TREE_CONF) == "" and conf.read_text() == TREE_CONF
    assert written(tmp_path, topology_conf="") == "" and not conf.exists()
    conf.write_text("SwitchName=theirs Nodes=c[1-2]\n")
    assert written(tmp_path, topology_conf="") == "" and "theirs" in conf.read_text()


@pytest.mark.parametrize(
    ("source", "files"),
    [("inventory", {"topology.yaml": "", "topology.conf": ""}), ("infiniband", {"topology.yaml": ""})],
)
def test_only_an_inventory_without_switches_takes_the_topology_away(
    source: str, files: dict[str, str], tmp_path: Path
) -> None:
    """Where the fabric was not read, as in check mode, nothing is known of switches."""
    tasks = [
        {"ansible.builtin.include_vars": str(ROOT / "roles/slurm/vars/main.yml")},
        {
            "ansible.builtin.copy": {
                "content": "{{ __slurm_topology_files | to_json }}",
                "dest": str(tmp_path / "files"),
            }
        },
    ]
    play_here(tmp_path, tasks, {"slurm_topology": [], "slurm_topologies": [], "slurm_topology_source": source})
    assert json.loads((tmp_path / "files").read_text()) == files
