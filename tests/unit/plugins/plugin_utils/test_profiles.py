# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every shipped profile must say, and that its page in docs/ says the same."""

from __future__ import annotations

import importlib.util
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import judge, metric, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.config import topology_xml
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.config import validate as validate_conf
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _profiles as profiles
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profile_metrics import CHECKS
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profile_schema import problems

ROOT = Path(__file__).resolve().parents[4]
NAMES = sorted(path.stem for path in profiles.DIRECTORY.glob("[!_]*.yml"))
MACHINES = [name for name in NAMES if name != "generic"]
KEYS = set(
    "description vm_size vcpus numa_nodes threads_per_core gpu topology infiniband nvme node nccl slurm expect"
    " sku known profile reference origin".split()
)
SWITCHED = {"nd96asr_v4", "nd96amsr_a100_v4", "nd96isr_h100_v5", "nd96isr_h200_v5"} | set(
    "a2-highgpu-8g a2-megagpu-16g a2-ultragpu-8g a3-highgpu-8g a3-megagpu-8g a3-ultragpu-8g dgx_2 dgx_a100_320gb"
    " dgx_a100_640gb dgx_b200 dgx_h100 dgx_h200 hgx_a100_80gb hgx_b200 hgx_h100 hgx_h200 p4d.24xlarge p4de.24xlarge"
    " p5.48xlarge p5e.48xlarge"
    " p5en.48xlarge p6-b200.48xlarge".split()
)
GIB = 1 << 30
Profile = t.Dict[str, t.Any]


LAB = ROOT / "lab/inventory/profiles"  # as a site has its own: in no tarball


@pytest.fixture(params=[*NAMES, "lab"])
def profile(request: pytest.FixtureRequest) -> Profile:
    return profiles.load(request.param, site=LAB)


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Profile:
    return profiles.load(request.param)


def test_the_machines_that_azure_lends() -> None:
    assert set(MACHINES) >= set(
        "nd40rs_v2 nd96asr_v4 nd96amsr_a100_v4 nd96isr_h100_v5 nd96isr_h200_v5 nc96ads_a100_v4 nc80adis_h100_v5"
        " nd128isr_ndr_gb200_v6".split()
    )


def test_the_machines_that_people_own() -> None:
    assert set(MACHINES) >= SWITCHED | {"dgx_1_v100_32gb", "g6e.48xlarge", "l40s_x8", "p3dn.24xlarge"}


@pytest.mark.parametrize(
    "path", [*sorted(profiles.DIRECTORY.glob("*.yml")), LAB / "lab.yml"], ids=lambda path: path.stem
)
def test_what_a_site_may_write_is_what_the_shipped_profiles_say(path: Path) -> None:
    assert problems(yaml.safe_load(path.read_text(encoding="utf-8"))) == []


def test_every_expectation_can_be_judged(profile: Profile) -> None:
    for one in [*profile["expect"], *profile.get("reference", [])]:
        validate_expectation(one)
        known = CHECKS[one["check"]].metrics[one["metric"]]
        assert one["unit"] == known.unit
        labels = set(one) - {"check", "metric", "nodes", "min_nodes", "verdict", "op", "value", "unit", "source"}
        assert labels <= set(known.labels.split(", ")), f"{labels} of {one}"


def test_every_number_has_a_source(machine: Profile) -> None:
    """A repository with a commit, or the name of a document."""
    documents = "Google Cloud documentation|data sheet|user guide|Microsoft Learn|techcommunity|acceptance test"
    documents += "|nvidia-smi prints"
    named = rf"\([^)]*\b[0-9a-f]{{7,8}}\b|{documents}"
    for one in machine["expect"]:
        assert re.search(named, one["source"]), one


def test_every_profile_is_complete(profile: Profile) -> None:
    assert profile["known"]
    assert set(profile) <= KEYS
    assert profile["description"]
    assert (profile.get("origin") == "site") == (profile["profile"] == "lab")
    directory = LAB if profile["profile"] == "lab" else profiles.DIRECTORY
    assert (directory / profiles.file_name(profile["profile"])).is_file(), "file names are lower case"


