# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import mdadm

FIXTURES = Path(__file__).parents[3] / "fixtures" / "mdadm"


def read(name: str) -> str:
    return (FIXTURES / name).read_text()


def one(name: str) -> mdadm.MdadmArray:
    log = mdadm.parse(read(f"captured-{name}.txt"))
    assert (log.ok, log.cause) == (True, None)
    (array,) = log.arrays
    return array


def stated(state: str) -> mdadm.MdadmArray:
    text = read("captured-raid0.txt")
    return mdadm.parse(text.replace("State : clean \n", f"State : {state} \n")).arrays[0]


def test_a_healthy_stripe() -> None:
    array = one("raid0")
    assert (array.path, array.level, array.states, array.problems) == ("/dev/md0", "raid0", ["clean"], [])
    assert (array.raid_devices, array.active_devices, array.failed_devices, array.spare_devices) == (3, 3, 0, 0)
    assert (array.size, array.chunk, array.version) == (193536 * 1024, "128K", "1.2")
    assert [(m.slot, m.flags, m.path) for m in array.members] == [
        (0, ["active", "sync"], "/dev/loop0"),
        (1, ["active", "sync"], "/dev/loop1"),
        (2, ["active", "sync"], "/dev/loop2"),
    ]
    json.dumps(dataclasses.asdict(array))


@pytest.mark.parametrize(
    "name, states, problems",
    [
        ("raid5", ["clean"], []),
        ("raid1-spare", ["clean"], []),
        ("raid10-checking", ["clean", "checking"], []),
        (
            "raid1-recovering",
            ["clean", "degraded", "recovering"],
            ["degraded", "recovering", "1 failed", "1 of 2 devices active", "/dev/loop0 is faulty or gone"],
        ),
        (
            "raid1-degraded",
            ["clean", "degraded"],
            [
                "degraded",
                "1 failed",
                "1 of 2 devices active",
                "slot 0 is faulty or gone",
                "/dev/loop2 is faulty or gone",
            ],
        ),
        ("raid1-removed", ["clean", "degraded"], ["degraded", "1 of 2 devices active", "slot 0 is faulty or gone"]),
        (
            "raid5-degraded",
            ["clean", "degraded"],
            [
                "degraded",
                "1 failed",
                "2 of 3 devices active",
                "slot 0 is faulty or gone",
                "/dev/loop0 is faulty or gone",
            ],
        ),
        (
            "raid5-failed",
            ["clean", "FAILED"],
            [
                "FAILED",
                "2 failed",
                "1 of 3 devices active",
                "slot 0 is faulty or gone",
                "/dev/loop1 is faulty or gone",
                "/dev/loop0 is faulty or gone",
            ],
        ),
        ("inactive", ["inactive"], ["inactive"]),
    ],
)
def test_captured_states(name: str, states: list[str], problems: list[str]) -> None:
    array = one(name)
    assert (array.states, array.problems) == (states, problems)


@pytest.mark.parametrize(
    "state, states, problems",
    [
        ("active", ["active"], []),
        ("active, degraded", ["active", "degraded"], ["degraded"]),
        ("active, FAILED", ["active", "FAILED"], ["FAILED"]),
        ("broken", ["broken"], ["broken"]),
        ("broken, FAILED", ["broken", "FAILED"], ["broken", "FAILED"]),
        (
            "clean, degraded, resyncing (DELAYED)",
            ["clean", "degraded", "resyncing (DELAYED)"],
            ["degraded", "resyncing (DELAYED)"],
        ),
        ("clean, checking (PENDING)", ["clean", "checking (PENDING)"], []),
        ("clean, Not Started", ["clean", "Not Started"], ["Not Started"]),
        ("write-pending", ["write-pending"], []),
        ("readonly", ["readonly"], ["readonly"]),
    ],
)
def test_state_is_a_list(state: str, states: list[str], problems: list[str]) -> None:
    array = stated(state)
    assert (array.states, array.problems) == (states, problems)


def test_clean_with_a_failed_device_is_a_problem() -> None:
    text = read("captured-raid0.txt").replace("Failed Devices : 0", "Failed Devices : 1")
    assert mdadm.parse(text).arrays[0].problems == ["1 failed"]


