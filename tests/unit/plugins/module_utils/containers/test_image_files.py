# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import errno
import hashlib
import io
import os
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import image_node
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.containers.images_made import image, squashfs


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory that is ours, wherever tests may write."""
    tmp_path.chmod(0o755)
    return tmp_path


def test_a_directory_of_our_own_is_trusted(home: Path) -> None:
    assert image_node.suspect(home) == ""


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_a_directory_that_others_write_to_is_not(home: Path, mode: int) -> None:
    (home / "images").mkdir()
    if os.geteuid() == 0:
        os.chown(home / "images", 0, 4321)
    (home / "images").chmod(mode)
    assert "can be written by" in image_node.suspect(home / "images")


def test_above_it_only_a_sticky_one_is(home: Path) -> None:
    (home / "images").mkdir(mode=0o755)
    home.chmod(0o1777)
    assert image_node.suspect(home / "images") == ""
    home.chmod(0o777)
    assert str(home) in image_node.suspect(home / "images")


def test_a_directory_of_somebody_else_is_not(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(home, 4321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4321)
    assert "belongs to uid" in image_node.suspect(home)


@pytest.mark.skipif(os.geteuid() != 0, reason="links of two users need root")
def test_a_link_of_somebody_else_to_a_trusted_directory_is_not(home: Path) -> None:
    """The link would be pointed elsewhere after the check."""
    (home / "trusted").mkdir(mode=0o755)
    home.chmod(0o1777)
    (home / "images").symlink_to(home / "trusted")
    assert image_node.suspect(home / "images") == ""
    os.chown(home / "images", 4321, 4321, follow_symlinks=False)
    assert "images is a symbolic link of uid 4321" in image_node.suspect(home / "images")
    with pytest.raises(image_node.ImageError, match="is a symbolic link of uid 4321"):
        image_node.make_folder(home / "images")
    with pytest.raises(image_node.ImageError, match="is a symbolic link of uid 4321"):
        image_node.make_folder(home / "images/below")


def test_a_directory_is_made_but_not_what_is_above_it(home: Path) -> None:
    before = os.umask(0o077)
    try:
        image_node.make_folder(home / "images")
    finally:
        os.umask(before)
    assert (home / "images").stat().st_mode & 0o777 == 0o755
    image_node.make_folder(home / "images")
    with pytest.raises(image_node.ImageError, match="cannot be made: No such file"):
        image_node.make_folder(home / "scratch/images")
    (home / "file").touch()
    with pytest.raises(image_node.ImageError, match="cannot be made"):
        image_node.make_folder(home / "file")


def test_what_is_read_in_pieces_is_hashed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_node, "CHUNK", 7)
    data, target = os.urandom(1000), io.BytesIO()
    assert image_node.transfer(io.BytesIO(data), target) == (hashlib.sha256(data).hexdigest(), 1000)
    assert target.getvalue() == data
    assert image_node.transfer(io.BytesIO(b""), None) == (hashlib.sha256().hexdigest(), 0)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (squashfs(), ""),
        (squashfs() + b"padding", ""),
        (squashfs(used=5000), "cut off: the squashfs has 5000 bytes, the file 103"),
        (b"<html>", "no squashfs"),
        (b"hsqs", "no squashfs"),
        (b"", "no squashfs"),
    ],
)
def test_a_file_is_judged_by_its_superblock(home: Path, data: bytes, problem: str) -> None:
    (home / "x").write_bytes(data)
    found = image_node.squashfs_problem(home / "x")
    assert problem in found
    assert bool(found) == bool(problem)


def test_a_file_is_read_only_when_it_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = image(home)
    path = home / made["file"]
    known = image_node.proof(path)
    reads: list[Path] = []
    real = image_node.sha256
    monkeypatch.setattr(image_node, "sha256", lambda path: reads.append(path) or real(path))
    assert image_node.damage(path, made, known, verify=False) == ""
    assert reads == []
    assert image_node.damage(path, made, known, verify=True) == ""
    assert image_node.damage(path, made, None, verify=False) == ""
    os.utime(path)
    assert image_node.damage(path, made, known, verify=False) == ""
    assert len(reads) == 3


def test_a_file_that_was_written_to_is_found_out(home: Path) -> None:
    made = image(home)
    path = home / made["file"]
    known = image_node.proof(path)
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "sha256" in image_node.damage(path, made, known, verify=False), "ctime tells, whatever mtime says"
    path.write_bytes(bytes(data[:-1]))
    assert (
        image_node.damage(path, made, known, verify=False) == f"has {made['size'] - 1} bytes instead of {made['size']}"
    )
    path.unlink()
    assert image_node.damage(path, made, known, verify=False) == "is not there"
    (path.parent / "other").write_bytes(bytes(data))
    path.symlink_to(path.parent / "other")
    assert "no file of uid" in image_node.damage(path, made, known, verify=False)


def test_only_the_image_itself_is_copied(home: Path) -> None:
    made = image(home / "shared")
    source, aside = home / "shared" / made["file"], home / ".aside"
    image_node.copy(source, aside, made)
    assert aside.read_bytes() == source.read_bytes()
    assert image_node.adopt(aside, home / "x")["size"] == made["size"]
    assert (home / "x").stat().st_mode & 0o777 == 0o644
    os.truncate(source, 10)
    with pytest.raises(image_node.ImageError, match="gave 10 bytes with sha256"):
        image_node.copy(source, aside, made)
    source.unlink()
    with pytest.raises(image_node.ImageError, match="No such file"):
        image_node.copy(source, aside, made)
    assert not aside.exists()


def test_a_copy_that_does_not_fit_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*dummy: t.Any) -> t.Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    made = image(home / "shared")
    monkeypatch.setattr(image_node, "transfer", full)
    with pytest.raises(image_node.ImageError, match="No space left"):
        image_node.copy(home / "shared" / made["file"], home / ".aside", made)
    assert not (home / ".aside").exists()


def test_a_link_moves_by_a_rename_and_only_if_it_must(home: Path) -> None:
    assert image_node.point(home / "app.sqsh", "app-1.sqsh")
    before = (home / "app.sqsh").lstat().st_ino
    assert not image_node.point(home / "app.sqsh", "app-1.sqsh")
    assert (home / "app.sqsh").lstat().st_ino == before
    assert image_node.point(home / "app.sqsh", "app-2.sqsh")
    assert image_node.pointed(home / "app.sqsh") == "app-2.sqsh"
    (home / "own.sqsh").touch()
    with pytest.raises(image_node.ImageError, match="no link"):
        image_node.point(home / "own.sqsh", "app-1.sqsh")


def test_old_versions_are_dropped_and_others_left_alone(home: Path) -> None:
    made = [image(home, content=bytes([number])) for number in range(4)]
    for age, one in enumerate(made):
        os.utime(home / one["file"], (age, age))
    other = image(home, name="app-x")
    current = made[0]["file"]
    (home / image_node.record_name(made[1]["file"])).touch()
    assert image_node.drop(home, "app", current, 1) == [made[2]["file"], made[1]["file"]]
    assert image_node.versions(home, "app") == [made[3]["file"], current]
    assert (home / other["file"]).exists()
    assert not (home / image_node.record_name(made[1]["file"])).exists()
    assert image_node.drop(home, "app", "", 0) == [made[3]["file"], current]


def test_what_killed_runs_left_is_swept(home: Path) -> None:
    for name in (".a.1.partial", ".b.broadcast", ".c.broadcast", ".keep.json", "d.partial"):
        (home / name).touch()
    os.utime(home / ".c.broadcast", (0, time.time() - 2 * image_node.OLD))
    image_node.sweep(home)
    assert sorted(path.name for path in home.iterdir()) == [".b.broadcast", ".keep.json", "d.partial"]


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_record_that_cannot_be_read_is_none(home: Path, text: str) -> None:
    (home / "x.json").write_text(text)
    assert image_node.read_json(home / "x.json") is None
    assert image_node.read_json(home / "y.json") is None
