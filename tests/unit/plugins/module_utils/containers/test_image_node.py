# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that runs on nodes, as the process that it is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from patience import patience

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_node import BROADCAST, UNPROVED
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_staging import answers, program
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.containers.images_made import (
    Json,
    image,
    task,
)


class Scratch:
    """A node's directory beside the shared one."""

    def __init__(self, home: Path) -> None:
        home.chmod(0o755)
        self.shared, self.node = home / "shared", home / "scratch/images"
        self.node.parent.mkdir()
        self.program = home / "stage.py"
        self.program.write_text(program())
        self.images = [image(self.shared)]

    def argv(self, action: str, **more: t.Any) -> list[str]:
        given = task(self.shared, self.node, self.images, action=action, **more)
        return [sys.executable, "-I", "-", "task", json.dumps(given)]

    def run(self, action: str, **more: t.Any) -> Json:
        done = subprocess.run(
            self.argv(action, **more), input=program(), capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        found = answers(done.stdout)
        assert len(found) == 1
        return next(iter(found.values()))

    def stage(self, **more: t.Any) -> list[Json]:
        return [self.run(action, **more) for action in ("prepare", "place", "use")]

    def alone(self, *words: str) -> tuple[int, str]:
        argv = [sys.executable, "-I", str(self.program), f"--from={self.shared}", f"--to={self.node}", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=patience(60))
        return done.returncode, done.stderr

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.node.iterdir() if not path.name.startswith("."))

    @property
    def file(self) -> Path:
        return self.node / self.images[0]["file"]


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path)


def test_an_image_is_brought_and_used(scratch: Scratch) -> None:
    assert scratch.run("look")["images"] == {"app": "is not there"}
    assert not scratch.node.exists(), "looking changes nothing"
    answered = scratch.stage()
    assert [one.get("problem") for one in answered] == ["", None, None]
    assert [one["images"] for one in answered] == [{}, {"app": "copied"}, {"app": "current"}]
    assert scratch.names == [scratch.images[0]["file"], "app.sqsh"]
    assert (scratch.node / "app.sqsh").read_bytes() == (scratch.shared / "app.sqsh").read_bytes()
    assert scratch.run("look")["images"] == {"app": "current"}


def test_no_job_is_led_to_it_before_all_nodes_have_it(scratch: Scratch) -> None:
    scratch.run("place")
    assert scratch.names == [scratch.images[0]["file"]]
    assert scratch.run("look")["images"] == {"app": "is not what app.sqsh names"}


def test_a_new_version_keeps_one_old_one(scratch: Scratch) -> None:
    files = []
    for number in range(3):
        scratch.images = [image(scratch.shared, content=bytes([number]))]
        files.append(scratch.images[0]["file"])
        scratch.stage()
        time.sleep(0.02)
    assert scratch.names == sorted([*files[1:], "app.sqsh"])
    scratch.stage(keep=0)
    assert scratch.names == sorted([files[2], "app.sqsh"])


@pytest.mark.parametrize("harm", [lambda path: os.truncate(path, 20), lambda path: path.write_bytes(b"x" * 103)])
def test_a_damaged_file_is_found_and_replaced(scratch: Scratch, harm: t.Callable[[Path], None]) -> None:
    scratch.stage()
    harm(scratch.file)
    assert "instead of" in scratch.run("look")["images"]["app"]
    assert scratch.stage()[1]["images"] == {"app": "copied"}
    assert scratch.run("look", verify=True)["images"] == {"app": "current"}


def test_a_touched_file_is_hashed_and_not_copied(scratch: Scratch) -> None:
    scratch.stage()
    before = scratch.file.stat().st_ino
    os.utime(scratch.file)
    assert scratch.run("look")["images"] == {"app": UNPROVED}
    assert scratch.stage()[1]["images"] == {"app": "kept"}
    assert scratch.file.stat().st_ino == before
    assert scratch.run("look")["images"] == {"app": "current"}


def test_a_shared_file_that_is_cut_off_is_not_taken(scratch: Scratch) -> None:
    os.truncate(scratch.shared / scratch.images[0]["file"], 50)
    told = scratch.run("place")["images"]["app"]
    assert told.startswith(str(scratch.shared))
    assert "gave 50 bytes" in told
    assert "is not there" in scratch.run("use")["images"]["app"]
    assert scratch.names == []


