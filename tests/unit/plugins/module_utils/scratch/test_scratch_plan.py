# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every state in which a node's disks are found, and what is done about it."""

from __future__ import annotations

import json
import typing as t
from dataclasses import asdict, replace

import pytest
from scratch_world import MODEL, ROOT, Refused, World, blank, built, cleared, disk, member, request_of, settle

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    Directory,
    FstabLine,
    Path,
    ScratchArray,
    ScratchDisk,
    ScratchMachine,
    ScratchMount,
    ScratchPlan,
    Signature,
    array_uuid,
    filesystem_uuid,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan import plan, remove

REQUEST = request_of(models=(MODEL,), count=8)
TMP = Directory("tmp", "root", "root", "1777")
MOUNT = REQUEST.mount
UUID = array_uuid("scratch", [f"S{n:02d}" for n in range(8)])
FRESH = ["mark", "create", "mkfs", "unmark", "directory", "mount", "directory"]
AGAIN = ["assemble", "directory", "mount", "directory"]


def kinds(found: ScratchPlan) -> list[str]:
    return [action.kind for action in found.actions]


def codes(found: ScratchPlan) -> list[str]:
    return [finding.code for finding in found.findings if finding.level != "note"]


def changed(machine: ScratchMachine, number: int, **other: t.Any) -> ScratchMachine:
    """Return the machine with the disk of this serial changed."""
    name = f"S{number:02d}"
    return replace(machine, disks=tuple(replace(d, **other) if d.id == name else d for d in machine.disks))


def holding(machine: ScratchMachine, number: int, kind: str, part: str = "", **other: t.Any) -> ScratchMachine:
    one = next(d for d in machine.disks if d.id == f"S{number:02d}")
    return changed(machine, number, signatures=(Signature(one.path + part, kind, "u-1", "data"),), blank=False, **other)


def without(machine: ScratchMachine, number: int) -> ScratchMachine:
    return replace(machine, disks=tuple(d for d in machine.disks if d.id != f"S{number:02d}"))


def stopped(**request: t.Any) -> World:
    """A machine with scratch that was restarted: nothing runs."""
    world = built(replace(REQUEST, **request))
    world.restart()
    return world


def test_a_blank_machine_gets_scratch_and_then_nothing_is_left_to_do():
    world = World(blank(), REQUEST)
    first = plan(world.machine, REQUEST)
    assert (first.verdict, first.blame, kinds(first)) == ("pass", "", FRESH)
    assert first.reason == f"8 disks, raid0, xfs, at {MOUNT}"
    world.run(first.actions)
    second = plan(world.machine, REQUEST)
    assert (second.actions, second.verdict, second.reason) == ((), "pass", first.reason)
    assert second.before == second.after == first.after
    assert (second.path, second.array, second.members, second.size) == (MOUNT, UUID, 8, 8 << 40)
    assert json.loads(json.dumps(asdict(second)))["source"] == "array"


def test_commands_of_a_creation():
    actions = {action.kind: action.argv for action in plan(blank(), REQUEST).actions}
    disks = [disk(n).path for n in range(8)]
    assert actions["create"] == (
        *("mdadm", "--create", "/dev/md/scratch", "--run", "--level=0", "--raid-devices=8", "--metadata=1.2"),
        *("--chunk=512", "--homehost=any", "--name=scratch", f"--uuid={UUID}"),
        *disks,
    )
    made = filesystem_uuid(UUID)
    stripe = ("-d", "su=512k,sw=8", "-l", "su=256k", "/dev/md/scratch")
    assert actions["mkfs"] == ("mkfs.xfs", "-q", "-f", "-K", "-m", f"uuid={made}", *stripe)
    assert actions["mount"] == ("mount", "-o", "noatime", "/dev/md/scratch", MOUNT)


def test_commands_for_ext4_on_disks_that_take_small_requests():
    request = replace(REQUEST, filesystem="ext4", options=(), count=2)
    machine = ScratchMachine((disk(0, max_io=200), disk(1, max_io=4096)), mounts=(ROOT,))
    actions = {action.kind: action.argv for action in plan(machine, request).actions}
    assert "--chunk=128" in actions["create"]
    assert actions["mkfs"][-3:] == ("-E", "nodiscard,stride=32,stripe_width=64", "/dev/md/scratch")
    assert actions["mount"] == ("mount", "/dev/md/scratch", MOUNT)


@pytest.mark.parametrize("largest, chunk", [(64, 128), (128, 128), (255, 128), (256, 256), (1024, 512), (1280, 512)])
def test_chunk_follows_the_disks(largest: int, chunk: int):
    machine = replace(blank(), disks=tuple(replace(d, max_io=largest) for d in blank().disks))
    assert f"--chunk={chunk}" in plan(machine, REQUEST).actions[1].argv


