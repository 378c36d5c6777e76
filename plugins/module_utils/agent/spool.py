# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the agent keeps its state and records on a node. Private, stdlib only."""

from __future__ import annotations

import contextlib
import json
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._replace import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import latch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Host

# One suite a minute fills this in an hour; what a report needs is in the state.
KEPT = 60
# No honest state is larger, and a damaged one must not eat the node's memory.
LARGEST = 8 << 20


class Places(t.NamedTuple):
    """Where the state is, and where the records of many runs are."""

    home: str
    spool: str


def state_path(home: str) -> Path:
    return Path(home, "state.json")


def load(home: str, node: str, host: Host) -> tuple[Json, str]:
    """Return the state and what is wrong with it."""
    try:
        with state_path(home).open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        return latch.read(None, node, host)
    except OSError as exc:
        return latch.fresh(node, host), exc.strerror or str(exc)
    if len(data) > LARGEST:
        return latch.fresh(node, host), f"it has more than {LARGEST} bytes"
    return latch.read(data.decode(errors="replace"), node, host)


@contextlib.contextmanager
def locked(home: str) -> t.Iterator[None]:
    """Hold the lock of the state, which is made if need be; whoever may read a file may keep its lock for ever."""
    Path(home).mkdir(mode=0o755, parents=True, exist_ok=True)
    private(Path(home, "lock"))
    with _lock.lock(Path(home, "lock")):
        yield


def private(path: Path) -> None:
    """Make a file that only its owner can open."""
    path.touch(mode=0o600)
    path.chmod(0o600)


def save(places: Places, node: str, host: Host, suite: str, records: t.Sequence[Json], kept: Json) -> None:
    """Add what a suite found, one suite at a time; the state first, as the disk of the records may be full."""
    folder = Path(places.spool, "records")
    with locked(places.home):
        # Whoever was killed while writing left these; with the lock nobody else writes.
        for left in (*Path(places.home).glob(".state.json.*"), *folder.glob(".*.jsonl.*")):
            left.unlink()
        state, dummy = load(places.home, node, host)
        moment = time.time()
        write(state_path(places.home), json.dumps(latch.merge(state, suite, moment, records, kept)))
        _log(folder, suite, moment, records)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file; what a crash leaves of it belongs to the boot before, and is forgotten with it."""
    replace(path, text, mode, lasting=False)


def _log(folder: Path, suite: str, moment: float, records: t.Sequence[Json]) -> None:
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    lines = "".join(f"{json.dumps(one)}\n" for one in records)
    write(folder / f"{suite}-{int(moment * 1e9)}.jsonl", lines)
    for old in sorted(folder.glob(f"{suite}-*.jsonl"))[:-KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()
