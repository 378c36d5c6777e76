# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual machines of the lab: command line, plan, disks, seed, process and monitor, without QEMU."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import types
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.lab.machine import machine as lab_machine_machine
from ansible_collections.hpcai.gpu_cluster.lab.machine.lab import (
    Known,
    Lab,
    MachineAction,
    main,
    plan,
)
from ansible_collections.hpcai.gpu_cluster.lab.machine.machine import Machine, Plugs, Qmp, System
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome

DISKS = [{"name": f"disk{n}", "size": 1 << 20, "serial": f"HPCAI-c1-{n}"} for n in (1, 2, 3)]
DATA: dict[str, t.Any] = {
    "name": "c1",
    "image": "/images/bookworm-0",
    "memory": 1024,
    "cpus": 2,
    "port": 23456,
    "address": "10.214.0.11/24",
    "network": "239.1.2.3:22999",
    "accelerator": "tcg",
    "disks": DISKS,
    "slots": 4,
    "route_out": False,
    "kernel_options": ["a=b"],
    "options": ["-s"],
}
SPEC = lab_machine_machine.read(DATA)


def words(disks: t.Sequence[lab_machine_machine.MachineDisk] = SPEC.disks, **other: t.Any) -> list[str]:
    return lab_machine_machine.qemu(SPEC._replace(**other), "/lab/machines/c1", disks, "/lab/machines/c1/initrd")


def after(option: str, command: t.Sequence[str]) -> list[str]:
    return [value for word, value in zip(command, command[1:]) if word == option]


class TestSpec:
    def test_is_the_same_after_json(self) -> None:
        assert lab_machine_machine.read(json.loads(json.dumps(lab_machine_machine.plain(SPEC)))) == SPEC

    @pytest.mark.parametrize(
        "wrong, named",
        [
            ({"name": "C1"}, "name 'C1'"),
            ({"name": "../x"}, "name '../x'"),
            ({"memory": 1}, "memory 1 MiB"),
            ({"cpus": 0}, "0 cpus"),
            ({"port": 22}, "port 22"),
            ({"accelerator": "hvf"}, "accelerator hvf"),
            ({"slots": 2}, "3 disks in 2 slots"),
            ({"slots": 31}, "31 slots"),
            ({"disks": [DISKS[0], DISKS[0]]}, "each name once"),
            ({"disks": [DISKS[0], {**DISKS[1], "serial": "HPCAI-c1-1"}]}, "each serial once"),
            ({"disks": [{**DISKS[0], "serial": "x,drive=/etc/passwd"}]}, "up to 20 letters"),
            ({"disks": [{**DISKS[0], "name": "../disk"}]}, "names of lower-case letters"),
            ({"disks": [{**DISKS[0], "size": 512}]}, "a disk below 1 MiB"),
            ({"memory": "much"}, "not sound"),
        ],
    )
    def test_refuses_what_qemu_would_not_take_or_take_for_something_else(
        self, wrong: dict[str, t.Any], named: str
    ) -> None:
        with pytest.raises(lab_machine_machine.MachineError, match=named.replace("(", "[(]").replace("../", "[.][.]/")):
            lab_machine_machine.read({**DATA, **wrong})

    def test_refuses_a_description_that_lacks_something(self) -> None:
        with pytest.raises(lab_machine_machine.MachineError, match="memory"):
            lab_machine_machine.read({name: value for name, value in DATA.items() if name != "memory"})

    def test_two_labs_have_two_networks(self) -> None:
        assert lab_machine_machine.group("/a") == lab_machine_machine.group("/a") != lab_machine_machine.group("/b")
        assert 224 <= int(lab_machine_machine.group("/a").split(".", maxsplit=1)[0]) <= 239

    def test_port_is_stable_free_and_not_taken_twice(self) -> None:
        first = lab_machine_machine.port("/a", (), lambda number: True)
        assert lab_machine_machine.port("/a", (), lambda number: True) == first
        assert lab_machine_machine.port("/a", {first}, lambda number: number != first + 1) not in (first, first + 1)
        with pytest.raises(lab_machine_machine.MachineError, match="no free port"):
            lab_machine_machine.port("/a", (), lambda number: False)


