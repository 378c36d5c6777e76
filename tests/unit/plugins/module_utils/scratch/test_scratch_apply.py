# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the steps of a plan are done, and above all when they are not."""

from __future__ import annotations

import json
import os
import stat
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest
from scratch_captured import Captured, blank
from scratch_world import request_of

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import apply, block_device, boot, module
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply import ApplyError, Executor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    ArrayMember,
    FstabLine,
    ScratchAction,
    ScratchArray,
    ScratchDisk,
    ScratchMachine,
    ScratchMount,
    ScratchPlan,
    ScratchRequest,
    Signature,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.module import RecordInputs, conclude
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read import (
    FSTAB,
    MARKER,
    in_container,
    read_machine,
)

UUID = "68706361:692e6e76:00000000:00000001"
REQUEST = request_of(models=("QEMU NVMe Ctrl",))
TOLD = RecordInputs("n1")


def wipe(number: int = 0) -> ScratchAction:
    path = f"/dev/nvme{number}n1"
    return ScratchAction("wipe", ("wipefs", "--all", path), path, (f"SERIAL-{number}",))


def create() -> ScratchAction:
    return ScratchAction("create", ("mdadm", "--create"), "/dev/md/scratch", ("SERIAL-0", "SERIAL-1"), UUID)


def planned(*actions: ScratchAction) -> ScratchPlan:
    return ScratchPlan("pass", "", "", actions=actions, array=UUID)


def execute(place: Captured, saw: ScratchMachine, *actions: ScratchAction) -> Executor:
    executor = Executor(place, lambda through: read_machine(place, REQUEST, through), 0.2)
    executor.execute(planned(*actions), saw)
    return executor


def programs(place: Captured) -> list[str]:
    """The programs that could have written something."""
    return [call[0] for call in place.calls if call[:2] != ["wipefs", "--no-act"] and call[0] != "udevadm"]


def put(place: Captured, path: str, data: bytes, offset: int = 0) -> None:
    with place.at(path).open("r+b") as handle:
        handle.seek(offset)
        handle.write(data)


def sign(place: Captured, path: str, kind: str) -> None:
    found = [{"device": path.rpartition("/")[2], "offset": "0x0", "type": kind, "uuid": "u", "label": None}]
    place.data["wipefs"][path] = {"rc": 0, "out": json.dumps({"signatures": found}), "err": ""}


CHANGES: dict[str, t.Callable[[Captured], t.Any]] = {
    "not blank": lambda place: put(place, "/dev/nvme1n1", b"data", 4096),
    "not blank: ext4": lambda place: sign(place, "/dev/nvme1n1", "ext4"),
    "is there 0 times": lambda place: place.write("/sys/block/nvme1n1/device/serial", "OTHER"),
    "came into use": lambda place: place.write("/sys/block/nvme1n1/holders/md7/x", ""),
    "came into use (/old)": lambda place: place.write("/proc/self/mountinfo", "1 2 259:1 / /old rw - ext4 /dev/x rw\n"),
    "changed while": lambda place: place.write("/sys/block/nvme1n1/size", "8\n"),
    "wipefs --no-act": lambda place: place.data["wipefs"].update({"/dev/nvme1n1": {"rc": 1, "out": "", "err": "EIO"}}),
}


@pytest.mark.parametrize("words", list(CHANGES))
def test_nothing_is_created_on_a_disk_that_changed_after_it_was_read(tmp_path: Path, words: str) -> None:
    place = blank(tmp_path)
    saw = read_machine(place, REQUEST)
    CHANGES[words](place)
    with pytest.raises(ApplyError, match=words.replace("(", r"\(").replace(")", r"\)")):
        execute(place, saw, create())
    assert programs(place) == []


def test_a_wipe_is_of_what_the_plan_saw(tmp_path: Path) -> None:
    place = blank(tmp_path)
    sign(place, "/dev/nvme0n1", "ext4")
    saw = read_machine(place, REQUEST)
    sign(place, "/dev/nvme0n1", "xfs")
    with pytest.raises(ApplyError, match="something else"):
        execute(place, saw, wipe())
    assert programs(place) == []


