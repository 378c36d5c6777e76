# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Python keeps on the lab's machines: as it was compiled, never of another source, never in part."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "lab/roles/lab/files/lab_bytecode.py"
SAY = "import traceback\ndef say():\n    print({word!r}, traceback.extract_stack()[-1].filename)\n"


def imported(archive: Path, directory: Path) -> tuple[str, str]:
    """Import ``said`` of an archive in a Python of its own; return its word and the file it says it comes from."""
    begin = f"exec(compile({PROGRAM.read_text().replace('/var/cache/lab_bytecode', str(directory))!r}, 'b', 'exec'))"
    # As for root: whoever runs the tests.
    words = f"import os, sys; os.geteuid = lambda: 0; {begin}; sys.path.insert(0, {str(archive)!r}); import said"
    argv = [sys.executable, "-B", "-c", f"{words}; said.say()"]
    word, name = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    return word, name


def pack(path: Path, word: str) -> Path:
    """An archive with one module."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("said.py", SAY.format(word=word))
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    found = tmp_path / "kept"
    found.mkdir()
    return found


def test_the_same_source_is_compiled_once_and_says_where_it_is_now(tmp_path: Path, directory: Path) -> None:
    first, second = pack(tmp_path / "first.zip", "one"), pack(tmp_path / "second.zip", "one")
    assert imported(first, directory) == ("one", f"{first}/said.py")
    kept = [(path.name, path.stat().st_mtime_ns) for path in directory.iterdir()]
    assert imported(second, directory) == ("one", f"{second}/said.py")
    assert len(kept) == 1 and [(path.name, path.stat().st_mtime_ns) for path in directory.iterdir()] == kept


def test_another_source_of_the_same_length_is_another_module(tmp_path: Path, directory: Path) -> None:
    archive = tmp_path / "said.zip"
    assert imported(pack(archive, "one"), directory)[0] == "one"
    assert imported(pack(archive, "two"), directory)[0] == "two"
    assert len(list(directory.iterdir())) == 2


@pytest.mark.parametrize("left", [0, 3, 4, 5, -1])
def test_what_was_cut_off_is_compiled_again(tmp_path: Path, directory: Path, left: int) -> None:
    archive = pack(tmp_path / "said.zip", "one")
    imported(archive, directory)
    (kept,) = directory.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:left])
    assert imported(archive, directory)[0] == "one"
    assert kept.read_bytes() == whole


def test_without_the_place_nothing_is_kept(tmp_path: Path) -> None:
    archive = pack(tmp_path / "said.zip", "one")
    assert imported(archive, tmp_path / "none")[0] == "one"
    assert list(tmp_path.iterdir()) == [archive]
