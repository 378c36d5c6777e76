# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``hpcai-agent round``: the tests of several nodes, step by step, each result kept as soon as it is there."""

from __future__ import annotations

import concurrent.futures
import shlex
import socket
import sys
import threading
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch, _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.checks_measure import FABRIC_ONLY
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import journal as journals
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.node import marked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.collective import run as collective_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import request as nccl_request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl import run as nccl_run

# One test between nodes, as a step of the job that has them. Private, stdlib only.


PAIR, RAIL = "nccl_pair", "nccl_rail"
_TORCH = {"all_reduce": "all_reduce", "alltoall": "all_to_all"}
_TORCH_SECONDS = 5  # for one size: ten repetitions of 64 MiB take less from 0.13 GB/s on


def measure(tests: t.Sequence[Json], how: Json, run_name: str, folder: str) -> t.Iterator[tuple[str, list[Json]]]:
    """Yield the records of tests of the same nodes; whatever goes wrong here is no fault of the nodes.

    To start Python with torch takes as long as to measure: ranks that are there measure for all of the tests.
    """
    nccl = how["tool"] == "nccl"
    for few in [[test] for test in tests] if nccl else _alike(tests, paired):
        begin = time.time()
        try:
            results = [_nccl(few[0], how, run_name, folder)] if nccl else _ranks(few, how, run_name)
        except Exception as exc:  # one test must never take the others of its round with it
            name = "nccl_tests" if nccl else "collective_test"
            results = [[record(name, None, time=begin, verdict="error", reason=f"{type(exc).__name__}: {exc}")]] * len(
                few
            )
        for test, records in zip(few, results):
            yield test["id"], [marked(row, test, run_name) for row in records]


def paired(test: Json) -> bool:
    return test["stage"] in ("pair", "confirm") or (test["stage"] == "retest" and len(test["nodes"]) > 1)


def _nccl(test: Json, how: Json, run_name: str, folder: str) -> list[Json]:
    alone, records = paired(test) and how["gpus"] > 1, []
    # The first value is the one by which pairs are compared.
    for name in (PAIR, nccl_request.CHECK) if alone else (nccl_request.CHECK,):
        params = nccl_params(test, how, run_name, name, f"{folder}/{test['id']}.{name}")
        done = nccl_run.perform(params, False, folder)
        records += [{**row, "check": name} for row in done["checks"]]
        if _hung(done):
            return records
    return records + (_rails(test, how, run_name, folder) if test.get("rails") and alone else [])


def _hung(done: Json) -> bool:
    """Say whether a run did not end: it would not the next time either, and the round would wait as long again."""
    return any(program_run["rc"] is None for program_run in done.get("runs", ()))


def _rails(test: Json, how: Json, run_name: str, folder: str) -> list[Json]:
    """Measure with one GPU of each node after the other; not inside a container, which cannot be given one GPU here."""
    params, records = nccl_params(test, how, run_name, PAIR, folder), []
    if params["container_image"]:
        return []
    request = nccl_request.read_request(params)._replace(launch=nccl_request.read_launch(params))
    program = nccl_run.program(request, request.collectives[0], _launch.find)
    for rail in range(how["gpus"]):
        path = Path(folder, f"{test['id']}.{rail}_perf")
        # Slurm sets the variable itself, and does not bind a step's only task of a node to one of its GPUs.
        path.write_text(f'#!/bin/sh\nCUDA_VISIBLE_DEVICES={rail} exec {shlex.join(program)} "$@"\n')
        path.chmod(0o755)
        options = {
            "path": str(path),
            "ranks_per_node": 1,
            "cpu_masks": [],
            "expect": [],
            "log": f"{folder}/{test['id']}.{rail}",
        }
        done = nccl_run.perform({**params, **options}, False, folder)
        records += [{**row, "check": RAIL, "scope": {**row["scope"], "rail": rail}} for row in done["checks"]]
        if _hung(done):
            break
    return records


