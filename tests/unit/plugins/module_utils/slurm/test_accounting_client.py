# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import accounting as acct
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.accounting import read

WANTED = acct.AccountingRequest("lab", [], [], [])


def sacctmgr(directory: Path, **values: t.Any) -> str:
    return str(stand_in(directory / "sacctmgr", "sacctmgr_fresh.sh", **values))


def test_everything_is_asked(tmp_path: Path) -> None:
    now = read(sacctmgr(tmp_path), {}, WANTED, 10, forgiving=False)
    assert list(now) == list(acct.show_commands(WANTED))
    assert now["cluster"] == [{"cluster": "lab"}]
    assert now["user"] == [{"user": "root", "defaultaccount": "root", "adminlevel": "Administrator"}]


def test_silence_is_an_error_but_for_check_mode(tmp_path: Path) -> None:
    program = str(answer(tmp_path / "sacctmgr", err="refused\n", status=1))
    with pytest.raises(acct.AccountingError, match=r"is slurmdbd running.*refused"):
        read(program, {}, WANTED, 0.5, forgiving=False)
    assert set(read(program, {}, WANTED, 0.5, forgiving=True)) == set(acct.show_commands(WANTED))


@pytest.mark.parametrize("failures", [1, 3, 7])
def test_questions_wait_for_slurmdbd(tmp_path: Path, failures: int) -> None:
    program = sacctmgr(tmp_path, failures=failures)
    now = read(program, {}, WANTED, 10, forgiving=False)
    assert now["cluster"] == [{"cluster": "lab"}]
    assert all(now.values())


def test_a_question_that_fails_for_good_is_named(tmp_path: Path) -> None:
    program = sacctmgr(tmp_path, refused="qos")
    with pytest.raises(acct.AccountingError, match=r"show qos .*no such format"):
        read(program, {}, WANTED, 10, forgiving=False)


STEPS = [
    acct.AccountingStep(["add", kind, name], f"add {kind} {name}")
    for kind, name in (("cluster", "lab"), ("qos", "long"), ("account", "research"), ("user", "trainer"))
]


def told(directory: Path) -> list[str]:
    path = directory / "done"
    return [line.removeprefix("-i -Q add ") for line in path.read_text().splitlines()] if path.exists() else []


def test_the_cluster_and_the_qos_are_added_side_by_side_and_what_needs_them_afterwards(tmp_path: Path) -> None:
    program = str(stand_in(tmp_path / "sacctmgr", "sacctmgr_changes.sh"))
    acct.carry_out(program, {}, STEPS, 60)
    assert sorted(told(tmp_path)[:2]) == ["cluster lab", "qos long"]
    assert told(tmp_path)[2:] == ["account research", "user trainer"]


@pytest.mark.parametrize(
    ("refused", "made"),
    [
        ("add cluster lab", ["qos long"]),
        ("add qos long", ["cluster lab"]),
        ("add account", ["cluster lab", "qos long"]),
    ],
)
def test_a_change_that_is_refused_ends_what_needs_it(tmp_path: Path, refused: str, made: list[str]) -> None:
    program = str(stand_in(tmp_path / "sacctmgr", "sacctmgr_changes.sh", refused=refused))
    with pytest.raises(acct.AccountingError, match=rf"^cannot {refused}.* said: not allowed$"):
        acct.carry_out(program, {}, STEPS, 60)
    assert sorted(told(tmp_path)) == made


def test_nothing_to_change_asks_nobody(tmp_path: Path) -> None:
    acct.carry_out(str(tmp_path / "nowhere"), {}, [], 60)
