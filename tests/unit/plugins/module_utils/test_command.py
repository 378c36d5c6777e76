# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run, run_to_file


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


def test_what_cannot_even_be_named() -> None:
    assert "cannot be started: embedded null byte" in run(["a\0b"], 20).problem


def test_a_file_takes_both_streams_in_their_order(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import sys; print(1, flush=True); print(2, file=sys.stderr, flush=True); print(3); sys.exit('bad')"
    got = run_to_file(python(code), 20, log, {"PYTHONUNBUFFERED": "1"})
    assert log.read_text() == got.out == "1\n2\n3\nbad\n"
    assert (got.rc, got.err, got.problem) == (1, "", "exit status 1: bad")


def test_only_the_end_of_a_file_is_held(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    got = run_to_file(["dd", "if=/dev/zero", "bs=1M", "count=200", "status=none"], 60, tmp_path / "log")
    assert (got.rc, len(got.out), got.problem) == (0, 4096, "")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    got = run_to_file(python("print(1)"), 20, tmp_path / "not" / "there")
    assert got.rc is None
    assert "cannot be written: No such file or directory" in got.problem


def test_a_program_that_is_not_there_and_a_file(tmp_path: Path) -> None:
    got = run_to_file(["/nonexistent/tool"], 20, tmp_path / "log")
    assert (got.rc, got.problem) == (None, "/nonexistent/tool cannot be started: No such file or directory")


def test_what_was_printed_before_the_timeout_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program obeys SIGTERM, its child does not: neither outlives the timeout."""
    monkeypatch.setattr(_command, "GRACE", 0.5)
    child = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    code = f"import subprocess; p = subprocess.Popen({python(child)}); print(p.pid, flush=True); p.wait()"
    log = tmp_path / "log"
    got = run_to_file(python(code), 2, log)
    assert (got.rc, got.problem.endswith("did not end within 2 s")) == (None, True)
    pid, ready = log.read_text().split()
    assert ready == "ready"
    assert not _runs(int(pid))


def _runs(pid: int) -> bool:
    """Say whether a process is there and no zombie, which its new parent may have left."""
    time.sleep(0.2)
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
