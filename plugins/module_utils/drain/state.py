# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the reconciler keeps on the controller: latches, findings, and the evidence of every drain. Private."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import latches
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DrainError

LATCHES, FINDINGS, DRAINS = "latches.json", "findings.json", "drains.jsonl"
_MAX_LOG = 16 << 20
_WAIT = 60.0  # seconds; a pass takes one or two


def write(path: Path, document: Json) -> None:
    """Put a whole file in place, for its owner alone."""
    replace(path, f"{json.dumps(document, sort_keys=True, indent=1)}\n", 0o600)


@contextlib.contextmanager
def acting(folder: str) -> t.Iterator[None]:
    """Act as the owner of the folder, if root: either may run a pass, and file servers do not trust a client's root."""
    try:
        owner = Path(folder).stat()
    except OSError as exc:
        raise DrainError(f"{folder} cannot be used: {exc.strerror}; the timer of the reconciler makes it") from exc
    before = os.geteuid(), os.getegid()
    if before[0] or not owner.st_uid:
        yield
        return
    os.setegid(owner.st_gid)
    os.seteuid(owner.st_uid)
    try:
        yield
    finally:
        os.seteuid(before[0])
        os.setegid(before[1])


@contextlib.contextmanager
def alone(folder: str, wait: float = _WAIT) -> t.Iterator[None]:
    """Hold the lock of a pass; raises DrainError when another pass keeps it too long."""
    path, end = Path(folder, "lock"), time.monotonic() + wait
    try:
        with path.open("a") as handle:
            while not _taken(handle):
                if time.monotonic() > end:
                    raise DrainError(f"another pass holds {path} for more than {wait:g} s")
                time.sleep(0.1)
            yield
    except OSError as exc:
        raise DrainError(f"{folder} cannot be used: {exc.strerror or exc}") from exc


def _taken(handle: t.IO[str]) -> bool:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def memory(folder: str, aside: bool = False) -> tuple[latches.Memory, str]:
    """Return what is remembered, and why it cannot be read, if so; such a file is renamed with ``aside``, and kept."""
    path = Path(folder, LATCHES)
    try:
        return latches.read(json.loads(path.read_text(encoding="utf-8"))), ""
    except FileNotFoundError:
        return latches.Memory({}, {}), ""
    except (OSError, ValueError) as exc:
        if aside:
            with contextlib.suppress(OSError):
                path.replace(path.with_name(f"{LATCHES}.unreadable"))
        return latches.Memory({}, {}), f"{path} cannot be read, what it remembered does not count: {exc}"


def remember(folder: str, remembered: latches.Memory) -> None:
    write(Path(folder, LATCHES), latches.write(remembered))


def known(folder: str) -> list[Json]:
    """Return the findings of the last pass."""
    try:
        findings = json.loads(Path(folder, FINDINGS).read_text(encoding="utf-8"))["findings"]
        return [finding for finding in findings if isinstance(finding, dict)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def log(folder: str, lines: t.Iterable[Json]) -> None:
    """Keep the evidence before a node is drained: after a drain it may be rebooted, or deleted by the cloud."""
    path = Path(folder, DRAINS)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > _MAX_LOG:
            path.replace(path.with_name(f"{DRAINS}.1"))
    # Records name users and their processes.
    path.touch(mode=0o600)
    path.chmod(0o600)
    with path.open("a", encoding="utf-8") as handle:
        for line in lines:
            handle.write(json.dumps(line, sort_keys=True) + "\n")
        handle.flush()
        os.fsync(handle.fileno())