class TestCommandLine:
    def test_machine_can_be_found_reached_and_rebooted(self) -> None:
        command = words()
        assert command[0] == "qemu-system-x86_64"
        assert after("-pidfile", command) == ["/lab/machines/c1/pid"]
        assert after("-serial", command) == ["file:/lab/machines/c1/console.log"]
        assert "hostfwd=tcp:127.0.0.1:23456-:22" in after("-netdev", command)[0]
        assert "-no-reboot" not in command
        assert after("-append", command)[0].endswith(" a=b")
        assert command[-1] == "-s"

    def test_every_disk_is_in_its_slot_with_its_serial(self) -> None:
        devices = after("-device", words())
        assert [f"nvme,id=disk{n},bus=slot{n},drive=disk{n}-content,serial=HPCAI-c1-{n}" for n in (1, 2, 3)] == devices[
            -3:
        ]
        nodes = [json.loads(node) for node in after("-blockdev", words())]
        assert [node["file"]["filename"] for node in nodes] == [f"/lab/machines/c1/disk{n}.raw" for n in (1, 2, 3)]
        assert sum("pcie-root-port" in device for device in devices) == 4

    def test_no_disk_waits_for_the_host(self) -> None:
        assert all(json.loads(node)["cache"] == {"no-flush": True} for node in after("-blockdev", words()))

    def test_there_can_be_two_processors_as_one_alone_has_no_memory_barriers(self) -> None:
        given = [after("-smp", words(cpus=number))[0] for number in (1, 2, 4)]
        assert given == ["1,maxcpus=2", "2,maxcpus=2", "4,maxcpus=4"]

    def test_a_missing_disk_leaves_its_slot_empty(self) -> None:
        devices = after("-device", words(SPEC.disks[1:]))
        assert [device.split(",")[2] for device in devices if device.startswith("nvme")] == ["bus=slot2", "bus=slot3"]

    def test_route_out_only_when_asked_for(self) -> None:
        assert "restrict=on" in after("-netdev", words())[0]
        assert "restrict=off" in after("-netdev", words(route_out=True))[0]

    def test_accelerators(self) -> None:
        assert after("-accel", words())[0].startswith("tcg,thread=multi")
        assert after("-accel", words(accelerator="kvm")) == ["kvm"]
        assert "erms=off" in after("-cpu", words())[0] and after("-cpu", words(accelerator="kvm")) == ["host"]
        assert "tsc=reliable clearcpuid=rep_good" in after("-append", words())[0]
        assert "tsc=reliable" not in after("-append", words(accelerator="kvm"))[0]
        assert "clearcpuid" not in after("-append", words(accelerator="kvm"))[0]

    def test_hot_plugged_disk_is_the_one_of_the_command_line(self) -> None:
        given = lab_machine_machine.device(SPEC, SPEC.disks[1])
        assert given == {
            "driver": "nvme",
            "id": "disk2",
            "bus": "slot2",
            "drive": "disk2-content",
            "serial": "HPCAI-c1-2",
        }
        assert json.dumps(lab_machine_machine.block_node("/lab/machines/c1", SPEC.disks[1])) in words()


@pytest.mark.parametrize(
    "known, wanted, expected",
    [
        ({}, {}, []),
        ({}, {"c1": SPEC}, ["make", "start"]),
        ({"c1": Known(SPEC, True)}, {"c1": SPEC}, []),
        ({"c1": Known(SPEC, False)}, {"c1": SPEC}, ["start"]),
        ({"c1": Known(SPEC._replace(memory=1), True)}, {"c1": SPEC}, ["remove", "make", "start"]),
        ({"c1": Known(None, False)}, {"c1": SPEC}, ["remove", "make", "start"]),
        ({"c1": Known(SPEC, True)}, {}, ["remove"]),
    ],
)
def test_plan(known: dict[str, Known], wanted: dict[str, lab_machine_machine.MachineSpec], expected: list[str]) -> None:
    assert [action.kind for action in plan(known, wanted)] == expected


