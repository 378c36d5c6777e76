# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever the machine and the request: nothing of others is touched, and a plan that was cut off does no harm."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import replace

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from scratch_world import MODEL, ROOT, Refused, World, cleared, disk, member, request_of, settle

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    MAGIC,
    Directory,
    FstabLine,
    Path,
    ScratchAction,
    ScratchArray,
    ScratchDisk,
    ScratchMachine,
    ScratchMount,
    ScratchPlan,
    ScratchRequest,
    Signature,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.plan import plan

OURS = f"{MAGIC}:00000001:00000002"
RESOURCE = ScratchMount("/mnt/resource", "/dev/sdb1", "8:17", "ext4")
WRITES = ("wipe", "create", "mkfs")


def _signed(kind: str, **other: t.Any) -> t.Callable[[ScratchDisk], ScratchDisk]:
    def spoil(one: ScratchDisk) -> ScratchDisk:
        bare = cleared(one)
        return replace(bare, signatures=(Signature(one.path, kind, "u"),), blank=False, **other)

    return spoil


# What may become of a disk when nobody looks.
FATES: dict[str, t.Callable[[ScratchDisk], ScratchDisk]] = {
    "nothing": lambda one: one,
    "blank": cleared,
    "filesystem": _signed("ext4"),
    "LVM": _signed("LVM2_member"),
    "table": _signed("gpt"),
    "partitions": _signed("gpt", partitions=("/dev/p1",)),
    "data": lambda one: replace(cleared(one), blank=False),
    "table over ours": lambda one: replace(one, signatures=(*one.signatures, Signature(one.path, "gpt")), blank=False),
    "other array": lambda one: member(cleared(one), "1:2:3:4", 2, 0, "home"),
    "other array of ours": lambda one: member(cleared(one), OURS, 2, 0),
    "mounted": _signed("ext4", mounts=("/data",), busy=True),
    "held": _signed("LVM2_member", holders=("/dev/dm-0",), busy=True),
    "swap": _signed("swap", swaps=("/dev/x",), busy=True),
    "open": lambda one: replace(cleared(one), busy=True),
    "broken": lambda one: replace(cleared(one), error="Input/output error"),
    "remote": lambda one: replace(one, model="MSFT NVMe Accelerator v1.0"),
    "other model": lambda one: replace(one, model="Samsung"),
    "fabric": lambda one: replace(one, transport="tcp"),
}


