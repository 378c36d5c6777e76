# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter import preflight, slurm_config

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


def test_filters_are_documented() -> None:
    assert set(slurm_config.FilterModule().filters()) == {
        "slurm_elastic_nodes",
        "slurm_gres_lines",
        "slurm_gres_names",
        "slurm_health_settings",
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