def test_plan_removes_before_it_makes_and_says_why() -> None:
    todo = plan({"c1": Known(SPEC._replace(memory=1, cpus=1), True), "c2": Known(SPEC, True)}, {"c1": SPEC})
    assert todo[0] == MachineAction("remove", "c2", "not wanted any more")
    assert todo[1].reason == "other memory, cpus"


class TestPlugs:
    def test_remembers_what_is_out(self, tmp_path: Path) -> None:
        path = tmp_path / "plugs.json"
        plugs = Plugs(path, SPEC.disks)
        plugs.pull(plugs.chosen(["disk2"]))
        assert [disk.name for disk in Plugs(path, SPEC.disks).present()] == ["disk1", "disk3"]
        Plugs(path, SPEC.disks).push(plugs.chosen([]))
        assert Plugs(path, SPEC.disks).present() == list(SPEC.disks)

    def test_a_replaced_disk_has_another_serial_of_legal_length(self, tmp_path: Path) -> None:
        disk = lab_machine_machine.MachineDisk("disk1", 1 << 20, "S" * 20)
        plugs = Plugs(tmp_path / "plugs.json", [disk])
        for dummy in range(2):
            plugs.replace(disk)
        assert plugs.all()[0].serial == "S" * 17 + "-R2"

    def test_refuses_an_unknown_disk(self, tmp_path: Path) -> None:
        with pytest.raises(lab_machine_machine.MachineError, match="no disk disk9; there are disk1, disk2, disk3"):
            Plugs(tmp_path / "plugs.json", SPEC.disks).chosen(["disk9"])


class TestDisks:
    def test_new_disks_are_empty_and_take_no_room(self, tmp_path: Path) -> None:
        lab_machine_machine.make(tmp_path, SPEC.disks)
        assert (tmp_path / "disk1.raw").stat().st_blocks == 0

    def test_a_digest_is_that_of_the_content_whether_it_is_in_a_hole_or_not(self, tmp_path: Path) -> None:
        """The same for holes and zeros; another one for each byte anywhere, its place, and the size."""
        disk, path = SPEC.disks[0], tmp_path / "disk1.raw"
        size = (1 << 20) + 1000  # it does not end with a block

        def digest(*written: tuple[int, bytes], length: int = size, fill: bool = False) -> str:
            with path.open("wb") as handle:
                handle.truncate(length)
                if fill:
                    handle.write(bytes(length))
                for place, data in written:
                    handle.seek(place)
                    handle.write(data)
            return lab_machine_machine.digest(tmp_path, disk)

        last = size - 1
        assert digest() == digest(fill=True)
        assert digest((5, b"x"), (last, b"x")) == digest((5, b"x"), (last, b"x"), fill=True)
        contents = [
            (),
            ((0, b"x"),),
            ((0, b"y"),),
            ((1, b"x"),),
            ((1 << 16, b"x"),),
            ((3 << 16, b"x"),),
            ((last, b"x"),),
        ]
        different = [digest(*content, fill=fill) for content in contents for fill in (False, True)]
        assert len(set(different)) == len(contents)
        assert digest(length=size - 1) not in different

    def test_making_again_keeps_and_blanking_empties(self, tmp_path: Path) -> None:
        lab_machine_machine.make(tmp_path, SPEC.disks)
        empty = lab_machine_machine.digest(tmp_path, SPEC.disks[1])
        with (tmp_path / "disk2.raw").open("r+b") as handle:
            handle.seek(1 << 19)
            handle.write(b"data")
        written = lab_machine_machine.digest(tmp_path, SPEC.disks[1])
        lab_machine_machine.make(tmp_path, SPEC.disks)
        assert lab_machine_machine.digest(tmp_path, SPEC.disks[1]) == written != empty
        lab_machine_machine.blank(tmp_path, SPEC.disks[1:2])
        assert lab_machine_machine.digest(tmp_path, SPEC.disks[1]) == empty


