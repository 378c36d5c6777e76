# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""File systems, the scratch array, NVMe disks, and the probe that writes and reads."""

from __future__ import annotations

import errno
import json
import os
import time
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import checks_storage, node_access
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.node_world import MOUNTS, World

FIXTURES = Path(__file__).parents[3] / "fixtures/nvme_scratch"
ROOM = {"f_blocks": 1000, "f_bavail": 500, "f_files": 100000, "f_favail": 50000}


def statvfs(**places: t.Any) -> t.Callable[[str], t.Any]:
    """Answer for each path (root, spool ..), with plenty of room if a test says nothing of it."""

    def answer(path: str) -> t.Any:
        name = "root" if path == "/" else path.rpartition("/")[2]
        found = places.get(name, {})
        if isinstance(found, OSError):
            raise found
        return types.SimpleNamespace(**{**ROOM, **found})

    return answer


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.settings["paths"] = ["/", "/shared", "/var/spool/slurmd"]
    made.statvfs = statvfs()
    return made


def test_room_enough_passes_and_the_share_is_not_touched(world: World) -> None:
    world.statvfs = statvfs(shared=OSError(errno.ESTALE, "Stale file handle"))
    found = world.one("filesystems")
    assert found["verdict"] == "pass"
    assert {one["path"] for one in found["metrics"]} == {"/", "/var/spool/slurmd", str(world.folder / "spool")}


@pytest.mark.parametrize(
    ("full", "told"),
    [
        ({"f_bavail": 0}, "free (path=/var/spool/slurmd): 0 %, expected >= 3"),
        ({"f_bavail": 29}, "free (path=/var/spool/slurmd): 2.9 %"),
        ({"f_favail": 999}, "free_inodes (path=/var/spool/slurmd): 999 inodes, expected >= 1000"),
    ],
)
def test_a_full_spool_is_configuration_and_named(world: World, full: t.Any, told: str) -> None:
    world.statvfs = statvfs(slurmd=full)
    found = world.one("filesystems", "prolog")
    assert (found["verdict"], found["class"]) == ("fail", "config")
    assert told in found["reason"]


def test_a_file_system_that_makes_inodes_as_needed_has_no_limit(world: World) -> None:
    world.statvfs = statvfs(root={"f_files": 0, "f_favail": 0})
    assert world.one("filesystems")["verdict"] == "pass"


def test_a_path_that_does_not_answer_is_an_error(world: World) -> None:
    world.statvfs = statvfs(slurmd=OSError(errno.EIO, "Input/output error"))
    found = world.one("filesystems")
    assert (found["verdict"], found["class"]) == ("error", "infra")


def test_a_path_that_is_not_there_yet_takes_room_from_what_holds_it(world: World) -> None:
    world.statvfs = statvfs(slurmd=FileNotFoundError(errno.ENOENT, "No such file"), spool={"f_bavail": 1})
    assert "free (path=/var/spool/slurmd): 0.1 %" in world.one("filesystems")["reason"]


def test_a_root_that_was_remounted_read_only_is_hardware(world: World) -> None:
    world.file("proc/mounts", MOUNTS.replace("rw,relatime", "ro,relatime,errors=remount-ro"))
    found = world.one("filesystems", "prolog")
    assert (found["verdict"], found["class"]) == ("fail", "hardware")
    assert "read-only" in found["reason"]


def test_no_mounts_at_all_is_an_error(world: World) -> None:
    (world.folder / "proc/mounts").unlink()
    assert world.one("filesystems")["verdict"] == "error"


def test_mounts_hide_each_other_and_have_blanks() -> None:
    found = node_access.parse("a / ext4 rw 0 0\nb /x\\040y xfs ro 0 0\nc /x\\040y nfs4 rw 0 0\nbroken\n")
    assert [one.source for one in found] == ["a", "b", "c"]
    assert node_access.holding(found, "/x y/z") == found[2]
    assert node_access.holding(found, "/x yz") == found[0]
    assert node_access.holding([], "/") is None
    assert found[2].network