def test_one_disk_is_an_array_too():
    world = World(blank(1), replace(REQUEST, count=1))
    create = plan(world.machine, world.request).actions[1]
    assert "--force" in create.argv and "--raid-devices=1" in create.argv
    assert settle(world).verdict == "pass"


def test_disks_are_taken_by_id_whatever_the_kernel_calls_them():
    world = stopped()
    names = [d.path for d in world.machine.disks]
    shuffled = tuple(
        replace(d, path=name, signatures=(Signature(name, "linux_raid_member", UUID),))
        for d, name in zip(world.machine.disks, reversed(names))
    )
    world.tell(disks=shuffled)
    found = plan(world.machine, REQUEST, boot=True)
    assert kinds(found) == AGAIN and found.array == UUID
    assert settle(world, boot=True).verdict == "pass"
    assert world.written == []


def test_after_a_restart_it_is_started_and_mounted():
    world = stopped()
    assert kinds(plan(world.machine, REQUEST, boot=True)) == AGAIN
    assert settle(world, boot=True).verdict == "pass"


def test_after_a_redeploy_with_blank_disks_it_is_made_again():
    world = stopped()
    world.tell(disks=blank().disks)
    assert kinds(plan(world.machine, REQUEST, boot=True)) == FRESH
    assert settle(world, boot=True).verdict == "pass"


def test_an_array_that_somebody_else_started_is_used_under_any_name():
    world = stopped()
    world.run([plan(world.machine, REQUEST).actions[0]])
    array = replace(world.machine.arrays[0], device="/dev/md127", name="somehost:scratch")
    world.tell(arrays=(array,))
    found = plan(world.machine, REQUEST)
    assert kinds(found) == ["directory", "mount", "directory"]
    assert found.actions[1].argv[-2] == "/dev/md127"
    assert settle(world).verdict == "pass"


@pytest.mark.parametrize("state, members", [("inactive", 8), ("inactive", 7), ("clear", 8), ("unreadable: why", 8)])
def test_an_array_that_was_started_in_part_is_stopped_first(state: str, members: int):
    world = stopped()
    world.run([plan(world.machine, REQUEST).actions[0]])
    array = world.machine.arrays[0]
    held = array.members[:members]
    world.tell(arrays=(replace(array, state=state, members=held),))
    assert kinds(plan(world.machine, REQUEST, boot=True)) == ["stop", *AGAIN]
    assert settle(world, boot=True).verdict == "pass"
    assert world.written == []


# What may stand on a disk, and how a refusal names it.
FOREIGN: list[tuple[str, t.Callable[[ScratchMachine], ScratchMachine], str, str]] = [
    ("filesystem", lambda m: holding(m, 3, "ext4"), "foreign", "a filesystem (ext4) [data]"),
    ("LVM", lambda m: holding(m, 3, "LVM2_member"), "foreign", "an LVM physical volume [data]"),
    ("partition table", lambda m: holding(m, 3, "gpt"), "foreign", "a partition table (gpt)"),
    ("partition", lambda m: holding(m, 3, "xfs", "p1", partitions=("/dev/x",)), "foreign", "on a partition"),
    ("empty partitions", lambda m: changed(m, 3, blank=False, partitions=("/dev/x",)), "foreign", "partitions"),
    ("unknown data", lambda m: changed(m, 3, blank=False), "foreign", "unknown data"),
    ("encrypted", lambda m: holding(m, 3, "crypto_LUKS"), "foreign", "LUKS"),
    ("anything else", lambda m: holding(m, 3, "bcache"), "foreign", "a signature of bcache"),
    ("other array", lambda m: foreign_member(m, 3), "foreign", "a member of an md array [home, 1:2:3:4]"),
    ("mounted", lambda m: holding(m, 3, "ext4", mounts=("/data",)), "in_use", "umount /data"),
    ("swap", lambda m: holding(m, 3, "swap", swaps=("/dev/nvme2n1",)), "in_use", "swapoff /dev/nvme2n1"),
    ("held", lambda m: holding(m, 3, "LVM2_member", holders=("/dev/dm-0",)), "in_use", "vgchange -an"),
    ("in another array", lambda m: in_foreign_array(m, 3), "in_use", "mdadm --stop /dev/md5"),
    ("open", lambda m: changed(m, 3, busy=True), "in_use", "fuser -v /dev/nvme2n1"),
    ("cannot be read", lambda m: changed(m, 3, error="Input/output error"), "unreadable", "Input/output error"),
    ("cannot be written", lambda m: changed(m, 3, read_only=True), "read_only", "/dev/nvme2n1 (S03,"),
]  # fmt: skip


