# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes are told by the image that they were started from, those of one image together."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.preflight import old_images

OLD = {"schema": 1, "collection": "0.1.0", "slurm": "22.05.8", "date": "2026-01-01T00:00:00Z"}
NEW = {**OLD, "slurm": "24.11.5", "date": "2026-11-01T00:00:00Z"}
HOSTS = {
    "c1": {"ansible_facts": {"ansible_local": {"hpcai_image": OLD}}},
    "c2": {"ansible_facts": {"ansible_local": {"hpcai_image": NEW}}},
    "c3": {"ansible_facts": {"ansible_local": {"hpcai_image": OLD}}},
    "c4": {"ansible_facts": {"ansible_local": {"hpcai_image": "error loading fact"}}},
    "c5": {"ansible_facts": {"hostname": "c5"}},
    "c6": {},
}


def test_nodes_of_an_old_image_are_named_with_what_is_old() -> None:
    said = "c1, c3: the image of 2026-01-01T00:00:00Z has Slurm 22.05.8, the cluster has 24.11"
    assert old_images([*HOSTS, "away"], HOSTS, {"slurm": "24.11", "collection": "0.1.0"}) == [said]
    assert old_images(["c2", "c5"], HOSTS, {"slurm": "24.11"}) == []
    assert old_images(list(HOSTS), HOSTS, {"slurm": "", "collection": "0.1.0"}) == []


@pytest.mark.parametrize("hosts", ["c1", None, {"c1": 1}])
def test_what_is_no_list_of_hosts_is_refused(hosts: t.Any) -> None:
    with pytest.raises(AnsibleFilterError, match="old_images takes"):
        old_images(hosts, HOSTS, {})
