# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError, CheckpointFile

NOW = 1_000_000.0


def write(directory: Path, **contents: str) -> None:
    for name, content in contents.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        os.utime(path, (NOW - 100, NOW - 100))


def test_scan_finds_all_files_sorted(tmp_path: Path) -> None:
    write(tmp_path, b="12", sub__a="1")
    assert [(file.name, file.size) for file in files.scan(tmp_path, 60, NOW)] == [("b", 2), ("sub/a", 1)]


@pytest.mark.parametrize(
    "name",
    ["x.tmp", "model.pt.tmp.123", "a.partial", ".a.pt.Xy12", "a~", "tmpab.safetensors", "sub/.hidden/a", "a.part"],
)
def test_unfinished_files_are_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, done="1")
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("1")
    with pytest.raises(CheckpointError, match="is being written"):
        files.scan(tmp_path, 0, NOW)


@pytest.mark.parametrize("age, said", [(59, "changed 59 s ago"), (-60, "clocks differ")])
def test_files_must_rest(tmp_path: Path, age: float, said: str) -> None:
    write(tmp_path, old="1", new="1")
    os.utime(tmp_path / "new", (NOW - age, NOW - age))
    with pytest.raises(CheckpointError, match=said):
        files.scan(tmp_path, 60, NOW)


@pytest.mark.parametrize("name", ["a*b", "what?", 'a"b', "a\\b", "a\nb"])
def test_names_that_azcopy_reads_otherwise_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("1")
    with pytest.raises(CheckpointError, match="azcopy takes characters"):
        files.scan(tmp_path, 0, time.time())


def test_what_else_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no files"):
        files.scan(tmp_path, 0, NOW)
    with pytest.raises(CheckpointError, match="cannot be read"):
        files.scan(tmp_path / "nowhere", 0, NOW)
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(CheckpointError, match="is no file"):
        files.scan(tmp_path, 0, NOW)
    (tmp_path / "link").unlink()
    write(tmp_path, **{"MANIFEST.json": "{}"})
    with pytest.raises(CheckpointError, match="has the name"):
        files.scan(tmp_path, 0, NOW)


@given(st.lists(st.integers(0, 10**12), max_size=60), st.integers(1, 12))
def test_every_file_has_one_sender_and_none_has_much_more(sizes: list[int], count: int) -> None:
    all_files = [CheckpointFile(f"f{number}", size, 0) for number, size in enumerate(sizes)]
    parts = [files.share(all_files, index, count) for index in range(count)]
    assert sorted(file for part in parts for file in part) == sorted(all_files)
    loads = [sum(file.size for file in part) for part in parts]
    assert max(loads) - min(loads) <= max(sizes, default=0)
    assert parts == [files.share(all_files[::-1], index, count) for index in range(count)]


def test_digests_are_kept_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    data = tmp_path / "data"
    data.mkdir()
    write(data, a="abc")
    before = files.sums(data, files.scan(data, 0, NOW), cache)["a"]
    assert before.md5 == "900150983cd24fb0d6963f7d28e17f72" and before.sha256.startswith("ba7816bf8f01cfea")
    with monkeypatch.context() as patch:
        patch.setattr(files, "_digest", lambda *dummy: pytest.fail("read again"))
        assert files.sums(data, files.scan(data, 0, NOW), cache)["a"] == before
    write(data, a="abcd")
    assert files.sums(data, files.scan(data, 0, NOW), cache)["a"] != before
    cache.write_text("no json")
    assert files.sums(data, files.scan(data, 0, NOW), cache)["a"] != before


def test_file_written_while_it_is_read(tmp_path: Path) -> None:
    write(tmp_path, a="abc")
    (found,) = files.scan(tmp_path, 0, NOW)
    (tmp_path / "a").write_text("other")
    with pytest.raises(CheckpointError, match="was written while"):
        files.sums(tmp_path, [found], tmp_path / "cache")
    (tmp_path / "a").unlink()
    with pytest.raises(CheckpointError, match="was removed while"):
        files.unchanged(tmp_path / "a", found)
