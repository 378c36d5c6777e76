# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Xids: messages as drivers of several years write them, what each asks for, and that a fault stays a fault."""

from __future__ import annotations

import os
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import checks_xid, state, suite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.read import BrokenError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.xid import Event, parse
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.node_world import BOOT, World

FALLEN = "4,1412,3600500000,c;NVRM: Xid (PCI:0003:00:00): 79, pid=4321, GPU has fallen off the bus."
QUIET = "5,0,0,-;Linux version 6.8.0-1015-azure"


def only(message: str) -> Event:
    (event,) = parse([f"4,1,9000000,c;{message}"], BOOT)
    return event


@pytest.mark.parametrize(
    ("message", "kind", "code", "bus"),
    [
        ("NVRM: Xid (PCI:0003:00:00): 79, pid=4321, GPU has fallen off the bus.", "Xid", 79, "00000003:00:00.0"),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "Xid", 14, "00000000:03:00.0"),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 31, pid=7, name=a b, Ch 1", "Xid", 31, "00000000:3B:00.0"),
        ("NVRM: Xid (PCI:0000:83:00): 48", "Xid", 48, "00000000:83:00.0"),
        ("NVRM: Xid (PCI:000b:00:00): 95, pid=1", "Xid", 95, "0000000B:00:00.0"),
        ("nvidia-nvswitch3: SXid (PCI:0005:00:00.0): 12028, Non-fatal, Link 32 x", "SXid", 12028, "00000005:00:00.0"),
        ("NVRM: Xid (PCI:0000:66:00): abc, pid=2280636", "Xid", None, ""),
    ],
)
def test_messages_are_read(message: str, kind: str, code: int | None, bus: str) -> None:
    event = only(message)
    assert (event.kind, event.code, event.bus_id) == (kind, code, bus)


@pytest.mark.parametrize("head", ["4,1,9000000,c", "3,1,9000000,-", "4,1,9000000,-,caller=T77", "0,1,9000000,+"])
def test_a_record_has_its_time_and_whatever_else_a_kernel_puts_before_the_message(head: str) -> None:
    (event,) = parse([f"{head};NVRM: Xid (PCI:0000:83:00): 48"], BOOT)
    assert event.time == BOOT + 9
    assert parse([f"{head};NVRM: Xid (PCI:0000:83:00): 48"])[0].time is None


@pytest.mark.parametrize(
    "message",
    ["", "NVRM: GPU at PCI:0000:48:00: GPU-5fc0", "healthd: no Xid seen", "NVRM: loading NVIDIA UNIX x86_64 Kernel"],
)
def test_other_records_are_no_messages(message: str) -> None:
    assert parse([f"4,1,9,-;{message}"], BOOT) == []


XID = "NVRM: Xid (PCI:0003:00:00): 79, pid=1, GPU has fallen off the bus."
# What users can have the kernel write: quoted paths and names with whatever is in them, records of their own by a
# daemon that hands text on to /dev/kmsg, properties of a device, and text that looks like a log.
FORGED = {
    "a path that overlayfs quotes": f"3,9,9,-;overlayfs: failed to resolve '/tmp/\\x0a{XID}': -2",
    "a carriage return in it": f"3,9,9,-;overlayfs: failed to resolve '/tmp/\\x0d{XID}': -2",
    "the name of a program": f"6,9,9,-;{XID[:15]}[77]: segfault at 0 ip 0 sp 0 error 4 in x[400000+1000]",
    "a name that a trap quotes": f"6,9,9,-;traps: {XID} trap int3",
    "a record that a program wrote": f"12,9,9,-;{XID}",
    "a record of another facility": f"28,9,9,-;{XID}",
    "a property of a device": f" DEVICE={XID}",
    "a property that begins like a record": f" 4,9,9,-;{XID}",
    "text as dmesg prints it": f"[    9.000000] {XID}",
    "text as dmesg prints it with a time": f"2026-11-21T21:00:00,500000+00:00 {XID}",
    "text of syslog": f"Nov 21 21:00:00 n1 kernel: [ 99.1] {XID}",
    "the message alone": XID,
    "a cut of the message": f"4,9,9,c;pid=4321, {XID}",
    "a link that quotes a switch": "4,9,9,-;usb 1-1: Product: nvidia-nvswitch1: SXid (PCI:0000:c1:00.0): 24007, Fatal",
}


