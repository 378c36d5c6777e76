# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _managed_file as managed


class Module:
    """Moves files as AnsibleModule does; says that no attribute differs."""

    def __init__(self, tmpdir: Path, check_mode: bool = False) -> None:
        self.tmpdir = str(tmpdir)
        self.check_mode = check_mode
        self.attributes: list[dict[str, t.Any]] = []

    def atomic_move(self, src: str, dest: str) -> None:
        Path(src).rename(dest)

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


def entries(place: Path) -> list[dict[str, t.Any]]:
    owner = {"owner": "root", "mode": None}
    return [
        {"path": str(place / "unit.d/site.conf"), "content": "[Unit]\n", "secret": None, **owner},
        {"path": str(place / "key"), "content": None, "secret": secret("geheim"), **owner, "mode": "0400"},
        {"path": str(place / "state"), "content": None, "secret": None, **owner, "owner": "nobody-knows"},
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
