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
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import node_lines
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load

ROOT = Path(__file__).resolve().parents[4]
FACTS = {"hostname": "c1", "memtotal_mb": 1000, "processor_count": 1, "processor_cores": 2}
HOSTVARS = {"h1": {"ansible_facts": {**FACTS, "processor_threads_per_core": 1}, "slurm_node": {"gres": "gpu:1"}}}


def conf(settings: t.Any = None, **options: t.Any) -> list[str]:
    given: dict[str, t.Any] = {"nodes": [], "partitions": [], "health": {}, "power": {}, **options}
    return slurm_config.slurm_conf({} if settings is None else settings, **given)


def test_nodes_come_from_facts_and_inventory() -> None:
    nodes = slurm_config.slurm_nodes(["h1"], HOSTVARS, 0.1)
    assert nodes[0]["name"] == "c1"
    assert conf({"ClusterName": "c"}, nodes=nodes, partitions=[{"name": "p", "nodes": ["h1"]}]) == [
        "ClusterName=c",
        "GresTypes=gpu",
        "AccountingStorageTRES=gres/gpu",
        "DefMemPerCPU=450",
        "",
        "NodeName=c1 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=900 Gres=gpu:1 State=UNKNOWN",
        "",
        "PartitionName=p Nodes=c1 Default=NO State=UP",
    ]


ELASTIC = {"names": "e[1-2]", "sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 800}
POWER = {
    **{f"{name}_program": f"/{name}" for name in ("resume", "suspend", "resume_fail")},
    **dict.fromkeys(("suspend_time", "suspend_timeout", "resume_timeout", "resume_rate", "suspend_rate"), 60),
}


def test_elastic_nodes_bring_power_saving_and_the_site_has_the_last_word() -> None:
    nodes = slurm_config.slurm_nodes(["h1"], HOSTVARS, 0.1)
    health = {"suspend_exc_states": ["down", "DRAIN"]}
    options = {"nodes": nodes, "elastic_nodes": [ELASTIC], "power": POWER, "health": health, "version": "24.11.5"}
    lines = conf({"SlurmctldParameters": "enable_configless", "SlurmdTimeout": 120}, **options)
    assert {"SuspendExcNodes=c1", "SuspendProgram=/suspend", "SuspendExcStates=DOWN,DRAIN"} <= set(lines)
    assert "DefMemPerCPU=400" in lines
    assert any(line.startswith("NodeName=e[1-2] ") and line.endswith("State=CLOUD") for line in lines)
    site = conf(**options, extra={"suspendexcnodes": "", "SuspendTime": -1})
    assert not any(line.startswith("SuspendExcNodes") for line in site)
    assert [line for line in site if line.startswith("SuspendTime=")] == ["SuspendTime=-1"]
    assert not any(line.startswith("Suspend") for line in conf(**{**options, "elastic_nodes": []}))


def test_generic_resources_without_a_name_are_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="h1: gres '8' has no name"):
        conf(nodes=[{**NODES[0], "gres": "8"}])


def test_a_topology_has_its_plugin() -> None:
    assert "TopologyPlugin=topology/tree" in conf(topology="tree")
    assert conf() == ["DefMemPerCPU=0", "", ""]