def test_a_wipe_makes_a_disk_blank_and_leaves_its_neighbour(tmp_path: Path) -> None:
    place = blank(tmp_path)
    for offset in (0, 65 << 20, (128 << 20) - 4):
        put(place, "/dev/nvme0n1", b"data", offset)
        put(place, "/dev/nvme1n1", b"data", offset)
    other = place.at("/dev/nvme1n1").read_bytes()
    execute(place, read_machine(place, REQUEST), wipe())
    one, dummy = read_machine(place, REQUEST).disks
    assert one.blank and place.at("/dev/nvme1n1").read_bytes() == other


def test_disks_are_looked_through_only_where_an_array_is_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand reads of each: of all for each step, eight disks to be wiped would take 64 times that."""
    place = blank(tmp_path, 3)
    put(place, "/dev/nvme0n1", b"data", 0)
    saw = read_machine(place, REQUEST)
    looked: list[str] = []
    plain = block_device.is_blank
    monkeypatch.setattr(
        block_device, "is_blank", lambda root, path, regions: looked.append(path) or plain(root, path, regions)
    )
    execute(place, saw, wipe())
    assert looked == []
    with pytest.raises(ApplyError, match="did not appear within"):
        execute(place, saw, create())
    assert looked == ["/dev/nvme0n1", "/dev/nvme1n1"]


def test_the_first_failing_step_is_the_last_and_says_what_came_back(tmp_path: Path) -> None:
    place = blank(tmp_path)
    place.said["mdadm"] = Outcome(1, "", "mdadm: no luck\n", 0.1)
    mkfs = ScratchAction("mkfs", ("mkfs.xfs",), "/dev/md/scratch", uuid=UUID)
    executor = Executor(place, lambda through: read_machine(place, REQUEST, through), 0.2)
    with pytest.raises(ApplyError, match=r"mdadm --create said: exit status 1: mdadm: no luck"):
        executor.execute(planned(create(), mkfs), read_machine(place, REQUEST))
    assert executor.commands == [["mdadm", "--create"]] and programs(place) == ["mdadm"]


def test_a_missing_tool_stops_before_the_first_step(tmp_path: Path) -> None:
    place = blank(tmp_path)
    place.absent = {"mkfs.xfs"}
    mkfs = ScratchAction("mkfs", ("mkfs.xfs",), "/dev/md/scratch", uuid=UUID)
    with pytest.raises(ApplyError, match=r"mkfs.xfs cannot be found"):
        execute(place, read_machine(place, REQUEST), create(), mkfs)
    assert programs(place) == []


def test_an_array_whose_device_never_appears_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    place = blank(tmp_path)
    with pytest.raises(ApplyError, match="did not appear within"):
        execute(place, read_machine(place, REQUEST), create())


ARRAY = ScratchArray("/dev/md127", UUID, "scratch", "raid0", "clean", 2, ("/dev/nvme0n1", "/dev/nvme1n1"), 1 << 30)
XFS = (Signature("/dev/md127", "xfs", "someone"),)
MKFS = ScratchAction("mkfs", ("mkfs.xfs",), "/dev/md/scratch", uuid=UUID)


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (ScratchMachine(), ScratchMachine(arrays=(ARRAY,)), ""),
        (ScratchMachine(), ScratchMachine(), "0 times"),
        (ScratchMachine(), ScratchMachine(arrays=(ARRAY, ARRAY)), "2 times"),
        (ScratchMachine(), ScratchMachine(arrays=(replace(ARRAY, content=XFS),)), "already holds xfs"),
        (ScratchMachine(arrays=(ARRAY,)), ScratchMachine(arrays=(replace(ARRAY, content=XFS),)), "already holds xfs"),
        (ScratchMachine(building=UUID), ScratchMachine(arrays=(replace(ARRAY, content=XFS),)), ""),
        (
            ScratchMachine(arrays=(replace(ARRAY, content=XFS),)),
            ScratchMachine(arrays=(replace(ARRAY, content=XFS),)),
            "",
        ),
        (ScratchMachine(), ScratchMachine(arrays=(replace(ARRAY, holders=("/dev/dm-0",)),)), "came into use"),
        (
            ScratchMachine(),
            ScratchMachine(arrays=(ARRAY,), mounts=(ScratchMount("/x", "/dev/md127", "9:127", "xfs"),)),
            "came into use",
        ),
    ],
)
def test_a_filesystem_is_made_where_the_plan_saw_none_of_others(
    tmp_path: Path, before: ScratchMachine, now: ScratchMachine, words: str
) -> None:
    place = blank(tmp_path)
    link(place, "md127")
    executor = Executor(place, lambda through: now)
    if not words:
        executor.execute(planned(MKFS), before)
        assert programs(place) == ["mkfs.xfs"]
        return
    with pytest.raises(ApplyError, match=words):
        executor.execute(planned(MKFS), before)
    assert programs(place) == []


def test_fstab_lines_are_commented_out_in_place(tmp_path: Path) -> None:
    place = Captured(tmp_path)
    place.write(FSTAB, "/dev/a / ext4\nUUID=x /scratch xfs\n/dev/b /b xfs\n")
    place.at(FSTAB).chmod(0o640)
    line = FstabLine(2, "UUID=x /scratch xfs", "UUID=x", "/scratch", "xfs")
    apply.comment_out(place, ScratchAction("fstab", lines=(2,), text="# ours: "), [line])
    assert place.at(FSTAB).read_text() == "/dev/a / ext4\n# ours: UUID=x /scratch xfs\n/dev/b /b xfs\n"
    assert stat.S_IMODE(place.at(FSTAB).stat().st_mode) == 0o640
    with pytest.raises(ApplyError, match="not what it was"):
        apply.comment_out(place, ScratchAction("fstab", lines=(2,), text="# ours: "), [line])


@pytest.mark.parametrize("text", ["\n\nUUID=x /s xfs nofail 0 0\n", "# \xe9\nUUID=x /s/ xfs nofail 0 0 \r\n\n"])
def test_lines_of_fstab_are_counted_as_they_stand(tmp_path: Path, text: str) -> None:
    place = blank(tmp_path)
    place.at(FSTAB).parent.mkdir(parents=True, exist_ok=True)
    place.at(FSTAB).write_bytes(text.encode("latin-1"))
    lines = read_machine(place, replace(REQUEST, mount="/s")).fstab
    apply.comment_out(place, ScratchAction("fstab", lines=tuple(line.number for line in lines), text="# "), lines)
    assert b"# UUID=x /s" in place.at(FSTAB).read_bytes()


def test_the_marker_comes_and_goes(tmp_path: Path) -> None:
    place = Captured(tmp_path)
    apply.mark(place, UUID)
    assert read_machine(blank(tmp_path), REQUEST).building == UUID
    apply.unmark(place)
    apply.unmark(place)
    assert not place.at(MARKER).exists()


def directory(path: str, mode: str = "1777") -> ScratchAction:
    return ScratchAction("directory", path=path, owner="root", group="root", mode=mode)


def test_an_account_that_went_away_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    place = blank(tmp_path)
    with pytest.raises(ApplyError, match="no-such-user"):
        execute(place, ScratchMachine(), replace(directory("/s"), owner="no-such-user"))


def test_directories_are_made_with_what_is_above_them(tmp_path: Path) -> None:
    place = Captured(tmp_path)
    apply.have_directory(place, directory("/mnt/scratch/a/b", "1770"))
    assert stat.S_IMODE(place.at("/mnt/scratch/a/b").stat().st_mode) == 0o1770
    assert stat.S_IMODE(place.at("/mnt/scratch/a").stat().st_mode) & 0o777 == 0o755
    apply.have_directory(place, directory("/mnt/scratch/a/b", "0700"))
    assert stat.S_IMODE(place.at("/mnt/scratch/a/b").stat().st_mode) == 0o700


@pytest.mark.parametrize("link", ["/mnt/scratch", "/mnt/scratch/tmp"])
def test_no_link_leads_a_directory_elsewhere(tmp_path: Path, link: str) -> None:
    place = Captured(tmp_path)
    victim = place.at("/victim")
    victim.mkdir(mode=0o700)
    place.at(link).parent.mkdir(parents=True)
    place.at(link).symlink_to(victim)
    with pytest.raises(ApplyError, match="cannot be a directory"):
        apply.have_directory(place, directory("/mnt/scratch/tmp"))
    assert stat.S_IMODE(victim.stat().st_mode) == 0o700 and not list(victim.iterdir())


def link(place: Captured, name: str) -> None:
    place.write(f"/dev/{name}", "")
    place.at("/dev/md").mkdir()
    place.at("/dev/md/scratch").symlink_to(f"../{name}")


OTHER = ScratchArray("/dev/md126", "", "", "raid1", "clean", 2, ("/dev/sda", "/dev/sdb"), 1 << 30)


@pytest.mark.parametrize(
    "action", [MKFS, ScratchAction("mount", ("mount", "/dev/md/scratch", "/s"), "/dev/md/scratch")]
)
def test_a_name_below_dev_md_may_be_that_of_another_array(tmp_path: Path, action: ScratchAction) -> None:
    place = blank(tmp_path)
    link(place, "md126")
    now = ScratchMachine(arrays=(ARRAY, OTHER))
    with pytest.raises(ApplyError, match="/dev/md/scratch is /dev/md126"):
        Executor(place, lambda through: now).execute(planned(action), now)
    assert programs(place) == []


def test_an_array_that_took_the_place_of_ours_is_not_stopped(tmp_path: Path) -> None:
    place = blank(tmp_path)
    stop = ScratchAction("stop", ("mdadm", "--stop", "/dev/md127"), "/dev/md127")
    now = ScratchMachine(arrays=(replace(OTHER, device="/dev/md127"),))
    with pytest.raises(ApplyError, match="another array"):
        Executor(place, lambda through: now).execute(planned(stop), ScratchMachine(arrays=(ARRAY,)))
    assert programs(place) == []


def test_a_mount_that_came_on_top_is_not_unmounted(tmp_path: Path) -> None:
    place = blank(tmp_path)
    ours, other = ScratchMount("/s", "/dev/md127", "9:127", "xfs"), ScratchMount("/s", "server:/x", "0:50", "nfs4")
    umount = ScratchAction("umount", ("umount", "/s"), path="/s")
    saw = ScratchMachine(mounts=(ours,))
    with pytest.raises(ApplyError, match="something else"):
        Executor(place, lambda through: ScratchMachine(mounts=(ours, other))).execute(planned(umount), saw)
    assert programs(place) == []
    Executor(place, lambda through: saw).execute(planned(umount), saw)
    assert programs(place) == ["umount"]


class Script:
    """A planner that answers one plan after the other, the last one for ever."""

    def __init__(self, *plans: ScratchPlan) -> None:
        self.plans = list(plans)
        self.unmountable: list[str] = []

    def __call__(self, machine: ScratchMachine, request: ScratchRequest, told: bool) -> ScratchPlan:
        self.unmountable.append(machine.unmountable)
        return self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]


MOUNT = planned(ScratchAction("mount", ("mount", "/dev/md127", "/s"), "/dev/md127", path="/s"))
REST = planned()


def run(place: Captured, *plans: ScratchPlan) -> tuple[apply.StepResult, Script]:
    script = Script(*plans)
    return apply.ScratchRun(REQUEST, root=place, planner=script).bring(), script


def test_a_run_ends_when_nothing_is_left_to_do(tmp_path: Path) -> None:
    done, dummy = run(blank(tmp_path), planned(directory("/s")), REST)
    assert done.problem is None and done.commands == [["directory", "/s", "root:root", "1777"]]


def test_a_run_that_never_comes_to_rest_is_an_error(tmp_path: Path) -> None:
    done, dummy = run(blank(tmp_path), planned(directory("/s")))
    assert done.problem is not None and done.problem[0] == "infra" and "directory /s" in done.problem[1]
    assert conclude(done.last, done.problem, TOLD, 0.0)["verdict"] == "error"


def test_what_mount_says_goes_to_the_planner_once(tmp_path: Path) -> None:
    place = blank(tmp_path)
    place.said["mount"] = Outcome(32, "", "mount: bad superblock\n", 0.1)
    done, script = run(place, MOUNT, MOUNT, REST)
    assert script.unmountable[0] == "" and "bad superblock" in script.unmountable[1] and script.unmountable[2] == ""
    assert done.problem is not None and done.problem[0] == "software" and len(done.commands) == 2


def test_a_mount_that_does_not_end_is_no_reason_to_make_a_filesystem(tmp_path: Path) -> None:
    place = blank(tmp_path)
    place.said["mount"] = Outcome(None, "", "mount did not end within 180 s", 180.0)
    done, script = run(place, MOUNT, REST)
    assert done.problem is not None and done.problem[0] == "infra" and not any(script.unmountable)


def test_a_boot_waits_for_members_of_an_array_of_unknown_size(tmp_path: Path) -> None:
    about = ArrayMember(UUID, "scratch", "raid0", 2, 0)
    disks = [ScratchDisk(f"/dev/nvme{n}n1", f"S{n}", (), "", "pcie", 1, 1, replace(about, role=n)) for n in range(2)]
    found = ScratchPlan("pass", "", "", disks=("S0",))
    assert apply.incomplete(ScratchMachine(tuple(disks[:1])), found)
    assert not apply.incomplete(ScratchMachine(tuple(disks)), found)
    assert not apply.incomplete(ScratchMachine(tuple(disks[:1])), ScratchPlan("pass", "", "")), "not chosen"


def test_a_boot_waits_for_nobody_where_all_disks_are_there_and_some_are_no_members(tmp_path: Path) -> None:
    """A creation was cut off, or a disk was exchanged: with as many disks as the machine has, none will come."""
    place = blank(tmp_path)
    one, other = read_machine(place, REQUEST).disks
    member = ArrayMember(UUID, "scratch", "raid0", 2, 0)
    machine = ScratchMachine((replace(one, member=member), other))
    found = ScratchPlan("fail", "", "", disks=(one.id, other.id))
    assert not apply.incomplete(machine, found, 2)
    assert apply.incomplete(machine, found), "of a machine of unknown size, a third disk may be its member"
    assert apply.incomplete(machine, found, 3)
    assert apply.incomplete(ScratchMachine((machine.disks[0], replace(other, error="no size"))), found, 2)
    longer = (replace(one, member=replace(member, devices=3)), other)
    assert apply.incomplete(ScratchMachine(longer), found, 2), "an array of more disks than are counted"
    foreign = replace(member, uuid="1:2:3:4", devices=9)
    assert not apply.incomplete(ScratchMachine((replace(one, member=foreign), other)), found, 2)


def test_a_boot_that_waits_reads_again_once_something_has_come_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, reads, clock = blank(tmp_path), [], [0.0]
    late, away = place.at("/sys/block/nvme1n1"), tmp_path / "away"
    late.rename(away)
    comes = {
        7: lambda: place.write("/proc/self/mountinfo", "1 2 259:1 / /nvme rw - ext4 /dev/x rw\n"),
        12: lambda: place.write("/sys/block/nvme0n1/size", "262136\n"),
    }

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        comes.get(int(clock[0]), lambda: None)()

    def read(root: t.Any, request: t.Any, through: t.Any = None) -> ScratchMachine:
        reads.append(clock[0])
        return read_machine(root, request, through)

    monkeypatch.setattr(apply, "read_machine", read)
    monkeypatch.setattr(apply.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(apply.time, "sleep", sleep)
    waiting = apply.ScratchRun(replace(REQUEST, count=2), boot=True, wait=30, root=place)
    assert waiting.read_and_plan()[1].verdict == "fail"
    assert reads == [0.0, 7.0, 12.0, 30.0]
    comes[31] = lambda: away.rename(late)
    clock[0], reads[:] = 30.0, []
    assert len(waiting.read_and_plan()[0].disks) == 2
    assert reads == [30.0, 31.0]


def test_a_filesystem_that_the_planner_gives_up_is_its_verdict(tmp_path: Path) -> None:
    place = blank(tmp_path)
    place.said["mount"] = Outcome(32, "", "mount: bad superblock\n", 0.1)
    done, dummy = run(place, MOUNT, ScratchPlan("fail", "hardware", "it is broken"))
    assert done.problem is None
    check = conclude(done.last, done.problem, TOLD, 0.0)
    assert (check["verdict"], check["class"], check["reason"]) == ("fail", "hardware", "it is broken")


def test_in_a_container_no_disk_is_looked_at(tmp_path: Path) -> None:
    place = blank(tmp_path)
    place.write("/run/systemd/container", "podman\n")
    done = apply.ScratchRun(REQUEST, root=place).bring()
    assert done.last.verdict == "skipped" and not done.commands and not place.calls


@pytest.mark.parametrize(("number", "container"), [(4026531836, False), (4026532713, True)])
def test_a_pid_namespace_of_its_own_is_a_container(tmp_path: Path, number: int, container: bool) -> None:
    place = blank(tmp_path)
    place.at("/proc/self/ns").mkdir(parents=True, exist_ok=True)
    place.at("/proc/self/ns/pid").symlink_to(f"pid:[{number}]")
    assert in_container(place) is container


def test_check_mode_runs_nothing_that_writes(tmp_path: Path) -> None:
    place = blank(tmp_path)
    done = apply.ScratchRun(REQUEST, root=place).dry()
    assert done.last.verdict == "pass" and "mdadm" in {command[0] for command in done.commands}
    assert programs(place) == [] and not place.at(MARKER).exists() and not place.at(apply.LOCK).exists()


def test_two_runs_do_not_work_at_the_same_time(tmp_path: Path) -> None:
    place = blank(tmp_path)
    with apply.alone(place), pytest.raises(ApplyError, match="another run holds"), apply.alone(place, 0.3):
        pass
    with apply.alone(place, 0.3):
        pass


def test_a_boot_makes_nothing_of_disks_that_somebody_else_mounts(tmp_path: Path) -> None:
    machine = read_machine(blank(tmp_path), REQUEST)
    found = boot.adopt(machine, REQUEST)
    assert found.verdict == "fail" and not found.actions and "/nvme" in found.reason
    assert any(finding.code == "missing" for finding in found.findings), "that is what a boot waits for"


def test_the_record_of_a_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: t.Any) -> None:
    monkeypatch.setattr(boot, "RECORD", str(tmp_path / "record.json"))
    assert boot.main(["status", "x"]) == 1 and "no record of this boot" in capsys.readouterr().out
    assert boot.main(["boot", str(tmp_path / "none.json")]) == 1
    assert "No such file" in capsys.readouterr().out
    (tmp_path / "settings.json").write_text('{"request": {"mount": "/etc/x"}}')
    assert boot.main(["boot", str(tmp_path / "settings.json")]) == 1
    assert "belongs to the system" in capsys.readouterr().out
    assert boot.main(["status", "x"]) == 1
    assert json.loads(capsys.readouterr().out)["class"] == "config"
    assert boot.main([]) == boot.main(["boot"]) == boot.main(["wipe", "x"]) == 2


def test_the_settings_of_the_boot_are_a_request_without_wipe() -> None:
    params = {name: option.get("default") for name, option in module.SPEC.items()}
    params.update(wipe=["SERIAL-1"], count=2, directories=[{"path": "a"}])
    request = module.parse({name: params[name] for name in ("wipe", "count", "directories", "models")})
    settings = json.loads(json.dumps(module.boot_settings(params, request, "adopted")))
    again = module.parse(settings["request"])
    assert again == replace(request, wipe=()) and settings["adopted"] is True


def test_the_boot_comes_after_the_mounts_that_scratch_lies_on() -> None:
    request = request_of(mount="/mnt/my-disk/x y/scratch", adopt=("/nvme", "/.a"), fallback="")
    assert module.mount_units(request) == [
        "mnt-my\\x2ddisk-x\\x20y.mount",
        "mnt-my\\x2ddisk.mount",
        "mnt.mount",
        "nvme.mount",
        "\\x2ea.mount",
    ]


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(2, "pass"), (8, "fail")],
)
def test_a_profile_may_expect_more_than_the_planner(value: int, verdict: str) -> None:
    expect = {"check": "nvme_scratch", "metric": "disks", "op": ">=", "value": value, "unit": "disks", "source": "x"}
    plan = ScratchPlan("pass", "", "fine", disks=("a", "b"), members=2, size=1)
    check = conclude(plan, None, RecordInputs("n1", [expect]), 0.0)
    assert check["verdict"] == verdict and ("disks: 2" in check["reason"]) is (verdict == "fail")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give directories away")
def test_a_directory_gets_its_owner(tmp_path: Path) -> None:
    place = Captured(tmp_path)
    apply.have_directory(place, ScratchAction("directory", path="/d", owner="daemon", group="daemon", mode="0700"))
    assert place.at("/d").stat().st_uid != 0