@pytest.mark.parametrize("line", FORGED.values(), ids=FORGED.keys())
def test_what_users_can_bring_into_the_kernel_log_is_no_message(line: str) -> None:
    assert [event for event in parse([line], BOOT) if event.code is not None] == []


def test_a_newline_in_the_name_of_a_program_that_a_real_message_quotes_starts_no_other_message() -> None:
    message = f"NVRM: Xid (PCI:0001:00:00): 31, pid=7, name=a\\x0a{XID}, MMU Fault"
    event = only(message)
    assert (event.code, event.bus_id) == (31, "00000001:00:00.0")


def test_a_user_who_names_his_program_fatal_does_not_make_a_message_fatal() -> None:
    message = "NVRM: Xid (PCI:0018:01:00): 145, pid=7, name=x Fatal, RLW_SRC_TRACK Nonfatal XC0 i0 Link 01 (0x4)"
    assert only(message).fatal is False


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
    made.settings["kernel_log"] = str(made.file("kmsg", f"{QUIET}\n"))
    return made


def log(world: World, *lines: str) -> None:
    world.file("kmsg", "".join(f"{line}\n" for line in (QUIET, *lines)))


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
    log(world, FALLEN, FALLEN.replace("3600500000", "7000500000"))
    assert world.one("gpu_xid")["verdict"] == "fail"


def test_faults_of_two_gpus_are_two_records_and_an_application_is_not_hardware(world: World) -> None:
    log(world, FALLEN, "4,2,9000000,c;NVRM: Xid (PCI:0001:00:00): 31, pid=5, name=python3, MMU Fault")
    fallen, fault = world.run("gpu_xid")
    assert (fallen["verdict"], fallen["scope"]) == ("fail", {"gpu": [2]})
    assert (fault["verdict"], fault["class"], fault["scope"]) == ("warn", "software", {"gpu": [0]})
    assert "latched" not in fault["context"]


def test_a_fatal_error_of_a_switch_counts(world: World) -> None:
    world.file("sys/bus/pci/devices/0000:c1:00.0/vendor", "0x10de\n")
    log(world, "3,2,9,-;nvidia-nvswitch1: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 41 sourcetrack timeout error")
    found = world.one("gpu_xid")
    assert (found["verdict"], found["context"]["action"]) == ("fail", "reset")
    assert found["scope"] == {"bus_id": "00000000:C1:00.0"}


@pytest.mark.parametrize("line", FORGED.values(), ids=FORGED.keys())
def test_no_user_drains_a_node_by_way_of_the_kernel_log(world: World, line: str) -> None:
    """Nothing is latched either, so neither this prolog nor the next one takes the node from its jobs."""
    log(world, line)
    records = [*world.run("gpu_xid", "prolog"), *world.run("latches", "prolog")]
    assert suite.status("prolog", records) == 0
    assert not any(entry["verdict"] == "fail" or entry["context"].get("latched") for entry in records)


@pytest.mark.parametrize("address", ["0099:00:00", "0101:00:00", "ffff:ff:1f"])
def test_a_message_about_an_address_that_is_no_nvidia_device_here_is_told_and_drains_nobody(
    world: World, address: str
) -> None:
    """0101:00:00 is an adapter of another maker."""
    log(world, FALLEN.replace("0003:00:00", address))
    record = world.one("gpu_xid", "prolog")
    assert (record["verdict"], suite.status("prolog", [record])) == ("warn", 0)
    assert "no NVIDIA device of this machine has that PCI address" in record["reason"]
    assert world.state["latched"] == {}


def test_a_gpu_that_left_the_bus_is_still_known_to_be_of_this_machine(world: World) -> None:
    world.one("gpu_xid", "boot")
    (world.folder / "sys/bus/pci/devices/0003:00:00.0").rename(world.folder / "gone")
    log(world, FALLEN)
    assert world.one("gpu_xid", "prolog")["verdict"] == "fail"


def test_a_text_file_in_place_of_the_kernels_records_is_an_error_and_no_pass(world: World) -> None:
    world.one("gpu_xid")
    for text in ("\n", "", "[ 1.0] Linux version 6.8.0\n", "2026-11-21T21:00:00,500000+00:00 Linux\n"):
        world.file("kmsg", text)
        found = world.one("gpu_xid")
        assert (found["verdict"], found["class"]) == ("error", "infra")
        assert "holds no record of a kernel log" in found["reason"]
    world.settings["kernel_log"] = str(world.folder / "absent")
    assert "absent cannot be read: No such file" in world.one("gpu_xid")["reason"]