def md(world: World, state: str = "clean", disks: int = 3, degraded: int = 0, **bad: str) -> None:
    """Make the directory of an array in sysfs, with a disk for each member."""
    world.file("sys/block/md127/md/array_state", f"{state}\n")
    world.file("sys/block/md127/md/raid_disks", f"{disks}\n")
    world.file("sys/block/md127/md/degraded", f"{degraded}\n")
    for number in range(disks):
        name = f"nvme{number}n1"
        world.file(f"sys/block/{name}/size", "1\n")
        world.file(f"sys/block/md127/md/dev-{name}/state", f"{bad.get(name, 'in_sync')}\n")


@pytest.fixture
def scratch(world: World) -> World:
    world.settings["scratch"] = {"mount": "/mnt/resource_nvme", "count": 3}
    world.file("proc/mounts", f"{MOUNTS}/dev/md127 /mnt/resource_nvme xfs rw,noatime 0 0\n")
    md(world)
    return world


def test_a_whole_array_passes(scratch: World) -> None:
    assert scratch.one("scratch_array")["verdict"] == "pass"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"state": "broken"}, "the array is broken"),
        ({"state": "inactive"}, "the array is inactive"),
        ({"degraded": 1}, "1 disks are missing"),
        ({"nvme1n1": "faulty"}, "nvme1n1 is faulty"),
        ({"nvme1n1": "in_sync,faulty"}, "nvme1n1 is in_sync,faulty"),
        ({"disks": 2}, "disks (path=/mnt/resource_nvme): 2 disks, expected == 3"),
    ],
)
def test_an_array_that_is_not_whole_fails(scratch: World, change: t.Any, told: str) -> None:
    for path in (scratch.folder / "sys/block/md127/md").glob("dev-*/state"):
        path.unlink()
        path.parent.rmdir()
    md(scratch, **change)
    found = scratch.one("scratch_array", "prolog")
    assert (found["verdict"], found["class"]) == ("fail", "hardware")
    assert told in found["reason"]


def test_a_disk_that_was_pulled_is_gone(scratch: World) -> None:
    disk = scratch.folder / "sys/block/nvme2n1"
    (disk / "size").unlink()
    disk.rmdir()
    found = scratch.one("scratch_array", "prolog")
    assert (found["verdict"], found["class"]) == ("fail", "hardware")
    assert "nvme2n1 is gone" in found["reason"]


@pytest.mark.parametrize(
    ("name", "verdict", "told"),
    [
        ("array", "pass", ""),
        (
            "broken",
            "fail",
            "md127: nvme2n1 is gone; the array is broken; disks (path=/mnt/resource_nvme): 6 disks, expected == 7",
        ),
        ("foreign", "fail", "disks (path=/mnt/resource_nvme): 1 disks, expected == 2"),
    ],
)
def test_captured_arrays(world: World, name: str, verdict: str, told: str) -> None:
    captured = json.loads((FIXTURES / f"captured-{name}.json").read_text())["files"]
    for path, text in captured.items():
        if path.startswith("/sys/"):
            world.file(path[1:], text)
    world.settings["scratch"] = {"mount": "/mnt/resource_nvme"}
    world.file("proc/mounts", f"{MOUNTS}/dev/md127 /mnt/resource_nvme xfs rw,noatime 0 0\n")
    found = world.one("scratch_array", "prolog")
    assert (found["verdict"], found["reason"]) == (verdict, told)


def test_a_scratch_that_is_not_mounted_would_fill_the_system_disk(scratch: World) -> None:
    scratch.file("proc/mounts", MOUNTS)
    for check in ("scratch_array", "scratch_probe"):
        found = scratch.one(check)
        assert (found["verdict"], found["class"]) == ("fail", "hardware")
        assert "fills the system disk" in found["reason"]
    scratch.settings["scratch"]["fallback"] = "/var/tmp"
    assert scratch.one("scratch_array")["verdict"] == "warn"


