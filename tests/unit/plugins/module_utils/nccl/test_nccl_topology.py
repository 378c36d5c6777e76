# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The topology file that is made from a profile, read the way NCCL reads it."""

from __future__ import annotations

import copy
import re
import typing as t
import xml.etree.ElementTree as ET

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import config
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load

MADE = ("nd40rs_v2", "nd96asr_v4", "nd96amsr_a100_v4", "nd96isr_h100_v5", "nd96isr_h200_v5")
# Azure/azhpc-images topology/*.xml (8e9d055f), read by hand: for each NUMA node the PCI domains under each bridge.
NDV4 = {
    0: [["0003", "0103", "0004", "0104"]],
    1: [["0001", "0101", "0002", "0102"]],
    2: [["000d", "0107", "000e", "0108"]],
    3: [["000b", "0105", "000c", "0106"]],
}
NDV5 = {
    0: [["0001", "0101"], ["0002", "0102"], ["0003", "0103"], ["0008", "0104"]],
    1: [["0009", "0105"], ["000a", "0106"], ["000b", "0107"], ["000c", "0108"]],
}
NDV2 = {0: [["0001", "0002", "0003", "0004", "0101"]], 1: [["0005", "0006", "0007", "0008"]]}
PUBLISHED = [
    ("nd96asr_v4", NDV4, ["00000000,00000000,00ffffff", "00000000,0000ffff,ff000000", "000000ff,ffff0000,00000000"]),
    ("nd96isr_h100_v5", NDV5, ["00000000,0000ffff,ffffffff", "ffffffff,ffff0000,00000000"]),
    ("nd40rs_v2", NDV2, ["00000000,000fffff", "000000ff,fff00000"]),
]


def relations(root: ET.Element) -> dict[int, list[list[str]]]:
    """PCI domains by NUMA node and bridge; devices without one hang on the CPU together."""
    found = {}
    for cpu in root.findall("cpu"):
        bridges = [pci.findall("pci") for pci in cpu.findall("pci")]
        direct = [pci for pci, below in zip(cpu.findall("pci"), bridges) if not below]
        devices = [*(below for below in bridges if below), *([direct] if direct else [])]
        found[int(cpu.get("numaid", -1))] = [[pci.get("busid", "")[:4] for pci in group] for group in devices]
    return found


@pytest.mark.parametrize(("sku", "wanted", "masks"), PUBLISHED)
def test_gpus_ports_and_cpus_are_as_azure_s_file_has_them(
    sku: str, wanted: dict[int, list[list[str]]], masks: list[str]
) -> None:
    root = ET.fromstring(config.topology_xml(load(sku)))
    found = relations(root)
    order = {node: sorted(map(sorted, groups)) for node, groups in found.items()}
    assert order == {node: sorted(map(sorted, groups)) for node, groups in wanted.items()}
    assert [cpu.get("affinity") for cpu in root.findall("cpu")][: len(masks)] == masks


@pytest.mark.parametrize("sku", MADE)
def test_nccl_can_read_it(sku: str) -> None:
    """Its parser (src/graph/xml.cc) knows no declaration and no tabs, and 254 characters; the classes are topo.cc's."""
    text = config.topology_xml(load(sku))
    root = ET.fromstring(text)
    assert text.startswith("<system ")
    assert "\t" not in text
    assert (root.tag, root.get("version")) == ("system", "1")
    for node in root.iter():
        assert all(len(value) < 255 and '"' not in value for value in node.attrib.values())
    speeds = {"16 GT/s", "32.0 GT/s PCIe"}
    for pci in root.iter("pci"):
        assert re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", pci.get("busid", ""))
        assert pci.get("class") in ("0x060400", "0x030200", "0x020700")
        assert pci.get("link_speed") in speeds
        assert pci.get("link_width") == "16"
    names = [pci.get("busid") for pci in root.iter("pci")]
    assert len(names) == len(set(names))
    assert all(cpu.get("arch") == "x86_64" and cpu.get("vendor") for cpu in root.findall("cpu"))


@pytest.mark.parametrize("sku", MADE)
def test_every_cpu_is_near_one_node(sku: str) -> None:
    masks = [int(cpu.get("affinity", "").replace(",", ""), 16) for cpu in ET.fromstring(config.topology_xml(load(sku)))]
    assert sum(masks) == (1 << load(sku)["vcpus"]) - 1
    assert sum(bin(mask).count("1") for mask in masks) == load(sku)["vcpus"]


@pytest.mark.parametrize(
    "missing", ["vcpus", "numa_nodes", "topology.link", "topology.bridge", "topology.cpu", "topology.gpus", "topology"]
)
def test_a_profile_that_does_not_say_enough_is_named(missing: str) -> None:
    profile: dict[str, t.Any] = copy.deepcopy(load("nd96asr_v4"))
    above, dot, key = missing.rpartition(".")
    del (profile[above] if dot else profile)[key]
    with pytest.raises(config.NcclTopologyError, match=re.escape(f"no {missing}")):
        config.topology_xml(profile)


def test_an_adapter_of_unknown_place_is_named() -> None:
    profile = {**load("nd96asr_v4"), "infiniband": {"devices": ["mlx5_ib0"]}}
    with pytest.raises(config.NcclTopologyError, match=r"infiniband\.pci_domains"):
        config.topology_xml(profile)


@pytest.mark.parametrize(("part", "key"), [("cpu", "vendor"), ("link", "width")])
def test_half_a_description_is_named(part: str, key: str) -> None:
    profile: dict[str, t.Any] = copy.deepcopy(load("nd96asr_v4"))
    del profile["topology"][part][key]
    with pytest.raises(config.NcclTopologyError, match=rf"no topology\.{part}\.{key}"):
        config.topology_xml(profile)