def foreign_member(machine: ScratchMachine, number: int) -> ScratchMachine:
    one = next(d for d in machine.disks if d.id == f"S{number:02d}")
    made = member(one, "1:2:3:4", 2, 0, "home")
    return changed(machine, number, member=made.member, signatures=made.signatures, blank=False)


def in_foreign_array(machine: ScratchMachine, number: int) -> ScratchMachine:
    array = ScratchArray("/dev/md5", "1:2:3:4", "home", "raid1", "active", 2, ("/dev/nvme2n1",))
    held = replace(foreign_member(machine, number), arrays=(array,))
    return changed(held, number, holders=("/dev/md5",), busy=True)


@pytest.mark.parametrize("case", FOREIGN, ids=[case[0] for case in FOREIGN])
@pytest.mark.parametrize("boot", [False, True])
def test_what_is_not_ours_stops_everything(case: tuple[str, t.Any, str, str], boot: bool):
    _name, spoil, code, words = case
    machine = spoil(blank())
    found = plan(machine, REQUEST, boot)
    assert (found.verdict, found.actions, codes(found)) == ("fail", (), [code])
    assert found.blame == ("hardware" if code in ("unreadable", "read_only") else "config")
    assert words in found.reason and "/dev/nvme2n1 (S03, " in found.reason
    assert found.before == found.after
    assert found.findings[0].advice.endswith(".")


@pytest.mark.parametrize("trace", ["signatures", "partitions", "data"])
def test_one_trace_of_others_is_enough(trace: str):
    """Even where what was read of a disk does not fit together."""
    marks = {"signatures": (Signature("/dev/nvme2n1", "xfs"),), "partitions": ("/dev/nvme2n1p1",), "data": False}
    machine = changed(blank(), 3, **{{"data": "blank"}.get(trace, trace): marks[trace]})
    assert codes(plan(machine, REQUEST)) == ["foreign"]


OVER = tuple(Signature("/dev/nvme2n1", kind) for kind in ("linux_raid_member", "gpt"))
MORE = [
    {"signatures": OVER},
    {"partitions": ("/dev/p1",)},
    {"error": "Input/output error"},
    {"busy": True},
    {"swaps": ("/dev/x",)},
]


@pytest.mark.parametrize("more", MORE, ids=str)
def test_a_disk_of_ours_with_anything_else_about_it_is_not_ours(more: dict[str, t.Any]):
    world = stopped()
    found = plan(changed(world.machine, 3, **more), replace(REQUEST, rebuild=True))
    assert (found.verdict, found.actions) == ("fail", ())
    assert found.before["disks"]["S03"] == ("unreadable" if "error" in more else found.before["disks"]["S03"])


@pytest.mark.parametrize("case", FOREIGN, ids=[case[0] for case in FOREIGN])
def test_a_disk_is_erased_only_if_named_and_free_and_never_at_boot(case: tuple[str, t.Any, str, str]):
    _name, spoil, code, _words = case
    machine, request = spoil(blank()), replace(REQUEST, wipe=("eui.0000000000000003",))
    found = plan(machine, request)
    assert plan(machine, request, boot=True).actions == ()
    assert plan(machine, replace(REQUEST, wipe=("S04",))).actions == ()
    if code != "foreign":
        assert (found.verdict, found.actions) == ("fail", ())
        return
    assert kinds(found) == ["mark", "wipe", *FRESH[1:]]
    assert [action.device for action in found.actions if action.kind == "wipe"] == ["/dev/nvme2n1"]
    world = World(machine, request)
    assert settle(world).verdict == "pass"
    assert plan(world.machine, request).actions == ()


def test_a_wipe_command_names_the_disk_and_its_partitions_only():
    machine = holding(blank(), 3, "gpt", partitions=("/dev/nvme2n1p1", "/dev/nvme2n1p2"))
    wipe = plan(machine, replace(REQUEST, wipe=("S03",))).actions[1]
    assert wipe.argv == ("wipefs", "--all", "--force", "/dev/nvme2n1p1", "/dev/nvme2n1p2", "/dev/nvme2n1")


def test_wipe_does_nothing_to_our_own_disks_and_says_what_it_does_not_find():
    request = replace(REQUEST, wipe=("S01", "gone"))
    world = built(request)
    found = plan(world.machine, request)
    assert (found.verdict, found.actions) == ("pass", ())
    assert [finding.code for finding in found.findings] == ["no_such_disk"]


