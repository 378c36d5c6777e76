# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``hpcai-agent local``: the tests of one node by itself, and what the rounds share with it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.state import host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import installation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import journal as journals

# To which test a record belongs; apart from what measures, as each node imports it. Pure.


def marked(record: Json, test: Json, run_name: str) -> Json:
    """Return a record with the test that it belongs to."""
    origin = {"test": test["id"], "stage": test["stage"], "round": test["round"]}
    group = {"group": list(test["nodes"])} if len(test["nodes"]) > 1 else {}
    scope = {**(record.get("scope") or {}), **group}
    return {**record, "run": run_name, "scope": scope, "context": {**(record.get("context") or {}), **origin}}


# hpcai-agent local FILE: one node tests itself, as one task of an array. Private, stdlib only.


STATE = "/run/hpcai/agent/public.json"
# How old a record of the node's own health check may be and still count: a few of its intervals.
_RECENT = 3600.0
# All others of a step's variables go: mpirun would see in them that the job has other nodes, and use them.
_OWN = ("SLURM_JOB_ID", "SLURMD_NODENAME")


def main(argv: t.Sequence[str]) -> int:
    """Do the tests of this node that the file names; 0 unless the file cannot be used."""
    if len(argv) != 1:
        sys.stderr.write("usage: hpcai-agent local FILE\n")
        return 2
    job = journals.load(Path(argv[0]))
    name = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    tests = [test for test in (job or {}).get("tests", []) if test["nodes"] == [name]]
    if not tests:
        sys.stderr.write(f"{argv[0]} has no test of {name}\n")
        return 2
    book = journals.Journal(job["folder"])
    # What reached us late, or was started twice, must not measure again.
    left = [test for test in tests if book.results(test["id"]) is None]
    if left:
        book.start(f"{job['batch']}.{name}")
    for test in left:
        book.answer(test["id"], perform(test, job, name))
    _hold(Path(argv[0]).with_suffix(".gate"), float(job["how"]["hold"]))
    return 0


def perform(test: Json, job: Json, name: str) -> list[Json]:
    """Return the node's own records: that it answers and, in all stages but reach, those of its suite."""
    records = [_reached(name)]
    if test["stage"] != "reach":
        records += [*_guarded(name, lambda: _suite(job, name)), *_guarded(name, lambda: _root(name))]
    return [marked(record, test, job["run"]) for record in records]


def _guarded(name: str, read: t.Callable[[], list[Json]]) -> list[Json]:
    """Return the records, or an error record: a full disk or a damaged state must not cost the node's other records."""
    begin = time.time()
    try:
        return read()
    except Exception as exc:  # whatever it is, silence would be taken for a node that does not answer
        return [record("suite", name, time=begin, verdict="error", reason=f"{type(exc).__name__}: {exc}")]


def _root(name: str) -> list[Json]:
    return own(journals.load(Path(STATE)) if os.access(STATE, os.R_OK) else None, name, time.time())


def _reached(name: str) -> Json:
    about = {"tool": "hpcai-agent", "hostname": os.uname().nodename, "job": os.environ.get("SLURM_JOB_ID", "")}
    context = {**about, **host()._asdict(), "installation": installation.here()}
    return record("reach", name, time=time.time(), verdict="pass", context=context)


def _suite(job: Json, name: str) -> list[Json]:
    """Run the agent's suite, whose checks run in processes of their own: whatever happens there is an answer."""
    import tempfile

    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import suite

    how = job["how"]
    _alone(os.environ)
    with tempfile.TemporaryDirectory(prefix="hpcai-") as folder:
        settings = {**how["agent"], "schema": 1, "node": name, "spool": f"{folder}/spool"}
        settings["sysfs"] = str(settings.get("sysfs") or "/sys").replace("{node}", name)
        Path(folder, "spool").mkdir()
        Path(folder, "agent.json").write_text(json.dumps(settings))
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        try:
            records = suite.records(f"{folder}/agent.json", how["suite"], float(how["suite_timeout"]), job["run"])
        finally:
            os.environ.pop("TMPDIR", None)
            tempfile.tempdir = None
    return records or [record("suite", name, time=time.time(), verdict="error", reason="the suite gave no record")]


def _alone(environment: t.MutableMapping[str, str]) -> None:
    for name in [name for name in environment if name.startswith(("SLURM", "PMI")) and name not in _OWN]:
        del environment[name]


def own(state: t.Any, name: str, now: float) -> list[Json]:
    """Return the records of the node's health check, made as root where no user can look: latched and recent ones."""
    if not isinstance(state, dict) or state.get("node") != name:
        return []
    runs = [suite_run for suite_run in (state.get("suites") or {}).values() if isinstance(suite_run, dict)]
    timed = [(float(suite_run.get("time") or 0), _sound(suite_run.get("records") or [])) for suite_run in runs]
    recent = [(moment, records) for moment, records in timed if now - moment < _RECENT]
    latched = _sound((state.get("latched") or {}).values())
    findings: dict[str, Json] = {}
    for latest in [*latched, *_standing(recent)]:
        if latest["verdict"] in ("fail", "warn") and isinstance(latest.get("context"), dict) and "scope" in latest:
            key = json.dumps([latest["check"], latest["scope"], latest.get("reason")], sort_keys=True)
            findings.setdefault(key, {**latest, "context": {**latest["context"], "from": "public.json"}})
    return list(findings.values())


def _sound(listed: t.Iterable[t.Any]) -> list[Json]:
    return journals.records("\n".join(json.dumps(record) for record in listed))


def _standing(runs: t.Sequence[tuple[float, list[Json]]]) -> list[Json]:
    """Return the records that no later suite contradicts: an epilog is followed by a repair, and by no other epilog."""
    passed: dict[str, float] = {}
    for moment, records in runs:
        bad = {record["check"] for record in records if record["verdict"] != "pass"}
        for check in {passing["check"] for passing in records} - bad:
            passed[check] = max(moment, passed.get(check, moment))
    return [record for moment, records in runs for record in records if moment >= passed.get(record["check"], moment)]


def _hold(gate: Path, longest: float) -> None:
    """Keep the node while the gate says so, and not for long if whoever opens it is gone."""
    deadline = time.monotonic() + longest
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if gate.read_text() != journals.HOLD:
                return
        time.sleep(0.25)
