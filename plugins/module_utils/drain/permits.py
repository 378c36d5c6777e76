# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Permits of nodes to drain themselves around jobs: the controller offers a few with each pass. Private.

Slurm drains a node whose prolog or epilog fails and asks nobody. So a node asks before it lets them fail: a permit is a
file of the mailbox that only one node can make, and there are never more than the reconciler's limit leaves: while it
counts there is no offer, and a permit is one only if the offer still stands after it was taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DrainError

# Where the controller writes the offer, beside its time and credential.
CONTROLLER = "controller.json"
KEY = "permits"
# Seconds for which a permit counts by itself: by then Slurm shows that the node is drained.
COUNTED = 300.0
# Seconds after which an offer is none any more: the reconciler does not run.
STALE = 900.0
_PREFIX = ".permit-"
_NUMBER = re.compile(r"[0-9a-f]{16}")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
# Of a cluster of any size: each is a call of the file server.
_MOST = 64
# While the controller counts there is no offer.
_TRIES, _PAUSE = 4, 0.2


class Offer(t.NamedTuple):
    """The permits of one pass: its number, how many are left, and the limit that they are part of."""

    number: str
    left: int
    most: int


def offer(left: int, most: int) -> Json:
    """Return what the controller writes for nodes."""
    return {"pass": os.urandom(8).hex(), "left": min(left, _MOST), "most": most}


def take(folder: str, node: str) -> None:
    """Take a permit for a node, or the one that it has already; raises DrainError where there is none."""
    for dummy in range(_TRIES):
        current, written = _read_offer(folder)
        if not current.most:
            time.sleep(_PAUSE)
            continue
        if current.left < 1:
            raise DrainError(f"the limit of {current.most} drained nodes in one go is reached, or they share a cause")
        path, taken = _take(folder, node, current)
        if taken - written > STALE:
            _give_back(path)
            raise DrainError(f"{Path(folder, CONTROLLER)} is {taken - written:.0f} s old: the reconciler does not run")
        if _read_offer(folder)[0].number == current.number:
            return
        _give_back(path)  # The controller has counted meanwhile, maybe without this one.
    raise DrainError("the reconciler counts just now, or cannot ask Slurm")


def _read_offer(folder: str) -> tuple[Offer, float]:
    """Return the offer, and the file server's time when it was written."""
    path = Path(folder, CONTROLLER)
    try:
        with path.open("rb") as file:
            raw = json.loads(file.read(65536).decode())
            written = os.fstat(file.fileno()).st_mtime
    except (OSError, ValueError) as exc:
        raise DrainError(f"{path}: {getattr(exc, 'strerror', None) or exc}") from exc
    given = raw.get(KEY) if isinstance(raw, dict) else None
    values = [given.get(name) for name in ("pass", "left", "most")] if isinstance(given, dict) else []
    number, left, most = values if len(values) == 3 else (None, None, None)
    whole = isinstance(left, int) and isinstance(most, int) and isinstance(number, str) and _NUMBER.fullmatch(number)
    if not whole:
        raise DrainError(f"{path} offers no permits")
    return Offer(t.cast(str, number), min(t.cast(int, left), _MOST), t.cast(int, most)), written


def _take(folder: str, node: str, current: Offer) -> tuple[Path, float]:
    """Return the permit that is the node's, and when it was taken by the file server's clock."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for slot in range(current.left):
        path = Path(folder, f"{_PREFIX}{current.number}-{slot}")
        try:
            file = os.open(path, flags, 0o600)
        except FileExistsError:
            holder = _read_holder(path)
            if holder and holder[0] == node:
                return path, holder[1]
            continue
        except OSError as exc:
            raise DrainError(f"{path} cannot be made: {exc.strerror}") from exc
        with os.fdopen(file, "w") as handle:
            handle.write(node)
            handle.flush()
            os.fsync(handle.fileno())
            return path, os.fstat(handle.fileno()).st_mtime
    raise DrainError(f"other nodes have taken the {current.left} permits to drain themselves that were left")


def _give_back(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def holders(folder: str, now: float, clean: bool) -> set[str]:
    """Return the nodes that took a permit lately; those of long ago are removed with ``clean``."""
    names: set[str] = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            holder = _read_holder(Path(entry.path)) if entry.name.startswith(_PREFIX) else None
            if holder and now - holder[1] <= COUNTED:
                names.add(holder[0])
            elif holder and clean:
                _give_back(Path(entry.path))
    return {name for name in names if _NODE.fullmatch(name)}


def _read_holder(path: Path) -> tuple[str, float] | None:
    """Return the node in a permit and when it was taken; None for what is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(file, "rb") as handle, contextlib.suppress(OSError):
        return handle.read(256).decode(errors="replace"), os.fstat(handle.fileno()).st_mtime
    return None