@pytest.mark.parametrize("fewer, verdict, actions", [("refuse", "fail", []), ("allow", "warn", FRESH)])
def test_fewer_disks_than_expected(fewer: str, verdict: str, actions: list[str]):
    machine = without(blank(), 5)
    found = plan(machine, replace(REQUEST, fewer=fewer))
    assert (found.verdict, found.blame, kinds(found)) == (verdict, "hardware", actions)
    assert "7 NVMe disks found, 8 expected; found: /dev/nvme3n1 (S00), " in found.reason
    assert found.members == (7 if actions else 0)


def test_more_disks_than_expected_are_all_used():
    found = plan(blank(9), REQUEST)
    assert (found.verdict, found.blame, kinds(found), found.members) == ("warn", "config", FRESH, 9)


NO_DISK = [(None, "refuse", "skipped"), (0, "refuse", "skipped"), (8, "refuse", "fail"), (8, "allow", "warn")]


@pytest.mark.parametrize("count, fewer, verdict", NO_DISK)
def test_no_disk_at_all(count: int | None, fewer: str, verdict: str):
    found = plan(ScratchMachine(mounts=(ROOT,)), replace(REQUEST, count=count, fewer=fewer))
    assert (found.verdict, found.actions, found.path, found.source) == (verdict, (), "", "")


def test_without_disks_a_directory_stands_in():
    request = replace(REQUEST, count=0, fallback="/mnt/resource", directories=(TMP,))
    resource = ScratchMount("/mnt/resource", "/dev/sdb1", "8:17", "ext4")
    machine = ScratchMachine(
        mounts=(ROOT, resource), paths=(Path("/mnt/resource", "directory", "root", "root", "0755"),)
    )
    world = World(machine, request)
    first = plan(machine, request)
    assert kinds(first) == ["directory", "directory", "bind", "directory"]
    assert first.actions[2].argv == ("mount", "--bind", "/mnt/resource/scratch", MOUNT)
    second = settle(world)
    assert (second.verdict, second.actions, second.path, second.source) == ("skipped", (), MOUNT, "fallback")
    assert second.before == first.after
    world.restart()
    assert settle(world, boot=True).verdict == "skipped"


def test_a_stand_in_on_the_system_disk_is_refused():
    request = replace(REQUEST, count=0, fallback="/var/tmp/x")
    machine = ScratchMachine(mounts=(ROOT,), paths=(Path("/var/tmp/x", "directory", "root", "root", "0755"),))
    assert codes(settle(World(machine, request))) == ["system_disk"]
    found = plan(machine, request)
    assert (found.verdict, found.path, found.actions) == ("fail", "", ())
    assert plan(ScratchMachine(mounts=(ROOT,)), request).actions == ()


def test_disks_that_come_later_replace_the_stand_in():
    request = replace(REQUEST, count=None, fallback="/mnt/resource")
    resource = ScratchMount("/mnt/resource", "/dev/sdb1", "8:17", "ext4")
    machine = ScratchMachine(
        mounts=(ROOT, resource), paths=(Path("/mnt/resource", "directory", "root", "root", "0755"),)
    )
    world = World(machine, request)
    settle(world)
    world.tell(disks=blank().disks)
    first = plan(world.machine, request)
    assert kinds(first) == ["umount", *FRESH]
    second = settle(world)
    assert (second.verdict, second.source, second.before) == ("pass", "array", first.after)


def adopted(path: str = "/nvme") -> ScratchMachine:
    array = ScratchArray("/dev/md0", "1:2:3:4", "nvme", "raid0", "clean", 8, tuple(d.path for d in blank().disks))
    disks = tuple(
        replace(member(d, "1:2:3:4", 8, n, "nvme"), holders=("/dev/md0",), mounts=(path,), busy=True)
        for n, d in enumerate(blank().disks)
    )
    there = Path(path, "directory", "root", "root", "0755")
    return ScratchMachine(disks, (array,), (ROOT, ScratchMount(path, "/dev/md0", "9:0", "xfs")), paths=(there,))


def test_disks_that_somebody_else_mounted_are_adopted():
    world = World(adopted(), replace(REQUEST, directories=(TMP,)))
    first = plan(world.machine, world.request)
    assert kinds(first) == ["directory", "directory", "bind", "directory"]
    second = settle(world)
    assert (second.verdict, second.source, second.path, second.before) == ("pass", "adopted", MOUNT, first.after)
    assert world.written == []


def test_what_is_mounted_at_the_place_itself_is_used_as_it_is():
    request = replace(REQUEST, mount="/nvme")
    found = plan(adopted(), request)
    assert (found.verdict, found.actions, found.path, found.source) == ("pass", (), "/nvme", "adopted")


