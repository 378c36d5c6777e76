# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be asked for, and which disks are meant by it."""

from __future__ import annotations

import json
import typing as t
from dataclasses import asdict, replace

import pytest
from scratch_world import MODEL, cleared, disk, member, request_of

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.disks import REMOTE, select
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.layout import wanted_paths
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.model import (
    Directory,
    ScratchDisk,
    ScratchMachine,
    Signature,
    array_uuid,
    filesystem_uuid,
    kernel_name,
    ours,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.module import SPEC, ScratchRequestError, parse

WRONG: list[tuple[dict[str, t.Any], str]] = [
    ({"nmae": "x"}, "unknown settings: nmae"),
    ({"name": "md127"}, "name: 'md127'"),
    ({"name": "a/b"}, "name: 'a/b'"),
    ({"name": "x" * 25}, "name:"),
    ({"name": 5}, "name: a text is needed"),
    ({"mount": "/"}, "belongs to the system"),
    ({"mount": "/etc/scratch"}, "belongs to the system"),
    ({"mount": "/tmp"}, "belongs to the system"),
    ({"mount": "scratch"}, "plain absolute path"),
    ({"mount": "/a/../b"}, "plain absolute path"),
    ({"mount": "/a b"}, "plain absolute path"),
    ({"mount": "/nvme/scratch"}, "inside /nvme"),
    ({"fallback": "/mnt/resource_nvme"}, "in the mount itself"),
    ({"fallback": "/mnt/resource_nvme/x"}, "in the mount itself"),
    ({"fallback": "mnt"}, "plain absolute path"),
    ({"adopt": ["nvme"]}, "plain absolute path"),
    ({"models": "x"}, "models: a list of texts"),
    ({"models": [1]}, "models: a list of texts"),
    ({"options": ["a,b"]}, "options: 'a,b'"),
    ({"filesystem": "btrfs"}, "filesystem: 'btrfs'"),
    ({"fewer": "maybe"}, "fewer: 'maybe'"),
    ({"count": -1}, "count: -1"),
    ({"count": "8"}, "count: '8' is not a whole number"),
    ({"count": True}, "count: True is not a whole number"),
    ({"chunk": 100}, "chunk: 100"),
    ({"chunk": 2}, "chunk: 2"),
    ({"chunk": 6}, "chunk: 6"),
    ({"chunk": 131072}, "chunk: 131072"),
    ({"mount": "//scratch"}, "plain absolute path"),
    ({"directories": [{"path": "a", "mode": 755}]}, "mode 755"),
    ({"directories": [{"path": "a", "group": ""}]}, "needs an owner"),
    ({"rebuild": "yes"}, "rebuild: true or false"),
    ({"mode": "777"}, "four digits"),
    ({"mode": "rwx"}, "mode: mode 'rwx'"),
    ({"wipe": ["/dev/nvme0n1"]}, "wipe: /dev/nvme0n1 is a name that the kernel gives anew"),
    ({"wipe": ["nvme0n1p1"]}, "wipe: nvme0n1p1"),
    ({"ids": ["md127"]}, "ids: md127"),
    ({"ids": [""]}, "ids: a list of texts"),
    ({"directories": [{"path": "/abs"}]}, "not a place below the mount"),
    ({"directories": [{"path": "a/../../b"}]}, "not a place below the mount"),
    ({"directories": [{"path": "."}]}, "not a place below the mount"),
    ({"directories": [{"path": ""}]}, "not a place below the mount"),
    ({"directories": [{"pth": "a"}]}, "path, owner, group and mode"),
    ({"directories": ["a"]}, "path, owner, group and mode"),
    ({"directories": [{"path": "a", "mode": "9"}]}, "mode '9'"),
    ({"directories": [{"path": "a", "owner": ""}]}, "needs an owner"),
    ({"directories": [{"path": "a"}, {"path": "./a/"}]}, "a is listed twice"),
]


@pytest.mark.parametrize("settings, words", WRONG, ids=[str(case[0])[:40] for case in WRONG])
def test_what_makes_no_sense_is_refused_by_name(settings: dict[str, t.Any], words: str):
    with pytest.raises(ScratchRequestError) as caught:
        parse(settings)
    assert words in str(caught.value)


def test_what_is_left_out_has_the_default_of_its_option():
    request = parse({})
    assert request == parse({"count": None, "chunk": None, "models": None})
    defaults = {name: SPEC[name].get("default") for name in asdict(request)}
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in defaults.items()}
    assert asdict(request) == {**plain, "fallback": ""}
    (directory,) = parse({"directories": [{"path": "a", "owner": None}]}).directories
    assert directory == Directory("a", "root", "root", "1777")


@pytest.mark.parametrize("settings", [{"count": 0}, {"chunk": 4}, {"chunk": 65536}, {"name": "x" * 24}])
def test_what_is_just_right(settings: dict[str, t.Any]):
    (key,) = settings
    assert getattr(parse(settings), key) == settings[key]


def test_a_request_comes_through_a_settings_file_unchanged():
    wanted = {
        "models": [MODEL],
        "wipe": ["/dev/disk/by-id/nvme-X_1"],
        "count": 8,
        "directories": [{"path": "users/eva/", "owner": "eva", "mode": "700"}],
    }
    request = parse(wanted)
    assert request.wipe == ("nvme-X_1",)
    assert request.directories == (Directory("users/eva", "eva", "root", "0700"),)
    assert parse(json.loads(json.dumps(asdict(request)))) == request


