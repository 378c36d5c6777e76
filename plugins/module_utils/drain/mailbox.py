# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shared directory where nodes leave their reports, and where the controller leaves a sign of life. Private.

A letter counts when it belongs to root or to the user who runs a pass, which is the mailbox's owner. The root of each
node becomes that user before it writes (mailbox_user of its settings), so that a file server which turns root into
nobody (root_squash) does not make all letters nobody's.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import TrustError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import permits, request, state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DrainError

CONTROLLER = permits.CONTROLLER
_MAX_BYTES = 4 << 20
_LIFE = 1200  # seconds that the credential can be decoded: longer than a node takes the sign of life for fresh
_WAIT = 30.0

Reports = t.Dict[str, request.Report]


def reports(folder: str, wait: float = _WAIT) -> Reports:
    """Return all reports; raises DrainError when the file server does not answer, or others could write letters."""
    letters: Reports = {}
    trouble: list[str] = []
    trusted = _trusted.trusted_users()

    def work() -> None:
        try:
            with _trusted.opened(folder, trusted, for_entries=True) as handle, _listed(handle) as listed:
                for entry in os.scandir(listed):
                    name, dummy, kind = entry.name.rpartition(".")
                    if kind == "json" and name and not name.startswith(".") and entry.name != CONTROLLER:
                        letters[name] = _read_letter(name, entry.name, listed, trusted)
        except TrustError as exc:
            trouble.append(f"mailbox {folder} is not read, as not only nodes could write there: {exc}")
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


@contextlib.contextmanager
def _listed(folder: int) -> t.Iterator[int]:
    """Open a directory that was only walked to, so that it can be listed."""
    handle = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield handle
    finally:
        os.close(handle)


def _read_letter(name: str, file: str, folder: int, trusted: t.AbstractSet[int]) -> request.Report:
    """Return the report in one file; a link, pipe, huge or foreign one is broken, and does not block the others."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as exc:
        return request.Report(name, 0.0, broken=f"cannot be opened: {exc.strerror}")
    with os.fdopen(descriptor, "rb") as handle:
        status = os.fstat(handle.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            return request.Report(name, status.st_mtime, broken=f"is no file of at most {_MAX_BYTES} bytes")
        if foreign := _trusted.foreign(status, trusted):
            return request.Report(name, status.st_mtime, broken=f"{foreign}; nodes write as uid {os.geteuid()} or root")
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
    try:
        _trusted.check(folder, _trusted.trusted_users())
    except TrustError as exc:
        return f"no sign of life is left in {folder}, where not only the controller could write: {exc}"
    except OSError as exc:
        return f"{folder} cannot be looked at: {exc.strerror}"
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