def test_no_scratch_is_nothing_to_look_at(world: World) -> None:
    assert [world.one(name)["verdict"] for name in ("scratch_array", "scratch_probe")] == ["skipped"] * 2


def nvme(world: World, number: int, model: str = "Microsoft NVMe Direct Disk v2", state: str = "live") -> None:
    world.file(f"sys/class/nvme/nvme{number}/model", f"{model}  \n")
    world.file(f"sys/class/nvme/nvme{number}/state", f"{state}\n")


def test_nvme_disks_are_counted_against_the_machine_type(tmp_path: Path) -> None:
    """A service that builds its array from whatever it finds calls 7 of 8 healthy."""
    world = World(tmp_path, "Standard_ND96isr_H100_v5")
    for number in range(8):
        nvme(world, number)
    nvme(world, 8, "MSFT NVMe Accelerator v1.0")
    assert world.one("nvme_disks")["verdict"] == "pass"
    nvme(world, 3, state="dead")
    found = world.one("nvme_disks")
    assert (found["verdict"], found["class"]) == ("fail", "hardware")
    assert "nvme3: the controller does not answer" in found["reason"]
    assert "disks: 7 disks, expected == 8" in found["reason"]


def sized(world: World, number: int, sectors: int, state: str = "live") -> None:
    nvme(world, number, "SAMSUNG MZQL23T8HCLS-00A07", state)
    # Where the kernel has several ways to a disk, that of one controller is called so.
    name = f"nvme{number}n1" if number % 2 else f"nvme{number}c{number}n1"
    world.file(f"sys/class/nvme/nvme{number}/{name}/size", f"{sectors}\n")


def test_disks_of_the_operating_system_are_not_those_of_a_dgx(tmp_path: Path) -> None:
    """It has ten: its maker names no model, as several go in, and two smaller ones hold the system."""
    world = World(tmp_path, "dgx_h100")
    for number in range(8):
        sized(world, number, 7_501_476_528)
    for number in (8, 9):
        sized(world, number, 3_750_748_848)
    found = world.one("nvme_disks")
    assert (found["verdict"], found["metrics"][0]["value"]) == ("pass", 8), found
    (tmp_path / "sys/class/nvme/nvme3/nvme3n1/size").unlink()
    world.file("sys/class/nvme/nvme3/state", "dead\n")
    found = world.one("nvme_disks")
    assert (found["verdict"], found["class"], found["metrics"][0]["value"]) == ("fail", "hardware", 7), found
    assert found["reason"].startswith("nvme3: the controller does not answer"), found


@pytest.mark.parametrize(
    ("profile", "verdict"),
    [
        ({"count": 8, "controller": ["KIOXIA", "SAMSUNG MZQL2"]}, "pass"),
        ({"count": 8, "controller": ["KIOXIA"]}, "fail"),
        ({"count": 6}, "pass"),  # nothing tells them from those of the operating system
        ({"count": 9}, "fail"),
    ],
)
def test_disks_of_a_site_s_profile_are_counted_as_it_names_them(
    tmp_path: Path, profile: dict[str, object], verdict: str
) -> None:
    world = World(tmp_path, "dgx_h100")
    world.profile["nvme"] = profile
    for number in range(8):
        sized(world, number, 7_501_476_528)
    assert world.one("nvme_disks")["verdict"] == verdict


def test_a_probe_reads_what_it_wrote_and_leaves_nothing(tmp_path: Path) -> None:
    done = node_access.probe(tmp_path, 1 << 16)
    assert (done.problem, list(tmp_path.iterdir())) == ("", [])
    assert done.skew is not None
    assert abs(done.skew) < 5


