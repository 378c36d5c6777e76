# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hostlists beside another implementation: what ClusterShell writes is read here, and the other way round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand

NodeSet = pytest.importorskip("ClusterShell.NodeSet").NodeSet
NAME = st.from_regex(r"(gpu|c|r[0-9]n)-?([1-9][0-9]{0,3}|0[0-9]|00[0-9])(-ib)?", fullmatch=True)
NAMES = st.lists(NAME, min_size=1, max_size=40)


@given(NAMES)
def test_both_read_what_the_other_writes(names: list[str]) -> None:
    assert set(NodeSet(compress(names, sort=True, unique=True))) == set(names)
    assert set(expand(str(NodeSet.fromlist(names)))) == set(names)


@pytest.mark.parametrize(
    "text", ["gpu-[001-004,010]", "c[1-3,5]", "r[1-2]n[08-11]", "a,b[1-2]", "n[1-2]x[3-4]y", "n[0-9]5"]
)
def test_both_say_the_same_of_lists_that_people_type(text: str) -> None:
    assert sorted(expand(text)) == sorted(NodeSet(text))
