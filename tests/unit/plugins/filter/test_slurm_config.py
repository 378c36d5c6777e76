# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter import one_line, preflight, slurm_config

ROOT = Path(__file__).resolve().parents[4]
FACTS = {"hostname": "c1", "memtotal_mb": 1000, "processor_count": 1, "processor_cores": 2}
HOSTVARS = {"h1": {"ansible_facts": {**FACTS, "processor_threads_per_core": 1}, "slurm_node": {"gres": "gpu:1"}}}


def test_nodes_come_from_facts_and_inventory() -> None:
    nodes = slurm_config.slurm_nodes(["h1"], HOSTVARS, 0.1)
    assert nodes[0]["name"] == "c1"
    assert slurm_config.slurm_node_lines(nodes) == [
        "NodeName=c1 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=900 Gres=gpu:1 State=UNKNOWN"
    ]
    assert slurm_config.slurm_gres_names(nodes) == ["gpu"]
    assert slurm_config.slurm_memory_per_cpu(nodes) == 450
    assert "Nodes=c1" in slurm_config.slurm_partition_lines([{"name": "p", "nodes": ["h1"]}], nodes)[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: slurm_config.slurm_nodes("h1", HOSTVARS),
        lambda: slurm_config.slurm_nodes(["h2"], HOSTVARS),
        lambda: slurm_config.slurm_node_lines({}),
        lambda: slurm_config.slurm_node_lines([{"address": "x"}]),
        lambda: slurm_config.slurm_partition_lines([{"name": "p"}], []),
        lambda: slurm_config.slurm_partition_lines([{"name": "p", "nodes": "a["}], []),
        lambda: slurm_config.slurm_setting_lines([]),
        lambda: slurm_config.slurm_gres_lines("x"),
        lambda: slurm_config.slurm_health_settings([]),
        lambda: slurm_config.slurm_health_settings({"program": "/x"}),
        lambda: slurm_config.slurm_health_settings(
            {"program": "x", "interval": 1, "states": ["ANY"], "suspend_exc_states": []}
        ),
        lambda: slurm_config.slurm_elastic_nodes("e1"),
        lambda: slurm_config.slurm_elastic_nodes(["e1"]),
        lambda: slurm_config.slurm_elastic_nodes([{"names": "e1"}]),
        lambda: slurm_config.slurm_power_settings([{"name": "e1", "state": "CLOUD"}], {}),
        lambda: preflight.preflight_findings([]),
    ],
)
def test_wrong_input_is_refused(call: t.Callable[[], t.Any]) -> None:
    with pytest.raises(AnsibleFilterError):
        call()


EVIL = "1\nPrologFlags=X11\nSlurmdUser=mallory"
NODES = [{"host": "h1", "name": "c1", "sockets": 1, "cores_per_socket": 1, "threads_per_core": 1, "real_memory": 1}]


@pytest.mark.parametrize(
    "call",
    [
        lambda: slurm_config.slurm_setting_lines({"MaxJobCount": EVIL}),
        lambda: slurm_config.slurm_setting_lines({}, {"A\nSlurmUser": "mallory"}),
        lambda: slurm_config.slurm_setting_lines({"GresTypes": ["gpu", "x\rSlurmUser=mallory"]}),
        lambda: slurm_config.slurm_gres_lines([{"Name": "gpu", "File": EVIL}]),
        lambda: slurm_config.slurm_partition_lines([{"name": EVIL, "nodes": ["h1"]}], NODES),
        lambda: slurm_config.slurm_partition_lines([{"name": "p", "nodes": ["h1"], "max_time": EVIL}], NODES),
        lambda: slurm_config.slurm_partition_lines([{"name": "p", "nodes": ["h1"], "options": {"X": EVIL}}], NODES),
        lambda: slurm_config.slurm_node_lines([{**NODES[0], "gres": EVIL}]),
        lambda: slurm_config.slurm_node_lines([{**NODES[0], "options": {EVIL: "x"}}]),
    ],
)
def test_a_newline_in_the_inventory_is_no_line_of_slurm_conf(call: t.Callable[[], t.Any]) -> None:
    with pytest.raises(AnsibleFilterError, match="newline or another control character"):
        call()


@pytest.mark.parametrize("fact", ["processor_count", "processor_cores", "processor_threads_per_core", "memtotal_mb"])
@pytest.mark.parametrize("said", [EVIL, "8 State=DOWN", "", -1, 0, True, None, "1e3", [8]])
def test_what_a_node_says_of_itself_is_a_number_or_nothing(fact: str, said: object) -> None:
    facts = {**FACTS, "processor_threads_per_core": 1, fact: said}
    with pytest.raises(AnsibleFilterError, match="accepted: a whole number above 0"):
        slurm_config.slurm_nodes(["h1"], {"h1": {"ansible_facts": facts}}, 0.1)


@pytest.mark.parametrize("name", [EVIL, "c1 State=DOWN", "c1,c2", "", "$(id)"])
def test_a_node_that_calls_itself_a_line_is_refused(name: str) -> None:
    facts = {**FACTS, "processor_threads_per_core": 1, "hostname": name}
    with pytest.raises(AnsibleFilterError, match="no name or address of a host"):
        slurm_config.slurm_nodes(["h1"], {"h1": {"ansible_facts": facts}}, 0.1)