def test_every_machine_says_what_it_is(machine: Profile) -> None:
    if "vm_size" in machine:
        assert profiles.file_name(machine["vm_size"]) == f"{machine['profile']}.yml"
    assert {"model", "count", "memory_mib", "compute_capability"} <= set(machine["gpu"])
    assert isinstance(machine["gpu"]["compute_capability"], str), "10.0 is no decimal number"
    limits = {(one["check"], one["metric"]): one["value"] for one in machine["expect"]}
    assert limits["gpu_count", "gpus"] == machine["gpu"]["count"]
    assert limits["gpu_model", "memory"] == machine["gpu"]["memory_mib"]
    for clock, value in machine["gpu"].get("max_clocks", {}).items():
        assert value * 0.99 <= limits["gpu_clocks", clock] <= value
    ports = machine.get("infiniband", {})
    if ports.get("count"):
        assert limits["infiniband_ports", "active"] == machine["infiniband"]["count"]
        assert limits["infiniband_ports", "rate"] == machine["infiniband"]["rate_gbps"]
        assert limits.get(("infiniband_bandwidth", "bandwidth"), 0) < machine["infiniband"]["rate_gbps"]
    assert len(ports.get("devices", [])) in (0, ports.get("count", 0))


def test_gpus_have_places(machine: Profile) -> None:
    """In PCI order, on NUMA nodes that exist, beside ports that exist; unknown places are not judged."""
    gpus = machine.get("topology", {}).get("gpus")
    judged = any(one["check"] == "gpu_topology" for one in machine["expect"])
    assert judged == bool(gpus)
    if not gpus:
        return
    domains = [int(one["pci_domain"], 16) for one in gpus]
    assert domains == sorted(set(domains))
    assert len(gpus) == machine["gpu"]["count"]
    assert {one["numa_node"] for one in gpus} == set(range(machine["numa_nodes"]))
    assert {one["nic"] for one in gpus} - {None} == set(machine["infiniband"]["devices"])


def test_slurm_binds_a_gpu_to_the_cpus_of_its_node(machine: Profile) -> None:
    slurm = machine["slurm"]
    assert slurm["gres"] == f"gpu:{slurm['gres_conf'][0]['type']}:{machine['gpu']['count']}"
    numa = [one["numa_node"] for one in machine.get("topology", {}).get("gpus", [])]
    seen = 0
    for line in slurm["gres_conf"]:
        first, dummy, last = line["file"].removeprefix("/dev/nvidia").strip("[]").partition("-")
        members = range(int(first), int(last or first) + 1)
        seen += len(members)
        if numa:
            per_node = machine["vcpus"] // machine["numa_nodes"]
            (node,) = {numa[gpu] for gpu in members}
            assert line["cores"] == f"{node * per_node}-{(node + 1) * per_node - 1}"
        else:
            assert "cores" not in line
    assert seen == machine["gpu"]["count"]


def test_slurm_counts_sockets_as_the_cores_of_gpus_need(machine: Profile) -> None:
    """Cores of a GPU that are half a socket drain the node: either all of it is told to Slurm, or none."""
    node = machine["slurm"].get("node")
    if node is None:
        assert machine["slurm"]["slurmd_parameters"] == []
        return
    assert node["sockets"] * node["cores_per_socket"] * node["threads_per_core"] == machine["vcpus"]
    assert node["sockets"] == machine["numa_nodes"]
    half_sockets = machine["numa_nodes"] == 4
    assert machine["slurm"]["slurmd_parameters"] == (["numa_node_as_socket"] if half_sockets else [])


def test_nccl_measures_what_is_expected(machine: Profile) -> None:
    """The sweep meets every size that an expectation names, and it fits in the GPU three times over."""
    nccl, tests = machine["nccl"], machine["nccl"]["tests"]
    sizes, at = set(), tests["min_size"]
    while at <= tests["max_size"]:
        sizes.add(at)
        at *= tests["factor"]
    wanted = {one["size"] for one in machine["expect"] if one["check"] == "nccl_tests" and "size" in one}
    assert wanted <= sizes
    assert tests["max_size"] in sizes
    assert tests["max_size"] * 3 <= machine["gpu"]["memory_mib"] << 20
    assert {one["collective"] for one in machine["expect"] if "collective" in one} <= set(tests["collectives"])
    assert all(isinstance(value, str) for value in nccl["environment"].values()), "variables are text"
    assert "NCCL_TOPO_FILE" not in nccl["environment"], "topology_file says it, and containers must mount it"