def test_disks_mounted_anywhere_else_are_not_adopted():
    found = plan(adopted("/raid"), REQUEST)  # as DGX OS has them
    assert (found.verdict, found.actions, set(codes(found))) == ("fail", (), {"in_use"})
    assert "have scratch be a directory there (adopt: [/raid])" in str(found.findings[0])
    assert plan(adopted("/raid"), replace(REQUEST, adopt=("/raid",))).source == "adopted"
    found = plan(adopted(), replace(REQUEST, adopt=()))
    assert (found.verdict, found.actions) == ("fail", ())


def test_disks_adopted_in_part_stop_everything():
    machine = adopted()
    machine = replace(
        machine, disks=(cleared(replace(machine.disks[0], holders=(), mounts=(), busy=False)), *machine.disks[1:])
    )
    assert plan(machine, REQUEST).actions == ()


@pytest.mark.parametrize("boot", [False, True])
def test_an_array_that_lacks_a_disk_is_reported_and_left_alone(boot: bool):
    world = stopped()
    found = plan(without(world.machine, 5), REQUEST, boot)
    assert (found.verdict, found.blame, found.actions, codes(found)) == ("fail", "hardware", (), ["missing", "damaged"])
    assert f"{UUID} of scratch has 7 of 8 members" in found.reason and "S07" in found.reason
    assert found.path == ""


def test_an_array_with_a_disk_replaced_by_a_blank_one_is_rebuilt_only_when_told():
    world = stopped()
    world.tell(disks=tuple(cleared(d) if d.id == "S05" else d for d in world.machine.disks))
    assert plan(world.machine, REQUEST, boot=True).actions == ()
    assert plan(world.machine, REQUEST).blame == "software"
    request = replace(REQUEST, rebuild=True)
    first = plan(world.machine, request, boot=True)
    assert kinds(first) == ["mark", *["wipe"] * 7, *FRESH[1:]]
    second = settle(world, boot=True, request=request)
    assert (second.verdict, second.actions, second.before) == ("pass", (), first.after)


def test_a_broken_array_is_not_rebuilt_over_a_foreign_disk():
    world = stopped()
    world.tell(disks=holding(world.machine, 5, "ext4", member=None).disks)
    found = plan(world.machine, replace(REQUEST, rebuild=True))
    assert (found.verdict, found.actions, codes(found)) == ("fail", (), ["foreign", "damaged"])


def test_a_rebuild_needs_enough_disks():
    world = stopped()
    world.tell(disks=without(world.machine, 5).disks)
    request = replace(REQUEST, rebuild=True)
    assert plan(world.machine, request).actions == ()
    second = settle(world, request=replace(request, fewer="allow"))
    assert (second.verdict, second.members, codes(second)) == ("warn", 7, ["missing"])


def test_a_disk_that_vanishes_while_scratch_is_mounted():
    world = built(REQUEST)
    array = world.machine.arrays[0]
    left = tuple(d for d in world.machine.disks if d.id != "S05")
    world.tell(disks=left, arrays=(replace(array, state="broken", members=tuple(d.path for d in left)),))
    found = plan(world.machine, REQUEST)
    assert (found.verdict, found.blame, found.actions, found.path) == ("fail", "hardware", (), "")
    assert "7 of 8 members" in found.reason
    told = plan(world.machine, replace(REQUEST, rebuild=True, fewer="allow"))
    assert kinds(told)[:3] == ["umount", "stop", "mark"]


def test_a_disk_that_came_back_while_scratch_is_mounted():
    world = built(REQUEST)
    array = world.machine.arrays[0]
    world.tell(arrays=(replace(array, state="broken", members=array.members[1:]),))
    found = plan(world.machine, replace(REQUEST, rebuild=True))
    assert (found.verdict, found.actions, codes(found)) == ("fail", (), ["stopped"])
    assert f"umount {MOUNT}" in found.reason


def half(superblocks: int, started: bool = False, mkfs: str = "") -> World:
    """A creation that was cut off."""
    world = World(blank(), REQUEST)
    steps = {action.kind: action for action in plan(world.machine, REQUEST).actions}
    world.do(steps["mark"])
    if started:
        world.do(steps["create"])
    else:
        world.superblocks(steps["create"], superblocks)
    if mkfs:
        (world.half_mkfs if mkfs == "half" else world.do)(steps["mkfs"])
    return world


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("arguments", [(0,), (1,), (7,), (8,), (8, True), (8, True, "half"), (8, True, "whole")])
def test_what_was_cut_off_while_it_was_made_is_finished(arguments: t.Any, restart: bool):
    world = half(*arguments)
    if restart:
        world.restart()
    found = settle(world, boot=restart)
    assert (found.verdict, found.actions, found.before["array"]["uuid"]) == ("pass", (), UUID)
    assert world.machine.building == ""


