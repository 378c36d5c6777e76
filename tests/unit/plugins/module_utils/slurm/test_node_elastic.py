# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import node_lines as slurm_node_lines
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.node_lines import (
    NodeError,
    memory_per_cpu,
    node_lines,
)

ENTRY = {"names": "e[1-2]", "sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 500}
STATIC = {"host": "c1", "name": "c1", "sockets": 1, "cores_per_socket": 2, "threads_per_core": 1, "real_memory": 1000}
POWER = {
    "resume_program": "/r",
    "suspend_program": "/s",
    "resume_fail_program": "/f",
    "suspend_time": 300,
    "suspend_timeout": "600",
    "resume_timeout": 1800,
    "resume_rate": 0,
    "suspend_rate": 60,
}


def test_elastic_nodes_get_a_line_of_their_own() -> None:
    nodes = [STATIC, *slurm_node_lines.elastic([{**ENTRY, "gres": "gpu:v100:1", "features": ["v100"]}])]
    assert node_lines(nodes) == [
        "NodeName=c1 Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN",
        "NodeName=e[1-2] Sockets=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=500 Gres=gpu:v100:1"
        " Features=v100,cloud State=CLOUD",
    ]
    assert memory_per_cpu(nodes) == 250


def test_all_that_is_wrong_is_said_at_once() -> None:
    wrong = [{**ENTRY, "names": "", "cores": 2}, {**ENTRY, "real_memory": 0}, {**ENTRY, "names": "e[1"}]
    with pytest.raises(NodeError) as caught:
        slurm_node_lines.elastic(wrong)
    for words in ("entry 1 (without names) has cores", "names no node", "entry 2", "real_memory", "entry 3 (e[1)"):
        assert words in str(caught.value)


def test_a_node_is_described_once() -> None:
    with pytest.raises(NodeError, match="e2 is described more than once"):
        slurm_node_lines.elastic([ENTRY, {**ENTRY, "names": "e[2-3]"}])


def test_without_elastic_nodes_there_is_no_power_saving() -> None:
    assert slurm_node_lines.power_settings([STATIC], POWER) == {}


@pytest.mark.parametrize(
    ("version", "some", "others"),
    [
        ("22.05.8", {"PrivateData": "cloud", "SlurmctldParameters": "a,cloud_reg_addrs", "TreeWidth": "65533"}, ()),
        ("23.02.1", {"SlurmctldParameters": "a,cloud_reg_addrs", "TreeWidth": "65533"}, ("PrivateData",)),
        ("23.11.4", {"SlurmctldParameters": "a,cloud_reg_addrs"}, ("PrivateData", "TreeWidth")),
        ("24.11.5", {"SuspendExcNodes": "c1"}, ("PrivateData", "TreeWidth", "SlurmctldParameters")),
    ],
)
def test_a_release_is_told_what_it_knows(version: str, some: dict[str, str], others: tuple[str, ...]) -> None:
    found = slurm_node_lines.power_settings([STATIC, *slurm_node_lines.elastic([ENTRY])], POWER, version, "a")
    assert found.items() >= {"ResumeProgram": "/r", "SuspendTime": "300", "ResumeRate": "0", **some}.items()
    assert not set(others) & set(found)


@pytest.mark.parametrize("wrong", [{"resume_program": "hpcai-power"}, {"suspend_time": "soon"}])
def test_senseless_settings_are_refused(wrong: dict[str, t.Any]) -> None:
    with pytest.raises(NodeError, match=next(iter(wrong))):
        slurm_node_lines.power_settings(slurm_node_lines.elastic([ENTRY]), {**POWER, **wrong})