def test_seed_is_an_archive_that_cpio_reads(tmp_path: Path) -> None:
    files = [
        lab_machine_machine.SeedFile("hosts", b"127.0.0.1 localhost\n"),
        lab_machine_machine.SeedFile("key", b"x", 0o600),
        lab_machine_machine.SeedFile("empty", b""),
    ]
    text = lab_machine_machine.append(b"base", files)
    assert text.startswith(b"base") and len(text) % 512 == 0
    (tmp_path / "a.cpio").write_bytes(lab_machine_machine.archive(files))
    with (tmp_path / "a.cpio").open("rb") as archive:
        done = subprocess.run(
            ["cpio", "-idm", "--quiet"], stdin=archive, cwd=tmp_path, capture_output=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "seed/hosts").read_bytes() == b"127.0.0.1 localhost\n"
    assert (tmp_path / "seed/key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "seed/empty").read_bytes() == b""


class TestProcess:
    def test_only_our_own_machine_is_taken_for_it(self, tmp_path: Path) -> None:
        own = [b"qemu-system-x86_64", b"-pidfile", os.fsencode(tmp_path / "pid"), b""]
        assert lab_machine_machine.is_machine(own, tmp_path)
        assert not lab_machine_machine.is_machine(own, tmp_path / "other")
        (tmp_path / "link").symlink_to(tmp_path)
        assert lab_machine_machine.is_machine(own, tmp_path / "link"), "by whatever name the lab is reached"
        assert not lab_machine_machine.is_machine([b"vim", b"-pidfile", os.fsencode(tmp_path / "pid")], tmp_path)
        assert not lab_machine_machine.is_machine([b""], tmp_path)

    def test_kill_spares_a_process_that_got_the_number(self, tmp_path: Path) -> None:
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as innocent:
            (tmp_path / "pid").write_text(f"{innocent.pid}\n")
            lab_machine_machine.kill(tmp_path)
            assert innocent.poll() is None
            innocent.kill()

    def test_kill_ends_the_machine(self, tmp_path: Path) -> None:
        sleep = [sys.executable, "-c", "import time; time.sleep(600)", "-pidfile", str(tmp_path / "pid")]
        with subprocess.Popen(["qemu-system-test", *sleep[1:]], executable=sys.executable) as machine:
            (tmp_path / "pid").write_text(f"{machine.pid}\n")
            while lab_machine_machine.pid_of(tmp_path) is None and machine.poll() is None:
                pass
            threading.Thread(target=machine.wait, daemon=True).start()
            lab_machine_machine.kill(tmp_path)
            assert lab_machine_machine.pid_of(tmp_path) is None

    def test_a_program_that_cannot_be_started_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(lab_machine_machine.MachineError, match="/no/qemu cannot be started"):
            lab_machine_machine.start(["/no/qemu"], tmp_path)


class Monitor:
    """Answers one QMP conversation as it is told to."""

    def __init__(self, path: Path, *answers: str) -> None:
        self.heard: list[dict[str, t.Any]] = []
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(path))
        self._server.listen(1)
        self._answers = ['{"return": {}}', *answers]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection = self._server.accept()[0]
        # The other side may leave at any time.
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rw") as stream:
            stream.write('{"QMP": {"version": {}}}\n')
            stream.flush()
            for answer in self._answers:
                self.heard.append(json.loads(stream.readline()))
                stream.write(answer + "\n")
                stream.flush()


