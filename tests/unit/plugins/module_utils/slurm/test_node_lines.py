# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import node_lines as lines

FACTS = {
    "hostname": "c1",
    "memtotal_mb": 16000,
    "processor_count": 2,
    "processor_cores": 4,
    "processor_threads_per_core": 1,
}
ROOM = 0.05


def make(name: str, **override: t.Any) -> dict[str, t.Any]:
    return lines.node(name, {**FACTS, "hostname": name}, override, ROOM)


def test_a_node_leaves_memory_to_the_system() -> None:
    assert make("c1")["real_memory"] == 15200
    assert lines.node("c1", {**FACTS, "memtotal_mb": 15990}, {}, ROOM)["real_memory"] == 15100


def test_some_more_memory_in_the_kernel_changes_nothing() -> None:
    texts = {lines.node_lines([lines.node("c1", {**FACTS, "memtotal_mb": mb}, {}, ROOM)])[0] for mb in (16010, 16050)}
    assert len(texts) == 1


def test_the_inventory_overrules_facts() -> None:
    found = make("c1", sockets=2, cores_per_socket=48, threads_per_core=1, real_memory=900000, gres="gpu:a100:8")
    assert lines.node_lines([found]) == [
        "NodeName=c1 Sockets=2 CoresPerSocket=48 ThreadsPerCore=1 RealMemory=900000 Gres=gpu:a100:8 State=UNKNOWN"
    ]


def test_equal_nodes_share_a_line() -> None:
    found = lines.node_lines([make("c1"), make("c2"), make("big1", real_memory=99000), make("c3")])
    assert [line.split()[0] for line in found] == ["NodeName=c[1-3]", "NodeName=big1"]


def test_addresses_stay_with_their_nodes() -> None:
    found = lines.node_lines([make("c1", address="10.0.0.5"), make("c2", address="10.0.0.9")])
    assert found[0].startswith("NodeName=c[1-2] NodeAddr=10.0.0.[5,9] ")


@pytest.mark.parametrize(
    ("facts", "override", "said"),
    [({}, {}, "gather facts"), ({"hostname": "c1"}, {"sockets": 1}, "real_memory"), (FACTS, {"socket": 1}, "accepted")],
)
def test_a_node_that_cannot_be_described_is_refused(
    facts: dict[str, t.Any], override: dict[str, t.Any], said: str
) -> None:
    with pytest.raises(lines.NodeError, match=said):
        lines.node("c1", facts, override, ROOM)


@pytest.mark.parametrize(
    ("partition", "line"),
    [
        ({"name": "batch", "nodes": "ALL", "default": True}, "PartitionName=batch Nodes=ALL Default=YES State=UP"),
        ({"name": "p", "nodes": ["host1", "host2"]}, "PartitionName=p Nodes=c[1-2] Default=NO State=UP"),
        ({"name": "p", "nodes": "c[1-2]"}, "PartitionName=p Nodes=c[1-2] Default=NO State=UP"),
        (
            {"name": "p", "nodes": ["host1"], "max_time": "1-0", "options": {"State": "DOWN", "OverSubscribe": "NO"}},
            "PartitionName=p Nodes=c1 Default=NO MaxTime=1-0 State=DOWN OverSubscribe=NO",
        ),
    ],
)
def test_partitions(partition: dict[str, t.Any], line: str) -> None:
    nodes = [{"host": "host1", "name": "c1"}, {"host": "host2", "name": "c2"}]
    assert lines.partition_lines([partition], nodes) == [line]


def test_extra_settings_replace_and_come_last() -> None:
    base = {"SlurmctldHost": ["a", "b"], "SlurmdTimeout": 120, "GresTypes": [], "TaskPlugin": ["x", "y"], "Flag": True}
    assert lines.setting_lines(base, {"slurmdtimeout": 300, "Prolog": "/a b"}) == [
        "SlurmctldHost=a",
        "SlurmctldHost=b",
        "TaskPlugin=x,y",
        "Flag=YES",
        "slurmdtimeout=300",
        'Prolog="/a b"',
    ]


def test_an_empty_extra_setting_removes_one() -> None:
    assert lines.setting_lines({"Prolog": "/a"}, {"prolog": ""}) == []


def test_gres() -> None:
    entry = {"name": "gpu", "type": "a100", "file": "/dev/nvidia[0-7]", "nodes": ["c1", "c2"], "cores": "0-3"}
    assert lines.gres_lines([entry, {"AutoDetect": "nvml"}]) == [
        "NodeName=c[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-7] Cores=0-3",
        "AutoDetect=nvml",
    ]
    nodes = [{"gres": "gpu:a100:8(S:0-1),nic:2"}, {"gres": "gpu:4"}, {}]
    assert lines.gres_names(nodes) == ["gpu", "gpu:a100", "nic"]


def test_memory_belongs_to_cpus() -> None:
    assert lines.memory_per_cpu([make("c1"), make("c2", real_memory=8000)]) == 1000
    assert lines.memory_per_cpu([]) == 0
