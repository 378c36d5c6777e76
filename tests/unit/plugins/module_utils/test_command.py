# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from patience import patience

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run, run_to_file
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import running

COLLECTIONS = Path(_process.__file__).parents[5]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_and_status() -> None:
    got = run(python("import sys; print(input()); sys.exit('bad')"), 20, "hello\n")
    assert (got.rc, got.out, got.problem) == (1, "hello\n", "exit status 1: bad")


def test_silent_input_is_there_and_never_ends() -> None:
    code = "import select, sys; print(select.select([sys.stdin], [], [], 0.1)[0] == [], sys.stdin.isatty())"
    before = set(Path("/proc/self/fd").iterdir())
    assert run(python(code), 20, silent=True).out == "True False\n"
    assert run(python(code), 20).out == "False False\n"
    assert set(Path("/proc/self/fd").iterdir()) == before


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
    monkeypatch.setattr(_process, "GRACE", 0.3)
    code = "import signal, subprocess, time; signal.signal(15, signal.SIG_IGN); subprocess.run(['sleep', '600'])"
    begin = time.monotonic()
    got = run(python(code), 0.5)
    assert got.rc is None
    assert "did not end within 0.5 s" in got.problem
    assert time.monotonic() - begin < patience(60)


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
    monkeypatch.setattr(_process, "GRACE", 0.5)
    child = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"
    code = f"import subprocess; p = subprocess.Popen({python(child)}); print(p.pid, flush=True); p.wait()"
    log = tmp_path / "log"
    got = run_to_file(python(code), 2, log)
    assert (got.rc, got.problem.endswith("did not end within 2 s")) == (None, True)
    pid, ready = log.read_text().split()
    assert ready == "ready"
    time.sleep(0.2)
    assert not running(int(pid))


# A program, and a child of it, that tell their process ids; the child ignores SIGTERM when it is told to.
FAMILY = """
import os, signal, subprocess, sys, time
child = "import os, signal, time; {deaf}; print(os.getpid(), flush=True); time.sleep(600)"
pids = open({log!r}, "a")
started = subprocess.Popen([sys.executable, "-c", child], stdout=pids)
print(os.getpid(), file=pids, flush=True)
started.wait()
"""
CALLS = {
    "run": "run(argv, 60)",
    "run_to_file": "run_to_file(argv, 60, log)",
    "threads": """
with ThreadPoolExecutor(2) as pool, ending():
    list(pool.map(lambda number: run(argv, 60), range(2)))
""",
}
CALLER = """
import os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process as _child
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import ending
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run, run_to_file
_child.GRACE = 0.5
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
log, argv = sys.argv[1], sys.argv[2:]
{call}
"""


class Family:
    """A process that runs a program through `run` and its sisters, as a module does."""

    def __init__(self, folder: Path, call: str, deaf: bool = False) -> None:
        pids = folder / "pids"
        ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else "pass"
        argv = [*python(CALLER.format(call=CALLS[call])), str(folder / "log")]
        argv += python(FAMILY.format(log=str(pids), deaf=ignore))
        self.caller = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(COLLECTIONS)}, start_new_session=True)
        self.pids: list[int] = []
        deadline = time.monotonic() + 20
        while len(self.pids) < (4 if call == "threads" else 2) and time.monotonic() < deadline:
            time.sleep(0.05)
            self.pids = [int(word) for word in pids.read_text().split()] if pids.exists() else []

    def left(self) -> list[int]:
        deadline = time.monotonic() + 5
        while any(map(running, self.pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return [pid for pid in self.pids if running(pid)]


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("call", CALLS)
def test_who_ends_us_ends_the_program_with_its_children(tmp_path: Path, call: str, sign: signal.Signals) -> None:
    family = Family(tmp_path, call, deaf=True)
    family.caller.send_signal(sign)
    status = family.caller.wait(patience(20))
    assert family.left() == []
    assert status in (128 + sign, -sign)


@pytest.mark.skipif(_process._PRCTL is None, reason="only Linux tells a child")
def test_a_program_ends_when_we_are_killed(tmp_path: Path) -> None:
    family = Family(tmp_path, "run")
    family.caller.kill()
    family.caller.wait(patience(20))
    (left,) = family.left()  # the program's own child is the program's matter
    os.kill(left, signal.SIGKILL)


class Hurried(subprocess.Popen):
    """Told to end when the program is started and nobody has been given it yet."""

    sign = signal.SIGTERM
    last: t.Any = None

    def __init__(self, *args: t.Any, **options: t.Any) -> None:
        super().__init__(*args, **options)
        Hurried.last = self
        os.kill(os.getpid(), Hurried.sign)
        time.sleep(0)  # the handler runs no later than here


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_who_ends_us_while_a_program_starts_ends_it_as_well(
    monkeypatch: pytest.MonkeyPatch, sign: signal.Signals
) -> None:
    monkeypatch.setattr(subprocess, "Popen", Hurried)
    monkeypatch.setattr(Hurried, "sign", sign)
    # Whoever starts tests in the background lets them ignore some.
    before = signal.default_int_handler if sign == signal.SIGINT else signal.SIG_DFL
    inherited = signal.signal(sign, before)
    try:
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            run(["sleep", "60"], 60)
        assert Hurried.last.poll() == -signal.SIGTERM
        assert signal.getsignal(sign) == before
    finally:
        signal.signal(sign, inherited)
        Hurried.last.kill()
        Hurried.last.wait()


def test_who_ends_us_ends_what_a_thread_has_just_started(monkeypatch: pytest.MonkeyPatch) -> None:
    going, known = threading.Event(), threading.Event()

    class Slow(subprocess.Popen):
        def __init__(self, *args: t.Any, **options: t.Any) -> None:
            super().__init__(*args, **options)
            going.set()
            known.wait(patience(20))

    monkeypatch.setattr(subprocess, "Popen", Slow)
    with ThreadPoolExecutor(2) as pool:
        program = pool.submit(run, ["sleep", "60"], 60)
        assert going.wait(patience(20))
        ends = pool.submit(_process.end_all)
        assert not ends.done()
        known.set()
        assert program.result(20).rc == -signal.SIGTERM
        ends.result(20)


def test_handlers_of_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that cleans up by itself is told, and what runs is ended all the same."""
    seen: list[int] = []

    def theirs(number: int, dummy: t.Any) -> None:
        seen.append(number)
        raise SystemExit(3)

    before = signal.signal(signal.SIGTERM, theirs)
    try:
        begin = time.monotonic()
        with pytest.raises(SystemExit):
            run(["sh", "-c", f"kill -TERM {os.getpid()}; sleep 600"], 600)
        assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (seen, time.monotonic() - begin < patience(60)) == ([signal.SIGTERM], True)


def test_a_program_that_is_not_there_ends_no_other() -> None:
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(run, ["sleep", "0.5"], 20)
        assert run(["/nonexistent/tool"], 20).rc is None
        assert other.result().rc == 0
