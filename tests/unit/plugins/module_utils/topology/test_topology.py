# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import parse_topo
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import machine as topology_machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.binding import binding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    GpuPlace,
    NicPlace,
    NumaNode,
    Topology,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.sysfs import merge, pci_gpus, read_sysfs
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines

NDV4_MASKS = ["ffffff000000"] * 2 + ["ffffff"] * 2 + ["ffffff000000000000000000"] * 2 + ["ffffff000000000000"] * 2
NDV4_AFFINITY = [(f"{24 * node}-{24 * node + 23}", str(node), "N/A") for node in machines.NDV4_NUMA]


def machine(numa: t.Sequence[str], nodes: t.Sequence[int | None]) -> Topology:
    """Make a topology of CPU lists and the node of every GPU."""
    gpus = [
        GpuPlace(index, f"{index:08X}:00:00.0", node, "" if node is None else numa[node])
        for index, node in enumerate(nodes)
    ]
    return Topology([NumaNode(node, cpus) for node, cpus in enumerate(numa)], gpus)


NDV4 = machine([f"{24 * node}-{24 * node + 23}" for node in range(4)], machines.NDV4_NUMA)


@pytest.mark.parametrize(
    "text, cpus, written",
    [
        ("", [], ""),
        ("0", [0], "0"),
        ("0-3,8", [0, 1, 2, 3, 8], "0-3,8"),
        (" 0-1,96-97\n", [0, 1, 96, 97], "0-1,96-97"),
        ("3,2,1,2-3", [1, 2, 3], "1-3"),
        ("5,13,21,29", [5, 13, 21, 29], "5,13,21,29"),
    ],
)
def test_cpu_lists(text: str, cpus: list[int], written: str) -> None:
    assert topology_machine.parse(text) == cpus
    assert topology_machine.write(cpus) == written


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1,,2", "0-999999999", "1-2-3", "0x3", "9" * 40, "1:2"])
def test_what_is_no_cpu_list(text: str) -> None:
    with pytest.raises(topology_machine.CpuListError):
        topology_machine.parse(text)


@pytest.mark.parametrize(
    "text, mask",
    [
        ("0-23", "ffffff"),
        ("0", "1"),
        ("0-47,96-143", "ffffffffffff000000000000ffffffffffff"),
        ("1023", "8" + "0" * 255),
        ("0-2047", "f" * 512),
        ("", "0"),
    ],
)
def test_masks_of_any_width(text: str, mask: str) -> None:
    assert topology_machine.mask(topology_machine.parse(text)) == mask


@pytest.mark.parametrize(
    "text, parts, want",
    [
        ("0-23", 2, ["0-11", "12-23"]),
        ("0-47,96-143", 4, ["0-11,96-107", "12-23,108-119", "24-35,120-131", "36-47,132-143"]),
        ("0-2", 2, ["0", "1-2"]),
        ("0,2,4,6", 2, ["0,2", "4,6"]),
        ("0-3,8-9", 2, ["0-2", "3,8-9"]),
        ("5", 1, ["5"]),
    ],
)
def test_split_keeps_hardware_threads_together(text: str, parts: int, want: list[str]) -> None:
    assert topology_machine.split(text, parts) == want
    assert topology_machine.write(cpu for part in want for cpu in topology_machine.parse(part)) == text


def test_binding_of_ndv4_is_that_of_the_specification() -> None:
    got = binding(NDV4)
    assert got.masks == NDV4_MASKS
    assert (got.map_by, got.visible_devices, got.reason) == ("ppr:2:numa", [2, 3, 0, 1, 6, 7, 4, 5], "")
    assert got.rank_masks == [NDV4_MASKS[index] for index in got.visible_devices]
    assert got.rank_masks[:4] == ["ffffff", "ffffff", "ffffff000000", "ffffff000000"]
    assert got.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "2,3,0,1,6,7,4,5"}


def test_split_masks_are_disjoint_and_cover_the_node() -> None:
    masks = [int(mask, 16) for mask in binding(NDV4, split=True).masks]
    assert sum(masks) == (1 << 96) - 1
    assert binding(NDV4, split=True).masks[:3] == ["fff000000", "fff000000000", "fff"]


