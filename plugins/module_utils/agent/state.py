# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent keeps on a node: latches until the next boot, records, how counters grew, which boot this is."""

from __future__ import annotations

import contextlib
import json
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import CLASSES, VERDICTS, Json, finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import replace
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import BootedHost, Context

# The agent's state on a node, and what stays a finding until the node has booted again. Pure.


SCHEMA = 1
# A fault that repeats under ever new names must not fill the disk.
MOST = 256
# The name under which the times of faults that were cleared by hand are kept.
FORGIVEN = "forgiven"
_MISSED = {"fail", "error"}


def fresh(node: str, host: BootedHost) -> Json:
    """Return the state of a node of which nothing is known."""
    return {"schema": SCHEMA, "node": node, **host._asdict(), "latched": {}, "suites": {}, "kept": {}}


def read(text: str | None, node: str, host: BootedHost) -> tuple[Json, str]:
    """Return the state, and why it lacks something; that of another boot is dropped on purpose, and no problem."""
    if text is None:
        return fresh(node, host), ""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as exc:
        return fresh(node, host), f"it is no JSON: {exc}"
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        return fresh(node, host), f"it is no mapping with schema {SCHEMA}"
    before = raw.get("boot_id")
    if before and host.boot_id and before != host.boot_id:
        return fresh(node, host), ""
    parts: Json = {name: raw.get(name) for name in ("latched", "suites", "kept")}
    if not all(isinstance(part, dict) for part in parts.values()):
        return fresh(node, host), "latched, suites and kept are no mappings"
    latched = {name: entry for name, entry in parts["latched"].items() if sound(entry)}
    suites = {name: entry for name, entry in parts["suites"].items() if _run(entry)}
    lost = len(parts["latched"]) - len(latched) + len(parts["suites"]) - len(suites)
    state = {**fresh(node, host), "latched": latched, "suites": suites, "kept": parts["kept"]}
    return state, f"{lost} of its entries are damaged" if lost else ""


def sound(record: t.Any) -> bool:
    """Return whether something is a complete check record that does not contradict itself."""
    if not isinstance(record, dict):
        return False
    texts = all(isinstance(record.get(name), str) for name in ("check", "verdict", "reason"))
    parts = all(isinstance(record.get(name), dict) for name in ("scope", "context"))
    if not texts or not parts or finite(record.get("time")) is None or not isinstance(record.get("metrics"), list):
        return False
    metrics = [metric.get("verdict") if isinstance(metric, dict) else None for metric in record["metrics"]]
    if not all(isinstance(verdict, str) and verdict in VERDICTS for verdict in (record["verdict"], *metrics)):
        return False
    contradicts = record["verdict"] == "pass" and not _MISSED.isdisjoint(metrics)
    return record.get("class") in _classes(record["verdict"]) and not contradicts


def _classes(verdict: str) -> t.Sequence[t.Any]:
    """Return the classes that a verdict may have; drains depend on them."""
    return CLASSES if verdict in ("fail", "warn") else ("infra",) if verdict == "error" else (None,)


def _run(suite_run: t.Any) -> bool:
    whole = (
        isinstance(suite_run, dict)
        and finite(suite_run.get("time")) is not None
        and isinstance(suite_run.get("records"), list)
    )
    return whole and all(sound(record) for record in suite_run["records"])


def key(record: Json) -> str:
    """Return the key that two records of the same fault share: check, code and part."""
    code = record["context"].get("code")
    scope = json.dumps(record["scope"], sort_keys=True, default=str)
    return ":".join([record["check"], "" if code is None else str(code), "" if scope == "{}" else scope])


def forgiven(kept: Json, gone: t.Mapping[str, Json], time: float) -> Json:
    """Return the kept values after faults were cleared, without old counts and messages that would latch them again."""
    checks = {fault["check"] for fault in gone.values()}
    before = kept.get(FORGIVEN)
    known: Json = before if isinstance(before, dict) else {}
    rest = {name: value for name, value in kept.items() if name not in checks}
    return {**rest, FORGIVEN: {**known, **dict.fromkeys(gone, time)}}