def test_a_half_array_without_the_marker_is_reported():
    world = half(5)
    world.tell(building="")
    assert codes(plan(world.machine, REQUEST)) == ["damaged"]
    world.tell(building=array_uuid("scratch", ["other"]))
    assert plan(world.machine, REQUEST).actions == ()


def test_the_marker_is_gone_before_anybody_can_write_to_scratch():
    actions = kinds(plan(blank(), REQUEST))
    assert actions.index("mkfs") < actions.index("unmark") < actions.index("mount")


def test_a_marker_never_costs_a_filesystem_that_can_be_mounted():
    world = half(8, True, "whole")
    assert "mkfs" not in kinds(plan(world.machine, REQUEST))
    world.restart()
    assert "mkfs" not in kinds(plan(world.machine, REQUEST, boot=True))


def test_a_marker_beside_a_mounted_filesystem_is_removed():
    world = built(REQUEST)
    world.tell(building=UUID)
    assert kinds(plan(world.machine, REQUEST)) == ["unmark"]


def test_a_filesystem_that_cannot_be_mounted_is_made_again_only_when_told():
    world = stopped()
    world.half_made.add(UUID)
    found = settle(world)
    assert (found.verdict, found.blame, found.actions, codes(found)) == ("fail", "software", (), ["unmountable"])
    assert "bad superblock" in found.reason
    again = settle(world, request=replace(REQUEST, rebuild=True))
    assert (again.verdict, again.actions) == ("pass", ())


def running(content: tuple[Signature, ...] = (), **other: t.Any) -> World:
    world = stopped()
    world.run([plan(world.machine, REQUEST).actions[0]])
    world.tell(arrays=(replace(world.machine.arrays[0], content=content, **other),))
    return world


def test_an_array_without_a_filesystem_gets_one_if_it_is_blank():
    world = running(blank=True)
    assert kinds(plan(world.machine, REQUEST)) == ["mark", "mkfs", "unmark", "directory", "mount", "directory"]
    assert settle(world).verdict == "pass"
    found = plan(running(blank=False).machine, REQUEST)
    assert (found.verdict, found.actions, codes(found)) == ("fail", (), ["foreign"])


@pytest.mark.parametrize("kind", ["LVM2_member", "crypto_LUKS", "gpt", "swap"])
def test_what_somebody_else_put_on_our_array_stays(kind: str):
    found = plan(running((Signature("/dev/md127", kind),)).machine, REQUEST)
    assert (found.verdict, found.actions, codes(found)) == ("fail", (), ["foreign"])
    found = plan(running((Signature("/dev/md127", kind),), holders=("/dev/dm-1",)).machine, REQUEST)
    assert (found.actions, codes(found)) == ((), ["in_use"])


def test_a_filesystem_that_somebody_else_made_on_our_array_is_mounted_not_made_again():
    world = running((Signature("/dev/md127", "xfs", "other"),))
    assert "mkfs" not in kinds(plan(world.machine, REQUEST))
    assert settle(world).verdict == "pass"


def test_scratch_mounted_elsewhere_stays_there():
    world = built(REQUEST)
    request = replace(REQUEST, mount="/scratch")
    found = plan(world.machine, request)
    assert (found.verdict, found.actions, codes(found)) == ("fail", (), ["elsewhere"])
    assert f"umount {MOUNT}" in found.reason


def test_a_mount_point_that_is_taken():
    taken = ScratchMount(MOUNT, "/dev/sdb1", "8:17", "ext4")
    machine = replace(blank(), mounts=(ROOT, taken))
    found = plan(machine, REQUEST)
    assert (found.verdict, found.actions, codes(found)) == ("fail", (), ["mount_taken"])


def test_a_mount_point_that_is_no_directory_or_not_empty():
    machine = blank(paths=(Path(MOUNT, "other"),))
    assert (plan(machine, REQUEST).actions, codes(plan(machine, REQUEST))) == ((), ["no_directory"])
    machine = blank(paths=(Path(MOUNT, "directory", "root", "root", "1777", empty=False),))
    found = plan(machine, REQUEST)
    assert [finding.code for finding in found.findings] == ["not_empty"]
    assert (found.verdict, kinds(found)) == ("pass", FRESH)


def line(source: str, device: str = "") -> FstabLine:
    return FstabLine(7, f"{source} {MOUNT} xfs defaults 0 0", source, MOUNT, "xfs", device)


STALE = [("UUID=1234", ""), ("/dev/md128", ""), ("LABEL=x", "/dev/nvme3n1"), ("/dev/md/scratch", "/dev/md/scratch")]
LIVE = [("UUID=1234", "/dev/sdb1"), ("server:/export", ""), ("/nvme/scratch", ""), ("tmpfs", "")]