def test_numbers_in_texts_are_numbers() -> None:
    override = {"sockets": "2", "cores_per_socket": "4", "threads_per_core": "2", "real_memory": "1600"}
    nodes = slurm_config.slurm_nodes(["h1"], {"h1": {"ansible_facts": {"hostname": "c1"}, "slurm_node": override}})
    assert slurm_config.slurm_memory_per_cpu(nodes) == 100


def test_one_line_names_the_place_and_not_the_value() -> None:
    value = {"a": ["x", {"b": "hunter2\nevil"}], "c\x1b": 1}
    with pytest.raises(AnsibleFilterError) as caught:
        one_line.one_line(value, "exports")
    assert "exports.a[1].b" in str(caught.value)
    assert "exports.c?" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    sound = {"a": ["x y", 1, None, True]}
    assert one_line.one_line(sound) is sound
    assert set(one_line.FilterModule().filters()) == {"one_line"}


def _templates() -> list[Path]:
    return sorted(path for path in (ROOT / "roles").glob("*/templates/*") if "one_line" in path.read_text())


@pytest.mark.parametrize("path", _templates(), ids=lambda path: path.name)
def test_every_expression_with_an_input_of_a_line_based_file_is_guarded(path: Path) -> None:
    """Whole roles' inputs in a template that guards one of them: none is left out."""
    role = path.parts[-3]
    specs = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    names = set(specs["main"]["options"])
    for block in re.findall(r"\{\{.*?\}\}|\{% for .*? %\}", path.read_text(), re.DOTALL):
        if names & set(re.findall(r"\w+", block)):
            assert re.search(r"one_line|\| *int\b|slurm_\w+_lines|boolean|\| bool", block), block


def test_filters_are_documented() -> None:
    assert set(slurm_config.FilterModule().filters()) == {
        "slurm_elastic_nodes",
        "slurm_gres_lines",
        "slurm_gres_names",
        "slurm_health_settings",
        "slurm_machine_gres",
        "slurm_machine_parameters",
        "slurm_memory_per_cpu",
        "slurm_node_lines",
        "slurm_nodes",
        "slurm_partition_lines",
        "slurm_power_settings",
        "slurm_setting_lines",
    }


def test_preflight_reads_facts() -> None:
    facts = {"distribution": "Ubuntu", "distribution_version": "20.04", "distribution_major_version": "20"}
    inputs = {
        "cluster_name": "x",
        "cluster_user": "u",
        "preflight_compute_hosts": ["c1"],
        "preflight_controller_hosts": ["ctl"],
        "preflight_database_hosts": ["ctl"],
        "preflight_login_hosts": ["ctl"],
        "preflight_supported_systems": {"Ubuntu": ["24.04"]},
    }
    found = preflight.preflight_findings(inputs, {"c1": {"ansible_facts": facts}, "ctl": {}})
    assert found == ["operating system of c1 is 'Ubuntu 20.04': not supported; accepted: Ubuntu 24.04"]


def test_a_node_has_what_its_machine_type_says_of_slurm() -> None:
    facts = {"processor_count": 2, "processor_cores": 48, "processor_threads_per_core": 1, "memtotal_mb": 900000}
    ndv4 = {
        "sku": "ND96asr_v4",
        "slurm": {
            "gres": "gpu:a100:8",
            "node": {"sockets": 4, "cores_per_socket": 24, "threads_per_core": 1},
            "slurmd_parameters": ["numa_node_as_socket"],
            "gres_conf": [{"name": "gpu", "type": "a100", "file": "/dev/nvidia[0-7]", "cores": "0-23"}],
        },
    }
    hosts = {
        name: {"cluster_sku": "ND96asr_v4", "ansible_facts": {**facts, "hostname": name, "processor_vcpus": 96}}
        for name in ("a", "b", "c", "d")
    }
    hosts["b"]["ansible_facts"]["processor_vcpus"] = 192
    hosts["c"]["slurm_node"] = {"gres": "", "sockets": 2, "cores_per_socket": 48}
    nodes = slurm_config.slurm_nodes(["a", "b", "c", "d"], hosts, 0.05, [ndv4], ["a", "b", "c"])
    assert slurm_config.slurm_node_lines(nodes) == [
        "NodeName=a Sockets=4 CoresPerSocket=24 ThreadsPerCore=1 RealMemory=855000 Gres=gpu:a100:8 State=UNKNOWN",
        "NodeName=b Sockets=2 CoresPerSocket=48 ThreadsPerCore=1 RealMemory=855000 Gres=gpu:a100:8 State=UNKNOWN",
        "NodeName=c,d Sockets=2 CoresPerSocket=48 ThreadsPerCore=1 RealMemory=855000 State=UNKNOWN",
    ]
    assert slurm_config.slurm_gres_lines(slurm_config.slurm_machine_gres(nodes)) == [
        "NodeName=a Name=gpu Type=a100 File=/dev/nvidia[0-7] Cores=0-23",
        "NodeName=b Name=gpu Type=a100 File=/dev/nvidia[0-7]",
    ]
    assert slurm_config.slurm_machine_parameters(nodes) == "numa_node_as_socket"
    plain = slurm_config.slurm_nodes(["d"], hosts, 0.05, [ndv4], [])
    assert (slurm_config.slurm_machine_gres(plain), slurm_config.slurm_machine_parameters(plain)) == ([], "")
