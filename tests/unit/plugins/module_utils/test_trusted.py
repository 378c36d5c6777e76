# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A shared directory of mode 1777, and a user who was there before root."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
import tempfile
import types
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import (
    Directory,
    File,
    NotAllowedError,
    TrustError,
    by_root_or_owner,
    distrust,
    have,
    have_file,
    look,
    look_file,
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


def test_the_owner_of_a_directory_cannot_point_root_to_another(shared: Path) -> None:
    victim = shared / "victim"
    victim.mkdir()
    as_mallory(lambda: (shared / "job").symlink_to(victim))
    users = trusted_users(MALLORY)
    for act in (look, have):
        for path in ("job", "job/below"):
            with pytest.raises(TrustError, match=r"job is a symbolic link of \w+ \(uid 65534\)"):
                act(Directory(f"{shared}/{path}", MALLORY, MALLORY, 0o755), users)
    with pytest.raises(TrustError, match="symbolic link"):
        have_file(File(f"{shared}/job/x", b"", MALLORY, MALLORY), users)
    assert owner_and_mode(victim) == (0, 0, "755")
    assert not list(victim.iterdir())
    (shared / "mine").mkdir()
    os.chown(shared / "mine", MALLORY, MALLORY)
    as_mallory(lambda: (shared / "own").symlink_to(shared / "mine"))
    as_mallory(lambda: have(Directory(f"{shared}/own/below", MALLORY, MALLORY), users))
    assert (shared / "mine/below").is_dir(), "with no more rights than the link's owner has it is followed"


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
    other = shared / "other"
    other.write_bytes(b"k" * 32)
    as_mallory(lambda: key.symlink_to(other))
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
        (shared / "victim").mkdir()
        (shared / "ours").symlink_to(shared / "victim")
        os.mkdir("new", dir_fd=handle)
    assert (shared / "elsewhere/new").is_dir()
    assert list((shared / "victim").iterdir()) == []


@pytest.mark.parametrize("path", ["relative", "", "/tmp/\0"])
def test_only_absolute_paths_are_walked(path: str) -> None:
    with pytest.raises(TrustError, match="no absolute path"):
        look(Directory(path), ROOT)


def test_what_others_could_write_and_may_go_on_writing_needs_no_empty_directory(shared: Path) -> None:
    folder = shared / "projects"
    (folder / "one").mkdir(parents=True)
    os.chown(folder, 0, 100)
    folder.chmod(0o2775)
    assert have(Directory(str(folder), 0, 100, 0o2775), ROOT) == []
    with pytest.raises(TrustError, match="can be written by group 100"):
        have(Directory(str(folder), 0, 101, 0o2775), ROOT)
    with pytest.raises(TrustError, match="can be written by group 100"):
        have(Directory(str(folder), 0, 100, 0o755), ROOT)


def test_a_users_private_group_is_the_user(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_mallory(lambda: (shared / "home/job").mkdir(parents=True))
    (shared / "home").chmod(0o775)
    wanted = Directory(f"{shared}/home/job", MALLORY, MALLORY, 0o750)
    group = types.SimpleNamespace(gr_name="mallory", gr_gid=MALLORY, gr_mem=[])
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: types.SimpleNamespace(pw_name="mallory", pw_gid=MALLORY))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: group)
    assert have(wanted, trusted_users(MALLORY)) == ["mode 0755 -> 0750"]
    group.gr_mem = ["mallory", "eve"]
    with pytest.raises(TrustError, match="home can be written by group 65534"):
        have(wanted, trusted_users(MALLORY))


def test_root_writes_into_a_users_directory_without_following_what_the_user_put_there(shared: Path) -> None:
    folder, victim = shared / "certification", shared / "victim"
    victim.write_bytes(b"root's")
    as_mallory(folder.mkdir)
    wanted = File(f"{folder}/agent.pyz", b"agent", MALLORY, MALLORY, 0o644)
    users = trusted_users(MALLORY)
    as_mallory(lambda: (folder / "agent.pyz").symlink_to(victim))
    aside = folder / f".agent.pyz.{os.getpid()}.partial"
    as_mallory(lambda: aside.symlink_to(victim))
    for act in (look_file, have_file):
        with pytest.raises(TrustError, match=r"agent\.pyz is a symbolic link"):
            act(wanted, users)
    (folder / "agent.pyz").unlink()
    assert look_file(wanted, users) == have_file(wanted, users) == ["created"]
    assert victim.read_bytes() == b"root's"
    assert owner_and_mode(victim)[0] == 0
    assert owner_and_mode(folder / "agent.pyz") == (MALLORY, MALLORY, "644")
    assert look_file(wanted, users) == have_file(wanted, users) == []
    assert have_file(wanted._replace(content=b"newer", mode=0o600), users) == ["content", "mode 0644 -> 0600"]
    assert sorted(path.name for path in folder.iterdir()) == ["agent.pyz"]


def test_a_file_of_somebody_else_is_not_taken_for_ours(shared: Path) -> None:
    as_mallory(lambda: (shared / "stage.py").write_text("theirs"))
    wanted = File(f"{shared}/stage.py", b"ours")
    with pytest.raises(TrustError, match=r"stage.py belongs to \w+ \(uid 65534\)"):
        have_file(wanted, ROOT)
    assert look_file(File(f"{shared}/none/stage.py", b"ours"), ROOT) == ["created"]


def test_what_root_may_not_do_is_done_by_the_owner(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with root_squash: what root makes belongs to nobody, and root cannot give anything away."""
    wanted = Directory(f"{shared}/training/job", MALLORY, MALLORY, 0o750)
    users, mkdir, root = trusted_users(MALLORY), os.mkdir, os.getpid()
    squashed = 4711

    def squash(name: str, mode: int, dir_fd: int) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        if os.getpid() == root:
            os.chown(name, squashed, squashed, dir_fd=dir_fd, follow_symlinks=False)

    monkeypatch.setattr(os, "mkdir", squash)
    with pytest.raises(NotAllowedError, match="root_squash"):
        have(wanted, users)
    assert not (shared / "training").exists(), "nothing of nobody's is left in the way"
    assert by_root_or_owner(lambda: have(wanted, users), MALLORY) == ["created"]
    assert owner_and_mode(shared / "training") == (MALLORY, MALLORY, "755")
    assert owner_and_mode(shared / "training/job") == (MALLORY, MALLORY, "750")
    with pytest.raises(NotAllowedError):
        by_root_or_owner(lambda: have(Directory(f"{shared}/ours"), ROOT), 0)
    shared.chmod(0o755)
    with pytest.raises(
        TrustError, match=r"uid 65534\): .*other cannot be made by uid 65534.*and as root: .*root_squash"
    ):
        by_root_or_owner(lambda: have(wanted._replace(path=f"{shared}/other"), users), MALLORY)


def test_another_refusal_is_not_tried_again_as_somebody_else(shared: Path) -> None:
    as_mallory(lambda: (shared / "job").symlink_to(shared))
    calls = []

    def act() -> list[str]:
        calls.append(os.getpid())
        return have(Directory(f"{shared}/job"), ROOT)

    with pytest.raises(TrustError, match="symbolic link"):
        by_root_or_owner(act, MALLORY)
    assert calls == [os.getpid()]
