# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A shared directory of mode 1777, and a user who was there before root."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import (
    Directory,
    TrustError,
    distrust,
    have,
    look,
    opened,
    read,
    trusted_users,
)

MALLORY = 65534
ROOT = trusted_users()
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files of two users need root")


@pytest.fixture
def shared() -> t.Iterator[Path]:
    """Like an NFS export for everybody; /tmp, where it lies, is one itself."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def as_mallory(act: t.Callable[[], object]) -> None:
    """Do something with the rights of an ordinary user; what it raises fails the test."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(MALLORY)
            os.setuid(MALLORY)
            act()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def owner_and_mode(path: Path) -> tuple[int, int, str]:
    status = path.lstat()
    return status.st_uid, status.st_gid, f"{stat.S_IMODE(status.st_mode):o}"


def test_directories_are_made_with_their_parents_and_nothing_changes_the_second_time(shared: Path) -> None:
    wanted = Directory(str(shared / "a/b/logs"), 0, 0, 0o1777)
    umask = os.umask(0o077)
    try:
        assert look(wanted, ROOT) == ["created"]
        assert not (shared / "a").exists()
        assert have(wanted, ROOT) == ["created"]
    finally:
        os.umask(umask)
    assert owner_and_mode(shared / "a") == owner_and_mode(shared / "a/b") == (0, 0, "755")
    assert owner_and_mode(shared / "a/b/logs") == (0, 0, "1777")
    assert look(wanted, ROOT) == have(wanted, ROOT) == []


def test_the_intended_owner_is_trusted_with_its_own_directory(shared: Path) -> None:
    as_mallory((shared / "certification").mkdir)
    wanted = Directory(str(shared / "certification"), MALLORY, MALLORY, 0o750)
    assert have(wanted, trusted_users(MALLORY)) == ["mode 0755 -> 0750"]
    assert have(wanted, trusted_users(MALLORY)) == []


def test_a_users_link_is_not_followed(shared: Path) -> None:
    victim = Path(tempfile.mkdtemp())
    try:
        as_mallory(lambda: (shared / "certification").symlink_to(victim))
        wanted = Directory(str(shared / "certification"), 0, 0, 0o1777)
        for act in (look, have):
            with pytest.raises(TrustError, match=r"is a symbolic link of \w+ \(uid 65534\)"):
                act(wanted, ROOT)
        with pytest.raises(TrustError, match="symbolic link"):
            have(wanted._replace(path=f"{shared}/certification/below"), ROOT)
        assert owner_and_mode(victim) == (0, 0, "700")
        assert not list(victim.iterdir())
    finally:
        victim.rmdir()


def test_a_link_of_root_is_followed(shared: Path) -> None:
    (shared / "disk1/data").mkdir(parents=True)
    (shared / "data").symlink_to("disk1/../disk1/data")
    (shared / "absolute").symlink_to(shared / "data")
    assert have(Directory(f"{shared}/absolute/new"), ROOT) == ["created"]
    assert (shared / "disk1/data/new").is_dir()


def test_links_in_a_circle_end(shared: Path) -> None:
    (shared / "one").symlink_to("two")
    (shared / "two").symlink_to("one")
    with pytest.raises(TrustError, match="more than 40 symbolic links"):
        look(Directory(f"{shared}/one/x"), ROOT)


def test_who_makes_the_parent_first_is_refused(shared: Path) -> None:
    as_mallory(lambda: (shared / "environments/torch").mkdir(parents=True))
    (shared / "environments/torch").chmod(0o755)
    os.chown(shared / "environments/torch", 0, 0)
    with pytest.raises(TrustError, match=r"environments belongs to \w+ \(uid 65534\)"):
        have(Directory(f"{shared}/environments/torch"), ROOT)


@pytest.mark.parametrize(("mode", "gid"), [(0o777, 0), (0o775, 100), (0o757, 0)])
def test_a_directory_above_that_others_can_write_to_is_refused_unless_it_is_sticky(
    shared: Path, mode: int, gid: int
) -> None:
    (shared / "open/below").mkdir(parents=True)
    os.chown(shared / "open", 0, gid)
    (shared / "open").chmod(mode)
    with pytest.raises(TrustError, match=r"open can be written by (everybody|group 100)"):
        have(Directory(f"{shared}/open/below"), ROOT)
    (shared / "open").chmod(mode | stat.S_ISVTX)
    assert have(Directory(f"{shared}/open/below"), ROOT) == []


def test_a_directory_that_everybody_could_fill_is_only_taken_when_it_is_empty(shared: Path) -> None:
    folder = shared / "environments"
    folder.mkdir()
    folder.chmod(0o1777)
    wanted = Directory(str(folder))
    as_mallory((folder / "torch").mkdir)
    for act in (look, have):
        with pytest.raises(TrustError, match="can be written by everybody, so what is in it may be anybody's"):
            act(wanted, ROOT)
    (folder / "torch").rmdir()
    assert have(wanted, ROOT) == ["mode 1777 -> 0755"]


def test_a_file_is_read_only_when_nobody_else_can_have_written_it(shared: Path) -> None:
    key = shared / "munge.key"
    key.write_bytes(b"k" * 32)
    assert read(str(key), ROOT) == b"k" * 32
    assert distrust(str(key), ROOT) == ""
    key.chmod(0o666)
    with pytest.raises(TrustError, match="can be written by everybody"):
        read(str(key), ROOT)
    key.unlink()
    as_mallory(lambda: key.write_bytes(b"forged"))
    with pytest.raises(TrustError, match="belongs to"):
        read(str(key), ROOT)
    assert "belongs to" in distrust(str(key), ROOT)
    key.unlink()
    as_mallory(lambda: key.symlink_to("/etc/hostname"))
    with pytest.raises(TrustError, match="is a symbolic link"):
        read(str(key), ROOT)
    key.unlink()
    as_mallory(lambda: os.mkfifo(key))
    with pytest.raises(TrustError, match="no regular file"):
        read(str(key), ROOT)
    with pytest.raises(FileNotFoundError):
        read(str(shared / "none"), ROOT)
    assert "No such file" in distrust(str(shared / "none"), ROOT)


def test_a_handle_is_of_what_was_looked_at(shared: Path) -> None:
    (shared / "ours").mkdir()
    with opened(str(shared / "ours"), ROOT) as handle:
        (shared / "ours").rename(shared / "elsewhere")
        (shared / "ours").symlink_to("/etc")
        os.mkdir("new", dir_fd=handle)
    assert (shared / "elsewhere/new").is_dir()


@pytest.mark.parametrize("path", ["relative", "", "/tmp/\0"])
def test_only_absolute_paths_are_walked(path: str) -> None:
    with pytest.raises(TrustError, match="no absolute path"):
        look(Directory(path), ROOT)
