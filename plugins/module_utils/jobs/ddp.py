# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A training without a scheduler: whether nodes fit together, each node's unit, and the record of runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pwd
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _files, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import lock, open_regular

# A training without a scheduler: whether nodes fit together, the command for each, the result. Pure.


Json = t.Dict[str, t.Any]
PREFIX = "hpcai-ddp-"
# For ddp_node.py to end its torchrun, which in turn gives the ranks time for a checkpoint.
STOP_SECONDS = 45
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80}")
_RUN = re.compile(r"run-(\d+)")


class DdpError(ValueError):
    """The training cannot be started or read; the text is fit for the user."""


def findings(nodes: t.Mapping[str, Json | None], processes: int, rendezvous: str, slurm: str = "refuse") -> list[str]:
    """Return what keeps these nodes from training together; ``nodes`` are the facts of ddp_node_info by name."""
    lost = sorted(name for name, facts in nodes.items() if not facts)
    if lost:
        return [f"{', '.join(lost)}: nothing is known of them; they could not be reached or asked"]
    if rendezvous not in nodes:
        return [f"the rendezvous {rendezvous} is none of the nodes {', '.join(nodes)}"]
    known = {name: facts for name, facts in nodes.items() if facts}
    problems = [f"{name}: {text}" for name, facts in known.items() for text in _alone(facts, processes, slurm)]
    if not known[rendezvous]["port_free"]:
        problems.append(f"{rendezvous}: port {known[rendezvous]['port']} is in use there (ddp_launch_port)")
    for key, what in (("torch", "version of PyTorch"), ("script_sha256", "content of the script"), ("gpus", "GPUs")):
        problems += _differ({name: facts.get(key) for name, facts in known.items()}, what)
    return problems


def _alone(facts: Json, processes: int, slurm: str) -> list[str]:
    problems = []
    if not facts["torch"]:
        problems.append(f"{facts['python']} cannot import torch: {facts['torch_problem']}")
    elif processes > (facts["gpus"] or facts["cpus"]):
        available = f"{facts['gpus']} GPUs" if facts["gpus"] else f"{facts['cpus']} CPUs"
        problems.append(f"{processes} processes per node are more than its {available}")
    problems += [f"{path} is missing or not readable for {facts['user']}" for path in facts["missing"]]
    problems += [f"the name {name} does not resolve" for name in facts["unresolved"]]
    if facts["jobs"] and slurm == "refuse":
        problems.append(f"Slurm has jobs there: {', '.join(facts['jobs'])} (ddp_launch_slurm)")
    if facts["jobs_problem"] and slurm == "refuse":
        problems.append(f"Slurm does not say whether it has jobs there: {facts['jobs_problem']} (ddp_launch_slurm)")
    return problems


def _differ(values: t.Mapping[str, t.Any], what: str) -> list[str]:
    """Return the nodes by value where they are not all the same."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        if value is not None:
            groups.setdefault(str(value)[:16], []).append(name)
    if len(groups) < 2:
        return []
    return [
        f"nodes differ in {what}: " + "; ".join(f"{value} on {', '.join(names)}" for value, names in groups.items())
    ]


# Zero of these makes no run, so that it is missing as well.
_NEEDED = ("addresses", "endpoint", "nodes", "processes", "python", "script", "timeout")


def validate(spec: Json) -> None:
    """Raise DdpError for what cannot become a unit, a file name or a command line."""
    missing = sorted(name for name in _NEEDED if not spec.get(name))
    if missing:
        raise DdpError(f"spec has no {', '.join(missing)}; needed are {', '.join(_NEEDED)}")
    wrong = sorted(name for name in ("processes", "timeout") if not str(spec[name]).isdigit())
    wrong += sorted(name for name in ("addresses", "environment") if not isinstance(spec.get(name, {}), t.Mapping))
    if wrong:
        raise DdpError(
            f"{', '.join(f'{name} is {spec[name]!r}' for name in wrong)}: numbers and dictionaries are needed"
        )
    for name in [*spec["nodes"], *spec["addresses"].values()]:
        if not _NAME.fullmatch(name):
            raise DdpError(f"{name!r} is no name of a node")
    if set(spec["nodes"]) != set(spec["addresses"]):
        raise DdpError("every node needs an address")
    if int(spec["processes"]) < 1 or int(spec["timeout"]) < 1:
        raise DdpError(f"processes {spec['processes']} and timeout {spec['timeout']} must be at least 1")
    bad = [str(name) for name in spec.get("environment", {}) if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name))]
    if bad:
        raise DdpError(f"{', '.join(bad)} is no name of an environment variable")


def digest(spec: Json, programs: t.Mapping[str, str]) -> str:
    """Return the digest of a training: another script, node or argument makes another one."""
    return hashlib.sha256(json.dumps([spec, dict(programs)], sort_keys=True).encode()).hexdigest()


def next_run(names: t.Iterable[str]) -> str:
    numbers = [int(match.group(1)) for match in map(_RUN.fullmatch, names) if match]
    return f"run-{max(numbers, default=0) + 1}"


def unit(folder: str) -> str:
    """Return the unit of the trainings of a directory: there is one at a time."""
    return f"{PREFIX}{hashlib.sha256(folder.encode()).hexdigest()[:12]}"


def start_command(systemd_run: str, name: str, user: str, spec: Json, run: str, node: str) -> list[str]:
    """Return the command that starts a node's part; systemd ends whatever is left of it."""
    properties = {
        "KillMode": "control-group",
        "TimeoutStopSec": STOP_SECONDS,
        # ddp_node.py ends at the timeout by itself; this is for one that hangs.
        "RuntimeMaxSec": int(spec["timeout"]) + 2 * STOP_SECONDS,
        "LimitMEMLOCK": "infinity",
        "LimitNOFILE": 1048576,
    }
    options = [f"--property={key}={value}" for key, value in properties.items()]
    front = [
        systemd_run,
        f"--unit={name}",
        f"--uid={user}",
        "--collect",
        "--quiet",
        f"--description=DDP training {run}",
    ]
    # The user can write the specification, and root reads it: nothing of it may become an option of systemd-run.
    return [*front, *options, "--", str(spec["python"]), f"{run}/ddp_node.py", "node", run, node]


