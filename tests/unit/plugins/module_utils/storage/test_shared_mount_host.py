# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is run and written for one mount, on a host that is played."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
import time
import types
import typing as t
from pathlib import Path

import pytest
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage import mount as host_module
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage.mount import (
    DROP_IN,
    MountRequest,
    SharedMountError,
    plan,
)

OTHER = "UUID=1 / ext4 rw 0 1\n"


class Played:
    """A host whose commands answer as told; mounting and unmounting show in its mountinfo."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wanted = MountRequest(str(tmp_path / "shared"), "nobody.invalid:/e", "nfs", "hard")
        self.mountinfo, self.fstab, self.units = tmp_path / "mountinfo", tmp_path / "fstab", tmp_path / "units"
        self.mountinfo.write_text("")
        self.fstab.write_text(OTHER)
        self.answers: dict[str, Outcome] = {}
        self.ran: list[str] = []
        monkeypatch.setattr(host_module, "FSTAB", self.fstab)
        monkeypatch.setattr(host_module, "MOUNTINFO", self.mountinfo)
        monkeypatch.setattr(host_module, "UNITS", self.units)
        monkeypatch.setattr(host_module, "run", self.run)
        monkeypatch.setattr(host_module, "replace_owned", lambda path, content, *dummy: path.write_bytes(content))

    def run(self, argv: t.Sequence[str], timeout: float) -> Outcome:
        words = " ".join(argv)
        self.ran.append(words.replace(self.wanted.path, "PATH"))
        told = [answer for start, answer in self.answers.items() if words.startswith(start)]
        if told:
            return told[0]
        if argv[0] in ("mkdir", "rmdir"):
            return run(argv, timeout)
        if words.startswith("systemctl start"):
            self.mount()
        elif words.startswith("umount"):
            self.mountinfo.write_text("")
        return Outcome(0, "", "", 0.0)

    def mount(self) -> None:
        kind = self.wanted.fstype.replace("nfs", "nfs4")
        self.mountinfo.write_text(f"40 30 0:40 / {self.wanted.path} rw shared:3 - {kind} {self.wanted.source} rw\n")

    def bring(self, **changes: t.Any) -> host_module.MountHost:
        host = host_module.MountHost(self.wanted._replace(**changes), 1, 10)
        seen = host.look()
        host.carry_out(seen, plan(host.request, seen))
        return host


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    return Played(tmp_path, monkeypatch)


def test_mount_comes_with_a_line_and_another_try(played: Played) -> None:
    host = played.bring()
    assert played.fstab.read_text() == f"{OTHER}nobody.invalid:/e {played.wanted.path} nfs hard 0 0\n"
    assert host.drop_in.read_text() == DROP_IN
    assert "while sleep 10;" in (played.units / "hpcai-mount-again@.service").read_text()
    order = [words.split()[1] for words in played.ran if words.startswith("systemctl")]
    assert order == ["show", "daemon-reload", "reset-failed", "start"]
    assert plan(host.request, host.look()).actions == []


def test_failed_mount_names_the_cause_and_the_server_and_stays_wanted(played: Played) -> None:
    played.answers = {
        "systemctl start": Outcome(1, "", "Job failed", 0.0),
        "journalctl": Outcome(0, "Mounting\nmount.nfs: access denied by server\nTriggering\n", "", 0.0),
    }
    with pytest.raises(
        SharedMountError, match=r"mount\.nfs: access denied by server\. nobody\.invalid cannot be reached"
    ):
        played.bring()
    assert "nobody.invalid:/e" in played.fstab.read_text()


@pytest.mark.parametrize(("listens", "tries"), [(True, 2), (False, 1)])
def test_a_server_that_is_busy_is_asked_again_and_one_that_is_gone_is_not(
    listens: bool, tries: int, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        monkeypatch.setattr(host_module, "_PORTS", {"cifs": server.getsockname()[1]})
        clock = types.SimpleNamespace(sleep=lambda dummy: played.answers.clear(), monotonic=time.monotonic)
        monkeypatch.setattr(host_module, "time", clock)
        played.answers = {
            "systemctl start": Outcome(1, "", "Job failed", 0.0),
            "journalctl": Outcome(0, "mount error(112): Host is down\n", "", 0.0),
        }
        played.wanted = played.wanted._replace(source="//127.0.0.1/data", fstype="cifs")
        with contextlib.nullcontext() if listens else pytest.raises(SharedMountError, match="Host is down"):
            played.bring()
    assert len([words for words in played.ran if words.startswith("systemctl start")]) == tries


def test_mount_in_use_stays_with_its_old_line(played: Played) -> None:
    played.mount()
    played.answers = {"umount": Outcome(32, "", "umount: target is busy.", 0.0)}
    with pytest.raises(SharedMountError, match="is in use and stays as it is"):
        played.bring(source="nobody.invalid:/other")
    assert played.fstab.read_text() == OTHER


def test_options_that_need_an_unmount_are_a_warning(played: Played) -> None:
    played.bring()
    played.answers = {"mount --options remount": Outcome(32, "", "mount.nfs: an incorrect mount option", 0.0)}
    host = played.bring(options="hard,nconnect=4")
    assert "hold from the next boot on" in host.warnings[0]
    assert "nconnect=4" in played.fstab.read_text()
    assert not [words for words in played.ran if words.startswith("umount")]


def test_stale_mount_is_detached_and_mounted_again(played: Played) -> None:
    played.bring()
    played.ran.clear()
    stale = Outcome(1, "", "stat: cannot read file system information: Stale file handle", 0.0)
    host = host_module.MountHost(played.wanted, 1, 1)
    played.answers = {"stat --file-system": stale}
    seen = host.look()
    played.answers = {}
    host.carry_out(seen, plan(host.request, seen))
    assert "umount --lazy PATH" in played.ran
    assert host.look().same


def test_what_is_no_longer_wanted_leaves_nothing(played: Played) -> None:
    host = played.bring()
    Path(played.wanted.path).mkdir(exist_ok=True)
    played.bring(present=False)
    host.forget()
    assert played.fstab.read_text() == OTHER
    assert list(played.units.iterdir()) == []
    assert not Path(played.wanted.path).exists()


def test_what_another_mount_needs_stays(played: Played) -> None:
    host = played.bring()
    other = played.units / "other.mount.d"
    other.mkdir()
    (other / "hpcai.conf").write_text(DROP_IN)
    played.bring(present=False)
    assert {path.name for path in played.units.iterdir()} == {other.name, host.again.name}


def test_a_directory_that_holds_something_is_not_removed(played: Played) -> None:
    host = played.bring()
    (Path(played.wanted.path) / "file").write_text("kept")
    host.forget()
    assert (Path(played.wanted.path) / "file").read_text() == "kept"


def test_an_administrator_s_drop_in_stays(played: Played) -> None:
    host = played.bring()
    (host.drop_in.parent / "override.conf").write_text("[Mount]\n")
    played.bring(present=False)
    assert played.fstab.read_text() == OTHER
    assert [path.name for path in host.drop_in.parent.iterdir()] == ["override.conf"]


def test_below_a_mount_that_does_not_answer_nothing_waits(played: Played) -> None:
    """Making the mount point is a program that can be left behind, not a system call of ours."""
    played.answers = {"mkdir": Outcome(None, "", "mkdir did not end within 1 s", 0.0)}
    with pytest.raises(SharedMountError, match="cannot be made: mkdir did not end"):
        played.bring()


def test_fstab_keeps_what_is_no_utf_8_and_its_line_ends(played: Played) -> None:
    before = b"# caf\xe9\r\nUUID=1 / ext4 rw 0 1\r\n"
    played.fstab.write_bytes(before)
    played.bring()
    assert played.fstab.read_bytes().startswith(before)
    played.bring(present=False)
    assert played.fstab.read_bytes() == before


def test_a_link_to_fstab_stays_one(played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played.fstab.rename(tmp_path / "elsewhere")
    played.fstab.symlink_to(tmp_path / "elsewhere")
    replaced: list[Path] = []
    monkeypatch.setattr(host_module, "replace_owned", lambda path, *dummy: replaced.append(path))
    host_module.write_fstab("")
    assert replaced == [tmp_path / "elsewhere"]


def test_a_bind_mount_whose_source_is_gone_stays(played: Played) -> None:
    """Unmounting it would take away what works, for something that cannot be mounted."""
    played.mount()
    played.answers = {"stat --format=%d:%i /gone": Outcome(1, "", "stat: /gone: No such file or directory", 0.0)}
    with pytest.raises(SharedMountError, match=r"No such file or directory\. What is at .* was left there"):
        played.bring(source="/gone", fstype="none", options="bind")
    assert not [words for words in played.ran if words.startswith("umount")]


@pytest.mark.parametrize(("works", "goes", "starts"), [(1, 9, 1), (4, 9, 4), (9, 3, 3)])
def test_a_mount_is_tried_again_until_it_works_or_has_gone(works: int, goes: int, starts: int, tmp_path: Path) -> None:
    """By one process: systemd does not start again what is still there when a mount fails at once."""
    asked = tmp_path / "starts"
    answer(tmp_path / "sleep")
    stand_in(tmp_path / "systemctl", "systemctl_mount.sh", works=works, goes=goes, starts=asked)
    line = host_module.AGAIN_UNIT.replace("\\\n", " ").partition("ExecStart=")[2]
    words = [word.replace("$$", "$").replace("%i", r"a\x2db") for word in shlex.split(line)]
    done = subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False, timeout=60)
    assert done.returncode == 0, "a unit that failed would be shown as a fault of the node"
    assert asked.read_text() == "a\\x2db.mount\n" * starts