def test_what_does_not_fit_is_refused_before(scratch: Scratch) -> None:
    told = scratch.run("prepare", min_free=1 << 60)["problem"]
    assert "MB free" in told
    assert "MB are to stay free" in told
    assert "MB free" in scratch.run("place", min_free=1 << 60)["images"]["app"]


def test_scratch_that_is_not_mounted_is_told(scratch: Scratch) -> None:
    scratch.node.parent.rmdir()
    for action in ("look", "prepare", "place"):
        told = scratch.run(action)["problem"]
        assert "is not there" in told or "cannot be made" in told
    assert not scratch.node.parent.exists()


def test_a_directory_that_others_could_write_to_is_refused(scratch: Scratch) -> None:
    scratch.node.mkdir()
    scratch.node.chmod(0o1777)
    for action in ("look", "prepare", "place", "use"):
        assert "can be written by everybody" in scratch.run(action)["problem"]
    assert scratch.names == []


def test_what_sbcast_brought_is_hashed(scratch: Scratch) -> None:
    scratch.run("prepare")
    aside = scratch.node / f".{scratch.images[0]['file']}{BROADCAST}"
    assert "sbcast brought" in scratch.run("place", broadcast=True)["images"]["app"]
    aside.write_bytes(b"hsqs")
    assert "sbcast brought" in scratch.run("place", broadcast=True)["images"]["app"]
    assert not aside.exists()
    aside.write_bytes((scratch.shared / "app.sqsh").read_bytes())
    assert scratch.run("place", broadcast=True)["images"] == {"app": "copied"}
    aside.write_bytes(b"a node that had it already is sent it all the same")
    assert scratch.run("place", broadcast=True)["images"] == {"app": "kept"}
    assert not aside.exists()


def test_images_that_are_to_go(scratch: Scratch) -> None:
    scratch.stage()
    scratch.images = []
    assert scratch.run("look", absent=["app", "other"])["absent"] == ["app"]
    scratch.run("use", absent=["app", "other"])
    assert scratch.names == []
    assert scratch.run("look", absent=["app", "other"])["absent"] == []


def test_a_node_that_joins_stages_itself(scratch: Scratch) -> None:
    image(scratch.shared, name="other")
    assert scratch.alone("--min-free=0", "app") == (0, "")
    assert scratch.names == [scratch.images[0]["file"], "app.sqsh"]
    assert scratch.alone("--min-free=0") == (0, "")
    assert len(scratch.names) == 4
    status, said = scratch.alone("--min-free=0", "third")
    assert status == 1
    assert "has no image third" in said
    os.truncate(scratch.file, 3)
    os.truncate(scratch.shared / scratch.images[0]["file"], 3)
    status, said = scratch.alone("--min-free=0")
    assert status == 1
    assert "app: " in said
    assert "gave 3 bytes" in said


def test_two_at_once_do_the_work_once(scratch: Scratch) -> None:
    scratch.run("prepare")
    runs = [
        subprocess.Popen(scratch.argv("place"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for dummy in range(4)
    ]
    said = [
        next(iter(answers(run.communicate(program(), timeout=patience(60))[0]).values()))["images"]["app"]
        for run in runs
    ]
    assert sorted(said) == ["copied", "kept", "kept", "kept"]


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_killed_in_the_middle_it_leaves_nothing_that_is_used(scratch: Scratch, sign: signal.Signals) -> None:
    """The source is a pipe that nothing more comes from."""
    path = scratch.shared / scratch.images[0]["file"]
    whole = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    scratch.run("prepare")
    run = subprocess.Popen(scratch.argv("place"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdin
    run.stdin.write(program())
    run.stdin.close()
    with path.open("wb", buffering=0) as pipe:
        pipe.write(whole[:50])
        while not list(scratch.node.glob(".*.partial")):
            time.sleep(0.01)
        run.send_signal(sign)
        run.wait(patience(20))
    left = list(scratch.node.glob(".*.partial"))
    assert len(left) == (1 if sign == signal.SIGKILL else 0)
    assert scratch.names == []
    path.unlink()
    path.write_bytes(whole)
    scratch.stage()
    assert not list(scratch.node.glob(".*.partial"))
    assert scratch.run("look")["images"] == {"app": "current"}
