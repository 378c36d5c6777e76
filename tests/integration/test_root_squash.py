# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nodes of the emulated CycleCloud have as /shared: root is nobody there, and users are themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

import pytest
from patience import wait_for

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests/emulators/cyclecloud/cyclecloud_emulator/squash.py"
USER = 2345
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="only root can mount, and needs /dev/fuse"
)


class Mounted:
    """A directory of root's, with one of a user below it, behind the mount."""

    def __init__(self, place: Path, process: subprocess.Popen[bytes]) -> None:
        self.place, self.process = place, process

    def run(self, command: str, user: int) -> subprocess.CompletedProcess[str]:
        """Run a shell command where the mount is, as a user or as root."""
        inside = ["nsenter", f"--target={self.process.pid}", "--mount"]
        who = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        words = [*inside, *who, "sh", "-c", f"cd {self.place} && {command}"]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def mounted() -> t.Iterator[Mounted]:
    with tempfile.TemporaryDirectory() as directory:  # pytest's own are root's alone
        place = Path(directory)
        place.chmod(0o755)
        (place / "home").mkdir()
        os.chown(place / "home", USER, USER)
        (place / "home").chmod(0o700)
        (place / "plain").write_text("for all\n")
        (place / "secret").write_text("root's\n")
        (place / "secret").chmod(0o600)
        yield from _mounted(place)


def _mounted(place: Path) -> t.Iterator[Mounted]:
    # In a mount namespace of its own, so that nothing is left.
    words = ["unshare", "--mount", "--propagation=private", sys.executable, "-B", str(PROGRAM), str(place)]
    process = subprocess.Popen(words)
    try:
        mounts = Path(f"/proc/{process.pid}/mountinfo")
        wait_for("the mount", lambda: f" {place} " in mounts.read_text(), 30, 0.05)
        yield Mounted(place, process)
    finally:
        process.kill()
        process.wait()


def test_root_is_nobody(mounted: Mounted) -> None:
    for refused in (
        "touch new",
        "ls home",
        "touch home/new",
        "cat secret",
        "echo x >>plain",
        "chown 0 home",
        "rm plain",
    ):
        done = mounted.run(refused, 0)
        assert done.returncode and "ermi" in done.stderr, (refused, done)
    shown = mounted.run("cat plain; stat -c %u:%a . secret home", 0)
    assert shown.stdout == "for all\n0:755\n0:600\n2345:700\n", "owners are shown as they are"


def test_users_are_themselves(mounted: Mounted) -> None:
    commands = (
        "cd home && mkdir a && echo one >a/b && mv a c && ln -s c/b link && cat link && echo two >>c/b && cat c/b"
        " && chmod 640 c/b && touch -d @5 c/b && stat -c %a:%Y:%u:%g c/b && truncate -s 2 c/b && wc -c <c/b && ls c"
        " && rm -r c link && ls -A"
    )
    done = mounted.run(commands, USER)
    assert done.stdout.split() == ["one", "one", "two", "640:5:2345:2345", "2", "b"], done
    assert mounted.run("cat home/x", USER + 1).returncode
    assert list((mounted.place / "home").iterdir()) == []


def test_what_another_machine_wrote_is_read(mounted: Mounted) -> None:
    """The directory behind the mount is where others write; attributes are believed for a second."""
    assert mounted.run("cat plain", USER).stdout == "for all\n"
    (mounted.place / "plain").write_text("and longer\n")
    wait_for("the new text", lambda: mounted.run("cat plain", USER).stdout == "and longer\n", 30)
    (mounted.place / "plain").unlink()
    (mounted.place / "plain").mkdir()
    wait_for("the directory", lambda: mounted.run("test -d plain", USER).returncode == 0, 30)
