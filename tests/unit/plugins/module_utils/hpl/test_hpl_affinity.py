# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the ranks of HPL belong, as the arguments of NVIDIA's hpl.sh."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl.run import HplError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import CpuListError, from_facts

Json = t.Dict[str, t.Any]


def machine(nodes: t.Mapping[int, str], gpus: t.Sequence[int | None]) -> Json:
    return {
        "numa": [{"node": node, "cpus": cpus} for node, cpus in nodes.items()],
        "gpus": [
            {"index": index, "numa_node": node, "cpus": nodes.get(-1 if node is None else node, "")}
            for index, node in enumerate(gpus)
        ],
        "nics": [],
    }


NDV4 = machine({0: "0-23", 1: "24-47", 2: "48-71", 3: "72-95"}, [1, 1, 0, 0, 3, 3, 2, 2])
NDV5 = machine({0: "0-47", 1: "48-95"}, [0, 0, 0, 0, 1, 1, 1, 1])
THREADS = machine({0: "0-15,32-47", 1: "16-31,48-63"}, [0, 0, 1, 1])
PARAMS = {name: option.get("default") for name, option in {**_launch.SPEC, **run.SPEC}.items()}


@pytest.mark.parametrize(
    ("facts", "cpus", "memory"),
    [
        (NDV4, "24-35:36-47:0-11:12-23:72-83:84-95:48-59:60-71", "1:1:0:0:3:3:2:2"),
        (NDV5, "0-11:12-23:24-35:36-47:48-59:60-71:72-83:84-95", "0:0:0:0:1:1:1:1"),
        (THREADS, "0-7,32-39:8-15,40-47:16-23,48-55:24-31,56-63", "0:0:1:1"),
    ],
)
def test_a_rank_has_the_cpus_and_the_memory_of_its_gpu(facts: Json, cpus: str, memory: str) -> None:
    gpus = ":".join(str(index) for index in range(len(facts["gpus"])))
    found = run.affinity(from_facts(facts))
    assert found.arguments == ["--gpu-affinity", gpus, "--cpu-affinity", cpus, "--mem-affinity", memory]


def test_no_cpu_is_given_twice() -> None:
    for facts in (NDV4, NDV5, THREADS):
        cpus = run.affinity(from_facts(facts)).cpus
        every = [cpu for text in cpus for cpu in run.machine.parse(text)]
        assert len(every) == len(set(every))


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (machine({0: "0-3"}, [0, None]), "NUMA node of GPU 1 is unknown"),
        (machine({0: "0-1"}, [0, 0, 0]), "cannot be split among 3 GPUs"),
        (machine({0: "0-3"}, []), "no GPU"),
    ],
)
def test_what_cannot_be_derived_is_left_out_and_said(facts: Json, why: str) -> None:
    found = run.affinity(from_facts(facts))
    assert found.arguments == []
    assert why in found.reason


def bound(ranks: int = 8, masks: t.Sequence[str] = (), **options: t.Any) -> run.Affinity:
    launch = Launch("srun", "/usr/bin/srun", ranks_per_node=ranks, cpu_masks=masks)
    return run.rank_affinity(run.read_request({**PARAMS, **options})._replace(launch=launch))


def test_without_a_topology_nothing_is_said() -> None:
    assert bound().arguments == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topology": NDV4, "arguments": ["--cpu-affinity", "0:1"]}, "--cpu-affinity would say it again"),
        ({"topology": NDV4, "arguments": ["--gpu-affinity=0:1"]}, "--gpu-affinity=0:1 would say it again"),
        ({"topology": NDV4, "masks": ["ff"] * 8}, "cpu_masks would say it again"),
        ({"topology": NDV4, "ranks": 4}, "8 GPUs, for 4 ranks per node"),
    ],
)
def test_what_contradicts_itself_is_refused(options: Json, told: str) -> None:
    with pytest.raises(HplError, match=told):
        bound(**options)


def test_a_topology_that_is_none_is_refused() -> None:
    with pytest.raises(CpuListError):
        bound(topology={"gpus": 8})


@pytest.mark.parametrize(
    ("program", "want"), [("/workspace/hpl.sh", True), ("/opt/hpl/xhpl", False), ("hpl-aarch64.sh", True)]
)
def test_only_the_script_understands_it(program: str, want: bool) -> None:
    assert run.understands(program) is want