class TestMonitor:
    EVENT = '{"event": "DEVICE_DELETED", "data": {"device": "disk2"}}'

    def test_events_before_an_answer_are_not_lost(self, tmp_path: Path) -> None:
        monitor = Monitor(tmp_path / "qmp", self.EVENT + '\n{"return": 1}')
        with Qmp(str(tmp_path / "qmp")) as qmp:
            assert qmp.ask("device_del", {"id": "disk2"}) == 1
            assert qmp.await_event("DEVICE_DELETED", 1, device="disk2")
        assert monitor.heard[1] == {"execute": "device_del", "arguments": {"id": "disk2"}}

    def test_another_event_is_not_taken_for_it(self, tmp_path: Path) -> None:
        Monitor(tmp_path / "qmp", self.EVENT + '\n{"return": {}}', "{}")
        with Qmp(str(tmp_path / "qmp")) as qmp:
            qmp.ask("device_del", {"id": "disk1"})
            assert not qmp.await_event("DEVICE_DELETED", 0.1, device="disk1")

    def test_silence_ends(self, tmp_path: Path) -> None:
        Monitor(tmp_path / "qmp", '{"event": "STOP"}', "{}")
        with Qmp(str(tmp_path / "qmp"), timeout=0.2) as qmp, pytest.raises(
            lab_machine_machine.MachineError, match=r"stop on .* within"
        ):
            qmp.ask("stop")

    def test_refusals_say_what_was_asked(self, tmp_path: Path) -> None:
        Monitor(tmp_path / "qmp", '{"error": {"class": "X", "desc": "Device \'disk9\' not found"}}')
        with Qmp(str(tmp_path / "qmp")) as qmp, pytest.raises(
            lab_machine_machine.MachineError, match=r"device_del.*disk9.*not found"
        ):
            qmp.ask("device_del", {"id": "disk9"})

    def test_a_dead_monitor_is_an_error_not_a_wait(self, tmp_path: Path) -> None:
        with pytest.raises(lab_machine_machine.MachineError, match="does not answer"):
            Qmp(str(tmp_path / "qmp"))
        Monitor(tmp_path / "qmp")
        with Qmp(str(tmp_path / "qmp")) as qmp, pytest.raises(
            lab_machine_machine.MachineError, match=r"ended|broke off|did not take"
        ):
            qmp.ask("query-status")


