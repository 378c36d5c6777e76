# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One way to put a file in place, for whoever keeps state: the old one or the new, and nothing beside it."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import replace


@pytest.mark.parametrize(("mode", "umask", "found"), [(None, 0o022, 0o644), (None, 0o077, 0o600), (0o640, 0, 0o640)])
@pytest.mark.parametrize("content", ["grün", "grün".encode()])
def test_a_file_has_its_content_and_mode(
    tmp_path: Path, content: str | bytes, mode: int | None, umask: int, found: int
) -> None:
    path = tmp_path / "state.json"
    before = os.umask(umask)
    try:
        for dummy in range(2):
            replace(path, content, mode)
    finally:
        os.umask(before)
    assert path.read_text(encoding="utf-8") == "grün"
    assert path.stat().st_mode & 0o777 == found
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("lasting", [True, False])
def test_what_is_to_last_is_on_disk_before_it_is_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasting: bool
) -> None:
    seen: list[str] = []
    synced, moved = os.fsync, Path.replace

    def sync(descriptor: int) -> None:
        assert os.fstat(descriptor).st_size == 4
        seen.append("synced")
        synced(descriptor)

    def move(source: Path, dest: Path) -> None:
        seen.append(source.name.rpartition(".")[2])
        moved(source, dest)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", move)
    replace(tmp_path / "state", "text", lasting=lasting)
    assert seen == ["synced"] * lasting + ["tmp"]


def test_the_old_file_stays_when_the_new_one_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    path.write_text("old")

    def full(dummy: int) -> t.NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace(path, "new")
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"state": "old"}


def test_a_link_that_lies_in_wait_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic_ns", lambda: 7)
    aside = tmp_path / f".state.{os.uname().nodename}.{os.getpid()}.7.tmp"
    (tmp_path / "other").write_text("theirs")
    aside.symlink_to(tmp_path / "other")
    with pytest.raises(FileExistsError):
        replace(tmp_path / "state", "new")
    assert (tmp_path / "other").read_text() == "theirs"
