# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users

# Of two nodes, as Open MPI prints it with --tag-output, with the same index on both.
SAID = """\
[1,0]<stdout>:gpu, n1, GPU-aa, 0, NVIDIA A100-SXM4-40GB
[1,1]<stdout>:gpu, n2, GPU-bb, 0, NVIDIA A100-SXM4-40GB
[1,1]<stdout>:user, n2, GPU-bb, 42, python3, or not
[1,1]<stdout>:user, n2, GPU-cc, 43, [Insufficient Permissions]
"""
TWO = [
    users.User("n2", 0, "GPU-bb", 42, "python3,"),
    users.User("n2", None, "GPU-cc", 43, "[Insufficient Permissions]"),
]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("/usr/bin/python3 train.py --token=/a/secret", "python3"),
        ("python3", "python3"),
        ("./run --password hunter2", "run"),
        ("[Insufficient Permissions]", "[Insufficient Permissions]"),
        ("[Not Found]", "[Not Found]"),
        ("", ""),
    ],
)
def test_of_a_users_command_line_only_the_program_is_kept(name: str, shown: str) -> None:
    assert users.program(name) == shown
    (user,) = users.parse_users(f"user, n1, GPU-aa, 7, {name}\n") or [users.User("", None, "", 0, shown)]
    assert "secret" not in str(user) and "hunter2" not in users.in_use_message([user])


def test_reads_what_ranks_print_together() -> None:
    assert users.parse_users(SAID) == TWO


@pytest.mark.parametrize(
    "said, found",
    [
        ("", None),
        ("gpu, n1, NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", None),
        ("gpu, n1, GPU-aa, 0, A100\n", []),
        ("gpu, n1, GPU-aa, 0, A100\nuser, n1, No running processes found\n", []),
    ],
)
def test_nobody_there_is_not_nobody_looked(said: str, found: t.Any) -> None:
    assert users.parse_users(said) == found


@pytest.mark.parametrize(
    "value, found",
    [
        (None, None),
        ("", None),
        ("0,3", [0, 3]),
        ("GPU-aa,1", ["GPU-aa", 1]),
        ("MIG-aa", None),
    ],
)
def test_visible(value: str | None, found: t.Any) -> None:
    assert users.visible(Launch(environment={} if value is None else {"CUDA_VISIBLE_DEVICES": value})) == found


def test_names_some_and_counts_the_others() -> None:
    many = [users.User("n1", number, "", number, "/usr/bin/python3") for number in range(5)]
    assert users.in_use_message(many) == (
        "in use: GPU 0 of n1 by python3 (pid 0), GPU 1 of n1 by python3 (pid 1), GPU 2 of n1 by python3 (pid 2), 2 more"
    )


def test_one_look_per_node_whatever_places_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def run(argv: list[str], *rest: t.Any) -> Outcome:
        calls.append(argv)
        return Outcome(0, SAID, "", 1.0)

    monkeypatch.setattr(users, "run", run)
    options = {"map_by": "ppr:4:numa", "mca": "btl ^openib"}
    many = Launch("mpirun", "mpirun", 2, 8, ["n1", "n2"], options=options, cpu_masks=["f"] * 8)
    assert users.read_users(many, 60) == TWO
    front = ["mpirun", "--map-by", "ppr:1:node", "--bind-to", "none", "--mca", "btl ^openib"]
    assert calls[0][:-3] == [*front, "--host", "n1:1,n2:1", "--np", "2"]
    assert users.read_users(many, 60, [0]) == TWO[:1]
    assert users.read_users(Launch("srun", "srun"), 60) == []
    assert len(calls) == 2


def test_who_does_not_answer_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[t.Any] = []

    def run(*args: t.Any) -> Outcome:
        calls.append(args)
        return Outcome(None, "", "late", 30.0)

    monkeypatch.setattr(users, "run", run)
    watch = users.UserWatch(Launch(), 60, False)
    assert (watch.refusal, watch.shared(), len(calls)) == ("", False, 1)
