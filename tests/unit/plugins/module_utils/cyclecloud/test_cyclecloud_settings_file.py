# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who reads cycle_server.properties."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import server
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server import Access, SettingsFile, needed

SERVER = (500, 600)


@pytest.mark.parametrize(
    "now, wanted",
    [
        (Access(500, 600, 0o644), Access(500, 600, 0o640)),
        (Access(500, 600, 0o775), Access(500, 600, 0o640)),
        (Access(500, 600, 0o640), Access(500, 600, 0o640)),
        (Access(500, 600, 0o600), Access(500, 600, 0o600)),  # tighter, by an administrator
        (Access(0, 600, 0o640), Access(0, 600, 0o640)),  # nor may the server change it
        (Access(0, 600, 0o644), Access(0, 600, 0o640)),
        (Access(0, 0, 0o644), Access(500, 600, 0o640)),  # only everybody's right let the server read it
        (Access(0, 0, 0o600), Access(0, 0, 0o600)),
    ],
)
def test_the_server_reads_it_and_nobody_else(now: Access, wanted: Access) -> None:
    assert needed(now, SERVER) == wanted
    assert needed(wanted, SERVER) == wanted


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SettingsFile:
    monkeypatch.setattr(server, "server_ids", lambda: (os.getuid(), os.getgid()))
    return SettingsFile(tmp_path / "cycle_server.properties")


def mode(file: SettingsFile) -> int:
    return file.path.stat().st_mode & 0o7777


@pytest.mark.parametrize("before, after", [(0o644, 0o640), (0o600, 0o600)])
def test_a_file_that_is_there(file: SettingsFile, before: int, after: int) -> None:
    file.path.write_text("a=1\n")
    file.path.chmod(before)
    assert file.loose() is (before != after)
    file.write("a=2\n")
    assert (mode(file), file.read(), file.loose()) == (after, "a=2\n", False)
    file.path.chmod(before)
    file.tighten()
    assert mode(file) == after


def test_a_file_that_is_not_there(file: SettingsFile) -> None:
    assert (file.read(), file.loose()) == ("", False)
    file.tighten()
    assert not file.path.exists()
    file.write("a=1\n")
    assert mode(file) == 0o640


def test_a_link_is_not_followed(file: SettingsFile, tmp_path: Path) -> None:
    other = tmp_path / "shadow"
    other.write_text("root\n")
    other.chmod(0o644)
    file.path.symlink_to(other)
    assert not file.loose()
    file.tighten()
    assert other.stat().st_mode & 0o777 == 0o644
