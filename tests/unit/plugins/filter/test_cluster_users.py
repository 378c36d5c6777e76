# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A list of users is refused before anything is changed, or is what accounting gets."""

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.cluster_user import (
    cluster_users_accounting,
    cluster_users_problems,
)

ANNA: dict[str, t.Any] = {"name": "anna", "uid": 2001, "account": "vision"}
BOB: dict[str, t.Any] = {"name": "bob", "uid": "2002", "account": ["speech", "vision"], "settings": {"MaxJobs": 8}}
MACHINES = {
    "c1": {"hpcai_node": {"users": {"anna": {"uid": 2001}, "bob": None}, "ids": [0, 2001]}},
    "c2": {"hpcai_node": {"users": {"anna": None, "bob": None}, "ids": [0, 2003]}},
}


@pytest.mark.parametrize(
    ("users", "words"),
    [
        ([ANNA, BOB], ""),
        ([{**ANNA, "ssh_keys": ["ssh-ed25519 AAAAC3Nz anna"], "state": "locked"}], ""),
        ([ANNA, {**BOB, "uid": 2001}], "uid 2001 is there 2 times"),
        ([ANNA, ANNA], "name anna is there 2 times"),
        ([{**ANNA, "uid": 2005}], "anna has uid 2001 on c1; accepted: 2001"),
        ([{**BOB, "uid": 2003}], "which is somebody else's on c2"),
        ([{**ANNA, "uid": 999}], "accepted: a number from 1000"),
        ([{"name": "anna", "uid": 2001}], "account is missing"),
        ([{**ANNA, "acount": "x"}], "acount is no key of a user"),
        ([{**ANNA, "name": "-rf"}], "not one that useradd accepts"),
        ([{**ANNA, "state": "gone"}], "accepted: present, locked"),
        ([{**ANNA, "ssh_keys": ["ssh-ed25519 AAAA\nssh-rsa BBBB"]}], "list of public keys"),
        (["anna"], "'anna' is no dictionary"),
    ],
)
def test_what_cannot_be_is_said(users: list[t.Any], words: str) -> None:
    text = "; ".join(cluster_users_problems(users, MACHINES, ["c1", "c2", "c3"]))
    assert words in text and bool(words) == bool(text), text


def test_an_account_that_there_will_not_be_is_said_before_a_user_is_made() -> None:
    said = cluster_users_problems([ANNA, BOB], MACHINES, ["c1", "c2"], [{"name": "vision"}])
    assert said == ["bob: account is 'speech': not in slurm_database_accounts; accepted: one of vision"]
    assert cluster_users_problems([ANNA], MACHINES, ["c1", "c2"], []) == []


def test_who_is_locked_may_submit_nothing_and_keeps_the_association() -> None:
    assert cluster_users_accounting([{**ANNA, "state": "locked", "settings": {"MaxSubmitJobs": 5}}]) == [
        {"name": "anna", "account": "vision", "settings": {"MaxSubmitJobs": 0}}
    ]
    assert cluster_users_accounting([{**BOB, "adminlevel": "Operator"}]) == [
        {"name": "bob", "account": "speech", "settings": {"MaxJobs": 8}, "adminlevel": "Operator"},
        {"name": "bob", "account": "vision", "settings": {"MaxJobs": 8}},
    ]


def test_a_text_is_no_list() -> None:
    for call in (lambda: cluster_users_accounting("anna"), lambda: cluster_users_problems("anna", {}, [])):
        with pytest.raises(AnsibleFilterError, match="takes a list of users, not str"):
            call()