def over(kept: t.Any, record: Json, last: float | None) -> bool:
    """Return whether a fault was cleared after it was last seen."""
    cleared = finite(kept.get(key(record))) if isinstance(kept, dict) else None
    return cleared is not None and last is not None and last <= cleared


def merge(state: Json, suite: str, time: float, records: t.Sequence[Json], kept: Json) -> Json:
    """Return the state after a suite: the first report of a latched fault is the one that stays."""
    latched = dict(state["latched"])
    for record in records:
        if record["context"].get("latched") and record["verdict"] in ("fail", "warn") and len(latched) < MOST:
            latched.setdefault(key(record), record)
    suites = {**state["suites"], suite: {"time": time, "records": list(records)}}
    return {**state, "latched": latched, "suites": suites, "kept": {**state["kept"], **kept}}


# Where the agent keeps its state and records on a node. Private, stdlib only.


# One suite a minute fills this in an hour; what a report needs is in the state.
KEPT = 60
# No honest state is larger, and a damaged one must not eat the node's memory.
LARGEST = 8 << 20
PUBLIC = "public.json"


class StateFolders(t.NamedTuple):
    """The directories of the state, and of the records of many runs."""

    home: str
    spool: str


def state_path(home: str) -> Path:
    return Path(home, "state.json")


def public(state: Json) -> Json:
    """Return what everybody on the node may read: no samples and no evidence, which name users and their processes."""

    def plain(record: Json) -> Json:
        return {**record, "samples": [], "evidence": ""}

    suites = {
        name: {**run, "records": [plain(record) for record in run["records"]]} for name, run in state["suites"].items()
    }
    latched = {name: plain(record) for name, record in state["latched"].items()}
    return {**state, "latched": latched, "suites": suites, "kept": {}}


def store(home: str, state: Json) -> None:
    """Write the state for root, and what a certification may know of it for everybody."""
    write(state_path(home), json.dumps(state))
    write(Path(home, PUBLIC), json.dumps(public(state)), 0o644)


def load(home: str, node: str, host: BootedHost) -> tuple[Json, str]:
    """Return the state and what is wrong with it."""
    try:
        with state_path(home).open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        return read(None, node, host)
    except OSError as exc:
        return fresh(node, host), exc.strerror or str(exc)
    if len(data) > LARGEST:
        return fresh(node, host), f"it has more than {LARGEST} bytes"
    return read(data.decode(errors="replace"), node, host)


@contextlib.contextmanager
def locked(home: str) -> t.Iterator[None]:
    """Hold the lock of the state, which is made if need be; whoever may read a file may keep its lock for ever."""
    Path(home).mkdir(mode=0o755, parents=True, exist_ok=True)
    private(Path(home, "lock"))
    with _files.lock(Path(home, "lock")):
        yield


def private(path: Path) -> None:
    """Make a file that only its owner can open."""
    path.touch(mode=0o600)
    path.chmod(0o600)


def save(folders: StateFolders, node: str, host: BootedHost, suite: str, records: t.Sequence[Json], kept: Json) -> None:
    """Add what a suite found, one suite at a time; the state first, as the disk of the records may be full."""
    folder = Path(folders.spool, "records")
    with locked(folders.home):
        # Left by a process that was killed while it wrote; with the lock no other one writes.
        home = Path(folders.home)
        for left in (*home.glob(".state.json.*"), *home.glob(f".{PUBLIC}.*"), *folder.glob(".*.jsonl.*")):
            left.unlink()
        state, dummy = load(folders.home, node, host)
        moment = time.time()
        store(folders.home, merge(state, suite, moment, records, kept))
        _log(folder, suite, moment, records)


def write(path: Path, text: str, mode: int = 0o600) -> None:
    """Replace a file; what a crash leaves of it belongs to the boot before, and is forgotten with it."""
    replace(path, text, mode, lasting=False)


