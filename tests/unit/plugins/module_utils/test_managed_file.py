# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as managed


class Module:
    """Says that no attribute differs."""

    def __init__(self, tmpdir: Path, check_mode: bool = False) -> None:
        self.place = tmpdir
        self.check_mode = check_mode
        self.attributes: list[dict[str, t.Any]] = []

    def set_fs_attributes_if_different(self, file_args: dict[str, t.Any], changed: bool) -> bool:
        self.attributes.append(file_args)
        return changed


def secret(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("entry", "wanted"),
    [({"content": "a\n"}, b"a\n"), ({"content": ""}, b""), ({"secret": secret("k")}, b"k"), ({}, None)],
)
def test_wanted(entry: dict[str, str], wanted: bytes | None) -> None:
    assert managed.wanted({"path": "/x", **entry}) == wanted


def test_a_secret_must_be_base64() -> None:
    with pytest.raises(managed.FileError, match="/x is not base64"):
        managed.wanted({"path": "/x", "secret": "not so"})


def entries(directory: Path) -> list[dict[str, t.Any]]:
    owner = {"owner": "root", "mode": None}
    return [
        {"path": str(directory / "unit.d/site.conf"), "content": "[Unit]\n", "secret": None, **owner},
        {"path": str(directory / "key"), "content": None, "secret": secret("geheim"), **owner, "mode": "0400"},
        {"path": str(directory / "state"), "content": None, "secret": None, **owner, "owner": "nobody-knows"},
    ]


def test_files_are_written_once(tmp_path: Path) -> None:
    module = Module(tmp_path)
    changed, written, diffs = managed.keep_all(module, entries(tmp_path))
    assert changed
    assert sorted(Path(path).name for path in written) == ["key", "site.conf"]
    assert (tmp_path / "unit.d/site.conf").read_text() == "[Unit]\n"
    assert (tmp_path / "key").read_bytes() == b"geheim"
    assert (tmp_path / "state").is_dir()
    assert "geheim" not in str(diffs)
    assert secret("geheim") not in str(diffs)
    assert [item["mode"] for item in module.attributes] == ["0644", "0400"]  # an owner that is not there is left out
    assert managed.keep_all(module, entries(tmp_path)) == (False, {}, [])


def test_check_mode_only_tells(tmp_path: Path) -> None:
    changed, written, diffs = managed.keep_all(Module(tmp_path, check_mode=True), entries(tmp_path))
    assert (changed, len(written), len(diffs)) == (True, 2, 3)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "unit.d").write_text("a file")
    with pytest.raises(managed.FileError, match=r"Cannot write .*unit\.d/site\.conf"):
        managed.keep_all(Module(tmp_path), entries(tmp_path))


@pytest.mark.parametrize("there", [False, True])
def test_a_secret_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    target, modes = tmp_path / "key", []
    if there:
        target.write_text("old")
        target.chmod(0o644)
    move = Path.replace
    opened = os.fdopen

    def watched(source: Path, dest: Path) -> None:
        modes.append(source.stat().st_mode & 0o777)
        move(source, dest)

    def first(descriptor: int, how: str) -> t.Any:
        modes.append(os.fstat(descriptor).st_mode & 0o777)
        return opened(descriptor, how)

    monkeypatch.setattr(Path, "replace", watched)
    monkeypatch.setattr(os, "fdopen", first)
    before = os.umask(0)
    try:
        managed.replace_owned(target, b"geheim", "root", 0o400)
    finally:
        os.umask(before)
    assert modes == [0o600, 0o400]
    assert target.stat().st_mode & 0o777 == 0o400
    assert target.read_bytes() == b"geheim"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path) -> None:
    (tmp_path / "key").mkdir()
    with pytest.raises(OSError, match="key"):
        managed.replace_owned(tmp_path / "key", b"geheim", "root", 0o400)
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
