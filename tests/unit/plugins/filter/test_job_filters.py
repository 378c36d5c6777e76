# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.jobs import FilterModule
from ansible_collections.hpcai.gpu_cluster.plugins.filter.topology import cpu_masks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs.training import topology
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import CpuListError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load


def test_an_ndv4_has_the_masks_that_its_guide_means() -> None:
    """The guide's last mask lacks a zero: GPUs 6 and 7 are on the CPUs 48 to 71."""
    found = topology(load("ND96asr_v4"))
    masks = cpu_masks(found)
    assert masks[:3] == ["ffffff000000", "ffffff000000", "ffffff"]
    assert masks[-1] == "ffffff000000000000"
    assert cpu_masks(found, "visible_devices") == [2, 3, 0, 1, 6, 7, 4, 5]
    assert cpu_masks(found, "ppr") == "ppr:2:numa"
    assert found["gpus"][4] == {
        "index": 4,
        "bus_id": "0000000B:00:00.0",
        "numa_node": 3,
        "cpus": "72-95",
        "nics": ["mlx5_ib4"],
    }


@pytest.mark.parametrize("sku", ["generic", "ND128isr_NDR_GB200_v6"])
def test_what_is_not_known_binds_nothing(sku: str) -> None:
    assert topology(load(sku)) == {"numa": [], "gpus": [], "nics": []}


GPU = {"pci_domain": "0001", "numa_node": 0}


@pytest.mark.parametrize(
    "profile",
    [
        {"vcpus": 10, "numa_nodes": 4, "topology": {"gpus": [GPU]}},
        {"vcpus": 8, "numa_nodes": 2, "topology": {"gpus": [{**GPU, "numa_node": 2}]}},
        {"vcpus": 8, "numa_nodes": 2, "topology": {"gpus": [{"pci_domain": "0001"}]}},
    ],
)
def test_a_profile_that_contradicts_itself_is_refused(profile: dict[str, object]) -> None:
    with pytest.raises(CpuListError):
        topology(profile)


def test_the_filter_refuses_what_is_no_profile() -> None:
    with pytest.raises(Exception, match="a profile is a dictionary"):
        FilterModule().filters()["profile_topology"]("ND96asr_v4")


def test_what_a_node_did_not_say_is_an_error_that_names_the_filter() -> None:
    with pytest.raises(AnsibleFilterError, match=r"ddp_findings: .* in what a node says"):
        FilterModule().filters()["ddp_findings"]({"c1": {"torch": "2"}}, 1, "c1")


def test_a_package_that_cannot_work_is_named_by_the_filter() -> None:
    misfits = FilterModule().filters()["stack_misfits"]
    (text,) = misfits([{"name": "torch-ort", "version": "1", "fits": {"torch": "<2.9"}}], "2.13.0+cpu", "3.11", {})
    assert text.startswith("torch-ort 1 needs PyTorch <2.9, the environment has 2.13.0+cpu")


@pytest.mark.parametrize(
    "packages", ["torch-ort", [{"version": "1", "fits": {"torch": "<2"}}], [{"name": "x", "fits": 1}]]
)
def test_what_are_no_packages_is_an_error_that_names_the_filter(packages: object) -> None:
    with pytest.raises(AnsibleFilterError, match=r"stack_misfits: "):
        FilterModule().filters()["stack_misfits"](packages, "2.13.0", "3.11", {})
