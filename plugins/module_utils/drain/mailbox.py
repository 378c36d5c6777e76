# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shared directory where nodes leave their reports, and where the controller leaves a sign of life. Private."""

from __future__ import annotations

import os
import stat
import threading
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import permits, request, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DrainError

CONTROLLER = permits.CONTROLLER
_MAX_BYTES = 4 << 20
_LIFE = 1200  # seconds that the credential can be decoded: longer than a node takes the sign of life for fresh
_WAIT = 30.0

Reports = t.Dict[str, request.Report]


def reports(folder: str, wait: float = _WAIT) -> Reports:
    """Return all reports; raises DrainError when the file server does not answer in time."""
    letters: Reports = {}
    trouble: list[str] = []

    def work() -> None:
        try:
            for entry in os.scandir(folder):
                name, dummy, kind = entry.name.rpartition(".")
                if kind == "json" and name and not name.startswith(".") and entry.name != CONTROLLER:
                    letters[name] = _read_letter(name, entry.path)
        except OSError as exc:
            trouble.append(f"mailbox {folder} cannot be read: {exc.strerror}")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(wait)
    if thread.is_alive():
        raise DrainError(f"mailbox {folder} was not read within {wait:g} s: does its file server answer?")
    if trouble:
        raise DrainError(trouble[0])
    return letters


def _read_letter(name: str, path: str) -> request.Report:
    """Return the report in one file; a link, pipe or huge file is a broken report, and does not block the others."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        return request.Report(name, 0.0, broken=f"cannot be opened: {exc.strerror}")
    with os.fdopen(descriptor, "rb") as handle:
        status = os.fstat(handle.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            return request.Report(name, status.st_mtime, broken=f"is no file of at most {_MAX_BYTES} bytes")
        try:
            text = handle.read(_MAX_BYTES + 1).decode(errors="replace")
        except OSError as exc:
            return request.Report(name, status.st_mtime, broken=f"cannot be read: {exc.strerror}")
    return request.read(name, text, status.st_mtime)


def sign(folder: str, left: int, most: int) -> str:
    """Write a credential that nodes decode, to prove key and clock, and how many nodes may drain themselves.

    Returns the problem, empty where there is none.

    Nodes compare its time with that of the file, so there is nothing between the two. Only root may decode it, for a
    credential of the Slurm user is worth something to others.
    """
    done = run(["munge", "--no-input", "--restrict-uid=0", f"--ttl={_LIFE}"], 10)
    if done.problem or not done.out.startswith("MUNGE:"):
        return f"munge made no credential: {done.problem or 'another text came back'}"
    offer = {permits.KEY: permits.offer(left, most)}
    try:
        about = {"schema": 1, "time": time.time(), "credential": done.out.strip()}
        state.write(Path(folder, CONTROLLER), {**about, **offer})
    except OSError as exc:
        return f"{Path(folder, CONTROLLER)} cannot be written: {exc.strerror}"
    return ""