@pytest.mark.parametrize("source, device", STALE)
def test_a_stale_line_of_fstab_is_commented_out_first(source: str, device: str):
    world = World(blank(fstab=(line(source, device),)), REQUEST)
    first = plan(world.machine, REQUEST)
    assert kinds(first) == ["fstab", *FRESH]
    assert first.actions[0].lines == (7,) and first.actions[0].text.startswith("#")
    assert first.before["fstab"] and not first.after["fstab"]
    assert settle(world).verdict == "pass"
    world.tell(fstab=(line("UUID=now", world.machine.arrays[0].device),))
    assert kinds(plan(world.machine, REQUEST)) == ["fstab"]


@pytest.mark.parametrize("source, device", LIVE)
def test_a_live_line_of_fstab_stops_everything(source: str, device: str):
    found = plan(blank(fstab=(line(source, device),)), REQUEST)
    assert (found.verdict, found.actions, codes(found)) == ("fail", (), ["fstab"])
    assert "line 7 of /etc/fstab" in found.reason and source in found.reason


def test_directories_are_made_and_kept_with_their_parents():
    wanted = (Directory("enroot/data", "root", "root", "1777"), Directory("users/eva", "eva", "ml", "0700"))
    request = replace(REQUEST, directories=wanted)
    world = built(request)
    assert plan(world.machine, request).actions == ()
    made = {p.path: (p.owner, p.mode) for p in world.machine.paths if p.path.startswith(MOUNT)}
    assert made[f"{MOUNT}/enroot"] == ("root", "0755") and made[f"{MOUNT}/users/eva"] == ("eva", "0700")
    paths = tuple(replace(p, mode="0777") if p.path.startswith(f"{MOUNT}/") else p for p in world.machine.paths)
    world.tell(paths=paths)
    found = plan(world.machine, request)
    assert [action.path for action in found.actions] == [f"{MOUNT}/enroot/data", f"{MOUNT}/users/eva"]
    assert found.before["directories"] != found.after["directories"]


def test_a_planted_link_is_not_followed_and_an_unknown_owner_is_said():
    request = replace(REQUEST, directories=(TMP, Directory("eva", "eva", "root", "1777")))
    world = built(request)
    paths = tuple(replace(p, kind="other") if p.path == f"{MOUNT}/tmp" else p for p in world.machine.paths)
    world.tell(paths=paths, unknown_names=("eva",))
    found = plan(world.machine, request)
    assert (found.verdict, found.actions, sorted(codes(found))) == ("fail", (), ["no_directory", "unknown_owner"])


def test_an_option_that_is_visibly_off_is_put_on():
    world = built(REQUEST)
    request = replace(REQUEST, options=("noatime", "nodev", "largeio"))
    first = plan(world.machine, request)
    assert [action.argv for action in first.actions] == [("mount", "-o", "remount,noatime,nodev,largeio", MOUNT)]
    world.run(first.actions)
    assert plan(world.machine, request).actions == () and plan(world.machine, request).before == first.after


@pytest.mark.parametrize("request_", [{"filesystem": "ext4"}, {"chunk": 128}])
def test_a_whole_array_that_is_not_as_asked_for_is_kept_until_told(request_: dict[str, t.Any]):
    world = built(REQUEST)
    request = replace(REQUEST, **request_)
    found = plan(world.machine, request)
    assert (found.verdict, found.blame, found.actions, codes(found)) == ("warn", "config", (), ["differs"])
    told = replace(request, rebuild=True)
    assert plan(world.machine, told, boot=True).actions == ()
    first = plan(world.machine, told)
    assert kinds(first) == ["umount", "stop", "mark", *["wipe"] * 8, *FRESH[1:]]
    second = settle(world, request=told)
    assert (second.verdict, second.actions, second.before) == ("pass", (), first.after)


def test_a_whole_array_of_fewer_disks_stays_in_use_and_is_judged():
    small = built(replace(REQUEST, count=None), 7)
    small.tell(disks=(*small.machine.disks, disk(7)))
    for fewer, verdict in (("refuse", "fail"), ("allow", "warn")):
        found = plan(small.machine, replace(REQUEST, fewer=fewer))
        assert (found.verdict, found.actions, codes(found)) == (verdict, (), ["smaller", "differs"])
        assert found.path == MOUNT
    small.restart()
    assert kinds(plan(small.machine, REQUEST, boot=True)) == AGAIN
    assert settle(small, request=replace(REQUEST, rebuild=True)).members == 8


