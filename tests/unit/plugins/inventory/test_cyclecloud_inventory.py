# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible import constants
from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.doc_fragments import constructed, inventory_cache

from ansible_collections.hpcai.gpu_cluster.plugins.doc_fragments import cyclecloud as doc_fragment
from ansible_collections.hpcai.gpu_cluster.plugins.inventory import cyclecloud
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import cluster_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.rest import CycleCloudError, UnknownOutcome

STATUS = json.loads((Path(__file__).parents[2] / "fixtures/cyclecloud/status.json").read_text())
GIVEN = {"CYCLECLOUD_URL": "https://cc.example.org", "CYCLECLOUD_USERNAME": "admin", "CYCLECLOUD_PASSWORD": "s3cret"}


def load() -> cyclecloud.InventoryModule:
    """Do what Ansible's loader does: the options come from the documentation, ours over those of the fragments."""
    options: dict[str, t.Any] = {}
    fragments = [one.ModuleDocFragment for one in (constructed, inventory_cache, doc_fragment)]
    for text in (*fragments, cyclecloud):
        for name, option in yaml.safe_load(text.DOCUMENTATION)["options"].items():
            options[name] = {**options.get(name, {}), **option}
    constants.config.initialize_plugin_configuration_definitions("inventory", cyclecloud.InventoryModule.NAME, options)
    plugin = cyclecloud.InventoryModule()
    plugin._load_name = cyclecloud.InventoryModule.NAME
    return plugin


