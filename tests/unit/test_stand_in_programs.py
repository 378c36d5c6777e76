# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-ins that many tests share do what their tests believe of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from stand_in import answer, instead, program, stand_in

Ended = subprocess.CompletedProcess[str]


def run(path: Path, *words: str) -> Ended:
    return subprocess.run([path, *words], capture_output=True, text=True, check=False)


def test_an_answer_is_what_it_was_given_whatever_it_is_asked(tmp_path: Path) -> None:
    text = "it's 5 % of $HOME \\n `id`\n\n"
    path = answer(tmp_path / "tool", text, err="no\n", status=3, calls=tmp_path / "the calls", pid=tmp_path / "pid")
    done = run(path, "--a", "b c")
    assert (done.stdout, done.stderr, done.returncode) == (text, "no\n", 3)
    assert (tmp_path / "the calls").read_text() == "--a b c\n" and int((tmp_path / "pid").read_text()) != os.getpid()
    assert run(answer(path)).stdout == "" and run(answer(path, signal="KILL")).returncode == -9


@pytest.mark.parametrize("values", [{}, {"first": "env"}])
def test_a_step_starts_what_is_behind_its_options(tmp_path: Path, values: dict[str, str]) -> None:
    step = stand_in(tmp_path / "srun", "step.sh", variables="A=1 B=2", gone="--nodelist=n9", **values)
    done = run(step, "--nodes=1", "env", "sh", "-c", 'echo "$A$B $1"', "sh", "x y")
    assert (done.stdout, done.returncode) == ("12 x y\n", 0)
    assert run(step, "--nodelist=n9", "env", "true").returncode == 1
    asking = stand_in(tmp_path / "srun", "step.sh", asks="--nodes=1")
    assert (run(asking, "--nodes=1", "true").returncode, run(asking, "--nodes=12", "true").returncode) == (0, 2)


def test_a_program_in_place_of_another_hands_everything_on(tmp_path: Path) -> None:
    path = instead(tmp_path / "tool", "sh", "-c", 'echo "$A $1 $2"', "a 'name'", A="x  $y")
    assert run(path, "1  2", "3").stdout == "x  $y 1  2 3\n"


def test_values_are_a_shell_s_alone() -> None:
    with pytest.raises(ValueError, match=r"fio\.py is no shell's"):
        program("fio.py", size=1)
