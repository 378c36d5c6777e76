# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xids: messages as drivers of several years write them, what each asks for, and that a fault stays a fault."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import checks_xid, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.xid import Event, parse, stamp
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.node_world import BOOT, World

FALLEN = "2026-11-21T21:00:00,500000+00:00 NVRM: Xid (PCI:0003:00:00): 79, pid=4321, GPU has fallen off the bus."


def only(line: str) -> Event:
    (found,) = parse(line, BOOT)
    return found


@pytest.mark.parametrize(
    ("line", "kind", "code", "bus"),
    [
        (FALLEN, "Xid", 79, "00000003:00:00.0"),
        ("[ 12.5] NVRM: Xid (0000:03:00): 14, Channel 00000001", "Xid", 14, "00000000:03:00.0"),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 31, pid=7, name=a b, Ch 1", "Xid", 31, "00000000:3B:00.0"),
        ("NVRM: Xid (PCI:0000:83:00): 48", "Xid", 48, "00000000:83:00.0"),
        ("Nov 21 21:00:00 n1 kernel: [ 99.1] NVRM: Xid (PCI:000b:00:00): 95, pid=1", "Xid", 95, "0000000B:00:00.0"),
        ("nvidia-nvswitch3: SXid (PCI:0005:00:00.0): 12028, Non-fatal, Link 32 x", "SXid", 12028, "00000005:00:00.0"),
        ("NVRM: Xid (PCI:0000:66:00): abc, pid=2280636", "Xid", None, ""),
        ("[1] \x1b[31mNVRM: Xid (PCI:0008:01:00): 119, Timeout waiting\x1b[0m", "Xid", 119, "00000008:01:00.0"),
    ],
)
def test_messages_are_read_whatever_stands_before_them(line: str, kind: str, code: int | None, bus: str) -> None:
    event = only(line)
    assert (event.kind, event.code, event.bus_id) == (kind, code, bus)


@pytest.mark.parametrize(
    "line",
    ["", "NVRM: GPU at PCI:0000:48:00: GPU-5fc0", "healthd: no Xid seen", "NVRM: loading NVIDIA UNIX x86_64 Kernel"],
)
def test_other_lines_are_no_messages(line: str) -> None:
    assert parse(line, BOOT) == []


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("2026-11-21T20:00:00,250000+00:00 x", 1795291200.25),
        ("2026-11-21T21:00:00+0100 n1 kernel: x", 1795291200.0),
        ("2026-11-21T20:00:00Z x", 1795291200.0),
        ("[   12.500000] x", BOOT + 12.5),
        ("4,1234,2500000,-;x", BOOT + 2.5),
        ("Nov 21 20:00:00 n1 kernel: x", None),
        ("2026-13-41T20:00:00Z x", None),
    ],
)
def test_times_are_read_and_never_guessed(line: str, time: float | None) -> None:
    assert stamp(line, BOOT) == time


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("from 0x0 (None) to 0x1 (GPU Reset Required)", "reset"),
        ("from 0x0 (None) to 0x2 (Node Reboot Required)", "reboot"),
        ("from 0x0 (None) to 0x2 (OS Reboot)", "reboot"),
        ("from 0x0 (None) to 0x1 (PF FLR)", "reset"),
        ("from 0x0 (None) to 0x3 (Drain P2P)", "reset"),
        ("from 0x0 (None) to 0x4 (Drain and Reset)", "reset"),
        ("from 0x0 (None) to 0x9 (Recover IMEX Domain)", "monitor"),
        ("to something else", "monitor"),
    ],
)
def test_the_text_of_xid_154_decides(text: str, action: str) -> None:
    rule = checks_xid.rule_of(only(f"NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed {text}"))
    assert rule is not None
    assert rule.action == action


def test_news_of_a_recovery_is_no_fault() -> None:
    line = "NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    assert checks_xid.rule_of(only(line)) is None


@pytest.mark.parametrize(
    ("code", "action", "blame"),
    [
        (54, "isolate", "hardware"),
        (64, "isolate", "hardware"),
        (79, "reboot", "hardware"),
        (48, "reset", "hardware"),
        (74, "reset", "hardware"),
        (94, "monitor", "hardware"),
        (95, "reset", "hardware"),
        (119, "reset", "hardware"),
        (63, "monitor", "hardware"),
        (13, "monitor", "software"),
        (31, "monitor", "software"),
        (43, "monitor", "software"),
        (999, "monitor", "hardware"),
    ],
)
def test_codes_have_a_policy(code: int, action: str, blame: str) -> None:
    rule = checks_xid.rule_of(Event("Xid", code, "", "", None, None))
    assert rule is not None
    assert (rule.action, rule.blame) == (action, blame)


def test_codes_that_the_anchors_disagree_about_are_in_the_table() -> None:
    """AzureNHC knows neither 94 nor 95, and fails a node for 63 and 92, which are news."""
    assert {94, 95, 63, 92, 140, 143, 149, 158} <= set(checks_xid.POLICY)


