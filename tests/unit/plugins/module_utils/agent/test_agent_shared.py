# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shared directory, the munge round trip with the controller, and the distance of the clocks."""

from __future__ import annotations

import errno
import json
import os
import pwd
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import checks_shared, node_access
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.node_world import World

OWN, THEIRS = "MUNGE:own:", "MUNGE:theirs:"
ANSWER = """STATUS:          {status}
ENCODE_HOST:     ctl (10.0.0.1)
ENCODE_TIME:     2026-11-21 21:40:00 +0000 ({encoded})
DECODE_TIME:     2026-11-21 21:40:02 +0000 ({encoded})
TTL:             300
UID:             slurm (64030)
"""


class Shared(World):
    """A node with a mailbox; ``ahead`` is how much its clock is before the controller's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mailbox = folder / "mailbox"
        self.mailbox.mkdir()
        self.settings.update(mailbox=str(self.mailbox), shared_dir=str(folder))
        self.now = time.time()
        self.status: dict[str, str] = {}
        self.encoded: float | None = None
        self.answers["munge"] = f"{OWN}\n"
        self.answers["unmunge"] = self.unmunge
        self.letter()

    def letter(self, age: float = 30, wrong: float = 0, text: str | None = None) -> None:
        """Write what the controller wrote some seconds ago, by a clock that is wrong by some seconds."""
        path = self.mailbox / "controller.json"
        self.encoded = self.now - age + wrong
        told = {"time": self.encoded, "credential": THEIRS}
        path.write_text(json.dumps(told) if text is None else text)
        os.utime(path, (self.now - age, self.now - age))

    def unmunge(self, argv: t.Sequence[str], data: str) -> Outcome:
        status = self.status.get("theirs" if data == THEIRS else "own", "Success (0)")
        # What it does not open it shows nothing of.
        opened = status.startswith(("Success", "Replayed", "Expired", "Rewound"))
        out = ANSWER.format(status=status, encoded=int(self.encoded or 0)) if opened else ""
        return Outcome(
            0 if status.startswith("Success") else 15, out, f"unmunge: Error: {status.partition(' (')[0]}\n", 0.01
        )


@pytest.fixture
def world(tmp_path: Path) -> Shared:
    return Shared(tmp_path)


def test_a_sound_node_passes(world: Shared) -> None:
    for name in ("shared_directory", "munge", "clock_skew"):
        assert world.one(name)["verdict"] == "pass", name
    assert [path.name for path in world.mailbox.iterdir()] == ["controller.json"]


@pytest.mark.parametrize("status", ["Replayed credential (17)", "Unauthorized credential for client UID=0 GID=0 (18)"])
def test_a_credential_that_was_seen_before_or_is_for_another_proves_the_key(world: Shared, status: str) -> None:
    world.status["theirs"] = status
    assert world.one("munge")["verdict"] == "pass"


def test_a_changed_key_is_configuration_and_named(world: Shared) -> None:
    world.status["theirs"] = "Invalid credential (15)"
    found = world.one("munge")
    assert (found["verdict"], found["class"]) == ("fail", "config")
    assert "munge key is not the controller's" in found["reason"]


@pytest.mark.parametrize(
    ("status", "age", "verdict"),
    [
        ("Rewound credential (16)", 30, "fail"),
        ("Expired credential (15)", 30, "fail"),
        ("Expired credential (15)", 400, "error"),
        ("Socket communication error (6)", 30, "error"),
    ],
)
def test_time_and_key_are_told_apart(world: Shared, status: str, age: float, verdict: str) -> None:
    world.letter(age)
    world.status["theirs"] = status
    assert world.one("munge")["verdict"] == verdict


def test_a_daemon_that_is_down_fails_and_one_that_hangs_is_an_error(world: Shared) -> None:
    world.answers["munge"] = Outcome(6, "", "munge: Error: Failed to access /run/munge/munge.socket.2\n", 0.01)
    assert (world.one("munge")["verdict"], world.one("munge")["class"]) == ("fail", "config")
    world.answers["munge"] = None
    assert (world.one("munge")["verdict"], world.one("munge")["class"]) == ("error", "infra")
    del world.answers["munge"]
    assert "munge is not installed" in world.one("munge")["reason"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"time": "x", "credential": "MUNGE:a:"}', '{"time": 1, "credential": 2}']
)
def test_a_letter_that_is_none_proves_nothing(world: Shared, text: str) -> None:
    world.letter(text=text)
    for name in ("munge", "clock_skew"):
        found = world.one(name)
        assert (found["verdict"], found["class"]) == ("error", "infra")


def test_a_stale_letter_says_that_the_reconciler_does_not_run(world: Shared) -> None:
    world.letter(901)
    found = world.one("munge")
    assert (found["verdict"], found["class"]) == ("error", "infra")
    assert "the controller's reconciler does not run" in found["reason"]


def test_a_wrong_clock_of_this_node_does_not_make_a_fresh_letter_stale(world: Shared) -> None:
    """The age is what the file server says of both files."""
    world.now += 4000
    assert "does not run" not in world.one("munge")["reason"]


@pytest.mark.parametrize(("wrong", "verdict"), [(0, "pass"), (4, "pass"), (20, "warn"), (-20, "warn"), (200, "fail")])
def test_a_controller_with_another_time_is_found(world: Shared, wrong: float, verdict: str) -> None:
    world.letter(wrong=wrong)
    found = world.one("clock_skew")
    assert found["verdict"] == verdict
    assert found["class"] == (None if verdict == "pass" else "config")


@pytest.mark.parametrize(("ahead", "verdict"), [(3, "pass"), (200, "fail"), (-200, "fail"), (60, "warn")])
def test_a_node_with_another_time_is_found(
    world: Shared, monkeypatch: pytest.MonkeyPatch, ahead: float, verdict: str
) -> None:
    done = node_access.ProbeResult(0.01, skew=ahead)
    monkeypatch.setattr(node_access, "probe", lambda *dummy: done)
    world.now += ahead
    assert world.one("clock_skew")["verdict"] == verdict


def test_without_a_mailbox_only_the_directory_is_looked_at(world: Shared) -> None:
    world.settings["mailbox"] = ""
    assert world.one("shared_directory")["verdict"] == "pass"
    assert world.one("munge")["verdict"] == "unjudged"
    assert world.one("clock_skew")["verdict"] == "skipped"
    world.settings["shared_dir"] = str(world.folder / "gone")
    found = world.one("shared_directory")
    assert (found["verdict"], found["class"]) == ("error", "infra")


def test_a_share_that_is_not_mounted_has_no_mailbox(world: Shared) -> None:
    world.settings["mailbox"] = str(world.folder / "gone")
    found = world.one("shared_directory")
    assert (found["verdict"], found["class"]) == ("error", "infra")
    assert "mounted?" in found["reason"]


def test_a_share_that_gives_back_something_else_fails(world: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_access, "_through", lambda path, data: data[:-1] + bytes([data[-1] ^ 1]))
    found = world.one("shared_directory")
    assert (found["verdict"], found["class"]) == ("fail", "config")


def test_a_server_that_fails_is_not_the_hardware_of_a_node(world: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    """As hardware it would keep slurmd of every node from starting (suite boot)."""

    def fails(*dummy: t.Any) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(node_access, "_through", fails)
    found = world.one("shared_directory", "boot")
    assert (found["verdict"], found["class"]) == ("fail", "config")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_what_only_its_owner_may_enter_is_entered_as_its_owner(
    world: Shared, let_others_pass: t.Callable[[Path], None]
) -> None:
    user = pwd.getpwnam("daemon")
    world.settings["mailbox_user"] = "daemon"
    world.mailbox.chmod(0o700)
    os.chown(world.mailbox, user.pw_uid, user.pw_gid)
    let_others_pass(world.folder)
    assert world.one("shared_directory")["verdict"] == "pass"
    assert os.geteuid() == 0
    with node_access.acting_as("daemon"):
        assert (os.geteuid(), os.getegid()) == (user.pw_uid, user.pw_gid)
    world.settings["mailbox_user"] = "no-such-user"
    assert "there is no user no-such-user" in world.one("shared_directory")["reason"]


def test_the_letter_is_read_once_for_all_checks_of_a_suite(world: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = node_access.probe
    monkeypatch.setattr(node_access, "probe", lambda folder, size: (calls.append("x"), real(folder, size))[1])
    context = world.context()
    checks_shared.share(context)
    checks_shared.share(context)
    assert len(calls) == 1
