# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.accounting import (
    AccountingError,
    AccountingRequest,
    Rows,
    accounting_request,
    normal,
    plan,
    rows,
    show_commands,
)

WANTED = AccountingRequest(
    "lab",
    [{"name": "long", "description": "Long jobs", "settings": {"MaxWall": "7-00:00:00", "Priority": 10}}],
    [
        {"name": "vision", "parent": "research"},
        {"name": "research", "description": "Research", "settings": {"QOS": ["normal", "long"]}},
    ],
    [{"name": "trainer", "account": "research", "default": True, "settings": {"MaxJobs": 5}}],
)
NOTHING: dict[str, str] = {"qos": "normal|Normal QOS default||0\n", "user": "root|root|Administrator\n"}
DONE = {
    "cluster": "lab\n",
    "qos": "normal|Normal QOS default||0\nlong|long jobs|7-00:00:00|10\n",
    "account": "root|default root account|root\nresearch|research|research\nvision|vision|vision\n",
    "user": "root|root|Administrator\ntrainer|research|None\n",
    "association": (
        "root|||||\nroot|root||||\nresearch|||root||long,normal\nvision|||research||long,normal\n"
        "research|trainer|||5|long,normal\n"
    ),
}


def state(texts: dict[str, str]) -> dict[str, Rows]:
    return {kind: rows(texts.get(kind, ""), query) for kind, query in show_commands(WANTED).items()}


def calls(wanted: AccountingRequest, texts: dict[str, str]) -> list[str]:
    return [" ".join(step.argv) for step in plan(wanted, state(texts))]


def test_everything_is_added_in_order() -> None:
    assert calls(WANTED, NOTHING) == [
        "add cluster lab",
        "add qos long description=Long jobs MaxWall=7-00:00:00 Priority=10",
        "add account research cluster=lab description=Research QOS=normal,long",
        "add account vision cluster=lab parent=research",
        "add user trainer account=research cluster=lab defaultaccount=research MaxJobs=5",
    ]


def test_users_who_are_to_become_the_same_are_added_by_one_call() -> None:
    def user(name: str, account: str, **more: t.Any) -> dict[str, t.Any]:
        return {"name": name, "account": account, **more}

    users = [
        user("ann", "a"),
        user("bob", "a"),
        user("ann", "b"),
        user("root", "b"),
        user("cid", "b", settings={"x": 1}),
    ]
    steps = plan(AccountingRequest("lab", [], [], [*users, user("cid", "b", settings={"x": 1})]), state(NOTHING))
    assert [(" ".join(step.argv), step.text) for step in steps[1:]] == [
        ("add user ann,bob account=a cluster=lab defaultaccount=a", "add users ann, bob to account a"),
        ("add user ann account=b cluster=lab defaultaccount=b", "add user ann to account b"),
        ("add user root account=b cluster=lab", "add user root to account b"),
        ("add user cid account=b cluster=lab defaultaccount=b x=1", "add user cid to account b"),
    ]
    many = plan(AccountingRequest("lab", [], [], [user(f"u{number}", "a") for number in range(250)]), state(NOTHING))
    assert [step.argv[2].count(",") + 1 for step in many[1:]] == [100, 100, 50]


def test_a_second_run_changes_nothing() -> None:
    assert calls(WANTED, DONE) == []


@pytest.mark.parametrize(
    ("kind", "old", "new", "call"),
    [
        ("qos", "7-00:00:00", "1-00:00:00", "modify qos long set MaxWall=7-00:00:00"),
        ("account", "research|research|", "research|old|", "modify account research set description=Research"),
        (
            "association",
            "research|||root||long,normal",
            "research|||root||normal",
            "modify account name=research cluster=lab set QOS=normal,long",
        ),
        (
            "association",
            "vision|||research",
            "vision|||root",
            "modify account name=vision cluster=lab set parent=research",
        ),
        (
            "association",
            "trainer|||5",
            "trainer|||",
            "modify user name=trainer account=research cluster=lab set MaxJobs=5",
        ),
        ("user", "trainer|research", "trainer|other", "modify user trainer set defaultaccount=research"),
        (
            "association",
            "research|trainer|||5|long,normal\n",
            "",
            "add user trainer account=research cluster=lab MaxJobs=5",
        ),
    ],
)
def test_only_what_differs_is_modified(kind: str, old: str, new: str, call: str) -> None:
    assert old in DONE[kind]
    assert calls(WANTED, {**DONE, kind: DONE[kind].replace(old, new)}) == [call]


def test_an_odd_answer_is_refused() -> None:
    with pytest.raises(AccountingError, match="columns"):
        rows("a|b\n", ["qos", "format=name"])


def test_parents_in_a_circle_are_refused() -> None:
    wanted = WANTED._replace(accounts=[{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], users=[])
    with pytest.raises(AccountingError, match="each other's parents"):
        plan(wanted, state(NOTHING))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1:00:00", "01:00:00"),
        ("7-00:00:00", "168:00:00"),
        ("60:00", "1:00:00"),
        ("gres/gpu=8,cpu=4", "cpu=4,gres/gpu=8"),
        ("-1", ""),
        ("Normal", "normal"),
    ],
)
def test_spellings_of_one_value_are_equal(one: str, other: str) -> None:
    assert normal(one) == normal(other)


@pytest.mark.parametrize(("one", "other"), [("1", "2"), ("1:00", "1:00:00"), ("a=1", "a=2"), ("", "0")])
def test_values_that_differ_stay_different(one: t.Any, other: t.Any) -> None:
    assert normal(one) != normal(other)


def test_names_in_upper_case_are_there_in_lower_case() -> None:
    """Slurm stores them so; the second run found nothing of what the first had added."""
    asked = accounting_request(
        {
            "cluster": "LAB",
            "qos": [{**WANTED.qos[0], "name": "Long"}],
            "accounts": [
                {"name": "Vision", "parent": "Research"},
                {**WANTED.accounts[1], "name": "RESEARCH"},
            ],
            "users": [{**WANTED.users[0], "name": "Trainer", "account": "Research"}],
        }
    )
    assert plan(asked, state(DONE)) == []
    assert [step.text for step in plan(asked, state(NOTHING))] == [
        "add cluster lab",
        "add qos long",
        "add account research",
        "add account vision",
        "add user Trainer to account research",
    ]


def test_a_user_whose_case_is_preserved_is_found_as_well() -> None:
    kept = {key: text.replace("trainer", "Trainer") for key, text in DONE.items()}
    asked = accounting_request({**WANTED._asdict(), "users": [{**WANTED.users[0], "name": "Trainer"}]})
    assert plan(asked, state(kept)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"qos": [{"description": "x"}]}, "entry 1 of qos lacks name"),
        ({"accounts": [{"name": "a"}, {"parent": "a"}]}, "entry 2 of accounts lacks name"),
        ({"users": [{"name": "u"}]}, "entry 1 of users lacks account"),
        ({"users": [{"account": ""}]}, "lacks name, account"),
        ({"cluster": "lab\nSlurmUser=mallory"}, "is no name"),
        ({"accounts": [{"name": "a b"}]}, "name 'a b' is no name"),
        ({"qos": [{"name": "a", "settings": "x"}]}, "settings are no dictionary"),
    ],
)
def test_an_entry_that_lacks_something_is_named(change: dict[str, t.Any], said: str) -> None:
    with pytest.raises(AccountingError, match=said):
        accounting_request({**WANTED._asdict(), **change})
