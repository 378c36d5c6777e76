# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.cyclecloud_node_arrays import cyclecloud_node_arrays

LATEST = "microsoft-dsvm:ubuntu-hpc:2404:latest"
PINNED = "microsoft-dsvm:ubuntu-hpc:2404:24.04.2026070101"
PREFLIGHT = {
    "nodes": [
        {"name": "ndv4", "gpus": 8, "rdma": True},
        {"name": "cpu", "gpus": None, "rdma": False},
    ],
    "images": {LATEST: {"urn": PINNED}},
}


def test_what_the_preflight_found_is_put_to_what_was_asked_for():
    asked = [
        {"name": "ndv4", "size": "Standard_ND96asr_v4", "count": 4, "image": LATEST, "zone": "2", "price": 27.2},
        {"name": "cpu", "size": "Standard_D8ads_v5", "image": PINNED, "spot": True},
    ]
    gpu, cpu = cyclecloud_node_arrays(asked, PREFLIGHT)
    assert gpu == {
        "name": "ndv4",
        "machine_type": "Standard_ND96asr_v4",
        "image": PINNED,
        "max_nodes": 4,
        "gpus": 8,
        "spot": False,
        "zone": "2",
        "hpc": True,
    }
    assert (cpu["max_nodes"], cpu["gpus"], cpu["spot"], cpu["hpc"]) == (1, 0, True, False)


def test_what_the_user_says_counts_more():
    (gpu,) = cyclecloud_node_arrays(
        [{"name": "ndv4", "size": "X", "image": PINNED, "gpus": 4, "rdma": False}], PREFLIGHT
    )
    assert (gpu["gpus"], gpu["hpc"]) == (4, False)


def test_an_image_id_needs_no_pin():
    own = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/ours"
    assert cyclecloud_node_arrays([{"name": "a", "size": "X", "image": own}], {})[0]["image"] == own


@pytest.mark.parametrize(
    ("nodes", "preflight", "said"),
    [
        ([{"name": "a", "size": "X", "image": LATEST}], {}, "is not pinned"),
        ([{"name": "a"}], {}, "azure_infra_nodes"),
        ("text", {}, "azure_infra_nodes"),
        (None, None, "azure_infra_nodes"),
        ([{"name": "a", "size": "X", "count": "many"}], {}, "azure_infra_nodes"),
    ],
)
def test_anything_else_is_refused(nodes, preflight, said):
    with pytest.raises(AnsibleFilterError, match=said):
        cyclecloud_node_arrays(nodes, preflight)