def nccl_params(test: Json, how: Json, run_name: str, name: str, log: str) -> Json:
    """Return the options of the module nccl_tests for a test."""
    given = how["nccl"]
    variables = {**given.get("environment", {}), **how["environment"], **(FABRIC_ONLY if name == PAIR else {})}
    blank = {key: option.get("default") for key, option in {**_launch.SPEC, **nccl_request.SPEC}.items()}
    limits = [{**limit, "check": nccl_request.CHECK} for limit in how["expect"] if limit["check"] == name]
    mine = {name: given[name] for name in ("path", "topology_file", "container_image") if given.get(name)}
    largest = given.get("max_size") or "8G"
    return {
        **blank,
        **mine,
        "container_mounts": given.get("container_mounts") or [],
        "launcher": "srun",
        "launcher_options": dict(how["step_options"]),
        "hosts": list(test["nodes"]),
        "ranks_per_node": how["gpus"],
        "cpu_masks": given.get("cpu_masks") or [],
        "collectives": [test["collective"] or "all_reduce"],
        "min_size": str(max(8, nccl_request.to_bytes(str(largest)) // 8)) if paired(test) else "8",
        "max_size": str(largest),
        "infiniband": bool(how["infiniband"]),
        "environment": variables,
        "timeout": how["timeout"],
        "expect": limits,
        "profile": how["profile"],
        "run": run_name,
        "log": log,
    }


def _alike(tests: t.Iterable[Json], key: t.Callable[[Json], t.Any]) -> list[list[Json]]:
    """Return the tests by what they have in common, in their order."""
    groups: dict[t.Any, list[Json]] = {}
    for test in tests:
        groups.setdefault(key(test), []).append(test)
    return list(groups.values())


def _operation(test: Json) -> str:
    return _TORCH[test["collective"] or "all_reduce"]


def _ranks(tests: t.Sequence[Json], how: Json, run_name: str) -> list[list[Json]]:
    """Return the records of each test; a collective at which the ranks came to no end takes no other one with it."""
    results = _torch(tests, how, run_name)
    apart = _alike(tests, _operation)
    if len(apart) == 1 or not any(row["verdict"] == "error" for records in results for row in records):
        return results
    alone = {test["id"]: rows for few in apart for test, rows in zip(few, _torch(few, how, run_name))}
    return [alone[test["id"]] for test in tests]


def _torch(tests: t.Sequence[Json], how: Json, run_name: str) -> list[list[Json]]:
    given, test, seconds = how["torch"], tests[0], how["timeout"] * len(tests)
    largest, collectives = int(given["max_size"]), _alike(tests, _operation)
    request = collective_run.CollectiveRequest(
        nodes=len(test["nodes"]),
        ntasks_per_node=int(given["ranks_per_node"]),
        backend=given["backend"],
        operations=[_operation(few[0]) for few in collectives],
        min_size=max(4, largest // 16) if paired(test) else 8,
        max_size=largest,
        factor=4,
        warmup=2 if paired(test) else 5,
        iterations=10 if paired(test) else 20,
        turns=max(len(few) for few in collectives),
        seconds=_TORCH_SECONDS,
    )
    # The job has the nodes already: nothing to wait for, and no CPU is taken from the ranks.
    job = {"exclusive": None, "immediate": None, "export": "ALL", "nodelist": ",".join(test["nodes"])}
    collective_run.validate(request, how["expect"])
    argv = collective_run.command("srun", given["python"], request, {**job, **how["step_options"]}, seconds)
    context = {"time": time.time(), "run": run_name, "profile": how["profile"], "argv": argv, "busy": []}
    outcome = run(argv, seconds, collective_run.source(), {**_here(), **how["environment"]})
    checks: dict[str, list[Json]] = {}
    for few in collectives:
        mine = request._replace(operations=[_operation(few[0])], turns=len(tests))
        for turn, one in enumerate(few):
            checks[one["id"]] = collective_run.result(outcome, mine, how["expect"], context, turn)["checks"]
    return [checks[one["id"]] for one in tests]


def _here() -> dict[str, str]:
    """Return the rendezvous port of a step: steps of one job that start at once must not share one."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return {"MASTER_PORT": str(probe.getsockname()[1])}


# hpcai-agent round FILE: many tests at once, each a step of the job that this runs in. Private, stdlib only.


def main(argv: t.Sequence[str]) -> int:
    """Measure what the file lists and has no result yet; each result is kept as soon as it is there."""
    if len(argv) != 1:
        sys.stderr.write("usage: hpcai-agent round FILE\n")
        return 2
    job = journals.load(Path(argv[0]))
    if not isinstance(job, dict):
        sys.stderr.write(f"{argv[0]} holds no job\n")
        return 2
    book = journals.Journal(job["folder"])
    book.start(Path(argv[0]).stem)
    done = book.answered()
    tests = [test for test in job["tests"] if test["id"] not in done]
    # Tests of the same nodes run one after the other.
    _run(_alike(tests, lambda test: tuple(test["nodes"])), job, book)
    return 0


def _run(groups: t.Sequence[t.Sequence[Json]], job: Json, book: journals.Journal) -> None:
    """Run groups of tests side by side; on a signal to end their steps end first, and no other begins."""
    over, door = threading.Event(), threading.Lock()
    busy: set[str] = set()

    def enter(few: t.Sequence[Json]) -> None:
        with door:
            if over.is_set():
                return
            busy.add(few[0]["id"])
        try:
            _together(few, job, book)
        finally:
            busy.discard(few[0]["id"])

    with concurrent.futures.ThreadPoolExecutor(max(1, int(job["concurrent"]))) as pool:
        try:
            with _process.ending():
                try:
                    running = [pool.submit(enter, few) for few in groups]
                    # A signal that comes just before a thread begins to wait does not end the waiting: so not for long.
                    while concurrent.futures.wait(running, 1.0).not_done:
                        pass
                except (SystemExit, KeyboardInterrupt):
                    with door:
                        over.set()
                    raise
            for future in running:
                future.result()
        except (SystemExit, KeyboardInterrupt):
            # The pool waits for its threads, which wait for their steps; one of them may just be starting one.
            while busy:
                _process.end_all()
                time.sleep(0.1)
            raise


def _together(tests: t.Sequence[Json], job: Json, book: journals.Journal) -> None:
    for name, records in measure(tests, job["how"], job["run"], str(book.folder / "logs")):
        try:
            book.answer(name, records)
        except (OSError, journals.JournalError) as exc:
            sys.stderr.write(f"{name}: its result was lost: {exc}\n")