@pytest.mark.parametrize(
    "numa, nodes, masks, map_by, order, reason",
    [
        (
            ["0-47", "48-95"],
            [0, 0, 0, 0, 1, 1, 1, 1],
            ["f" * 12] * 4 + ["f" * 12 + "0" * 12] * 4,
            "ppr:4:numa",
            None,
            "",
        ),
        (["0-3"], [0], ["f"], "ppr:1:numa", None, ""),
        (["0-1", "2-3"], [1], ["c"], None, [0], "NUMA node 0 has 0, NUMA node 1 has 1"),
        (["0-1", "2-3"], [1, 1, 0], ["c", "c", "3"], None, [0, 1, 2], "unevenly"),
        (["0-1", "2-3"], [0, None], [], None, [0, 1], "the CPUs of GPU 1 are unknown"),
        (["0-1", "2-3"], [None, None], [], None, [0, 1], "the CPUs of GPU 0, 1 are unknown"),
        ([], [], [], None, [], "no GPU"),
        # hwloc counts nodes by their CPUs: here node 1 is the first.
        (["2-3", "0-1"], [0, 1], ["c", "3"], "ppr:1:numa", [1, 0], ""),
        # A node without CPUs is the memory of a GPU and no place for ranks.
        (["0-1", "2-3", ""], [0, 1], ["3", "c"], "ppr:1:numa", None, ""),
    ],
)
def test_bindings(
    numa: list[str], nodes: list[int | None], masks: list[str], map_by: str | None, order: list[int] | None, reason: str
) -> None:
    got = binding(machine(numa, nodes))
    assert (got.masks, got.map_by) == (masks, map_by)
    assert got.visible_devices == (order if order is not None else list(range(len(nodes))))
    assert reason in got.reason and bool(reason) == bool(got.reason)


def test_cpus_without_a_node_give_masks_but_no_ppr() -> None:
    got = binding(Topology([], [GpuPlace(0, "x", None, "0-3"), GpuPlace(1, "y", None, "4-7")]))
    assert (got.masks, got.map_by) == (["f", "f0"], None)
    assert "NUMA node of GPU 0, 1 is unknown" in got.reason


@pytest.mark.parametrize(
    "numa, nodes, reason",
    [(["0-1"], [0, 0, 0], "cannot be split"), (["0-3", "2-5"], [0, 1], "share the CPUs 2-3 in part")],
)
def test_what_cannot_be_split_has_no_masks(numa: list[str], nodes: list[int], reason: str) -> None:
    got = binding(machine(numa, nodes), split=True)
    assert (got.masks, got.map_by) == ([], None)
    assert reason in got.reason


@pytest.mark.parametrize("linked", [True, False])
def test_sysfs_of_ndv4(tmp_path: Path, linked: bool) -> None:
    root = machines.ndv4_sysfs(tmp_path, linked)
    ids = machines.bus_ids(machines.NDV4_DOMAINS)
    assert pci_gpus(root) == ids
    got = merge(read_sysfs(root, [bus.upper() for bus in ids]), None)
    assert [gpu.numa_node for gpu in got.gpus] == list(machines.NDV4_NUMA)
    assert [list(gpu.nics) for gpu in got.gpus] == [[f"mlx5_ib{index}"] for index in range(8)]
    assert got.nics[0] == NicPlace("mlx5_ib0", "00000101:00:00.0", 1, "InfiniBand")
    assert got.nics[-1].link_layer == "Ethernet"
    assert binding(got).masks == NDV4_MASKS


@pytest.mark.parametrize(
    "text, sysfs, written",
    [
        ("00000001:00:00.0", "0001:00:00.0", "00000001:00:00.0"),
        ("0000:0B:1f.7", "0000:0b:1f.7", "00000000:0B:1F.7"),
        ("10000:E1:00.0", "10000:e1:00.0", "00010000:E1:00.0"),
        ("0001:00:00", "0001:00:00.0", "00000001:00:00.0"),
    ],
)
def test_addresses(tmp_path: Path, text: str, sysfs: str, written: str) -> None:
    where = topology_machine.address(text)
    assert where is not None and topology_machine.bus_id(where) == written
    machines.sysfs(tmp_path, ["0-1", "2-3"], [(sysfs, 1)])
    assert read_sysfs(str(tmp_path), [text]).gpus[0] == GpuPlace(0, written, 1, "2-3")