def summary(spec: Json, nodes: t.Mapping[str, Json], ranks: t.Sequence[Json], failed: Json | None) -> Json:
    """Join what the nodes and ranks left behind; ``state`` is completed, failed, or running while a node is missing."""
    expected = len(spec["nodes"]) * spec["processes"]
    good = [rank for rank in ranks if rank["rc"] == 0]
    ended = set(spec["nodes"]) <= set(nodes)
    sound = ended and all(node["rc"] == 0 and not node["why"] for node in nodes.values()) and len(good) == expected
    state = "failed" if failed else "running" if not ended else "completed" if sound else "failed"
    return {
        "state": state,
        "run": spec["run"],
        "nodes": [
            {"node": name, **nodes.get(name, {"rc": None, "why": "", "seconds": None})} for name in spec["nodes"]
        ],
        "ranks": sorted(ranks, key=lambda rank: int(rank["rank"])),
        "world_size": expected,
        "seconds": max((node["seconds"] for node in nodes.values() if node["seconds"] is not None), default=None),
        "failed": failed or (_silent(expected, good) if state == "failed" else None),
        "ended": ended,
    }


def _silent(expected: int, good: t.Sequence[Json]) -> Json:
    return {"node": None, "rank": None, "why": f"only {len(good)} of {expected} ranks ended well"}


def report(training: Json, tail: str) -> str:
    """Return a message of what failed first, with the last lines that it wrote."""
    failed = training["failed"] or {}
    if failed.get("rank") is not None:
        who = f"rank {failed['rank']} on {failed['node']} {failed['why']}"
    else:
        who = f"{failed['node']}: {failed['why']}" if failed.get("node") else str(failed.get("why", "it did not end"))
    silent = [node["node"] for node in training["nodes"] if node["rc"] is None]
    lost = f" {', '.join(silent)} never told how it ended and may be what was lost." if silent else ""
    return f"{training['run']} failed: {who}.{lost}" + (f" Its last lines:\n{tail}" if tail else "")


# The directory of trainings without a scheduler: one folder per run, the record of the last one.


RECORD = "record.json"
LOCK = ".lock"
_LINES = 30
_MOST = 1 << 24  # of a record


def prepare(folder: Path, spec: Json, programs: t.Mapping[str, str], again: bool, dry: bool) -> tuple[bool, str]:
    """Return whether nodes have to start or go on, and the run: a new one, the running one, or the completed one."""
    validate(spec)
    # ansible-core before 2.19 makes texts of the numbers in a template.
    spec = {**spec, "processes": int(spec["processes"]), "timeout": int(spec["timeout"])}
    spec = {**spec, "environment": {name: str(value) for name, value in spec.get("environment", {}).items()}}
    fingerprint = digest(spec, programs)
    refuse_others(folder)
    if dry and not folder.is_dir():
        return True, "run-1"
    with contextlib.nullcontext() if dry else lock(folder / LOCK):
        record = _json(folder / RECORD) or {}
        last = str(record.get("run", ""))
        if record.get("state") == "running" and _alive(folder / last):
            if record.get("digest") != fingerprint:
                raise DdpError(f"{folder / last} is going on with other settings; wait for its end or stop it")
            return True, last
        if record.get("state") == "completed" and record.get("digest") == fingerprint and not again:
            return False, last
        run = next_run(path.name for path in folder.iterdir())
        if not dry:
            _make(folder / run, {**spec, "run": run}, programs)
            _write(folder / RECORD, {"run": run, "digest": fingerprint, "state": "running"})
        return True, run


