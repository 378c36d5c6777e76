# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run an external program that may hang: no AnsibleModule, private, also used by the node agent."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import typing as t

GRACE = 5.0


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
    """Run a program in the C locale and in a session of its own, so that nothing of it outlives the timeout.

    A process in uninterruptible sleep survives even SIGKILL: it is left behind rather than waited for.
    """
    begin = time.monotonic()
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
            start_new_session=True,
        )
    except OSError as exc:
        return Outcome(None, "", f"{argv[0]} cannot be started: {exc.strerror}", 0.0)
    rc: int | None = None
    out, err = b"", b""
    for limit, sign in ((timeout, None), (GRACE, signal.SIGTERM), (GRACE, signal.SIGKILL)):
        if sign is not None:
            _signal(process.pid, sign)
        try:
            out, err = process.communicate(data.encode() if data is not None and sign is None else None, limit)
            rc = process.returncode if sign is None else None
            break
        except subprocess.TimeoutExpired:
            continue
    seconds = time.monotonic() - begin
    text = err.decode(errors="replace")
    if rc is None:
        text = f"{text}\n{argv[0]} did not end within {timeout:g} s"
    return Outcome(rc, out.decode(errors="replace"), text, seconds)


def _signal(pid: int, sign: int) -> None:
    try:
        os.killpg(pid, sign)
    except ProcessLookupError:
        return