def _log(folder: Path, suite: str, moment: float, records: t.Sequence[Json]) -> None:
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    # Records name users and their processes, and so do those that an older agent left for everybody to read.
    folder.chmod(0o700)
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    write(folder / f"{suite}-{int(moment * 1e9)}.jsonl", lines)
    for old in sorted(folder.glob(f"{suite}-*.jsonl"))[:-KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()


# How much counters grew within a time, from what earlier runs of this boot kept. Private, stdlib only.


Sample = t.Tuple[float, float]
# More than a day of one health check a minute; older ones are thinned out.
_MOST = 400


def grown(context: Context, name: str, values: t.Mapping[str, float | None], seconds: float) -> dict[str, float]:
    """Return by how much each counter grew within the last seconds, and keep the samples for the next run.

    The first value of a boot is where growth starts. A counter that fell was reset, and has grown from zero.
    """
    now, before = context.now(), _before(context.kept(name))
    result: dict[str, float] = {}
    kept: dict[str, list[Sample]] = {}
    for key, value in values.items():
        if finite(value) is None or value is None:
            continue
        history = [sample for sample in before.get(key, []) if sample[0] <= now]
        result[key] = sum(_steps([*history, (now, value)], now - seconds))
        # The last one from before the window is where it starts.
        old = [sample for sample in history if sample[0] < now - seconds][-1:]
        young = [sample for sample in history if sample[0] >= now - seconds]
        kept[key] = [*old, *_thin(young), (now, value)]
    context.keep(name, kept)
    return result


def _steps(samples: t.Sequence[Sample], since: float) -> t.Iterator[float]:
    for (dummy, old), (when, new) in zip(samples, samples[1:]):
        if when >= since:
            yield new - old if new >= old else new


def _thin(samples: t.Sequence[Sample]) -> list[Sample]:
    """Drop every other sample of too many; the sum of steps that rise stays the same."""
    return list(samples) if len(samples) < _MOST else list(samples[::2])


def _before(kept: t.Any) -> dict[str, list[Sample]]:
    """Return what was kept, without what is no sample: the file may be damaged."""
    if not isinstance(kept, dict):
        return {}
    samples: dict[str, list[Sample]] = {}
    for key, rows in kept.items():
        good = [(row[0], row[1]) for row in rows if _sound(row)] if isinstance(rows, list) else []
        samples[str(key)] = sorted(good)
    return samples


def _sound(row: t.Any) -> bool:
    return isinstance(row, (list, tuple)) and len(row) == 2 and all(finite(value) is not None for value in row)


# Which boot of which machine this is. Private, stdlib only.


# Hyper-V's key-value exchange, in which Azure's host gives its guests its name.
POOL = "/var/lib/hyperv/.kvp_pool_3"
NAMES = ("PhysicalHostNameFullyQualified", "PhysicalHostName")
_KEY, _VALUE = 512, 2048


def host(proc: str = "/proc", pool: str = POOL) -> BootedHost:
    """Return boot id and physical host; what cannot be read is empty, since neither is everywhere."""
    try:
        boot = Path(proc, "sys/kernel/random/boot_id").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        boot = ""
    try:
        exchanged = pairs(Path(pool).read_bytes())
    except OSError:
        exchanged = {}
    return BootedHost(boot, next((exchanged[name] for name in NAMES if exchanged.get(name)), ""))


def pairs(data: bytes) -> dict[str, str]:
    """Read the pool: records of a key and a value, each filled up with zeros; half a record is none."""
    size = _KEY + _VALUE
    whole = (data[start : start + size] for start in range(0, len(data) - size + 1, size))
    return {_text(entry[:_KEY]): _text(entry[_KEY:]) for entry in whole}


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace").strip()


# A check of what earlier runs of this boot latched. Private, stdlib only.


def latches(context: Context) -> list[Json]:
    """Return the latched records as they are; a state that cannot be read may have held more, and is an error."""
    latched = list(context.latched.values())
    if context.problem:
        reason = f"{context.config.home}/state.json: {context.problem}; faults of this boot may be forgotten"
        return [*latched, context.record("latches", verdict="error", reason=reason)]
    return latched or [context.record("latches", verdict="pass", reason="nothing is latched")]