class TestSystem:
    def test_a_machine_that_went_off_is_not_waited_for(self, tmp_path: Path) -> None:
        with pytest.raises(lab_machine_machine.MachineError, match="went off"):
            System(1, tmp_path).await_boot(60, lambda: None)

    def test_waiting_ends(self, tmp_path: Path) -> None:
        with pytest.raises(lab_machine_machine.MachineError, match=r"not booted after 0.5 s: SSH does not answer"):
            System(1, tmp_path).await_boot(0.5, lambda: True)

    def test_host_keys_are_checked(self, tmp_path: Path) -> None:
        command = System(23456, tmp_path).argv("true")
        assert "StrictHostKeyChecking=yes" in command and f"UserKnownHostsFile={tmp_path}/known_hosts" in command

    def test_commands_share_a_connection(self, tmp_path: Path) -> None:
        system = System(23456, tmp_path)
        assert f"ControlPath={tmp_path}/ssh-23456" in system.argv("true")

    def test_the_connection_to_the_boot_that_was_waited_for_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The system that goes down still answers; what it answered on would stay without an answer."""
        system = System(1, tmp_path)
        answers = ["old stopping", "old running", "new running"]
        asked: list[str] = []

        def run(argv: list[str], *dummy: object) -> Outcome:
            asked.append("exit" if "exit" in argv else "boot")
            system.control.touch()
            return Outcome(0, "" if "exit" in argv else answers.pop(0), "", 0.1)

        monkeypatch.setattr(lab_machine_machine, "run", run)
        monkeypatch.setattr(System, "_listens", lambda dummy, seconds: True)
        assert system.await_boot(60, lambda: True, after="old") == "new"
        assert asked == ["boot", "exit", "boot", "exit", "boot"]
        assert system.control.exists()

    def test_a_system_that_answers_late_is_not_kept_from_it_by_questions(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock, asked = [0.0], []

        def wait(seconds: float) -> None:
            clock[0] += seconds

        def listens(dummy: System, seconds: float) -> bool:
            asked.append(seconds)
            wait(seconds)
            return False

        monkeypatch.setattr(lab_machine_machine, "time", types.SimpleNamespace(monotonic=lambda: clock[0], sleep=wait))
        monkeypatch.setattr(System, "_listens", listens)
        with pytest.raises(lab_machine_machine.MachineError, match="not booted after 150 s"):
            System(1, tmp_path).await_boot(150, lambda: True)
        assert asked[:6] == [2, 4, 8, 16, 32, 60] and 0 < asked[6] < 60 and len(asked) == 7

    def test_who_waits_for_a_boot_hangs_up_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[list[str]] = []
        monkeypatch.setattr(lab_machine_machine, "run", lambda argv, *dummy: asked.append(argv))
        System(1, tmp_path).hang_up()
        assert asked == [], "there is no connection"
        (tmp_path / "ssh-1").touch()
        with pytest.raises(lab_machine_machine.MachineError, match="went off"):
            System(1, tmp_path).await_boot(60, lambda: None)
        assert asked == [["ssh", "-O", "exit", "-o", f"ControlPath={tmp_path}/ssh-1", "127.0.0.1"]]
        assert not (tmp_path / "ssh-1").exists()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """One machine that was made and is off."""
    directory = tmp_path / "machines/c1"
    directory.mkdir(parents=True)
    (directory / "machine.json").write_text(json.dumps(DATA))
    lab_machine_machine.make(directory, SPEC.disks)
    return Lab(tmp_path)


class TestMachine:
    def test_disks_come_and_go_while_it_is_off(self, lab: Lab) -> None:
        assert lab.machine("c1").remove(["disk1"])
        assert not lab.machine("c1").remove(["disk1"])
        assert [disk.name for disk in lab.machine("c1").plugs.present()] == ["disk2", "disk3"]
        assert lab.machine("c1").add([])
        assert not lab.machine("c1").add([])

    def test_a_disk_that_is_refused_does_not_make_it_forget_the_others(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[str, str]] = []

        class Refusing:
            def __init__(self, path: str) -> None: ...

            def __enter__(self) -> t.Any:
                return self

            def __exit__(self, *dummy: object) -> None: ...

            def await_event(self, name: str, seconds: float, **data: t.Any) -> bool:
                return True

            def ask(self, command: str, arguments: dict[str, t.Any]) -> None:
                asked.append((command, arguments.get("id") or arguments["node-name"]))
                if (command, arguments.get("id")) in {("device_del", "disk2"), ("device_add", "disk1")}:
                    raise lab_machine_machine.MachineError("refused")

        monkeypatch.setattr(lab_machine_machine, "Qmp", Refusing)
        monkeypatch.setattr(Machine, "pid", 1)
        with pytest.raises(lab_machine_machine.MachineError, match="refused"):
            lab.machine("c1").remove(["disk1", "disk2"])
        assert [disk.name for disk in lab.machine("c1").plugs.present()] == ["disk2", "disk3"]
        with pytest.raises(lab_machine_machine.MachineError, match="refused"):
            lab.machine("c1").add([])
        assert asked[-1] == ("blockdev-del", "disk1-content"), "or the next attempt finds it there"
        assert [disk.name for disk in lab.machine("c1").plugs.present()] == ["disk2", "disk3"]

    def test_redeployed_disks_are_empty_and_others(self, lab: Lab) -> None:
        machine = lab.machine("c1")
        empty = machine.digest("disk1")
        machine.backing("disk1").write_bytes(b"\1" * (1 << 20))
        machine.blank(replace=True)
        assert machine.digest("disk1") == empty
        assert {disk.serial for disk in machine.plugs.all()} == {f"HPCAI-c1-{n}-R1" for n in (1, 2, 3)}

    def test_a_disk_in_a_running_machine_is_not_emptied(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        machine = lab.machine("c1")
        monkeypatch.setattr(Machine, "pid", 1)
        with pytest.raises(lab_machine_machine.MachineError, match="disk1 is plugged into c1, which runs"):
            machine.blank(["disk1"])
        machine.plugs.pull(machine.plugs.chosen(["disk1"]))
        machine.blank(["disk1"])

    def test_what_is_off_cannot_be_reset_and_need_not_be_stopped(self, lab: Lab) -> None:
        with pytest.raises(lab_machine_machine.MachineError, match="c1 is off"):
            lab.machine("c1").reset()
        assert not lab.machine("c1").stop()
        assert not lab.machine("c1").kill()

    def test_an_unknown_machine_is_named(self, lab: Lab) -> None:
        with pytest.raises(lab_machine_machine.MachineError, match="no machine c9"):
            lab.machine("c9")


class TestLab:
    def test_a_machine_keeps_its_port(self, lab: Lab) -> None:
        asked = {name: value for name, value in DATA.items() if name not in ("port", "network")}
        wanted = lab.wanted([asked, {**asked, "name": "c2"}])
        assert wanted["c1"].port == DATA["port"] != wanted["c2"].port
        assert wanted["c1"].network == wanted["c2"].network == lab_machine_machine.group(str(lab.state_dir))

    def test_check_changes_nothing(self, lab: Lab) -> None:
        assert [action.kind for action in lab.apply({}, check=True)] == ["remove"]
        assert lab.names() == ["c1"]
        assert [action.kind for action in lab.apply({})] == ["remove"]
        assert lab.names() == []


class TestProgram:
    def test_answers_are_json_and_errors_are_said(self, lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--lab", str(lab.state_dir), "status"]) == 0
        assert json.loads(capsys.readouterr().out)["c1"]["pid"] is None
        assert main(["--lab", str(lab.state_dir), "remove", "c1", "disk9"]) == 1
        assert "remove: no disk disk9" in capsys.readouterr().err

    def test_the_file_in_the_role_needs_no_installation(self, lab: Lab) -> None:
        program = Path(__file__).resolve().parents[3] / "lab/roles/lab_machines/files/machine.py"
        command = [sys.executable, "-I", str(program), "--lab", str(lab.state_dir), "blank", "c1", "disk1", "--replace"]
        assert json.loads(subprocess.run(command, capture_output=True, check=True, cwd="/").stdout) == {"changed": True}


class TestAccelerator:
    @pytest.fixture
    def image(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(lab_machine_machine.os, "access", lambda *dummy: True)
        (tmp_path / "vmlinuz").touch()
        return tmp_path

    @pytest.mark.parametrize("says, chosen", [(lab_machine_machine.MARK, "kvm"), ("Booting from ROM...", "tcg")])
    def test_what_boots_is_used_and_remembered(
        self, image: Path, monkeypatch: pytest.MonkeyPatch, says: str, chosen: str
    ) -> None:
        monkeypatch.setattr(lab_machine_machine, "probe", lambda dummy: ["echo", says])
        first = lab_machine_machine.choose(image, image / "memory.json")
        assert first.accelerator == chosen and "earlier" not in first.reason
        assert "found out earlier" in lab_machine_machine.choose(image, image / "memory.json").reason

    def test_a_kernel_that_hangs_is_not_waited_for(self, image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lab_machine_machine, "LIMIT", 0.3)
        monkeypatch.setattr(lab_machine_machine, "probe", lambda dummy: ["sleep", "60"])
        answer = lab_machine_machine.choose(image, image / "memory.json")
        assert answer.accelerator == "tcg" and "did not end within 0.3 s" in answer.reason

    def test_without_the_device_nothing_is_tried(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lab_machine_machine.os, "access", lambda *dummy: False)
        assert lab_machine_machine.choose(tmp_path, tmp_path / "memory.json").accelerator == "tcg"
        assert not (tmp_path / "memory.json").exists()


def test_what_the_rehearsal_says_of_all_hosts_takes_nothing_from_its_machines() -> None:
    """Ansible reads group_vars/all beside an inventory after the variables of groups in another one's file."""
    lab = Path(__file__).resolve().parents[3] / "lab"
    everywhere = yaml.safe_load((lab / "inventory/group_vars/all.yml").read_text())
    template = (lab / "roles/lab_machines/templates/hosts.yml.j2").read_text()
    groups = template.partition("      vars:\n")[2]
    assert "ansible_user:" in groups
    assert not [name for name in everywhere if f"        {name}:" in groups]
    assert "          shared_storage_mounts:\n            - {path: /shared, type: nfs" in template
