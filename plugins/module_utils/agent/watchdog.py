# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work in child processes that may hang for ever: private, stdlib only.

A read of a dead share or driver cannot be interrupted, not even by SIGKILL. So this process never touches anything of
the kind: a child does, which is killed when its time is over and left behind when that does not help.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json

Say = t.Callable[[Json], None]
_LARGEST = 16 << 20


class Child:
    """A child process that runs a function and says JSON, one value a line."""

    def __init__(self, work: t.Callable[[Say], None]) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            _live(work, writer)
        os.close(writer)
        self._reader, self._rest, self._size = reader, b"", 0
        os.set_blocking(reader, False)

    def listen(self, deadline: float) -> list[Json] | None:
        """Return what the child said next, None when it has ended, and nothing when the time is over."""
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._reader], [], [], left)[0]:
                return []
            data = os.read(self._reader, 65536)
            self._size += len(data)
            if not data or self._size > _LARGEST:
                return None
            *lines, self._rest = (self._rest + data).split(b"\n")
            if lines:
                return [value for value in map(_value, lines) if value is not None]

    def end(self) -> None:
        """Kill the child and all that it started, and wait for it only as long as a process needs to die."""
        os.close(self._reader)
        if self._ended(0.02):
            return
        for pid in (self.pid, *descendants(self.pid)):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._ended(0.1)

    def _ended(self, patience: float) -> bool:
        deadline = time.monotonic() + patience
        while True:
            try:
                if os.waitpid(self.pid, os.WNOHANG)[0]:
                    return True
            except ChildProcessError:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.002)


def _value(line: bytes) -> Json | None:
    """Read a line; Infinity and NaN are none of JSON's numbers, and nobody else could read them."""
    try:
        value = json.loads(line, parse_constant=lambda dummy: None)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _live(work: t.Callable[[Say], None], writer: int) -> t.NoReturn:
    """Be the child. Whoever reads our output must not wait for a child that hangs, so it gets none of it."""
    status = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        work(lambda value: _write(writer, value))
        status = 0
    except BaseException as exc:  # whatever it is ends here and nowhere else
        with contextlib.suppress(OSError):
            _write(writer, {"died": f"{type(exc).__name__}: {exc}"})
    os._exit(status)


def _write(writer: int, value: Json) -> None:
    data = f"{json.dumps(value, default=str)}\n".encode()
    while data:
        data = data[os.write(writer, data) :]


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they did, in sessions of their own as well."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - without pathlib this module is imported in no time
        if name.isdigit():
            children.setdefault(_parent(name), []).append(int(name))
    found, ahead = [], [pid]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return -1


def bounded(work: t.Callable[[Say], None], seconds: float) -> str:
    """Run a function in a child and return what went wrong, or that it is not finished in time."""
    deadline = time.monotonic() + seconds
    child, problem = Child(work), ""
    try:
        while True:
            said = child.listen(deadline)
            if said is None:
                return problem
            if not said:
                return f"not finished within {seconds:.3g} s"
            problem = next((str(one["died"]) for one in said if "died" in one), problem)
    finally:
        child.end()
