# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible import constants
from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.doc_fragments import constructed, inventory_cache
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.inventory import slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import hostlist as slurm_hosts
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import nodes_from_text

FIXTURES = Path(__file__).parents[2] / "fixtures" / "slurm"
CAPTURED = FIXTURES / "scontrol-nodes-24.11.txt"
NODE = nodes_from_text(CAPTURED.read_text(encoding="utf-8"))[0]


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command that answers with what a real one printed."""
    (tmp_path / "bin").mkdir()
    path = stand_in(tmp_path / "bin/scontrol", "scontrol_json.sh", nodes=FIXTURES / "scontrol-nodes-24.11.json")
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    return path


def load() -> slurm.InventoryModule:
    """Do what Ansible's loader does: the options come from the documentation."""
    texts = [constructed.ModuleDocFragment, inventory_cache.ModuleDocFragment, slurm]
    options = {name: option for text in texts for name, option in yaml.safe_load(text.DOCUMENTATION)["options"].items()}
    constants.config.initialize_plugin_configuration_definitions("inventory", slurm.InventoryModule.NAME, options)
    plugin = slurm.InventoryModule()
    plugin._load_name = slurm.InventoryModule.NAME
    return plugin


def read(tmp_path: Path, text: str = "") -> InventoryData:
    path = tmp_path / "lab.slurm.yml"
    path.write_text(f"plugin: hpcai.gpu_cluster.slurm\n{text}", encoding="utf-8")
    inventory = InventoryData()
    plugin = load()
    assert plugin.verify_file(str(path))
    plugin.parse(inventory, DataLoader(), str(path))
    if "cache: true" in text:
        plugin.update_cache_if_changed()
    return inventory


def members(inventory: InventoryData) -> dict[str, list[str]]:
    groups = inventory.get_groups_dict()
    return {name: hosts for name, hosts in groups.items() if name not in {"all", "ungrouped"}}


def test_nodes_become_hosts_in_groups(scontrol: Path, tmp_path: Path) -> None:
    inventory = read(tmp_path)
    assert members(inventory) == {
        "slurm_partition_main": ["c1", "c2", "c3"],
        "slurm_partition_debug": ["c1", "far1"],
        "slurm_state_mixed": ["c1"],
        "slurm_state_drained": ["c2", "c3"],
        "slurm_state_unknown": ["far1"],
        "slurm_state_not_responding": ["far1"],
        "slurm_feature_cpu": ["c1", "c2", "c3"],
        "slurm_feature_avx": ["c1", "c2", "c3"],
    }
    found = inventory.get_host("c3").get_vars()
    assert (found["ansible_host"], found["slurm_node_state"], found["slurm_node_drained"]) == (
        "127.0.0.1",
        "IDLE",
        True,
    )
    assert (found["slurm_node_reason"], found["slurm_node_reason_user"]) == ("hpcai:munge:key differs from a=b", "root")
    assert (found["slurm_node_partitions"], found["slurm_node_features"]) == (["main"], ["cpu", "avx"])


def test_users_make_groups_and_variables_of_their_own(scontrol: Path, tmp_path: Path) -> None:
    text = """
strict: true
group_prefix: west
compose: {ansible_host: slurm_node_hostname}
groups: {slurm_compute: true, gpu: (slurm_node_gres or '') is search('gpu')}
keyed_groups: [{key: slurm_node_version or 'none', prefix: slurmd}]
"""
    inventory = read(tmp_path, text)
    assert inventory.get_host("c1").get_vars()["ansible_host"] == "ctl"
    found = members(inventory)
    assert (found["slurm_compute"], found["gpu"]) == (["c1", "c2", "c3", "far1"], ["c1", "c2", "c3"])
    assert (found["slurmd_24_11_5"], found["west_state_mixed"]) == (["c1", "c2", "c3"], ["c1"])


def test_commands_run_where_they_are_told_to(scontrol: Path, tmp_path: Path) -> None:
    read(tmp_path, "command: [env, SLURM_CONF=/elsewhere]")
    assert (scontrol.parent / "ran").read_text(encoding="utf-8").splitlines() == ["--version", "show nodes --json"]


def test_the_cache_spares_the_controller(scontrol: Path, tmp_path: Path) -> None:
    text = f"cache: true\ncache_plugin: jsonfile\ncache_connection: {tmp_path}/cache\n"
    first = members(read(tmp_path, text))
    (scontrol.parent / "ran").unlink()
    assert members(read(tmp_path, text)) == first
    assert not (scontrol.parent / "ran").exists()


@pytest.mark.parametrize(
    ("answers", "text", "said"),
    [
        (None, "", "scontrol cannot be started: No such file"),
        ({"err": "no route to controller\n", "status": 1}, "", "no route to controller"),
        ({"out": "slurm 24.11.5\n", "hangs": "yes"}, "timeout: 0.2", "did not end within 0.2 s"),
        (None, "command: [ssh-not-there, login1]", "must work after 'ssh-not-there login1'"),
    ],
    ids=["no Slurm here", "controller away", "hanging", "wrong prefix"],
)
def test_errors_say_what_was_run_and_what_to_do(
    scontrol: Path, tmp_path: Path, answers: dict[str, t.Any] | None, text: str, said: str
) -> None:
    if answers:
        answer(scontrol, **answers)
    else:
        scontrol.unlink()
    with pytest.raises(AnsibleParserError) as caught:
        read(tmp_path, text)
    for part in (said, "scontrol --version", "lab.slurm.yml", "set 'command'"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("name", "ours"), [("slurm.yml", True), ("lab.slurm.yaml", True), ("slurm.txt", False), ("hosts.yml", False)]
)
def test_file_names(tmp_path: Path, name: str, ours: bool) -> None:
    (tmp_path / name).write_text("plugin: hpcai.gpu_cluster.slurm\n", encoding="utf-8")
    assert load().verify_file(str(tmp_path / name)) is ours


@pytest.mark.parametrize(
    ("change", "states"),
    [
        ({"state": "IDLE"}, ["idle"]),
        ({"state": "IDLE", "flags": ["CLOUD", "POWERED_DOWN"]}, ["idle", "cloud", "powered_down"]),
        ({"state": "MIXED", "flags": ["DRAIN"], "drained": True}, ["draining"]),
        ({"state": "IDLE", "flags": ["COMPLETING", "DRAIN"], "drained": True}, ["draining", "completing"]),
        ({"state": "DOWN", "flags": ["DRAIN", "NOT_RESPONDING"], "drained": True}, ["drained", "not_responding"]),
    ],
)
def test_states_are_those_of_sinfo(change: dict[str, t.Any], states: list[str]) -> None:
    groups = slurm_hosts.to_hosts([{**NODE, **change}], "slurm")[0].groups
    assert [group.replace("slurm_state_", "") for group in groups if "_state_" in group] == states


@pytest.mark.parametrize(("address", "given"), [("10.0.0.5", True), ("c1", False)])
def test_an_address_that_repeats_the_name_is_left_out(address: str, given: bool) -> None:
    variables = slurm_hosts.to_hosts([{**NODE, "address": address}], "slurm")[0].variables
    assert ("ansible_host" in variables) is given
    assert "slurm_node_name" not in variables
