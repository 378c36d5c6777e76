# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations of our own, against what scontrol of 22.05 and 24.11 prints."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import nodes as own
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

# Captured from 22.05.8; 24.11.5 prints the same without Watts.
OURS = (
    "ReservationName=hpcai-repair-c2 StartTime=2026-11-21T21:32:35 EndTime=2026-11-21T22:32:35 Duration=01:00:00 "
    "Nodes=c2 NodeCnt=1 CoreCnt=4 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES TRES=cpu=4 "
    "Users=root,trainer Groups=(null) Accounts=(null) "
    "Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
)
THEIRS = (
    OURS.replace("hpcai-repair-c2", "ops-cables").replace("Nodes=c2 ", "Nodes=c[2-4] ").replace("root,trainer", "ops")
)
NONE = "No reservations in the system\n"
PARAMS: dict[str, t.Any] = {
    "name": "hpcai-repair-c2",
    "state": "present",
    "nodes": "c2",
    "users": ["trainer", "root"],
    "flags": ["maint", "IGNORE_JOBS"],
    "minutes": 60,
    "share": False,
}


class Slurm:
    """A controller that remembers what it was told."""

    def __init__(self, *lines: str) -> None:
        self.lines, self.orders = list(lines), t.cast("list[list[str]]", [])

    def __call__(self, argv: list[str]) -> str:
        if argv[1] == "show":
            return "\n".join(self.lines) or NONE
        self.orders.append(argv)
        values = dict(word.split("=", 1) for word in argv if "=" in word)
        self.lines = [line for line in self.lines if f"={values['reservationname']} " not in line]
        if argv[1] != "delete":
            line = OURS.replace("hpcai-repair-c2", values["reservationname"]).replace(
                " Nodes=c2", f" Nodes={values['nodes']}"
            )
            if "duration" in values:
                hours, minutes = divmod(int(values["duration"]), 60)
                line = line.replace("Duration=01:00:00", f"Duration={hours:02}:{minutes:02}:00")
            self.lines.append(line.replace("root,trainer", values["users"]))
        return ""


def test_what_slurm_prints_is_read() -> None:
    found = own.reservations(f"{OURS}\n{THEIRS}\n")
    assert [one["name"] for one in found] == ["hpcai-repair-c2", "ops-cables"]
    assert found[0]["flags"] == ["IGNORE_JOBS", "MAINT"]
    assert found[1]["nodes"] == ["c2", "c3", "c4"]
    assert own.reservations(NONE) == own.reservations("") == []
    with pytest.raises(SlurmError, match="cannot be read"):
        own.reservations("slurm_load_reservations error: Unable to contact slurm controller")


def test_made_once_and_deleted_once() -> None:
    slurm = Slurm()
    assert own.perform(PARAMS, slurm, check_mode=True)["changed"] and not slurm.orders
    first = own.perform(PARAMS, slurm, check_mode=False)
    assert first["changed"] and first["reservation"]["active"]
    assert first["command"] == slurm.orders[0]
    assert not own.perform(PARAMS, slurm, check_mode=False)["changed"]
    gone = {**PARAMS, "state": "absent"}
    assert own.perform(gone, slurm, check_mode=True)["reservation"] == {}
    assert own.perform(gone, slurm, check_mode=False)["changed"]
    assert not own.perform(gone, slurm, check_mode=False)["changed"]
    assert [order[1] for order in slurm.orders] == ["create", "delete"]


def test_a_difference_is_put_right() -> None:
    slurm = Slurm(OURS)
    found = own.perform({**PARAMS, "nodes": "c[2-3]"}, slurm, check_mode=False)
    assert found["command"][:3] == ["scontrol", "update", "reservation"]
    assert "nodes=c[2-3]" in found["command"] and not any(word.startswith("starttime") for word in found["command"])


def test_a_longer_time_prolongs_it_once() -> None:
    slurm = Slurm(OURS)
    longer = {**PARAMS, "minutes": 300}
    would = own.perform(longer, slurm, check_mode=True)
    assert would["changed"] and not slurm.orders and "end" not in would["reservation"]
    done = own.perform(longer, slurm, check_mode=False)
    assert done["changed"] and "duration=300" in done["command"]
    assert would["reservation"]["minutes"] == done["reservation"]["minutes"] == 300
    assert not own.perform(longer, slurm, check_mode=False)["changed"]


@pytest.mark.parametrize("printed", ["1-12:00:00", "UNLIMITED"])
def test_nobody_s_longer_time_is_cut(printed: str) -> None:
    """An administrator may have prolonged it with scontrol; Slurm refuses an end that is over."""
    prolonged = OURS.replace("01:00:00", printed)
    assert not own.perform(PARAMS, Slurm(prolonged), check_mode=False)["changed"]
    moved = own.perform({**PARAMS, "nodes": "c3"}, Slurm(prolonged), check_mode=False)
    assert moved["changed"] and not any(word.startswith("duration") for word in moved["command"])


def test_one_that_has_ended_is_made_to_begin_again() -> None:
    assert own.perform(PARAMS, Slurm(OURS.replace("ACTIVE", "INACTIVE")), check_mode=True)["changed"]


def test_somebody_else_s_plans_are_respected() -> None:
    with pytest.raises(SlurmError, match="ops-cables holds c2 for ops"):
        own.perform(PARAMS, Slurm(THEIRS), check_mode=False)
    assert own.perform({**PARAMS, "share": True}, Slurm(THEIRS), check_mode=False)["changed"]
    inactive = THEIRS.replace("ACTIVE", "INACTIVE")
    assert own.perform(PARAMS, Slurm(inactive), check_mode=False)["changed"]


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize("name", ["ops-cables", "hpcai", "hpcai-", "hpcai-a b", "hpcai-a,flags=MAINT", ""])
def test_others_are_never_touched(name: str, state: str) -> None:
    slurm = Slurm(THEIRS)
    with pytest.raises(SlurmError, match="not ours"):
        own.perform({**PARAMS, "name": name, "state": state}, slurm, check_mode=False)
    assert not slurm.orders


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"users": []}, "are none"),
        ({"users": ["a b"]}, "'a b'"),
        ({"flags": ["MAINT", "FOREVER"]}, "FOREVER"),
        ({"nodes": ""}, "no node"),
        ({"minutes": 0}, "1 to 527040"),
    ],
)
def test_what_slurm_would_misread_is_refused(more: dict[str, t.Any], says: str) -> None:
    slurm = Slurm()
    with pytest.raises(SlurmError, match=says):
        own.perform({**PARAMS, **more}, slurm, check_mode=False)
    assert not slurm.orders