def test_beside_a_whole_array_a_foreign_disk_only_warns():
    world = built(replace(REQUEST, count=None), 7)
    world.tell(disks=(*world.machine.disks, replace(disk(7), blank=False)))
    found = plan(world.machine, replace(REQUEST, count=None))
    assert (found.verdict, found.actions, codes(found)) == ("warn", (), ["foreign"])
    world.restart()
    assert kinds(plan(world.machine, replace(REQUEST, count=None), boot=True)) == AGAIN


def test_members_of_two_arrays_of_ours():
    one, two = array_uuid("scratch", ["a"]), array_uuid("scratch", ["b"])
    disks = [member(disk(n), one if n < 2 else two, 2, n % 2) for n in range(4)]
    machine, request = ScratchMachine(tuple(disks), mounts=(ROOT,)), replace(REQUEST, count=None)
    found = plan(machine, request)
    assert (found.verdict, found.actions, codes(found)) == ("fail", (), ["several"])
    assert plan(machine, replace(request, rebuild=True), boot=True).actions == ()
    assert kinds(plan(machine, replace(request, rebuild=True)))[:5] == ["mark", *["wipe"] * 4]
    found = plan(replace(machine, disks=tuple(disks[:3])), request)
    assert kinds(found) == AGAIN and codes(found) == ["differs"]


def test_another_array_of_the_same_name_is_not_disturbed():
    array = ScratchArray("/dev/md5", "1:2:3:4", "scratch", "raid1", "active", 2, ("/dev/sda1",))
    found = plan(replace(blank(), arrays=(array,)), REQUEST)
    assert (found.verdict, found.actions, codes(found)) == ("fail", (), ["name_taken"])


def test_a_cloned_member_makes_no_whole_array():
    world = stopped()
    clone = next(d for d in world.machine.disks if d.id == "S01")
    disks: list[ScratchDisk] = [replace(clone, path="/dev/nvme99n1", id="S99", ids=("S99",)), *world.machine.disks]
    assert codes(plan(replace(world.machine, disks=tuple(disks)), replace(REQUEST, count=None))) == ["damaged"]


def test_the_world_refuses_what_a_machine_would():
    world = built(REQUEST)
    create, stop = plan(blank(), REQUEST).actions[1], plan(world.machine, REQUEST)
    assert stop.actions == ()
    with pytest.raises(Refused):
        world.do(create)


@pytest.mark.parametrize("option", ["lazytime", "strictatime", "sync", "dirsync", "relatime"])
def test_an_option_that_mountinfo_does_not_show_is_not_set_for_ever(option: str):
    """The kernel shows these elsewhere or not at all."""
    world = built(REQUEST)
    assert plan(world.machine, replace(REQUEST, options=("noatime", option))).actions == ()


def test_destroy_leaves_a_disk_that_somebody_used_after_us():
    world = built(REQUEST)
    world.restart()
    zfs = Signature(world.machine.disks[0].path, "zfs_member", "77")
    first = replace(world.machine.disks[0], signatures=(*world.machine.disks[0].signatures, zfs))
    world.tell(disks=(first, *world.machine.disks[1:]))
    found = remove(world.machine, REQUEST, destroy=True)
    assert found.verdict == "fail" and not found.actions and "ZFS" in found.reason
    assert remove(world.machine, REQUEST).verdict == "skipped", "without destroy nothing would be written"


def test_absent_unmounts_nothing_that_stands_on_top_of_scratch():
    world = built(REQUEST)
    assert [action.kind for action in remove(world.machine, REQUEST).actions] == ["umount", "stop"]
    world.tell(mounts=(*world.machine.mounts, ScratchMount(REQUEST.mount, "server:/x", "0:50", "nfs4")))
    found = remove(world.machine, REQUEST, destroy=True)
    assert found.verdict == "fail" and not found.actions and "server:/x" in found.reason


@pytest.mark.parametrize(("owner", "verdict"), [("bob", "warn"), ("root", "fail")])
def test_a_user_who_replaces_a_directory_of_his_own_does_not_take_the_node_away(owner: str, verdict: str):
    wanted = replace(REQUEST, directories=(Directory("bob", owner, "root", "0700"),))
    world = built(wanted)
    path = f"{REQUEST.mount}/bob"
    world.tell(paths=(*(p for p in world.machine.paths if p.path != path), Path(path, "other")))
    assert plan(world.machine, wanted).verdict == verdict


def test_absent_finds_scratch_that_was_made_under_another_name():
    world = built(REQUEST)
    renamed = replace(REQUEST, name="other")
    assert plan(world.machine, renamed).verdict == "pass", "it is used as it is"
    assert kinds(remove(world.machine, renamed)) == ["umount", "stop"]
    assert kinds(remove(world.machine, replace(renamed, mount="/elsewhere"))) == []