@st.composite
def requests(draw: st.DrawFn, count: int) -> ScratchRequest:
    names = [f"S{n:02d}" for n in range(count)]
    some = st.lists(st.sampled_from([*names, "gone"]), max_size=count, unique=True).map(tuple)
    return request_of(
        models=draw(st.sampled_from([(MODEL,), (), (MODEL, "Samsung")])),
        ids=draw(st.one_of(st.just(()), some)),
        unused=draw(st.booleans()),
        wipe=draw(st.one_of(st.just(()), some)),
        count=draw(st.sampled_from([None, 0, count, count, max(count - 1, 0), count + 1])),
        fewer=draw(st.sampled_from(["refuse", "allow"])),
        filesystem=draw(st.sampled_from(["xfs", "ext4"])),
        chunk=draw(st.sampled_from([None, 128])),
        directories=draw(st.sampled_from([(), (Directory("users/eva", "eva", "eva", "0700"),)])),
        adopt=draw(st.sampled_from([(), ("/data",), ("/nvme", "/data")])),
        fallback=draw(st.sampled_from(["", "/mnt/resource"])),
        rebuild=draw(st.booleans()),
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A machine with a past: scratch may have been made, restarted, cut off; then things happened to its disks."""
    count = draw(st.integers(0, 4))
    request = draw(requests(count))
    there = tuple(Path(path, "directory", "root", "root", "0755") for path in ("/mnt/resource", "/data"))
    machine = ScratchMachine(tuple(disk(n) for n in range(count)), mounts=(ROOT, RESOURCE), paths=there)
    world = World(machine, request)
    past = request_of(models=(MODEL,))
    actions = plan(machine, past).actions
    world.run(actions[: draw(st.integers(0, len(actions)))])
    if draw(st.booleans()):
        world.restart()
    if draw(st.booleans()):
        _happen(draw, world)
    if draw(st.integers(0, 4)) == 0:
        source, device = draw(st.sampled_from([("UUID=1", ""), ("UUID=2", "/dev/sdb1"), ("LABEL=x", "/dev/nvme3n1")]))
        world.tell(fstab=(FstabLine(3, f"{source} {request.mount}", source, request.mount, "xfs", device),))
    if draw(st.integers(0, 9)) == 0:
        world.tell(building=draw(st.sampled_from(["", OURS])))
    world.written.clear()
    return world


def _happen(draw: st.DrawFn, world: World) -> None:
    """Things happen to disks that are not running; of those that are, some vanish."""
    held = {path for array in world.machine.arrays for path in array.members}
    left = []
    for one in world.machine.disks:
        fate = draw(st.sampled_from(sorted(FATES))) if draw(st.booleans()) and one.path not in held else "nothing"
        changed = FATES[fate](one)
        if draw(st.integers(0, 5)) != 0:
            left.append(changed)
    gone = held - {one.path for one in left}
    arrays = tuple(
        replace(a, state="broken", members=tuple(p for p in a.members if p not in gone)) if gone & set(a.members) else a
        for a in world.machine.arrays
    )
    mounted = [path for one in left for path in one.mounts if path == "/data"]
    data = (ScratchMount("/data", "/dev/nvme3n1", "259:0", "ext4"),) if mounted else ()
    world.tell(disks=tuple(left), arrays=arrays, mounts=(*world.machine.mounts, *data))


def mine(one: ScratchDisk) -> bool:
    """An own opinion on what we may write to without being told: not the planner's."""
    ours = one.member is not None and one.member.uuid.startswith(MAGIC)
    return ours and [s.type for s in one.signatures] == ["linux_raid_member"] and not one.partitions and not one.error


def idle(one: ScratchDisk, arrays: t.Sequence[ScratchArray]) -> bool:
    known = {array.device for array in arrays if array.uuid.startswith(MAGIC)}
    if set(one.holders) - known or one.swaps or one.error or "/data" in one.mounts:
        return False
    return bool(one.holders) or not (one.busy or one.mounts)


def check_touched(machine: ScratchMachine, request: ScratchRequest, found: ScratchPlan, boot: bool) -> None:
    disks = {one.id: one for one in machine.disks}
    for action in found.actions:
        for name in action.disks if action.kind in WRITES else ():
            one = disks[name]
            empty = one.blank and not one.signatures and not one.partitions
            told = bool(set(one.ids) & set(request.wipe)) and not boot
            assert one.transport == "pcie" and idle(one, machine.arrays), (action.kind, one)
            assert empty or mine(one) or (told and action.kind != "wipe") or (told and action.device == one.path), (
                action
            )
            assert one.model == MODEL or name in request.ids or request.unused or "Samsung" in request.models


def check_kept(machine: ScratchMachine, request: ScratchRequest, found: ScratchPlan, boot: bool) -> None:
    """A member of ours is erased only when told to rebuild, or where a creation was cut off."""
    erased = {action.device for action in found.actions if action.kind == "wipe"}
    for one in machine.disks:
        if one.path not in erased or not mine(one) or one.member is None:
            continue
        same = [o for o in machine.disks if mine(o) and o.member and o.member.uuid == one.member.uuid]
        whole = sorted(o.member.role for o in same if o.member) == list(range(one.member.devices))
        assert request.rebuild or (machine.building and not whole)
        assert not (boot and whole) or machine.unmountable
    for array in machine.arrays:
        remade = [a for a in found.actions if a.kind == "mkfs" and a.device == array.device]
        assert not (remade and any(m.device == array.device for m in machine.mounts))
        assert not (remade and array.content and not machine.unmountable)


def fits(found: ScratchPlan, world: World) -> None:
    """A pass says that scratch is there, with everything that belongs to it."""
    if found.verdict != "pass":
        return
    shown = [m for m in world.machine.mounts if m.target == world.request.mount]
    assert shown and found.path == world.request.mount
    if found.source == "array":
        array = next(a for a in world.machine.arrays if a.device == shown[-1].device)
        assert array.uuid == found.array and array.state == "clean" and len(array.members) == array.devices
        assert {d.path for d in world.machine.disks if mine(d) and d.member and d.member.uuid == array.uuid} == set(
            array.members
        )


COMMON = settings(suppress_health_check=list(HealthCheck))


@COMMON
@given(worlds(), st.booleans())
def test_nothing_of_others_is_ever_touched(world: World, boot: bool):
    found = plan(world.machine, world.request, boot)
    event(f"{found.verdict} {[a.kind for a in found.actions if a.kind in WRITES][:2]}")
    check_touched(world.machine, world.request, found, boot)
    check_kept(world.machine, world.request, found, boot)
    if not found.actions:
        assert found.before == found.after
        fits(found, world)
    if found.verdict in ("fail", "error", "warn"):
        assert found.blame and found.reason
    for finding in found.findings:
        assert not (finding.device and finding.id) or (finding.device in finding.text and finding.id in finding.text)
        assert finding.level == "note" or finding.advice or finding.code == "ambiguous" or "left alone" in finding.text


@COMMON
@given(worlds(), st.booleans())
def test_after_a_plan_nothing_is_left_to_do_and_it_is_as_predicted(world: World, boot: bool):
    hidden = dict(world.contents)
    first = plan(world.machine, world.request, boot)
    second = settle(world, boot)
    assert second.actions == (), [a.kind for a in second.actions]
    fits(second, world)
    if not world.machine.unmountable and _foreseen(first, hidden, world.request):
        assert (second.verdict, second.before) == (first.verdict, first.after)


def _foreseen(first: ScratchPlan, hidden: t.Mapping[str, tuple[Signature, ...]], request: ScratchRequest) -> bool:
    """What is on an array that does not run is known only once it runs."""
    types = {signature.type for content in hidden.values() for signature in content}
    started = any(action.kind == "assemble" for action in first.actions)
    return not started or (types == {request.filesystem} and all(hidden.values()))


@COMMON
@given(worlds(), st.booleans(), st.data())
def test_a_plan_that_is_cut_off_is_finished_or_reported(world: World, boot: bool, data: st.DataObject):
    actions = plan(world.machine, world.request, boot).actions
    assume(actions)
    whole = copy.deepcopy(world)
    end = settle(whole, boot)
    cut = data.draw(st.integers(0, len(actions) - 1))
    _until(world, actions, cut, data)
    if data.draw(st.booleans()):
        world.restart()
    middle = world.machine
    by_itself = settle(copy.deepcopy(world), True)  # the start of the machine may come first
    assert by_itself.actions == ()
    again = plan(middle, world.request, boot)
    check_touched(middle, world.request, again, boot)
    check_kept(middle, world.request, again, boot)
    last = settle(world, boot)
    fits(last, world)
    assert last.actions == ()
    assert (last.verdict, last.array) == (end.verdict, end.array) or last.verdict in ("fail", "warn") or not last.disks


def _until(world: World, actions: t.Sequence[ScratchAction], cut: int, data: st.DataObject) -> None:
    """Do some of the steps, and perhaps a part of the next one."""
    try:
        world.run(actions[:cut])
        if actions[cut].kind == "create":
            world.superblocks(actions[cut], data.draw(st.integers(0, len(actions[cut].disks))))
        elif actions[cut].kind == "mkfs" and data.draw(st.booleans()):
            world.half_mkfs(actions[cut])
    except Refused:
        assume(False)


@COMMON
@given(worlds())
def test_a_rebuild_comes_to_the_same_end_wherever_it_is_cut_off(world: World):
    request = replace(world.request, rebuild=True, models=(MODEL,), ids=(), count=None, fallback="", adopt=(), wipe=())
    actions = plan(world.machine, request).actions
    assume(any(action.kind == "create" for action in actions))
    whole = copy.deepcopy(world)
    end = settle(whole, request=request)
    for cut in range(len(actions)):
        part = copy.deepcopy(world)
        part.run(actions[:cut])
        part.restart()
        last = settle(part, request=request)
        assert (last.verdict, last.actions, last.array) == (end.verdict, (), end.array)