@pytest.mark.parametrize(("word", "action"), [("Fatal", "reset"), ("Nonfatal", "monitor"), ("Non-fatal", "monitor")])
def test_nvlink_of_blackwell_says_by_itself_how_bad_it_is(word: str, action: str) -> None:
    for code in (145, 149):
        rule = checks_xid.rule_of(
            only(f"NVRM: Xid (PCI:0018:01:00): {code}, RLW_SRC_TRACK {word} XC0 i0 Link 01 (0x4)")
        )
        assert rule is not None
        assert rule.action == action


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    machines.ndv4_sysfs(tmp_path / "sys")
    made.settings["kernel_log"] = str(made.file("kern.log", "[ 1.0] Linux version 6.8.0-1015-azure\n"))
    return made


def log(world: World, *lines: str) -> None:
    world.file("kern.log", "".join(f"{line}\n" for line in ("[ 1.0] Linux version 6.8.0", *lines)))


def test_a_quiet_log_passes(world: World) -> None:
    assert world.one("gpu_xid")["verdict"] == "pass"


def test_a_gpu_off_the_bus_is_named_by_its_index_and_latched(world: World) -> None:
    log(world, FALLEN, FALLEN)
    found = world.one("gpu_xid")
    assert (found["verdict"], found["class"], found["scope"]) == ("fail", "hardware", {"gpu": [2]})
    assert found["context"]["action"] == "reboot"
    assert (found["context"]["latched"], found["context"]["code"]) == (True, 79)
    assert "Xid 79 on GPU 2, 2 times: the GPU has fallen off the bus" in found["reason"]


def test_the_same_xid_fails_again_and_still_when_the_ring_buffer_has_forgotten_it(world: World) -> None:
    """AzureNHC passes a node in its second run, because the Xid has been reported before."""
    log(world, FALLEN)
    first = world.one("gpu_xid")
    again = world.one("gpu_xid")
    assert [first["verdict"], again["verdict"]] == ["fail", "fail"]
    log(world)
    forgotten = world.one("gpu_xid")
    assert forgotten["verdict"] == "fail"
    assert [one["check"] for one in world.run("latches")] == ["gpu_xid"]


def test_a_message_that_was_cleared_by_hand_is_over_and_a_newer_one_is_not(world: World) -> None:
    log(world, FALLEN)
    found = world.one("gpu_xid")
    (when,) = [sample["last"] for sample in found["samples"]]
    world.state = {**world.state, "latched": {}, "kept": {state.FORGIVEN: {state.key(found): when + 1}}}
    assert world.one("gpu_xid")["verdict"] == "pass"
    log(world, FALLEN, FALLEN.replace("2026-11-21T21", "2026-11-21T22"))
    assert world.one("gpu_xid")["verdict"] == "fail"


def test_what_an_earlier_boot_wrote_is_over(world: World) -> None:
    log(world, FALLEN.replace("2026-11-21T21", "2026-11-20T21"))
    assert world.one("gpu_xid")["verdict"] == "pass"


def test_faults_of_two_gpus_are_two_records_and_an_application_is_not_hardware(world: World) -> None:
    log(world, FALLEN, "[9.0] NVRM: Xid (PCI:0001:00:00): 31, pid=5, name=python3, MMU Fault")
    fallen, fault = world.run("gpu_xid")
    assert (fallen["verdict"], fallen["scope"]) == ("fail", {"gpu": [2]})
    assert (fault["verdict"], fault["class"], fault["scope"]) == ("warn", "software", {"gpu": [0]})
    assert "latched" not in fault["context"]


def test_a_fatal_error_of_a_switch_counts(world: World) -> None:
    log(world, "[9.0] nvidia-nvswitch1: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 41 sourcetrack timeout error")
    found = world.one("gpu_xid")
    assert (found["verdict"], found["context"]["action"]) == ("fail", "reset")
    assert found["scope"] == {"bus_id": "00000000:C1:00.0"}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "",
        Outcome(1, "", "dmesg: read kernel buffer failed: Operation not permitted\n", 0.01),
    ],
)
def test_a_log_that_cannot_be_read_is_an_error_and_no_pass(world: World, answer: t.Any) -> None:
    world.settings["kernel_log"] = ["dmesg", "--time-format=iso"]
    world.answers["dmesg"] = answer
    found = world.one("gpu_xid")
    assert (found["verdict"], found["class"]) == ("error", "infra")


def test_dmesg_that_is_gone_or_a_log_that_is_empty_is_an_error(world: World) -> None:
    world.file("kern.log", "\n")
    assert world.one("gpu_xid")["verdict"] == "error"
    world.settings["kernel_log"] = str(world.folder / "absent.log")
    assert world.one("gpu_xid")["verdict"] == "error"
    world.settings["kernel_log"] = ["dmesg"]
    assert "dmesg is not installed" in world.one("gpu_xid")["reason"]


def test_a_machine_without_gpus_has_nothing_to_look_for(tmp_path: Path) -> None:
    world = World(tmp_path, "lab")
    assert world.one("gpu_xid")["verdict"] == "skipped"


def test_an_unknown_machine_type_is_looked_at_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, "Standard_ND999_v9")
    world.settings["kernel_log"] = str(world.file("kern.log", f"{FALLEN}\n"))
    assert world.one("gpu_xid")["verdict"] == "fail"
