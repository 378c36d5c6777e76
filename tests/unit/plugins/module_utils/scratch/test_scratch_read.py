# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of machines for the NVMe scratch, on captured ones."""

from __future__ import annotations

import base64
import errno
import json
import os
import typing as t
from pathlib import Path

import pytest
from scratch_captured import FIXTURES, Captured, blank
from scratch_world import request_of

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch import block_device as superblock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply import zero
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.block_device import (
    MIB,
    MachineRoot,
    ScratchReadError,
    is_blank,
    natural,
    parse_mountinfo,
    parse_wipefs,
    spots,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import Directory
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.read import (
    FSTAB,
    MARKER,
    read_fstab,
    read_machine,
    read_marker,
    read_path,
)

OURS = "68706361:692e6e76:b31f608c:108bda20"


def captured(name: str) -> dict[str, t.Any]:
    return json.loads((FIXTURES / f"captured-{name}.json").read_text())


@pytest.mark.parametrize("name", ["array", "foreign", "broken"])
def test_a_superblock_says_what_mdadm_says(name: str) -> None:
    data = captured(name)
    for device, text in data["examine"].items():
        said = dict(line.split("=", 1) for line in text.splitlines() if line.startswith("MD_"))
        found = superblock.parse(base64.b64decode(data["at_4096"].get(device, "")).ljust(4096, b"\0"))
        if not said:
            assert found is None, device
            continue
        assert found is not None, device
        assert (found.uuid, found.name, found.level) == (said["MD_UUID"], said["MD_NAME"], said["MD_LEVEL"])
        assert (found.members, found.events) == (int(said["MD_DEVICES"]), int(said["MD_EVENTS"]))


def test_the_slots_are_those_of_the_running_array() -> None:
    data = captured("array")
    detail = data["detail"]["/dev/md127"]
    for number in range(3):
        found = superblock.parse(base64.b64decode(data["at_4096"][f"/dev/nvme{number}n1"]).ljust(4096, b"\0"))
        assert found is not None
        assert f"MD_DEVICE_dev_nvme{number}n1_ROLE={found.slot}\n" in detail


@pytest.mark.parametrize("position", [0, 4, 20, 72, 92, 200, 216, 220, 256])
def test_a_superblock_with_a_wrong_byte_is_none(position: int) -> None:
    block = bytearray(base64.b64decode(captured("array")["at_4096"]["/dev/nvme0n1"]).ljust(4096, b"\0"))
    block[position] ^= 0x41
    assert superblock.parse(bytes(block)) is None


@pytest.mark.parametrize("length", [0, 255, 256])
def test_a_cut_superblock_is_none(length: int) -> None:
    assert superblock.parse(base64.b64decode(captured("array")["at_4096"]["/dev/nvme0n1"])[:length]) is None


def test_a_whole_array_of_ours(tmp_path: Path) -> None:
    machine = read_machine(Captured(tmp_path, "array"), request_of())
    assert [disk.id for disk in machine.disks] == ["SERIAL-1", "SERIAL-2", "SERIAL-3"]
    for role, disk in enumerate(machine.disks):
        assert (disk.model, disk.transport, disk.size, disk.max_io) == ("QEMU NVMe Ctrl", "pcie", 1 << 30, 512)
        assert disk.member is not None
        assert (disk.member.uuid, disk.member.name, disk.member.devices) == (OURS, "scratch", 3)
        assert (disk.member.role, disk.member.chunk) == (role, 512)
        assert disk.holders == ("/dev/md127",) and disk.mounts == ("/mnt/resource_nvme",)
        assert [sign.type for sign in disk.signatures] == ["linux_raid_member"] and not disk.blank
        assert f"nvme-QEMU_NVMe_Ctrl_{disk.id}" in disk.ids and not disk.error
    (array,) = machine.arrays
    assert (array.device, array.uuid, array.name, array.level) == ("/dev/md127", OURS, "scratch", "raid0")
    assert (array.state, array.devices) == ("clean", 3)
    assert array.members == tuple(disk.path for disk in machine.disks)
    assert [(sign.type, sign.device) for sign in array.content] == [("xfs", "/dev/md127")]
    (mount,) = [mount for mount in machine.mounts if mount.target == "/mnt/resource_nvme"]
    assert (mount.device, mount.number, mount.fstype, mount.root) == ("/dev/md127", "9:127", "xfs", "/")
    assert mount.options == ("rw", "noatime")


def test_what_is_not_ours_is_named_with_its_use(tmp_path: Path) -> None:
    machine = read_machine(Captured(tmp_path, "foreign"), request_of())
    table, volume, mirror = machine.disks
    assert table.partitions == ("/dev/nvme0n1p1", "/dev/nvme0n1p2")
    assert table.mounts == ("/data one",) and table.swaps == ("/dev/nvme0n1p1",)
    found = {(sign.device, sign.type) for sign in table.signatures}
    assert {("/dev/nvme0n1", "gpt"), ("/dev/nvme0n1p1", "swap"), ("/dev/nvme0n1p2", "ext4")} <= found
    assert "my data" in {sign.label for sign in table.signatures}
    assert [sign.type for sign in volume.signatures] == ["LVM2_member"]
    assert volume.holders == ("/dev/dm-0",) and volume.mounts == ("/lv",)
    assert mirror.member is not None and mirror.member.name == "other" and mirror.holders == ("/dev/md127",)
    assert not any(disk.blank for disk in machine.disks)
    (line,) = machine.fstab
    assert (line.source, line.target, line.device) == ("LABEL=my data", "/mnt/resource_nvme", "/dev/nvme0n1p2")


def test_an_array_that_lost_a_disk(tmp_path: Path) -> None:
    machine = read_machine(Captured(tmp_path, "broken"), request_of())
    (array,) = machine.arrays
    assert len(machine.disks) == 6 and array.devices == 7
    assert array.state == "broken" and not array.content and not array.blank
    assert array.uuid.startswith("68706361:692e6e76:")


def test_blank_disks_need_neither_mdadm_nor_mkfs(tmp_path: Path) -> None:
    place = blank(tmp_path)
    place.absent = {"mdadm", "mkfs.xfs"}
    machine = read_machine(place, request_of(directories=(Directory("x", "nobody-here", "root", "1777"),)))
    assert [(disk.blank, disk.error, disk.busy) for disk in machine.disks] == [(True, "", False)] * 2
    assert machine.missing_tools == ("mdadm", "mkfs.xfs") and machine.unknown_names == ("nobody-here",)
    assert [call[0] for call in place.calls] == ["wipefs"], "one process for all disks, and nothing that writes"


@pytest.mark.parametrize("offset", [0, MIB - 1, 2 * MIB + 5, 65 * MIB, 128 * MIB - 1])
def test_a_disk_with_anything_in_a_telling_place_is_not_blank(tmp_path: Path, offset: int) -> None:
    place = blank(tmp_path, 1)
    with place.at("/dev/nvme0n1").open("r+b") as handle:
        handle.seek(offset)
        handle.write(b"\1")
    (disk,) = read_machine(place, request_of()).disks
    assert not disk.blank and not disk.signatures


def test_a_disk_shorter_than_its_size_is_an_error_of_that_disk(tmp_path: Path) -> None:
    place = blank(tmp_path)
    place.at("/dev/nvme0n1").write_bytes(bytes(4096))
    one, other = read_machine(place, request_of()).disks
    assert "ends at byte" in one.error and not one.blank and not other.error


def test_a_disk_that_wipefs_cannot_read_does_not_hide_the_others(tmp_path: Path) -> None:
    place = blank(tmp_path)
    place.data["wipefs"]["/dev/nvme0n1"] = {
        "rc": 1,
        "out": "",
        "err": "wipefs: error: /dev/nvme0n1: Input/output error",
    }
    one, other = read_machine(place, request_of()).disks
    assert "Input/output error" in one.error and other.blank


def test_a_lost_controller_leaves_a_disk_without_size(tmp_path: Path) -> None:
    place = blank(tmp_path, 1)
    place.write("/sys/block/nvme0n1/size", "0\n")
    assert "lost it" in read_machine(place, request_of()).disks[0].error


def test_namespaces_that_share_a_serial_go_by_their_wwid(tmp_path: Path) -> None:
    place = blank(tmp_path)
    for number in range(2):
        place.write(f"/sys/block/nvme{number}n1/device/serial", "SAME\n")
    found = read_machine(place, request_of()).disks
    assert [disk.id for disk in found] == ["eui.0", "eui.1"] and not any("SAME" in disk.ids for disk in found)


def test_native_multipath_puts_a_subsystem_in_between(tmp_path: Path) -> None:
    place = blank(tmp_path, 1)
    place.at("/sys/block/nvme0n1/device/transport").unlink()
    place.write("/sys/block/nvme0n1/device/nvme3/transport", "tcp\n")
    assert read_machine(place, request_of()).disks[0].transport == "tcp"


def test_spots_of_a_small_disk_stay_inside_it() -> None:
    for size in (512, MIB, MIB + 512, 3 * MIB, 6 * MIB, 1 << 40, 1_920_383_410_176):
        assert all(offset >= 0 and length > 0 and offset + length <= size for offset, length in spots(size))
        assert spots(size) == spots(size)


class Leftover(t.NamedTuple):
    what: str
    offset: int  # from the end, if negative
    length: int = 4096


SIZE = 1_920_383_410_176  # of an NVMe disk of ND96asr_v4
QUARTER = SIZE // 4 // 4096 * 4096
LEFT_BEHIND = [
    Leftover("the second header of LUKS2 at 4 MiB", 4 * MIB),
    Leftover("VMFS", 2 * MIB),
    Leftover("the second superblock of btrfs", 64 * MIB),
    Leftover("the third superblock of btrfs", 256 << 30),
    Leftover("the second label of BlueStore", 1 << 30),
    Leftover("the third label of BlueStore", 10 << 30),
    Leftover("the fourth label of BlueStore", 100 << 30),
    Leftover("the fifth label of BlueStore", 1000 << 30),
    Leftover("the superblock of group 49 of ext4", 49 * 128 * MIB),
    Leftover("the superblock of the second group of XFS", QUARTER, 512),
    Leftover("the superblock of the last group of XFS", 3 * QUARTER, 512),
    Leftover("the copy of GPT", -512, 512),
    Leftover("the superblock of md 0.90", SIZE // 65536 * 65536 - 65536 - SIZE),
    Leftover("the superblock of md 1.0", -8192),
    Leftover("the third label of ZFS", SIZE // 262144 * 262144 - 2 * 262144 - SIZE, 262144),
    Leftover("the metadata of Promise", -3087 * 512, 512),
]


@pytest.mark.parametrize("left", LEFT_BEHIND, ids=lambda left: left.what)
def test_a_disk_that_only_looks_blank_at_its_ends_is_not(tmp_path: Path, left: Leftover) -> None:
    """A sparse file: with the first and the last MiB wiped, as wipefs, sgdisk --zap-all and mdadm leave disks."""
    place = blank(tmp_path, 1)
    disk = place.at("/dev/nvme0n1")
    with disk.open("wb") as handle:
        handle.truncate(SIZE)
    assert is_blank(place, "/dev/nvme0n1", spots(SIZE))
    with disk.open("r+b") as handle:
        os.pwrite(handle.fileno(), b"x" * left.length, left.offset % SIZE)
    assert not is_blank(place, "/dev/nvme0n1", spots(SIZE))


def test_what_fills_two_stretches_cannot_be_missed() -> None:
    for size in (256 * MIB, 1 << 30, 960_197_124_096, SIZE, 15 << 40):
        places = sorted(spots(size))
        gaps = [after[0] - (before[0] + before[1]) for before, after in zip(places, places[1:])]
        assert max(gaps) < 2 * max(size / 1024, MIB)


def test_looking_at_a_disk_costs_little() -> None:
    assert len(spots(SIZE)) < 1100
    assert sum(length for dummy, length in spots(SIZE)) < 14 * MIB
    assert len(spots(256 * MIB)) < 300


def test_a_disk_that_was_ours_is_blank_again(tmp_path: Path) -> None:
    place = blank(tmp_path, 1)
    size = 64 * MIB
    place.at("/dev/nvme0n1").write_bytes(b"x" * size)
    zero(place, "/dev/nvme0n1", size)
    assert is_blank(place, "/dev/nvme0n1", spots(size))


def test_blankness_is_about_every_spot(tmp_path: Path) -> None:
    place = blank(tmp_path, 1)
    assert is_blank(place, "/dev/nvme0n1", spots(128 * MIB))


@pytest.mark.parametrize("text", ["{}", "no", '{"signatures": [{"offset": "0x0"}]}', '{"signatures": null}'])
def test_wipefs_has_to_be_understood(text: str) -> None:
    with pytest.raises(ScratchReadError):
        parse_wipefs(text)


def test_wipefs_may_say_nothing() -> None:
    assert parse_wipefs("\n") == []


def test_mountinfo_has_to_be_understood() -> None:
    with pytest.raises(ScratchReadError):
        parse_mountinfo("1 2 3")


def test_the_source_of_an_fstab_line(tmp_path: Path) -> None:
    place = Captured(tmp_path, "array")
    uuid = next(path.rpartition("/")[2] for path in place.data["links"] if "by-uuid" in path)
    place.write(
        FSTAB, f"# UUID=x /a xfs\nUUID={uuid} /a xfs defaults 0 0\n/dev/md127 /b xfs\nUUID=gone /c xfs\nsrv:/x /d nfs\n"
    )
    found = {line.target: (line.number, line.device) for line in read_fstab(place)}
    assert found == {"/a": (2, "/dev/md127"), "/b": (3, "/dev/md127"), "/c": (4, ""), "/d": (5, "")}


def test_the_marker(tmp_path: Path) -> None:
    place = Captured(tmp_path)
    assert read_marker(place) == ""
    place.write(MARKER, f'{{"building": "{OURS}"}}')
    assert read_marker(place) == OURS
    place.write(MARKER, "half")
    with pytest.raises(ScratchReadError, match="read and remove it"):
        read_marker(place)


def test_a_place_is_what_it_is_and_not_what_it_points_to(tmp_path: Path) -> None:
    place = Captured(tmp_path)
    place.write("/d/file", "")
    place.at("/d").chmod(0o1777)
    place.at("/link").symlink_to(place.at("/d"))
    assert read_path(place, "/nowhere/x").kind == "absent"
    assert read_path(place, "/link").kind == read_path(place, "/d/file").kind == "other"
    found = read_path(place, "/d")
    assert (found.kind, found.mode, found.empty) == ("directory", "1777", False)


def test_names_sort_as_people_count() -> None:
    assert sorted(["nvme10n1", "nvme2n1", "nvme2n10", "md127", "nvme2n2"], key=natural) == [
        "md127",
        "nvme2n1",
        "nvme2n2",
        "nvme2n10",
        "nvme10n1",
    ]


def test_a_file_system_without_its_disks_does_not_end_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "lstat", gone)
    assert read_path(MachineRoot(tmp_path), "/scratch").kind == "other"