@pytest.mark.parametrize("text", ["", "N/A", "1:2:3", "0000:00:00.9", "zzzz:00:00.0"])
def test_what_is_no_address_has_no_place(tmp_path: Path, text: str) -> None:
    assert topology_machine.address(text) is None
    assert read_sysfs(str(tmp_path), [text]).gpus[0].numa_node is None


def test_an_empty_or_broken_sysfs_is_unknown_and_no_error(tmp_path: Path) -> None:
    assert read_sysfs(str(tmp_path)) == Topology([], [], [])
    root = machines.sysfs(tmp_path, ["0-1", "no list"], [("0000:01:00.0", 0)])
    (tmp_path / "bus/pci/devices/0000:01:00.0/numa_node").write_bytes(b"\xff\xfe")
    (tmp_path / "class/infiniband/mlx5_0").mkdir(parents=True)
    got = merge(read_sysfs(root), None)
    assert got.numa == [NumaNode(0, "0-1"), NumaNode(1, "")]
    assert got.nics[0].numa_node is None


def test_a_machine_with_one_node_needs_no_numa_information(tmp_path: Path) -> None:
    root = machines.sysfs(tmp_path, ["0-15"], [("0000:01:00.0", -1), ("0000:02:00.0", -1)])
    assert [gpu.cpus for gpu in merge(read_sysfs(root), None).gpus] == ["0-15", "0-15"]


def test_local_cpus_tell_the_node_where_the_kernel_has_no_number(tmp_path: Path) -> None:
    root = machines.sysfs(tmp_path, ["0-1", "2-3"], [("0000:01:00.0", -1)])
    (tmp_path / "bus/pci/devices/0000:01:00.0/local_cpulist").write_text("2-3\n")
    assert read_sysfs(root).gpus[0].numa_node == 1


def test_without_numa_information_of_devices_the_matrix_decides(tmp_path: Path) -> None:
    root = machines.ndv4_sysfs(tmp_path, numa=False)
    plain = merge(read_sysfs(root), None)
    assert {gpu.numa_node for gpu in plain.gpus} == {None}
    assert binding(plain).masks == []

    def codes(gpu: int, nic: int) -> str:
        return "NODE" if machines.NDV4_NUMA[gpu] == machines.NDV4_NUMA[nic] else "SYS"

    names = [f"mlx5_ib{index}" for index in range(8)]
    text = machines.matrix({}, NDV4_AFFINITY, names, codes, renamed=True)
    got = merge(read_sysfs(root), parse_topo(text).runs[0])
    assert [gpu.numa_node for gpu in got.gpus] == list(machines.NDV4_NUMA)
    assert [list(gpu.nics) for gpu in got.gpus] == [[name] for name in names]
    assert binding(got).masks == NDV4_MASKS


def test_the_kernel_comes_before_the_matrix(tmp_path: Path) -> None:
    wrong = machines.matrix({}, [("0-95", "0", "N/A")] * 8)
    got = merge(read_sysfs(machines.ndv4_sysfs(tmp_path)), parse_topo(wrong).runs[0])
    assert [gpu.numa_node for gpu in got.gpus] == list(machines.NDV4_NUMA)


def test_without_sysfs_the_matrix_is_all_there_is(tmp_path: Path) -> None:
    text = machines.matrix({}, [("0-47,96-143", "0", "N/A"), ("48-95,144-191", "1", "N/A")])
    got = merge(read_sysfs(str(tmp_path), machines.bus_ids([1, 2])), parse_topo(text).runs[0])
    assert binding(got).map_by == "ppr:1:numa"
    assert got.gpus[1].cpus == "48-95,144-191"


def test_memory_nodes_of_gb200_are_no_place_for_ranks(tmp_path: Path) -> None:
    root = machines.sysfs(tmp_path, ["0-71", "72-143", "", ""], [(f"{index:04x}:01:00.0", -1) for index in (8, 9)])
    text = machines.matrix({}, [("0-71", "0,3-9,11-17", "2"), ("72-143", "1,19-25,27-33", "18")], default="NV18")
    got = merge(read_sysfs(root), parse_topo(text).runs[0])
    assert [gpu.numa_node for gpu in got.gpus] == [0, 1]
    assert binding(got).masks == ["f" * 18, "f" * 18 + "0" * 18]