@pytest.mark.parametrize("wrong", [b"", b"x" * 100, b"x" * 4095 + b"y"])
def test_a_probe_that_gets_something_else_back_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: bytes
) -> None:
    monkeypatch.setattr(node_access, "_through", lambda path, data: wrong)
    done = node_access.probe(tmp_path, 4096, b"x" * 4096)
    assert done.kind == "hardware"
    assert f"{len(wrong)} of 4096 bytes came back" in done.problem


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, "config"), (errno.EACCES, "config"), (errno.EIO, "hardware"), (errno.EROFS, "hardware")],
)
def test_a_probe_that_cannot_write_tells_whose_fault_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: str
) -> None:
    def fails(*dummy: t.Any) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(node_access, "_through", fails)
    done = node_access.probe(tmp_path, 10)
    assert (done.kind, os.strerror(number) in done.problem) == (kind, True)


def test_what_a_killed_probe_left_is_removed_by_a_later_one(tmp_path: Path) -> None:
    (tmp_path / ".hpcai-probe-1").write_text("x")
    (tmp_path / ".hpcai-probe-2.d").mkdir()
    (tmp_path / "mine").write_text("x")
    node_access.clean(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    node_access.clean(tmp_path, time.time() + 700)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_scratch_is_written_and_read(world: World) -> None:
    folder = world.folder / "mnt"
    folder.mkdir()
    world.settings["scratch"] = {"mount": str(folder)}
    world.file("proc/mounts", f"{MOUNTS}/dev/md127 {folder} xfs rw 0 0\n")
    found = world.one("scratch_probe")
    assert (found["verdict"], [one["name"] for one in found["metrics"]]) == ("pass", ["seconds"])


def test_a_slash_too_many_is_the_same_scratch(world: World) -> None:
    folder = world.folder / "mnt"
    folder.mkdir()
    world.settings["scratch"] = {"mount": f"{folder}/"}
    world.file("proc/mounts", f"{MOUNTS}/dev/md127 {folder} xfs rw 0 0\n")
    assert world.one("scratch_probe")["verdict"] == "pass"


@pytest.mark.parametrize(
    ("suite", "job", "verdict"), [("periodic", True, "warn"), ("epilog", False, "warn"), ("periodic", False, "fail")]
)
def test_a_job_that_fills_the_scratch_takes_no_node_away(
    world: World, monkeypatch: pytest.MonkeyPatch, suite: str, job: bool, verdict: str
) -> None:
    def full(*dummy: t.Any) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(node_access, "_through", full)
    world.settings["scratch"] = {"mount": str(world.folder)}
    world.file("proc/mounts", f"{MOUNTS}/dev/md127 {world.folder} xfs rw 0 0\n")
    if job:
        world.file("proc/7/status", "State:\tS (sleeping)\nUid:\t0\t0\t0\t0\n")
        world.file("proc/7/cmdline", "slurmstepd: [42.batch]\0")
    found = world.one("scratch_probe", suite)
    assert (found["verdict"], found["class"]) == (verdict, "config")
    assert "No space left" in found["reason"]


def test_nobody_can_take_the_name_of_a_probe(tmp_path: Path) -> None:
    (tmp_path / f".hpcai-probe-{os.getpid()}").write_text("a user's")
    assert node_access.probe(tmp_path, 10).problem == ""


def test_what_takes_the_place_of_a_probe_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe would hold the check for ever, a link would have root read what it leads to."""

    def swapped(dummy: int) -> None:
        (path,) = tmp_path.glob(".hpcai-probe-*")
        path.unlink()
        os.mkfifo(path)

    monkeypatch.setattr(os, "fsync", swapped)
    assert node_access.probe(tmp_path, 4096).problem == ""


def test_a_file_system_in_user_space_is_not_touched() -> None:
    (one,) = node_access.parse("blobfuse2 /data fuse rw,nosuid 0 0\n")
    assert one.network


def test_a_single_disk_needs_no_array(tmp_path: Path) -> None:
    (tmp_path / "nvme0n1").mkdir()
    found = checks_storage.array(tmp_path / "nvme0n1", 1, "/scratch")
    assert (found.verdict, [one["value"] for one in found.metrics]) == (None, [1])
    assert checks_storage.array(tmp_path / "md9", None, "/scratch").verdict == "error"
