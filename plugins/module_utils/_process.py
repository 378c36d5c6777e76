# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run external programs that may hang, in sessions of their own that do not outlive their caller."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import types
import typing as t
from pathlib import Path

# Programs in sessions of their own that do not outlive us.


_PRCTL: t.Any = None
with contextlib.suppress(ImportError, OSError, AttributeError):  # another system than Linux, or half a Python
    import ctypes

    _PRCTL = ctypes.CDLL(None).prctl

GRACE = 5.0
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_PR_SET_PDEATHSIG = 1
_RUNNING: set[subprocess.Popen[bytes]] = set()
_STARTING = threading.Lock()  # held while a program is started and noted, in whatever thread


@contextlib.contextmanager
def ending() -> t.Iterator[None]:
    """End what runs, in threads as well, when the process gets a signal to end within; handlers of others stay."""
    # In other threads there are neither signals nor their exceptions.
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _ENDS} if main else {}
    # One that C installed cannot be set again.
    before = {number: handler for number, handler in handlers.items() if handler is not None}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, _leave)
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        end_all()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, dummy: types.FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _later() -> t.Iterator[None]:
    """Put off handlers that may raise: what was started and not noted yet, nobody would end.

    The signals are not blocked, as a child would inherit that.
    """
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _ENDS} if main else {}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    came: list[int] = []
    for number in before:
        signal.signal(number, lambda number, dummy: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for caught in dict.fromkeys(came):
            signal.raise_signal(caught)


@contextlib.contextmanager
def session(
    argv: t.Sequence[str],
    environment: t.Mapping[str, str] | None,
    stdin: int,
    stdout: int | t.IO[bytes],
    stderr: int,
) -> t.Iterator[subprocess.Popen[bytes]]:
    """Start a program in the C locale; what is left of it when an exception passes is ended."""
    # Between fork and exec a child must not need what another thread may have locked.
    alone = _PRCTL is not None and threading.active_count() == 1
    process: subprocess.Popen[bytes] | None = None
    with ending():
        try:
            with _later(), _STARTING:
                process = subprocess.Popen(
                    list(argv),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    env={**os.environ, "LC_ALL": "C", **(environment or {})},
                    start_new_session=True,
                    preexec_fn=_die_with_parent if alone else None,
                )
                _RUNNING.add(process)
            yield process
        except Exception:
            end([process] if process else [])
            raise
        finally:
            if process and process.returncode is not None:
                _RUNNING.discard(process)


def _die_with_parent() -> None:
    """SIGKILL leaves us no time to end anything; launchers hand SIGTERM on to their ranks."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def end_all() -> None:
    """End what runs now; a thread may be about to start another."""
    with _STARTING:
        running = list(_RUNNING)
    end(running)


def end(processes: t.Sequence[subprocess.Popen[bytes]]) -> None:
    """End sessions; children may ignore SIGTERM after the first process obeyed."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            send(process, sign)
        deadline = time.monotonic() + GRACE
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


def send(process: subprocess.Popen[bytes], sign: int) -> None:
    """Send a signal to the whole session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, sign)


# Run an external program that may hang.


_TAIL = 4096


class Outcome(t.NamedTuple):
    """What a program did; ``rc`` is None when it could not be started or did not end in time."""

    rc: int | None
    out: str
    err: str
    seconds: float

    @property
    def problem(self) -> str:
        """Say why the output cannot be trusted, empty when it can."""
        if self.rc == 0:
            return ""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return f"{'' if self.rc is None else f'exit status {self.rc}: '}{lines[-1] if lines else 'no output'}"


def run(
    argv: t.Sequence[str],
    timeout: float,
    data: str | None = None,
    environment: t.Mapping[str, str] | None = None,
    silent: bool = False,
) -> Outcome:
    """Run a program in the C locale and in a session of its own, so that nothing of it outlives the timeout or us.

    A process in uninterruptible sleep survives even SIGKILL: it is left behind rather than waited for. Its standard
    input is the data, or ends at once; a ``silent`` one never ends, for programs that ask for more after the end.
    """
    begin = time.monotonic()
    rc: int | None = None
    out, err = b"", b""
    stdin = subprocess.DEVNULL if data is None else subprocess.PIPE
    given = None if data is None else data.encode()
    silence = os.pipe() if silent else ()
    try:
        with session(argv, environment, silence[0] if silence else stdin, subprocess.PIPE, subprocess.PIPE) as process:
            for limit, sign in ((timeout, None), (GRACE, signal.SIGTERM), (GRACE, signal.SIGKILL)):
                if sign is not None:
                    send(process, sign)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(None if sign else given, limit)
                    rc = None if sign else process.returncode
                    break
    except (OSError, ValueError) as exc:
        return _not_started(argv, exc)
    finally:
        for file in silence:
            os.close(file)
    seconds = time.monotonic() - begin
    text = err.decode(errors="replace")
    if rc is None:
        text = f"{text}\n{_late(argv, timeout)}"
    return Outcome(rc, out.decode(errors="replace"), text, seconds)


def run_to_file(
    argv: t.Sequence[str],
    timeout: float,
    path: str | Path,
    environment: t.Mapping[str, str] | None = None,
) -> Outcome:
    """Run a program like `run`, with everything it prints in one file: logs of 100 MB need no memory.

    ``Outcome.out`` holds the last lines of the file, ``Outcome.err`` only what this function has to say.
    """
    begin = time.monotonic()
    try:
        Path(path).write_bytes(b"")
    except (OSError, ValueError) as exc:
        return Outcome(None, "", f"{path} cannot be written: {_reason(exc)}", 0.0)
    rc: int | None = None
    with Path(path).open("wb") as log:
        try:
            with session(argv, environment, subprocess.DEVNULL, log, subprocess.STDOUT) as process:
                try:
                    rc = process.wait(timeout)
                except subprocess.TimeoutExpired:
                    end([process])
        except (OSError, ValueError) as exc:
            return _not_started(argv, exc)
    message = "" if rc is not None else _late(argv, timeout)
    return Outcome(rc, _tail(Path(path)), message, time.monotonic() - begin)


def _not_started(argv: t.Sequence[str], exc: OSError | ValueError) -> Outcome:
    return Outcome(None, "", f"{argv[0]} cannot be started: {_reason(exc)}", 0.0)


def _reason(exc: OSError | ValueError) -> str:
    return getattr(exc, "strerror", None) or str(exc)


def _late(argv: t.Sequence[str], timeout: float) -> str:
    return f"{argv[0]} did not end within {timeout:g} s"


def _tail(path: Path) -> str:
    with path.open("rb") as log:
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - _TAIL))
        return log.read().decode(errors="replace")
