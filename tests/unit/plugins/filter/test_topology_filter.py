# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.topology import FilterModule

cpu_masks = FilterModule().filters()["cpu_masks"]

TWO = {
    "numa": [{"node": 0, "cpus": "0-3"}, {"node": 1, "cpus": "4-7"}],
    "gpus": [{"index": 0, "numa_node": 1, "cpus": "4-7"}, {"index": 1, "numa_node": 0, "cpus": "0-3"}],
}
SHARED = {"numa": TWO["numa"][:1], "gpus": [{"numa_node": 0, "cpus": "0-3"}] * 2}
UNKNOWN = {"gpus": [{"index": 0, "bus_id": "00000001:00:00.0", "numa_node": None, "cpus": ""}]}


@pytest.mark.parametrize(
    "value, options, want",
    [
        (TWO, {}, ["f0", "f"]),
        (TWO, {"form": "masks"}, ["f0", "f"]),
        (TWO, {"form": "ppr"}, "ppr:1:numa"),
        (TWO, {"form": "visible_devices"}, [1, 0]),
        (TWO, {"form": "rank_masks"}, ["f", "f0"]),
        (SHARED, {}, ["f", "f"]),
        (SHARED, {"split": True}, ["3", "c"]),
        (UNKNOWN, {}, []),
        (UNKNOWN, {"form": "ppr"}, None),
    ],
)
def test_forms(value: t.Any, options: dict[str, t.Any], want: t.Any) -> None:
    assert cpu_masks(value, **options) == want


@pytest.mark.parametrize(
    "value, options, complaint",
    [
        (None, {}, "as gpu_info returns it"),
        ([1], {}, "as gpu_info returns it"),
        ({"gpus": [{"cpus": "3-1"}]}, {}, "no CPU list"),
        (TWO, {"form": "hex"}, "accepted are masks, rank_masks, ppr, visible_devices"),
        (TWO, {"split": "yes"}, "true or false"),
    ],
)
def test_bad_input_is_refused(value: t.Any, options: dict[str, t.Any], complaint: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        cpu_masks(value, **options)
    assert complaint in str(caught.value)
