# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that is a running machine: only ever the one that we started. Private."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.spec import MachineError

_PAUSE = 0.1


def pid_of(directory: Path) -> int | None:
    """The process of a machine; a number that somebody else has by now is nobody's."""
    try:
        pid = int((directory / "pid").read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if is_machine(words, directory) else None


def is_machine(words: t.Sequence[bytes], directory: Path) -> bool:
    """Whether a process with this command line is the machine with this directory."""
    own = os.fsencode((directory / "pid").resolve())
    files = [os.path.realpath(value) for word, value in zip(words, words[1:]) if word == b"-pidfile"]
    return b"qemu-system" in words[0] and own in files


def start(argv: t.Sequence[str], directory: Path) -> None:
    """Start a machine; it goes on by itself."""
    for name in ("pid", "qmp"):
        with contextlib.suppress(FileNotFoundError):
            (directory / name).unlink()
    done = run(argv, timeout=60)
    if done.problem:
        raise MachineError(f"Cannot start {directory.name}. {argv[0]}: {done.problem}")
    if not pid_of(directory):
        raise MachineError(f"{argv[0]} of {directory.name} ended at once; see {directory}/console.log")


def await_end(directory: Path, seconds: float) -> bool:
    """Wait until a machine is off; tell whether it is."""
    end = time.monotonic() + seconds
    while pid_of(directory):
        if time.monotonic() >= end:
            return False
        time.sleep(_PAUSE)
    return True


def kill(directory: Path) -> None:
    """Take a machine's power away."""
    pid = pid_of(directory)
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    if not await_end(directory, 30):
        raise MachineError(f"process {pid} of {directory.name} does not end")
