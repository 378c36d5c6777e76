# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What run_module starts is like a process that was started anew: it has what it was given, and leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ROOT, ansible_playbook, interpreter, of_clone, play_here
from forked import run_module
from patience import patience

PROGRAM = """
import atexit, json, os, sys, time
import known_state
if __name__ == "__main__":
    known_state.calls += 1
    atexit.register(print, "the end", file=sys.stderr)
    given = sys.stdin.read()
    told = {"calls": known_state.calls, "cwd": os.getcwd(), "mine": os.environ.get("MINE"), "argv": sys.argv[1:]}
    print(json.dumps({**told, "given": given, "pid": os.getpid()}))
    if given == "hang":
        sys.stdout.flush()
        time.sleep(600)
    if given == "break":
        raise ValueError("broken")
    sys.exit(3)
"""


class Program:
    """A module of the test's own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "known_program.py").write_text(PROGRAM)
        (directory / "known_state.py").write_text("calls = 0\n")

    def __call__(self, given: str = "", **more: t.Any) -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": str(self.directory), "MINE": given}
        where = {"cwd": self.directory, "timeout": patience(30), **more}
        return run_module("known_program", "--word", "b c", input=given, env=environment, **where)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_each_call_has_what_it_was_given_and_nothing_of_the_one_before(program: Program, tmp_path: Path) -> None:
    told = [program(given) for given in ("first", "second")]
    assert [(one.returncode, one.stderr) for one in told] == [(3, "the end\n")] * 2
    first, second = (json.loads(one.stdout) for one in told)
    assert first.pop("pid") != second.pop("pid")
    same = {"calls": 1, "cwd": str(tmp_path), "argv": ["--word", "b c"]}
    assert first == {**same, "given": "first", "mine": "first"}
    assert second == {**same, "given": "second", "mine": "second"}


def test_one_that_breaks_says_so_as_python_does(program: Program) -> None:
    broken = program("break")
    assert broken.returncode == 1
    assert broken.stderr.endswith("ValueError: broken\nthe end\n")


def test_one_that_hangs_is_ended_and_the_next_one_runs(program: Program) -> None:
    with pytest.raises(subprocess.TimeoutExpired) as late:
        program("hang", timeout=2)
    pid = json.loads(str(late.value.output))["pid"]
    assert not Path(f"/proc/{pid}").exists()
    assert program().returncode == 3


@pytest.mark.parametrize("named", [True, False])
def test_a_lab_s_modules_on_this_machine_run_in_the_python_that_the_suite_names(named: bool, tmp_path: Path) -> None:
    """Without it each of the hundred modules that make and remove a lab would start a Python, and nobody would see."""
    sent = {"that": "ansible_facts['python']['executable'] == ansible_playbook_python"}
    tasks = [
        {"ansible.builtin.setup": {"gather_subset": ["!all", "!min", "python"]}},
        {"ansible.builtin.assert": {**sent, "quiet": True}},
        {"ansible.builtin.debug": {"var": "ansible_python_interpreter"}},
    ]
    (tmp_path / "play.json").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    env = of_clone(tmp_path, HPCAI_TEST_PYTHON=interpreter() if named else "")
    done = ansible_playbook("-i", ROOT / "lab/inventory", "play.json", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout
    assert f'"ansible_python_interpreter": "{interpreter() if named else sys.executable}"' in done.stdout


def test_a_playbook_that_fails_ends_as_ansible_playbook_does(tmp_path: Path) -> None:
    done = play_here(tmp_path, [{"ansible.builtin.fail": {"msg": "{{ lookup('env', 'MINE') }}"}}], fails=True, MINE="x")
    assert done.returncode == 2 and "msg: x" in done.stdout.replace('"', ""), done.stdout
    wrong = play_here(tmp_path, [{"no.such.module": {}}], fails=True)
    assert wrong.returncode == 4 and "no.such.module" in wrong.stderr
    assert str(sys.executable) in done.args