@pytest.mark.parametrize(
    "call",
    [
        lambda: slurm_config.slurm_nodes("h1", HOSTVARS),
        lambda: slurm_config.slurm_nodes(["h2"], HOSTVARS),
        lambda: conf(nodes={}),
        lambda: conf(nodes=[{"address": "x"}]),
        lambda: conf(partitions=[{"name": "p"}]),
        lambda: conf(partitions=[{"name": "p", "nodes": "a["}]),
        lambda: conf([]),
        lambda: slurm_config.slurm_setting_lines([]),
        lambda: slurm_config.slurm_gres_lines("x"),
        lambda: conf(health=[]),
        lambda: conf(health={"program": "/x"}),
        lambda: conf(health={"program": "x", "interval": 1, "states": ["ANY"]}),
        lambda: conf(health={"states": "ANY"}),
        lambda: conf(elastic_nodes="e1"),
        lambda: conf(elastic_nodes=["e1"]),
        lambda: conf(elastic_nodes=[{"names": "e1"}]),
        lambda: conf(elastic_nodes=[ELASTIC]),
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
        lambda: conf({"MaxJobCount": EVIL}),
        lambda: conf({}, extra={"A\nSlurmUser": "mallory"}),
        lambda: conf(nodes=NODES, partitions=[{"name": EVIL, "nodes": ["h1"]}]),
        lambda: conf(nodes=NODES, partitions=[{"name": "p", "nodes": ["h1"], "max_time": EVIL}]),
        lambda: conf(nodes=NODES, partitions=[{"name": "p", "nodes": ["h1"], "options": {"X": EVIL}}]),
        lambda: conf(nodes=[{**NODES[0], "gres": f"gpu:{EVIL}"}]),
        lambda: conf(nodes=[{**NODES[0], "options": {EVIL: "x"}}]),
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
    assert "DefMemPerCPU=100" in conf(nodes=nodes)


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
    names = {"slurm_conf", "slurm_gres_lines", "slurm_machine_gres", "slurm_nodes", "slurm_setting_lines"}
    names |= {"slurm_installations", "slurm_topologies_lines", "slurm_topology_hosts", "slurm_topology_lines"}
    assert set(slurm_config.FilterModule().filters()) == names
    folder = ROOT / "plugins/filter"
    assert all((folder / f"{name}.yml").is_file() for name in names)


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
    assert node_lines.node_lines(nodes) == [
        "NodeName=a Sockets=4 CoresPerSocket=24 ThreadsPerCore=1 RealMemory=855000 Gres=gpu:a100:8 State=UNKNOWN",
        "NodeName=b Sockets=2 CoresPerSocket=48 ThreadsPerCore=1 RealMemory=855000 Gres=gpu:a100:8 State=UNKNOWN",
        "NodeName=c,d Sockets=2 CoresPerSocket=48 ThreadsPerCore=1 RealMemory=855000 State=UNKNOWN",
    ]
    assert slurm_config.slurm_gres_lines(slurm_config.slurm_machine_gres(nodes)) == [
        "NodeName=a Name=gpu Type=a100 File=/dev/nvidia[0-7] Cores=0-23",
        "NodeName=b Name=gpu Type=a100 File=/dev/nvidia[0-7]",
    ]
    assert node_lines.machine_parameters(nodes) == ["numa_node_as_socket"]
    plain = slurm_config.slurm_nodes(["d"], hosts, 0.05, [ndv4], [])
    assert (slurm_config.slurm_machine_gres(plain), node_lines.machine_parameters(plain)) == ([], [])


# Facts as Ansible gathers them: sockets, cores of each, threads of each core, processors in all, memory in MB.
MACHINES = {
    "dgx_h100": (2, 56, 2, 224, 2063937),  # 2 Xeon 8480C, a NUMA node each
    "nd96asr_v4": (2, 48, 1, 96, 885000),  # 2 EPYC 7V12, of two NUMA nodes each
    "nc96ads_a100_v4": (2, 48, 1, 96, 885000),  # 2 EPYC 7V13, the same
    "dgx_a100_640gb": (2, 64, 2, 256, 2063937),  # 2 EPYC 7742, of four NUMA nodes each
}


def of_machine(sku: str, **facts: t.Any) -> dict[str, t.Any]:
    names = ("processor_count", "processor_cores", "processor_threads_per_core", "processor_vcpus", "memtotal_mb")
    return {"cluster_sku": sku, "ansible_facts": {"hostname": "n1", **dict(zip(names, MACHINES[sku])), **facts}}


@pytest.mark.parametrize(
    ("sku", "parameters", "node", "gres"),
    [
        pytest.param(
            "dgx_h100",
            [],
            "Sockets=2 CoresPerSocket=56 ThreadsPerCore=2 RealMemory=1960700 Gres=gpu:h100:8",
            ["File=/dev/nvidia[0-7]"],
            id="a socket is a NUMA node",
        ),
        pytest.param(
            "nd96asr_v4",
            ["SlurmdParameters=numa_node_as_socket"],
            "Sockets=4 CoresPerSocket=24 ThreadsPerCore=1 RealMemory=840700 Gres=gpu:a100:8",
            [
                "File=/dev/nvidia[0-1] Cores=24-47",
                "File=/dev/nvidia[2-3] Cores=0-23",
                "File=/dev/nvidia[4-5] Cores=72-95",
                "File=/dev/nvidia[6-7] Cores=48-71",
            ],
            id="two NUMA nodes of a socket, GPUs in pairs",
        ),
        pytest.param(
            "nc96ads_a100_v4",
            ["SlurmdParameters=numa_node_as_socket"],
            "Sockets=4 CoresPerSocket=24 ThreadsPerCore=1 RealMemory=840700 Gres=gpu:a100:4",
            [f"File=/dev/nvidia{gpu} Cores={24 * gpu}-{24 * gpu + 23}" for gpu in range(4)],
            id="two NUMA nodes of a socket, a GPU each",
        ),
        pytest.param(
            "dgx_a100_640gb",
            [],
            "Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 RealMemory=1960700 Gres=gpu:a100:8",
            ["File=/dev/nvidia[0-7]"],
            id="no profile says which cores a GPU has, so sockets stay sockets",
        ),
    ],
)
def test_numa_nodes_are_sockets_where_gpus_have_cores_of_one(
    sku: str, parameters: list[str], node: str, gres: list[str]
) -> None:
    nodes = slurm_config.slurm_nodes(["h"], {"h": of_machine(sku)}, 0.05, [load(sku)], ["h"])
    lines = conf(nodes=nodes)
    assert [line for line in lines if line.startswith("SlurmdParameters")] == parameters
    assert [line for line in lines if line.startswith("NodeName")] == [f"NodeName=n1 {node} State=UNKNOWN"]
    kind = node.split("Gres=gpu:")[1].split(":")[0]
    written = slurm_config.slurm_gres_lines(slurm_config.slurm_machine_gres(nodes))
    assert written == [f"NodeName=n1 Name=gpu Type={kind} {line}" for line in gres]


def test_a_machine_with_other_processors_than_its_type_keeps_its_sockets() -> None:
    """Half of the three that belong together would drain the node: the parameter, the sockets, the cores of GPUs."""
    hosts = {"h": of_machine("nd96asr_v4", processor_cores=24, processor_vcpus=48)}
    nodes = slurm_config.slurm_nodes(["h"], hosts, 0.05, [load("nd96asr_v4")], ["h"])
    text = "\n".join(conf(nodes=nodes))
    assert "SlurmdParameters" not in text and "Sockets=2 CoresPerSocket=24 ThreadsPerCore=1" in text
    assert not any("Cores=" in line for line in slurm_config.slurm_gres_lines(slurm_config.slurm_machine_gres(nodes)))


def test_gpus_that_slurmd_finds_by_nvml_are_named_by_the_node_line_alone() -> None:
    """slurm_gres takes the place of the lines of the machine type, and the node line still says how many there are."""
    nodes = slurm_config.slurm_nodes(["h"], {"h": of_machine("dgx_h100")}, 0.05, [load("dgx_h100")], ["h"])
    gres: list[dict[str, t.Any]] = [{"autodetect": "nvml", "nodes": ["n1"]}]
    assert slurm_config.slurm_gres_lines(gres) == ["NodeName=n1 AutoDetect=nvml"]
    assert "Gres=gpu:h100:8" in "\n".join(conf(nodes=nodes))


def test_the_place_of_a_node_is_its_hosts_variable() -> None:
    nodes = [{"name": "c1", "host": "node-1"}, {"name": "c2", "host": "node-2"}, {"name": "c3", "host": "node-3"}]
    hostvars = {
        "node-1": {"slurm_leaf": "pod1/leaf1", "cc_placement_group": "pg1"},
        "node-2": {"cc_placement_group": "ndv4/pg0", "instance_id": "i-2"},
        "node-3": {},
    }
    places = slurm_config.slurm_topology_hosts
    assert places(nodes, hostvars, "hosts") == {"places": {"c1": "pod1/leaf1"}, "names": {}}
    assert places(nodes, hostvars, "azure")["places"] == {"c1": "pod1/leaf1", "c2": "ndv4-pg0"}
    assert places(nodes, hostvars, "aws")["names"] == {"i-2": "c2"}


def test_topology_conf_says_no_more_than_one_line_each() -> None:
    lines = slurm_config.slurm_topology_lines
    assert lines([{"name": "s", "nodes": ["c1", "c2"]}]) == ["SwitchName=s Nodes=c[1-2]"]
    for wrong in ([{"name": "s\nSwitchName=t", "nodes": ["c1"]}], [{"name": "s"}], "s", [3], [{"nodes": ["c1"]}]):
        with pytest.raises(AnsibleFilterError):
            lines(wrong)


def test_a_host_whose_facts_tell_no_machine_id_is_left_out() -> None:
    hostvars = {
        "node-1": {"ansible_facts": {"machine_id": "0" * 32}, "slurm_node": {"name": "c1"}},
        "node-2": {"ansible_facts": {"machine_id": "1" * 32}},
        "node-3": {"ansible_facts": {}},
        "node-4": {"ansible_facts": {"machine_id": ""}},
    }
    found = slurm_config.slurm_installations([*hostvars, "gone"], hostvars)
    assert sorted(found) == ["c1", "node-2"] and found["c1"] != found["node-2"]
