# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.hpcai.gpu_cluster.plugins.filter.azcopy_plan import FilterModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.site import PlanError, plan

azcopy_plan = FilterModule().filters()["azcopy_plan"]


def test_the_example_of_ndv4() -> None:
    want = {"cap_mbps": 2300, "concurrency": 10, "copies_per_node": 8, "nodes": 1, "total_mbps": 18400}
    assert azcopy_plan(20, files=8, nodes=1, cores=96) == want


@pytest.mark.parametrize(
    "arguments, more, want",
    [
        ((20, 8, 2, 96), {}, (1150, 10)),
        ((60, 8, 1, 96), {}, (6900, 10)),
        ((60, 8, 1, 96), {"node_gbps": 24}, (2760, 10)),
        ((20, 8, 1, 96), {"cap_mbps": 2300}, (2300, 10)),
        ((20, 8, 1, 96), {"cap_mbps": 500}, (500, 10)),
        ((20, 1, 1, 2), {}, (18400, 1)),
        ((20, 8, 1, 4), {}, (2300, 1)),
        ((25, 8, 28, 96), {}, (102, 10)),
    ],
)
def test_other_plans(arguments: t.Any, more: t.Any, want: tuple[int, int]) -> None:
    found = plan(*arguments, **more)
    assert (found.cap_mbps, found.concurrency) == want


@pytest.mark.parametrize(
    "arguments, more, said",
    [
        (
            (20, 8, 64, 96),
            {},
            "leaves each 35 Mb/s, less than 100: it would throttle. Send at most 184 files at a time",
        ),
        (
            (20, 8, 1, 96),
            {"cap_mbps": 2500},
            "are 20000 Mb/s, and the account takes 20 Gb/s: it would throttle. At most 2300",
        ),
        ((60, 8, 1, 96), {"cap_mbps": 2800, "node_gbps": 24}, "each node sends at most 24 Gb/s"),
        ((20, 8, 1, 96), {"cap_mbps": 50}, "less than 100"),
        ((0, 8, 1, 96), {}, "limit is 0"),
        ((float("nan"), 8, 1, 96), {}, "limit is nan"),
        (("20", 8, 1, 96), {}, "limit is '20'"),
        ((20, 0, 1, 96), {}, "files is 0"),
        ((20, 8, 1.5, 96), {}, "nodes is 1.5"),
        ((20, 8, 1, True), {}, "cores is True"),
        ((20, 8, 1, 96), {"cap_mbps": 0}, "cap is 0"),
        ((20, 8, 1, 96), {"node_gbps": -1}, "node_limit is -1"),
    ],
)
def test_refused(arguments: t.Any, more: t.Any, said: str) -> None:
    with pytest.raises(PlanError, match=said.replace("(", r"\(")):
        plan(*arguments, **more)


def test_the_filter_says_whose_error_it_is() -> None:
    with pytest.raises(AnsibleFilterError, match="azcopy_plan: files is 0"):
        azcopy_plan(20, files=0)


@given(
    st.floats(0.1, 500), st.integers(1, 256), st.integers(1, 4096), st.integers(1, 512), st.none() | st.floats(0.1, 400)
)
def test_no_plan_is_above_the_limit(ingress: float, files: int, nodes: int, cores: int, node: float | None) -> None:
    try:
        found = plan(ingress, files, nodes, cores, node_gbps=node)
    except PlanError:
        return
    assert found.cap_mbps >= 100 and found.total_mbps <= ingress * 1000 * 0.92
    assert node is None or found.cap_mbps * files <= node * 1000 * 0.92
    assert found.concurrency >= 1 and (found.concurrency == 1 or found.concurrency * files <= cores * 0.9)