def test_nodes_are_tuned_by_data_that_the_role_takes(machine: Profile) -> None:
    node = machine["node"]
    assert (
        {"services", "kernel_modules"} <= set(node) <= {"sysctl", "transparent_hugepages", "services", "kernel_modules"}
    )
    assert node.get("transparent_hugepages", "madvise") in ("always", "madvise", "never")
    assert ("nvidia-fabricmanager" in node["services"]) == (machine["profile"] in SWITCHED), (
        "where there is an NVSwitch"
    )
    nccl = machine["nccl"]
    conf = nccl.get("conf", {})
    validate_conf(conf)
    assert all(nccl["environment"].get(name) == value for name, value in conf.items()), "a job may not say otherwise"
    if "link" in machine.get("topology", {}):
        assert topology_xml(machine)
        assert len(machine["infiniband"]["pci_domains"]) == machine["infiniband"]["count"]


def test_an_unknown_machine_is_tuned_with_what_is_safe_anywhere() -> None:
    assert not {"node", "nccl", "infiniband"} & set(profiles.load("generic"))


def limits(name: str, check: str, metric_name: str, **about: t.Any) -> list[tuple[str, float, str]]:
    found = profiles.load(name)["expect"]
    mine = [one for one in found if (one["check"], one["metric"]) == (check, metric_name)]
    mine = [one for one in mine if all(one.get(key) == value for key, value in about.items())]
    return [(one["op"], one["value"], one.get("verdict", "fail")) for one in mine]


@pytest.mark.parametrize("name", ["nd96asr_v4", "nd96amsr_a100_v4"])
def test_the_numbers_that_an_ndv4_must_reach(name: str) -> None:
    for way in ("h2d", "d2h"):
        assert limits(name, "gpu_bandwidth", way) == [(">", 20, "fail"), (">=", 21, "warn")]
    assert limits(name, "nccl_tests", "busbw", collective="all_reduce", size=8 * GIB, min_nodes=2) == [
        (">=", 185, "fail")
    ]
    assert limits(name, "hpl", "tflops", nodes=1) == [(">=", 95, "warn"), (">=", 90.4, "fail")]
    assert (
        limits(name, "storage_bandwidth", "read") == limits(name, "storage_bandwidth", "write") == [(">=", 8, "warn")]
    )
    assert limits(name, "gpu_clocks", "graphics") == [(">=", 1410, "fail")]


def test_the_memory_clocks_of_both_ndv4() -> None:
    assert limits("nd96asr_v4", "gpu_clocks", "memory") == [(">=", 1215, "fail")]
    assert limits("nd96amsr_a100_v4", "gpu_clocks", "memory") == [(">=", 1593, "fail")]


@pytest.mark.parametrize(
    "busbw, nodes, verdict",
    [
        (230, 1, "pass"),
        (190, 1, "fail"),
        (187, 2, "pass"),
        (184.9, 2, "fail"),
        (186, 512, "pass"),
        (187, None, "unjudged"),
    ],
)
def test_an_ndv4_is_judged_by_its_number_of_nodes(busbw: float, nodes: int | None, verdict: str) -> None:
    measured = [
        metric("busbw", busbw, "GB/s", collective="all_reduce", size=8 * GIB),
        metric("wrong", 0, "checks", collective="all_reduce"),
    ]
    expect = profiles.load("nd96asr_v4")["expect"]
    got = judge("nccl_tests", measured, expect, nodes=nodes)
    assert [one["verdict"] for one in got] == [verdict, "pass"]


def test_the_page_is_current() -> None:
    """Run ``PYTHONPATH=.build/collections .build/venv/bin/python tests/tools/sku_profiles.py`` after a change."""
    spec = importlib.util.spec_from_file_location("sku_profiles", ROOT / "tests/tools/sku_profiles.py")
    assert spec and spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.PAGE.read_text(encoding="utf-8") == tool.render()
