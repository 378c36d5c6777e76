# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directory of trainings without a scheduler: one folder per run, the record of the last one. Private.

Everything here happens on one node, as the user who trains; what nodes do side by side is in the role's ddp_node.py.
"""

from __future__ import annotations

import contextlib
import json
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._lock import lock
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs import ddp

Json = t.Dict[str, t.Any]
RECORD = "record.json"
LOCK = ".lock"
_LINES, _BYTES = 30, 16384


def prepare(folder: Path, spec: Json, programs: t.Mapping[str, str], again: bool, dry: bool) -> tuple[bool, str]:
    """Return whether there is something to start, and the run that is to be started, goes on or has completed."""
    # ansible-core before 2.19 makes texts of the numbers in a template.
    spec = {**spec, "processes": int(spec["processes"]), "timeout": int(spec["timeout"])}
    ddp.validate(spec)
    spec = {**spec, "environment": {name: str(value) for name, value in spec["environment"].items()}}
    wanted = ddp.digest(spec, programs)
    if dry and not folder.is_dir():
        return True, "run-1"
    with contextlib.nullcontext() if dry else lock(folder / LOCK):
        record = _json(folder / RECORD) or {}
        last = str(record.get("run", ""))
        if record.get("state") == "running" and _alive(folder / last):
            if record.get("digest") != wanted:
                raise ddp.DdpError(f"{folder / last} is going on with other settings; wait for its end or stop it")
            return True, last
        if record.get("state") == "completed" and record.get("digest") == wanted and not again:
            return False, last
        run = ddp.next_run(path.name for path in folder.iterdir())
        if not dry:
            _make(folder / run, {**spec, "run": run}, programs)
            _write(folder / RECORD, {"run": run, "digest": wanted, "state": "running"})
        return True, run


def _make(run: Path, spec: Json, programs: t.Mapping[str, str]) -> None:
    for path in (run, run / "nodes", run / "ranks"):
        path.mkdir()
    for name, text in programs.items():
        (run / name).write_text(text, encoding="utf-8")
    _write(run / "spec.json", spec)


def _alive(run: Path, seconds: float = 60) -> bool:
    """Say whether a run is being started, or a node's heartbeat is young by the file server's own clock."""
    try:
        probe = run / ".now"
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
        times = [path.stat().st_mtime for path in [run / "spec.json", *(run / "nodes").glob("*.beat")]]
        ended = set((_json(run / "spec.json") or {}).get("nodes", [])) <= {
            p.stem for p in (run / "nodes").glob("*.json")
        }
        return not ended and now - max(times) < seconds
    except OSError:
        return False


def read(run: Path) -> Json:
    """Return how a run stands."""
    spec = _json(run / "spec.json")
    if spec is None:
        raise ddp.DdpError(f"{run / 'spec.json'} is not there or not readable; do all nodes see the same directory?")
    nodes = {path.stem: _json(path) or {} for path in (run / "nodes").glob("*.json")}
    ranks = [_json(path) for path in (run / "ranks").glob("rank-*.json")]
    found = ddp.summary(spec, nodes, [one for one in ranks if one], _json(run / "failed.json"))
    found["ranks"] = [{**one, "output": str(run / "ranks" / f"rank-{one['rank']}.txt")} for one in found["ranks"]]
    return {**found, "directory": str(run)}


def wait(
    folder: Path, run: str, timeout: float, poll: float = 1.0, clock: t.Callable[[], float] = time.monotonic
) -> Json:
    """Wait for the end of a run on all nodes; after a failure not longer than they need to end."""
    end = clock() + timeout + ddp.STOP_SECONDS
    hurried = False
    while True:
        found = read(folder / run)
        if found["ended"] or clock() > end:
            break
        if found["failed"] and not hurried:
            hurried, end = True, min(end, clock() + ddp.STOP_SECONDS)
        time.sleep(poll)
    if found["state"] == "running":
        why = f"these nodes never told how they ended: {', '.join(_untold(found))}"
        found.update(state="failed", failed={"node": None, "rank": None, "why": why})
    with lock(folder / LOCK):
        record = _json(folder / RECORD) or {}
        if record.get("run") == run:
            _write(folder / RECORD, {**record, "state": found["state"]})
    return found


def _untold(found: Json) -> list[str]:
    return [node["node"] for node in found["nodes"] if node["rc"] is None]


def last_words(found: Json) -> str:
    """Return the end of what the first to fail has written."""
    run, failed = Path(found["directory"]), found["failed"] or {}
    if failed.get("rank") is not None:
        return _tail(run / "ranks" / f"rank-{failed['rank']}.txt")
    return _tail(run / "nodes" / f"{failed['node']}.txt") if failed.get("node") else ""


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as handle:
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - _BYTES))
            return "\n".join(handle.read().decode(errors="replace").splitlines()[-_LINES:])
    except OSError:
        return ""


def _json(path: Path) -> Json | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, value: Json) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