def refuse_others(folder: Path, *users: int) -> None:
    """Raise DdpError where somebody besides root, who runs this and these users could exchange what nodes run."""
    try:
        _trusted.check(str(folder), _trusted.trusted_users(*users))
    except _trusted.TrustError as exc:
        raise DdpError(f"nothing in {folder} is run or believed: {exc}") from exc


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
    """Return the state of a run, from the files of its nodes and ranks."""
    spec = _json(run / "spec.json")
    if spec is None:
        raise DdpError(f"{run / 'spec.json'} is not there or not readable; do all nodes see the same directory?")
    nodes = {path.stem: _node(path) for path in (run / "nodes").glob("*.json")}
    ranks = [_json(path) or {} for path in (run / "ranks").glob("rank-*.json")]
    ended = [rank for rank in ranks if isinstance(rank.get("rank"), int) and isinstance(rank.get("rc"), int)]
    training = summary(spec, nodes, ended, _json(run / "failed.json"))
    training["ranks"] = [
        {**rank, "output": str(run / "ranks" / f"rank-{rank['rank']}.txt")} for rank in training["ranks"]
    ]
    return {**training, "directory": str(run)}


def wait(
    folder: Path, run: str, timeout: float, poll: float = 1.0, clock: t.Callable[[], float] = time.monotonic
) -> Json:
    """Wait for the end of a run on all nodes; after a failure not longer than they need to end."""
    end = clock() + timeout + STOP_SECONDS
    hurried = False
    while True:
        training = read(folder / run)
        if training["ended"] or clock() > end:
            break
        if training["failed"] and not hurried:
            hurried, end = True, min(end, clock() + STOP_SECONDS)
        time.sleep(poll)
    if training["state"] == "running":
        why = f"these nodes never told how they ended: {', '.join(_unended(training))}"
        training.update(state="failed", failed={"node": None, "rank": None, "why": why})
    with lock(folder / LOCK):
        record = _json(folder / RECORD) or {}
        if record.get("run") == run:
            _write(folder / RECORD, {**record, "state": training["state"]})
    return training


def _unended(training: Json) -> list[str]:
    return [node["node"] for node in training["nodes"] if node["rc"] is None]


def last_lines(training: Json) -> str:
    """Return the last lines of the first rank or node that failed."""
    run, failed = Path(training["directory"]), training["failed"] or {}
    if failed.get("rank") is not None:
        return _tail(run / "ranks" / f"rank-{failed['rank']}.txt")
    return _tail(run / "nodes" / f"{failed['node']}.txt") if failed.get("node") else ""


def _tail(path: Path) -> str:
    return "\n".join(_files.last_lines(path)[-_LINES:])


def _node(path: Path) -> Json:
    """Return how a node's part ended; a record that is none says that it did not end well."""
    unread: Json = {"rc": None, "why": "its record cannot be read", "seconds": None}
    record = {**unread, "why": "", **(_json(path) or unread)}
    sound = isinstance(record["rc"], int) and isinstance(record["seconds"], (int, float))
    return record if sound else unread


def _json(path: Path) -> Json | None:
    try:
        with open_regular(path) as handle:
            document = json.loads(handle.read(_MOST))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _write(path: Path, value: Json) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


# The systemd unit of a node's part in a training without a scheduler.


def start_unit(module: t.Any, name: str) -> bool:
    """Start a node's part unless it runs; return whether it was started."""
    params, systemctl = module.params, module.get_bin_path("systemctl", required=True)
    if module.run_command([systemctl, "is-active", "--quiet", name])[0] == 0:
        return False
    run = Path(params["path"]) / params["run"]
    if not module.check_mode:
        if not (run / "spec.json").exists():
            raise DdpError(f"{run / 'spec.json'} is not there on {params['node']}; is the directory shared?")
        program = module.get_bin_path("systemd-run", required=True)
        try:
            owner = pwd.getpwnam(params["user"]).pw_uid
        except KeyError as exc:
            raise DdpError(f"there is no user {params['user']} on {params['node']}") from exc
        refuse_others(run, owner)
        try:
            spec = json.loads(_trusted.read(str(run / "spec.json"), _trusted.trusted_users(owner)))
            argv = start_command(program, name, params["user"], spec, str(run), params["node"])
        except (ValueError, KeyError, TypeError) as exc:
            raise DdpError(f"{run / 'spec.json'} cannot be read on {params['node']}: {exc!r}") from exc
        module.run_command(argv, check_rc=True)
    return True


def stop(module: t.Any, name: str) -> bool:
    """Stop a node's part; return whether it was running."""
    systemctl = module.get_bin_path("systemctl", required=True)
    active = module.run_command([systemctl, "is-active", name])[1].strip() not in ("inactive", "failed", "unknown", "")
    if active and not module.check_mode:
        module.run_command([systemctl, "stop", f"{name}.service"], check_rc=True)
    return active
