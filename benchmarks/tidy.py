# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a benchmark with a lab of its own leaves behind, however it ends: nothing."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import typing as t
from pathlib import Path

INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 30.0  # seconds that a command has to end by itself
_PR_SET_PDEATHSIG = 1


class Ended(SystemExit):
    """Somebody asked the benchmark to end."""


def follow_parent() -> None:
    """Have the kernel end this process with its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def orderly(state: Path, clean: t.Callable[[], object]) -> t.Iterator[None]:
    """Clean up at the end, also when a signal ends this or its parent dies.

    One at a time, so that whatever is found at the start was left by one that was killed: it is cleaned up then, too.
    """
    state.mkdir(parents=True, exist_ok=True)
    with state.with_name(f".{state.name}.lock").open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("Another benchmark with this lab runs; nothing was done.") from None
        parent = os.getppid()
        follow_parent()
        before = {number: signal.signal(number, _end) for number in ENDING}
        try:
            if os.getppid() != parent:  # it died before the kernel was told
                raise Ended(1)
            clean()
            yield
        finally:
            for number in ENDING:
                signal.signal(number, signal.SIG_IGN)  # cleaning up is what was asked for
            try:
                clean()
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)


def _end(number: int, frame: object) -> t.NoReturn:
    raise Ended(128 + number)


def run(argv: t.Sequence[str], limit: float, **options: t.Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process group of its own, none of which outlives an exception here."""
    process = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=follow_parent,
        **options,
    )
    try:
        said, dummy = process.communicate(timeout=limit)
    except BaseException:
        _end_group(process)
        raise
    return subprocess.CompletedProcess(argv, process.returncode, said, "")


def _end_group(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.communicate(timeout=PATIENCE)


@contextlib.contextmanager
def at_least(needed: int, memory: Path, setting: Path = INOTIFY) -> t.Iterator[None]:
    """Raise a limit of the kernel where it is lower, and put it back; ``memory`` is a file that outlives a kill."""
    if memory.exists():
        _put_back(memory, setting)
    now = int(setting.read_text(encoding="ascii"))
    if now >= needed:
        yield
        return
    memory.parent.mkdir(parents=True, exist_ok=True)
    memory.write_text(f"{now} {needed}\n", encoding="ascii")
    try:
        try:
            setting.write_text(f"{needed}\n", encoding="ascii")
        except OSError as exc:
            print(
                f"{setting} is {now} and cannot be raised to {needed} ({exc.strerror}): nodes may not boot", flush=True
            )
        yield
    finally:
        _put_back(memory, setting)


def _put_back(memory: Path, setting: Path) -> None:
    """What somebody else has set meanwhile is theirs."""
    with contextlib.suppress(OSError, ValueError):
        before, ours = memory.read_text(encoding="ascii").split()
        if setting.read_text(encoding="ascii").strip() == ours:
            setting.write_text(f"{before}\n", encoding="ascii")
    memory.unlink(missing_ok=True)