def test_flags_between_state_and_path() -> None:
    member = one("raid10-checking").members[1]
    assert (member.slot, member.flags, member.path) == (1, ["active", "sync", "set-B", "writemostly"], "/dev/loop1")
    assert (one("raid10-checking").action, one("raid10-checking").percent) == ("check", 0.0)
    recovering = one("raid1-recovering")
    assert (recovering.action, recovering.percent, recovering.members[0].flags) == (
        "rebuild",
        5.0,
        ["spare", "rebuilding"],
    )


def test_removed_rows_have_no_path() -> None:
    member = one("raid1-removed").members[0]
    assert (member.slot, member.flags, member.path) == (0, ["removed"], None)


def test_a_container_has_no_state() -> None:
    array = one("container")
    assert (array.level, array.version, array.states, array.problems) == ("container", "ddf", [], [])
    assert [member.path for member in array.members] == ["/dev/loop0", "/dev/loop1"]


@pytest.mark.parametrize(
    "name, text", [("absent", "mdadm: cannot open /dev/md77"), ("notmd", "does not appear to be an md device")]
)
def test_no_array(name: str, text: str) -> None:
    log = mdadm.parse(read(f"captured-{name}.txt"))
    assert log.cause is not None
    assert (log.ok, log.arrays, log.cause.kind, text in log.cause.text) == (False, [], "config", True)


def test_several_arrays_and_one_that_breaks_off() -> None:
    whole, cut = read("captured-raid5.txt"), read("captured-raid0.txt")[:-60]
    log = mdadm.parse(whole + cut)
    assert [array.path for array in log.arrays] == ["/dev/md5", "/dev/md0"]
    assert not log.ok
    assert mdadm.parse(whole + whole).ok


@pytest.mark.parametrize(
    "name, level, states, problems, action",
    [
        ("raid0", "raid0", ["active"], [], None),
        ("raid1-spare", "raid1", ["active"], [], None),
        (
            "raid1-recovering",
            "raid1",
            ["active", "degraded"],
            ["degraded", "1 failed", "1 of 2 devices active", "/dev/loop0 is faulty or gone"],
            "recovery",
        ),
        (
            "raid5-failed",
            "raid5",
            ["active", "degraded"],
            [
                "degraded",
                "2 failed",
                "1 of 3 devices active",
                "/dev/loop1 is faulty or gone",
                "/dev/loop0 is faulty or gone",
            ],
            None,
        ),
        ("raid10-readonly", "raid10", ["active", "readonly"], ["readonly"], None),
        ("raid10-checking", "raid10", ["active"], [], "check"),
        ("container", "container", [], [], None),
        ("inactive", None, ["inactive"], ["inactive"], None),
    ],
)
def test_mdstat(name: str, level: str | None, states: list[str], problems: list[str], action: str | None) -> None:
    (array,) = mdadm.parse_mdstat(read(f"captured-{name}.mdstat"))
    assert (array.level, array.states, array.problems, array.action) == (level, states, problems, action)


def test_mdstat_members_and_size() -> None:
    (array,) = mdadm.parse_mdstat(read("captured-raid1-spare.mdstat"))
    assert (array.path, array.size, array.raid_devices, array.active_devices) == ("/dev/md1", 64512 * 1024, 2, 2)
    assert [(member.path, member.flags) for member in array.members] == [
        ("/dev/loop2", ["spare"]),
        ("/dev/loop1", []),
        ("/dev/loop0", []),
    ]
    text = "md127 : active (auto-read-only) raid0 nvme0n1[0]\n      93 blocks super 1.2 512k chunks\n"
    assert mdadm.parse_mdstat(text)[0].problems == []
    assert mdadm.parse_mdstat("md0 : broken raid0 nvme1n1[1](F) nvme0n1[0]\n")[0].problems == [
        "broken",
        "1 failed",
        "/dev/nvme1n1 is faulty or gone",
    ]
    assert mdadm.parse_mdstat("Personalities : \nunused devices: <none>\n") == []
