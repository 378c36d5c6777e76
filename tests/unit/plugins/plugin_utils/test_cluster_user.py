# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which number the cluster's user has on all machines, and when there can be none."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.cluster_user import cluster_user_problems, cluster_user_uid

NOBODY: dict[str, t.Any] = {"users": {}, "ids": []}


def has(uid: int, *others: int) -> dict[str, t.Any]:
    return {"users": {"trainer": {"uid": uid, "gid": uid}}, "ids": [uid, *others]}


@pytest.mark.parametrize(
    ("machines", "wanted", "uid"),
    [
        ([NOBODY, NOBODY], 0, 2000),
        ([{"users": {}, "ids": [1000, 2000]}, {"users": {}, "ids": [2001, 2003]}], 0, 2002),
        ([NOBODY], 3000, 3000),
        ([NOBODY, has(1234), NOBODY], 0, 1234),
        ([has(1234), has(1234)], 1234, 1234),
        # A directory service, which need not list whom it resolves.
        ([{"users": {"trainer": {"uid": 70000, "gid": 500}}, "ids": []}], 0, 70000),
        # A machine that was not reached tells nothing.
        ([{}, has(1500)], 0, 1500),
    ],
)
def test_a_user_has_one_number_everywhere(machines: list[t.Any], wanted: int, uid: int) -> None:
    assert cluster_user_uid("trainer", machines, wanted) == uid


@pytest.mark.parametrize(
    ("machines", "wanted", "words"),
    [
        ({"a": has(1000), "b": has(1001), "c": has(1000)}, 0, ["1000 on a, c; 1001 on b", "accepted: one uid"]),
        ({"a": has(1000), "b": NOBODY}, 2000, ["cluster_user_uid is 2000", "uid 1000 on a", "accepted: 1000"]),
        ({"a": has(1000), "b": {"users": {}, "ids": [1000]}}, 0, ["uid 1000", "somebody else's on b"]),
        ({"a": {"users": {}, "ids": [2500]}}, 2500, ["uid 2500", "somebody else's on a"]),
    ],
)
def test_what_cannot_be_one_user_is_refused(machines: dict[str, t.Any], wanted: int, words: list[str]) -> None:
    texts = cluster_user_problems(
        "trainer", {host: {"hpcai_node": told} for host, told in machines.items()}, list(machines), wanted
    )
    assert len(texts) == 1
    assert all(word in texts[0] for word in words), texts
    with pytest.raises(AnsibleFilterError, match="cluster_user_uid: "):
        cluster_user_uid("trainer", list(machines.values()), wanted)


def test_a_number_that_is_none_is_refused_and_silence_is_no_finding() -> None:
    assert "not the number of a user" in cluster_user_problems("trainer", {}, ["a"], "x")[0]
    assert cluster_user_problems("trainer", {"a": {}, "b": {"hpcai_node": {}}}, ["a", "b", "c"]) == []
    with pytest.raises(AnsibleFilterError, match="takes a list"):
        cluster_user_uid("trainer", "text")
