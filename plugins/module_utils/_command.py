# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run an external program that may hang: no AnsibleModule, private, also used by the node agent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _child

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
        said = (self.err.strip() or self.out.strip()).splitlines()
        return f"{'' if self.rc is None else f'exit status {self.rc}: '}{said[-1] if said else 'no output'}"


def run(
    argv: t.Sequence[str],
    timeout: float,
    data: str | None = None,
    environment: t.Mapping[str, str] | None = None,
) -> Outcome:
    """Run a program in the C locale and in a session of its own, so that nothing of it outlives the timeout or us.

    A process in uninterruptible sleep survives even SIGKILL: it is left behind rather than waited for.
    """
    begin = time.monotonic()
    rc: int | None = None
    out, err = b"", b""
    stdin = subprocess.DEVNULL if data is None else subprocess.PIPE
    given = None if data is None else data.encode()
    try:
        with _child.session(argv, environment, stdin, subprocess.PIPE, subprocess.PIPE) as process:
            for limit, sign in ((timeout, None), (_child.GRACE, signal.SIGTERM), (_child.GRACE, signal.SIGKILL)):
                if sign is not None:
                    _child.send(process, sign)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(None if sign else given, limit)
                    rc = None if sign else process.returncode
                    break
    except (OSError, ValueError) as exc:
        return _not_started(argv, exc)
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
            with _child.session(argv, environment, subprocess.DEVNULL, log, subprocess.STDOUT) as process:
                try:
                    rc = process.wait(timeout)
                except subprocess.TimeoutExpired:
                    _child.end([process])
        except (OSError, ValueError) as exc:
            return _not_started(argv, exc)
    said = "" if rc is not None else _late(argv, timeout)
    return Outcome(rc, _tail(Path(path)), said, time.monotonic() - begin)


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