class Site:
    """A folder with an inventory file, and a server that answers or raises."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, 0
        self.answer: t.Any = STATUS

    def status(self, dummy: str) -> t.Any:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def read(self, text: str = "") -> InventoryData:
        path = self.folder / "c1.cyclecloud.yml"
        kept = f"cache_plugin: jsonfile\ncache_connection: {self.folder}/cache\n"
        path.write_text(f"plugin: hpcai.gpu_cluster.cyclecloud\ncluster: c1\n{kept}{text}", encoding="utf-8")
        inventory = InventoryData()
        plugin = load()
        assert plugin.verify_file(str(path))
        plugin.parse(inventory, DataLoader(), str(path))
        plugin.update_cache_if_changed()
        return inventory


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    made = Site(tmp_path)
    monkeypatch.setattr(cyclecloud.InventoryModule, "_client", lambda dummy: made)
    return made


def test_ready_nodes_become_hosts_in_groups(site: Site) -> None:
    groups = site.read("groups: {gpu: (cc_gpu_count or 0) > 0}\n").get_groups_dict()
    assert {name: names for name, names in groups.items() if name not in {"all", "ungrouped"}} == {
        "cyclecloud_cluster_c1": ["gpu-1", "login-1", "scheduler"],
        "cyclecloud_nodearray_gpu": ["gpu-1"],
        "cyclecloud_nodearray_login": ["login-1"],
        "cyclecloud_nodearray_scheduler": ["scheduler"],
        "cyclecloud_state_ready": ["gpu-1", "login-1", "scheduler"],
        "cyclecloud_role_execute": ["gpu-1"],
        "cyclecloud_role_login": ["login-1"],
        "cyclecloud_role_scheduler": ["scheduler"],
        "cyclecloud_machine_type_Standard_ND96asr_v4": ["gpu-1"],
        "cyclecloud_machine_type_Standard_D8as_v4": ["login-1"],
        "cyclecloud_machine_type_Standard_D4as_v4": ["scheduler"],
        "gpu": ["gpu-1"],
    }


def test_variables_and_how_to_reach_a_node(site: Site) -> None:
    host = site.read("bastion: me@cc\nuser: ops\n").get_host("gpu-1")
    assert host is not None
    found = host.get_vars()
    assert found["ansible_host"] == next(n["PrivateIp"] for n in STATUS["nodes"] if n["Name"] == "gpu-1")
    assert (found["ansible_user"], found["ansible_ssh_common_args"]) == ("ops", "-o ProxyJump=me@cc")
    assert (found["cc_gpu_count"], found["cc_placement_group"], found["cc_state"]) == (8, "pg0", "Ready")


def test_nodes_on_their_way_are_wanted_only_when_asked_for(site: Site) -> None:
    assert site.read("states: [Ready, Preparing, Terminating]\n").get_host("gpu-3") is not None
    assert site.read("states: [Ready, Preparing, Terminating]\n").get_host("gpu-2") is None
    assert site.read().get_host("gpu-3") is None


def test_nodes_without_an_address_are_no_hosts() -> None:
    node = {**cluster_state.nodes(STATUS)[0], "address": None, "hostname": None}
    assert cluster_state.to_hosts([node], "c1", ["Ready"], "") == []
    named = cluster_state.to_hosts([{**node, "hostname": "c1-gpu-1"}], "c1", ["Ready"], "")
    assert named[0].remote["ansible_host"] == "c1-gpu-1" and "role_execute" in named[0].groups


def test_an_answer_is_kept_for_a_minute(site: Site) -> None:
    site.read()
    site.read()
    assert site.asked == 1
    site.read("refresh: 0\n")
    assert site.asked == 2


def test_a_kept_answer_serves_while_cyclecloud_is_silent(site: Site) -> None:
    site.read()
    site.answer = UnknownOutcome("GET https://cc.example.org: CycleCloud answered 503", 503)
    assert site.read("refresh: 0\n").get_host("gpu-1") is not None
    with pytest.raises(AnsibleParserError, match="answered 503"):
        site.read("refresh: 0\nstale: false\n")


def test_a_refusal_is_not_hidden_by_a_kept_answer(site: Site) -> None:
    site.read()
    site.answer = CycleCloudError("the password is wrong", 401)
    with pytest.raises(AnsibleParserError, match=r"Cannot read the nodes of cluster c1 .*password is wrong"):
        site.read("refresh: 0\n")


def test_other_files_are_not_ours(tmp_path: Path) -> None:
    for name, ours in (("a.cyclecloud.yaml", True), ("a.yml", False)):
        (tmp_path / name).write_text("plugin: x\n")
        assert load().verify_file(str(tmp_path / name)) is ours


def test_before_there_is_a_cyclecloud_there_are_no_hosts(site: Site, monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    monkeypatch.delenv("CYCLECLOUD_URL")
    monkeypatch.setattr("ansible.utils.display.Display.warning", lambda dummy, text, **more: said.append(text))
    assert site.read().hosts == {}
    assert site.asked == 0
    assert "CYCLECLOUD_URL" in said[0]


@pytest.mark.parametrize("name", ["CYCLECLOUD_USERNAME", "CYCLECLOUD_PASSWORD"])
def test_a_server_without_credentials_is_an_error(site: Site, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.delenv(name)
    with pytest.raises(AnsibleParserError, match=f"set {name}"):
        site.read()


def connection(site: Site, **more: str) -> None:
    """What provision.yml writes beside the inventory."""
    known = {"url": "https://cc.example.org", "ca_path": "/c/ca.pem", "username": "admin", "cluster": "c1"}
    more = {"user": "hpcadmin", "bastion": "hpcadmin@10.0.0.4", **more}
    (site.folder / ".cyclecloud").mkdir()
    (site.folder / ".cyclecloud/connection.json").write_text(json.dumps({**known, **more}))


def bare(site: Site, monkeypatch: pytest.MonkeyPatch, *left: str) -> InventoryData:
    """Read an inventory file that names nothing, with these variables alone in the environment."""
    for name in set(GIVEN) - set(left):
        monkeypatch.delenv(name)
    path = site.folder / "c1.cyclecloud.yml"
    path.write_text("plugin: hpcai.gpu_cluster.cyclecloud\n")
    inventory = InventoryData()
    load().parse(inventory, DataLoader(), str(path))
    return inventory


def test_what_provision_wrote_is_all_that_a_later_run_needs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    connection(site)
    hosts = bare(site, monkeypatch, "CYCLECLOUD_PASSWORD").hosts
    variables = hosts["scheduler"].get_vars()
    assert variables["ansible_user"] == "hpcadmin"
    assert variables["ansible_ssh_common_args"] == "-o ProxyJump=hpcadmin@10.0.0.4"


def test_the_jump_host_is_known_by_what_provision_wrote(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    connection(site, ssh_config="/home/a b/.cyclecloud/ssh_config")
    variables = bare(site, monkeypatch, "CYCLECLOUD_PASSWORD").hosts["scheduler"].get_vars()
    wanted = "-F '/home/a b/.cyclecloud/ssh_config' -o ProxyJump=hpcadmin@10.0.0.4"
    assert variables["ansible_ssh_common_args"] == wanted


def test_without_a_password_or_a_way_there_the_other_hosts_of_the_inventory_are_used(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection(site)
    site.answer = UnknownOutcome("GET /clusters/c1/status: timed out")
    assert bare(site, monkeypatch, "CYCLECLOUD_PASSWORD").hosts == {}
    assert site.asked == 1
    monkeypatch.setenv("CYCLECLOUD_URL", "")
    monkeypatch.setenv("CYCLECLOUD_USERNAME", "")
    assert bare(site, monkeypatch).hosts == {}
    assert site.asked == 1


def test_a_connection_that_cannot_be_read_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.folder / ".cyclecloud").mkdir()
    (site.folder / ".cyclecloud/connection.json").write_text("[1]")
    with pytest.raises(AnsibleParserError, match=r"connection\.json, which has the connection of .* no dictionary"):
        bare(site, monkeypatch, "CYCLECLOUD_PASSWORD")