def test_the_places_to_look_at():
    request = parse({"fallback": "/res", "directories": [{"path": "a/b/c"}]})
    mount = request.mount
    outside = (mount, "/res", "/nvme", "/res/scratch", "/nvme/scratch")
    assert wanted_paths(request) == (*outside, f"{mount}/a", f"{mount}/a/b", f"{mount}/a/b/c")


def test_an_array_is_known_by_its_uuid():
    one = array_uuid("scratch", ["b", "a"])
    assert one == array_uuid("scratch", ["a", "b"]) != array_uuid("other", ["a", "b"])
    assert one != array_uuid("scratch", ["a", "b", "c"]) and ours(one)
    assert len(one) == 35 and one.startswith("68706361:692e6e76:")
    assert not ours("68706361:692e6e77:0:0") and not ours("")
    assert filesystem_uuid(one) == filesystem_uuid(one) != filesystem_uuid("x")


@pytest.mark.parametrize("text", ["nvme0n1", "/dev/nvme10n2p3", "nvme0", "nvme0c1n1", "/dev/sda", "md127", "dm-3"])
def test_names_of_the_kernel(text: str):
    assert kernel_name(text)


@pytest.mark.parametrize("text", ["nvme-Samsung_1", "eui.0001", "S01", "nvme0n1x"])
def test_ids(text: str):
    assert not kernel_name(text)


def chosen(disks: t.Sequence[ScratchDisk], boot: bool = False, **request: t.Any) -> list[str]:
    return [d.id for d in select(ScratchMachine(tuple(disks)), request_of(**request), boot).disks]


def found(disks: t.Sequence[ScratchDisk], **request: t.Any) -> list[tuple[str, str]]:
    return [(f.level, f.code) for f in select(ScratchMachine(tuple(disks)), request_of(**request), False).findings]


def test_models_choose_exactly():
    disks = [disk(1), disk(0), disk(2, model=f"{MODEL} v2"), disk(3, model="Samsung")]
    assert chosen(disks, models=(MODEL,)) == ["S00", "S01"]
    assert chosen(disks, models=(MODEL, f"{MODEL} v2")) == ["S00", "S01", "S02"]
    assert chosen(disks) == []


@pytest.mark.parametrize("model", REMOTE)
def test_a_remote_volume_is_taken_only_by_its_id(model: str):
    disks = [disk(0, model=model)]
    assert chosen(disks, models=(model,), unused=True) == []
    assert found(disks, models=(model,)) == [("note", "left_alone")]
    assert chosen(disks, ids=("S00",)) == ["S00"]


@pytest.mark.parametrize("transport", ["tcp", "rdma", "fc", ""])
def test_a_disk_behind_a_network_is_never_taken(transport: str):
    disks = [disk(0, transport=transport)]
    assert chosen(disks, models=(MODEL,), unused=True) == chosen(disks, ids=("S00",)) == []
    assert ("fail", "not_local") in found(disks, ids=("S00",))


def test_ids_choose_alone_and_by_any_name():
    disks = [disk(n) for n in range(4)]
    assert chosen(disks, models=(MODEL,), unused=True, ids=("S02", "nvme-S01")) == ["S01", "S02"]
    assert found(disks, ids=("S02", "gone"))[-1] == ("fail", "missing")
    assert (
        "Not found: gone."
        in select(ScratchMachine(tuple(disks)), request_of(ids=("S02", "gone")), False).findings[-1].text
    )
    assert found(disks, ids=("S02",)) == [("note", "left_alone")] * 3
    assert found(disks, ids=("S02", "S03"), count=1)[-1] == ("warn", "more")


def test_unused_takes_what_is_blank_and_idle_and_what_is_ours():
    uuid = array_uuid("scratch", ["x"])
    disks = [
        disk(0),
        member(disk(1), uuid, 1, 0),
        member(disk(2), uuid, 1, 0, name="other"),
        member(disk(3), "1:2:3:4", 1, 0),
        disk(4, blank=False),
        disk(5, mounts=("/nvme",), busy=True),
        disk(6, mounts=("/data",), busy=True),
        disk(7, signatures=(Signature("/dev/nvme6n1", "xfs"),), blank=False),
        disk(8, busy=True),
        disk(9, error="x"),
    ]
    assert chosen(disks, unused=True) == ["S00", "S01", "S05"]
    assert chosen(disks, unused=True, wipe=("S07",)) == ["S00", "S01", "S05", "S07"]
    assert chosen(disks, unused=True, wipe=("S07",), boot=True) == ["S00", "S01", "S05"]


def test_an_id_that_fits_two_disks_names_none():
    twins = [disk(0, ids=("S", "eui.1")), disk(1, ids=("S", "eui.2"))]
    assert chosen(twins, ids=("S",)) == []
    told = select(ScratchMachine(tuple(twins)), request_of(ids=("S",)), False).findings[0]
    assert (told.level, told.code) == ("fail", "ambiguous") and "eui.1" in told.advice


@pytest.mark.parametrize("name", ["", "S01"])
def test_disks_that_cannot_be_told_apart_are_refused(name: str):
    assert ("fail", "ambiguous") in found([disk(0, id=name), disk(1)], models=(MODEL,))


def test_a_disk_to_erase_that_is_not_for_scratch_is_said():
    disks = [disk(0), replace(cleared(disk(1)), model="Samsung", blank=False)]
    assert ("warn", "not_local") in found(disks, models=(MODEL,), wipe=("S01",))
    assert ("note", "no_such_disk") in found(disks, models=(MODEL,), wipe=("gone",))