def test_the_device_gives_a_record_with_each_read_and_an_error_for_those_that_were_overwritten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[t.Any] = [
        f"{QUIET}\n",
        BrokenPipeError(),
        f"{FALLEN}\n DEVICE=+pci:0003:00:00.0\n",
        BlockingIOError(),
    ]

    def read(file: int, size: int) -> bytes:
        assert size >= 8192, "the kernel refuses to give part of a record"
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return t.cast(bytes, answer.encode())

    monkeypatch.setattr(checks_xid.os, "read", read)
    log = checks_xid.kernel_log(world.settings["kernel_log"])
    monkeypatch.undo()
    assert (log.lines, log.last, log.lost, answers) == ([FALLEN], 1412, 1411, [])


def test_a_user_who_floods_the_log_hides_no_message_in_silence(world: World) -> None:
    """The oldest records go; that is told once for each time, and it drains nobody."""
    log(world)
    assert world.one("gpu_xid")["verdict"] == "pass"
    world.file("kmsg", "".join(f"3,{number},9000000,-;overlayfs: failed\n" for number in range(1, 50)))
    assert world.one("gpu_xid")["verdict"] == "pass"
    world.file("kmsg", "".join(f"3,{number},9000000,-;overlayfs: failed\n" for number in range(5000, 5050)))
    record = world.one("gpu_xid", "prolog")
    assert (record["verdict"], record["class"], record["samples"]) == ("error", "infra", [{"lost": 4950}])
    assert "an Xid among them was not seen" in record["reason"]
    assert suite.status("prolog", [record]) == 0
    assert world.one("gpu_xid")["verdict"] == "pass"


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="this machine does not let us read /dev/kmsg")
def test_the_log_of_a_real_kernel_is_read_to_its_end() -> None:
    try:
        checks_xid.kernel_log("/dev/kmsg")
    except BrokenError as exc:
        pytest.skip(str(exc))


MOUNT = """\
import ctypes, sys
libc = ctypes.CDLL(None)
options = f"lowerdir={sys.argv[1]},upperdir=/tmp/upper,workdir=/tmp/work".encode()
libc.mount(b"overlay", b"/mnt", b"overlay", 0, options)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to become somebody who is not root")
@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_real_user_writes_a_message_into_the_log_of_this_kernel_and_drains_nobody(world: World, end: str) -> None:
    """A mount of overlayfs that fails in a user namespace has the kernel quote a path of the user's."""
    message = f"NVRM: Xid (PCI:0003:00:00): 79, pid={os.getpid()}, GPU has fallen off the bus."
    path = f"/nowhere/x{end}{message}".replace(":", "\\:").replace(",", "\\,")
    argv = ["unshare", "--user", "--map-root-user", "--mount", "/usr/bin/python3", "-c", MOUNT, path]
    done = subprocess.run(argv, user=65534, cwd="/", capture_output=True, check=False)
    try:
        lines = checks_xid.kernel_log("/dev/kmsg").lines
    except BrokenError as exc:
        pytest.skip(str(exc))
    quoted = [line for line in lines if f"79, pid={os.getpid()}," in line and f"\\x{ord(end):02x}NVRM" in line]
    if not quoted:
        pytest.skip(f"this kernel lets users mount no overlay, or quotes nothing of it: {done.stderr.decode()}")
    world.settings["kernel_log"] = "/dev/kmsg"
    records = [*world.run("gpu_xid", "prolog"), *world.run("latches", "prolog")]
    assert f"pid={os.getpid()}" not in str(records)
    assert (suite.status("prolog", records), world.state["latched"]) == (0, {})


def test_a_machine_without_gpus_has_nothing_to_look_for(tmp_path: Path) -> None:
    world = World(tmp_path, "generic")
    world.profile["gpu"] = {"model": None, "count": 0}
    assert world.one("gpu_xid")["verdict"] == "skipped"


def test_an_unknown_machine_type_is_looked_at_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, "Standard_ND999_v9")
    machines.ndv4_sysfs(tmp_path / "sys")
    world.settings["kernel_log"] = str(world.file("kmsg", f"{FALLEN}\n"))
    assert world.one("gpu_xid")["verdict"] == "fail"
