# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys
import time

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_and_status() -> None:
    got = run(python("import sys; print(input()); sys.exit('bad')"), 20, "hello\n")
    assert (got.rc, got.out, got.problem) == (1, "hello\n", "exit status 1: bad")


def test_success_has_no_problem() -> None:
    assert run(python("print(1)"), 20).problem == ""


def test_locale_and_variables() -> None:
    got = run(python("import os; print(os.environ['LC_ALL'], os.environ['MINE'])"), 20, None, {"MINE": "x"})
    assert got.out == "C x\n"


def test_what_is_not_there() -> None:
    got = run(["/nonexistent/tool"], 20)
    assert got.rc is None
    assert "/nonexistent/tool cannot be started" in got.problem


def test_a_hanging_program_is_ended_with_its_children(monkeypatch) -> None:
    monkeypatch.setattr(_command, "GRACE", 0.3)
    code = "import signal, subprocess, time; signal.signal(15, signal.SIG_IGN); subprocess.run(['sleep', '60'])"
    begin = time.monotonic()
    got = run(python(code), 0.5)
    assert got.rc is None
    assert "did not end within 0.5 s" in got.problem
    assert time.monotonic() - begin < 10
