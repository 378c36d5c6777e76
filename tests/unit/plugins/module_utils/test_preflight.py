# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._preflight import findings

GOOD: dict[str, t.Any] = {
    "cluster_name": "lab",
    "cluster_shared_dir": "/shared",
    "preflight_controller_hosts": ["ctl"],
    "preflight_database_hosts": ["ctl"],
    "preflight_compute_hosts": ["c1", "c2"],
    "preflight_supported_systems": {"Debian": ["12", 13], "Ubuntu": ["24.04"]},
    "slurm_partitions": [{"name": "batch", "nodes": "ALL", "default": True}, {"name": "one", "nodes": ["c1"]}],
    "slurm_database_accounts": [{"name": "research"}],
    "slurm_database_users": [{"name": "trainer", "account": "research"}],
    "slurm_database_qos": [{"name": "long"}],
    "slurm_extra_settings": {"SlurmdTimeout": 300},
    "slurm_memory_headroom": 0.05,
    "hosts": {
        "c1": {"node": "c1", "address": "10.0.0.1", "system": "Debian", "release": "12"},
        "c2": {"node": "c2", "address": "10.0.0.2", "system": "Debian", "release": "13"},
        "ctl": {},
    },
}


def test_a_sound_inventory_passes() -> None:
    assert findings(GOOD) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster_name": "Lab"}, ["cluster_name", "'Lab'", "lower-case"]),
        ({"cluster_name": ""}, ["cluster_name", "''"]),
        ({"cluster_name": "x" * 41}, ["cluster_name", "40"]),
        ({"cluster_name": None}, ["cluster_name", "None"]),
        ({"cluster_name": "a b"}, ["cluster_name"]),
        ({"preflight_compute_hosts": [], "slurm_partitions": []}, ["preflight_compute_hosts", "slurm_compute"]),
        ({"preflight_controller_hosts": []}, ["preflight_controller_hosts", "slurm_controller"]),
        ({"preflight_database_hosts": []}, ["preflight_database_hosts"]),
        ({"preflight_database_hosts": ["a", "b"]}, ["one host"]),
        ({"preflight_controller_hosts": ["c1"]}, ["['c1']", "preflight_allow_shared_controller: true"]),
        ({"preflight_controller_hosts": ["a", "b"]}, ["slurm_state_is_shared"]),
        ({"preflight_compute_hosts": ["c1", "c2", "c1"]}, ["'c1'", "listed twice"]),
        ({"hosts": {"c1": {"node": "n"}, "c2": {"node": "n"}}, "slurm_partitions": []}, ["'n'", "c1, c2"]),
        ({"hosts": {"c1": {"address": "::1"}, "c2": {"address": "::1"}}}, ["ansible_host", "c1, c2"]),
        ({"hosts": {"c1": {"system": "Debian", "release": "11"}}}, ["c1", "Debian 11", "Ubuntu 24.04"]),
        ({"hosts": {"c1": {"system": "Rocky", "release": "9"}}}, ["Rocky 9", "Debian 12, 13"]),
        ({"hosts": {"c1": {"node": "bad_name"}}}, ["bad_name", "not a host name"]),
        ({"slurm_partitions": [{"name": "a", "nodes": ["zz"]}]}, ["slurm_partitions (a)", "zz"]),
        ({"slurm_partitions": [{"name": "a", "nodes": []}]}, ["has no nodes"]),
        ({"slurm_partitions": [{"name": n, "nodes": "ALL", "default": True} for n in "ab"]}, ["at most one"]),
        ({"slurm_partitions": [{"name": "a", "nodes": "ALL"}] * 2}, ["defined twice"]),
        ({"slurm_database_users": [{"name": "u", "account": "nope"}]}, ["nope", "one of research"]),
        ({"slurm_database_accounts": [{"name": "Research"}, {"name": "research"}]}, ["lower case"]),
        ({"slurm_extra_settings": {"nodename": "x"}}, ["slurm_extra_settings", "nodename", "slurm_node"]),
        ({"slurm_memory_headroom": 1.5}, ["slurm_memory_headroom", "1.5"]),
        ({"slurm_memory_headroom": True}, ["slurm_memory_headroom"]),
        ({"cluster_shared_dir": "shared"}, ["cluster_shared_dir", "absolute"]),
    ],
)
def test_each_fault_is_named_once(change: dict[str, t.Any], words: list[str]) -> None:
    found = findings({**GOOD, **change})
    assert len(found) == 1, found
    assert all(word in found[0] for word in words), found


def test_a_shared_controller_can_be_wanted() -> None:
    both = {"preflight_controller_hosts": ["c1"], "preflight_allow_shared_controller": True}
    assert findings({**GOOD, **both}) == []


def test_all_faults_come_at_once() -> None:
    change = {"cluster_name": "Lab", "slurm_memory_headroom": 2, "preflight_controller_hosts": []}
    assert len(findings({**GOOD, **change})) == 3