def gpus_and_nics(nodes: t.Sequence[int | None], nics: t.Sequence[int | None], layer: str = "InfiniBand") -> Topology:
    """Make GPUs and adapters n0, n1 .. on NUMA nodes."""
    plain = machine(["0-1", "2-3"], nodes)
    places = [NicPlace(f"n{number}", f"0000010{number}:00:00.0", node, layer) for number, node in enumerate(nics)]
    return dataclasses.replace(plain, nics=places)


@pytest.mark.parametrize(
    "nodes, nics, want",
    [
        ([0, 0, 1, 1], [0, 0, 1, 1], [["n0"], ["n1"], ["n2"], ["n3"]]),
        ([1, 1, 0, 0], [0, 1], [["n1"], ["n1"], ["n0"], ["n0"]]),
        ([0, 1], [0, 0, 1, 1], [["n0", "n1"], ["n2", "n3"]]),
        ([0, 0], [0, 0, 0], [["n0"], ["n1", "n2"]]),
        ([0, 0, 1], [0], [["n0"], ["n0"], ["n0"]]),
        ([None, None], [None, None], [["n0"], ["n1"]]),
        ([0], [], [[]]),
    ],
)
def test_nearest_adapters_by_node_and_order(
    nodes: list[int | None], nics: list[int | None], want: list[list[str]]
) -> None:
    assert [list(gpu.nics) for gpu in merge(gpus_and_nics(nodes, nics), None).gpus] == want


@pytest.mark.parametrize(
    "codes, want",
    [
        (["PIX PXB", "PXB PIX"], [["n0"], ["n1"]]),
        (["PXB PIX", "PIX PXB"], [["n1"], ["n0"]]),
        (["PHB NODE", "SYS PHB"], [["n0"], ["n1"]]),
        (["NODE SYS", "NODE SYS"], [["n0"], ["n0"]]),
        (["SYS SYS", "SYS SYS"], [["n0"], ["n1"]]),
    ],
)
def test_nearest_adapters_by_the_matrix(codes: list[str], want: list[list[str]]) -> None:
    table = [row.split() for row in codes]
    text = machines.matrix({}, [("0-1", "0", "N/A")] * 2, ["n0", "n1"], lambda gpu, nic: table[gpu][nic])
    got = merge(gpus_and_nics([0, 0], [0, 0]), parse_topo(text).runs[0])
    assert [list(gpu.nics) for gpu in got.gpus] == want


def test_ethernet_counts_where_there_is_no_infiniband() -> None:
    roce = merge(gpus_and_nics([0, 1], [0, 1], "Ethernet"), None)
    assert [list(gpu.nics) for gpu in roce.gpus] == [["n0"], ["n1"]]


def test_facts_are_json_and_come_back(tmp_path: Path) -> None:
    whole = merge(read_sysfs(machines.ndv4_sysfs(tmp_path)), None)
    facts = json.loads(json.dumps(topology_machine.facts(whole)))
    assert facts["gpus"][0] == {
        "index": 0,
        "bus_id": "00000001:00:00.0",
        "numa_node": 1,
        "cpus": "24-47",
        "nics": ["mlx5_ib0"],
    }
    assert topology_machine.from_facts(facts) == whole


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"gpus": "x"},
        {"gpus": [1]},
        {"gpus": [{"index": -1}]},
        {"gpus": [{"index": "0"}]},
        {"gpus": [{"index": True}]},
        {"gpus": [{"index": 0}, {"index": 0}]},
        {"gpus": [{"cpus": "x"}]},
        {"gpus": [{"cpus": 3}]},
        {"gpus": [{"nics": "mlx5_0"}]},
        {"gpus": [], "numa": [{"node": None, "cpus": ""}]},
        {"gpus": [], "numa": {"node": 0}},
        {"gpus": [{"numa_node": 1.5}]},
    ],
)
def test_facts_that_make_no_sense_are_refused(value: t.Any) -> None:
    with pytest.raises(topology_machine.CpuListError):
        topology_machine.from_facts(value)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("00000003:00:00.0", "00000003:00:00.0"),
        ("0001:8a:00.0", "00000001:8A:00.0"),
        ("0001:8A:00", "00000001:8A:00.0"),
        ("slot 3", ""),
        ("", ""),
    ],
)
def test_addresses_that_were_written_by_hand_are_those_of_nvidia_smi(text: str, written: str) -> None:
    topology = topology_machine.from_facts({"gpus": [{"index": 0, "bus_id": text}]})
    assert [gpu.bus_id for gpu in topology.gpus] == [written]
