# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import BuildError, BuildStep, run_steps


def test_steps_run_in_order_with_their_environment(tmp_path: Path) -> None:
    out = tmp_path / "out"
    steps = [
        BuildStep(["sh", "-c", f'echo "$A $B" >> {out}'], {"B": "2"}),
        BuildStep(["sh", "-c", f'echo "$A" >> {out}'], {"A": "3"}),
    ]
    assert run_steps(steps, {"A": "1"}, 10) > 0
    assert out.read_text() == "1 2\n3\n"


def test_a_failed_step_ends_the_build_and_says_what_the_compiler_said(tmp_path: Path) -> None:
    steps = [
        BuildStep(["sh", "-c", "echo x.c:3: error: no such thing; echo noise; exit 2"]),
        BuildStep(["touch", str(tmp_path / "more")]),
    ]
    with pytest.raises(BuildError, match=r"exit status 2\nx\.c:3: error: no such thing$"):
        run_steps(steps, {}, 10)
    assert not (tmp_path / "more").exists()


def test_a_step_that_does_not_end_is_ended() -> None:
    with pytest.raises(BuildError, match=r"^sleep 60 failed: sleep did not end within 0\.2 s$"):
        run_steps([BuildStep(["sleep", "60"])], {}, 0.2)


def test_a_step_that_cannot_begin_says_only_that() -> None:
    with pytest.raises(BuildError, match=r"^/nowhere failed: /nowhere cannot be started: No such file or directory$"):
        run_steps([BuildStep(["/nowhere"])], {}, 10)


def _hold(path: Path, log: Path) -> None:
    with lock(path):
        with log.open("a") as out:
            out.write("in ")
        time.sleep(0.2)
        with log.open("a") as out:
            out.write("out ")


def test_a_lock_lets_one_in_at_a_time(tmp_path: Path) -> None:
    start = multiprocessing.get_context("spawn").Process
    both = [start(target=_hold, args=(tmp_path / "lock", tmp_path / "log")) for dummy in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert (tmp_path / "log").read_text() == "in out in out "
