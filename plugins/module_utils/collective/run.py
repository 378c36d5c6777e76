# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""collective_test: the request, its command line, its result, and the check records. Pure."""

from __future__ import annotations

import json
import math
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    judge,
    metric,
    overall,
    record,
    validate_expectation,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import busy, flags
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import text_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.collective import payload
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.collective.payload import MARK, OPERATIONS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress

# The request, and its command line.


class CollectiveError(ValueError):
    """The measurement cannot be trusted; the text is fit for the user."""


class CollectiveRequest(t.NamedTuple):
    """One test: nodes and ranks, operations, sizes and how often each is repeated."""

    nodes: int
    ntasks_per_node: int
    backend: str
    operations: t.Sequence[str]
    min_size: int
    max_size: int
    factor: int
    warmup: int
    iterations: int
    turns: int = 1  # how often all is measured, with ranks that are started once
    seconds: int = 0  # about as long one size is repeated at most; 0 is without a limit


SPEC: Json = {
    "nodes": {"type": "int", "default": 2},
    "ntasks_per_node": {"type": "int", "default": 1},
    "backend": {"type": "str", "default": "gloo", "choices": ["gloo", "nccl"]},
    "operations": {"type": "list", "elements": "str", "default": list(OPERATIONS), "choices": list(OPERATIONS)},
    "min_size": {"type": "int", "default": 8},
    "max_size": {"type": "int", "default": 67108864},
    "factor": {"type": "int", "default": 4},
    "warmup": {"type": "int", "default": 5},
    "iterations": {"type": "int", "default": 20},
    "seconds": {"type": "int", "default": 0},
}


def validate(request: CollectiveRequest, expectations: t.Sequence[Json]) -> None:
    """Refuse what cannot be measured or judged, before anything starts."""
    for expectation in expectations:
        validate_expectation(expectation)
    if not 4 <= request.min_size <= request.max_size:
        raise CollectiveError(f"sizes {request.min_size} to {request.max_size}: 4 <= min_size <= max_size is needed")
    for name in ("nodes", "ntasks_per_node", "iterations"):
        if getattr(request, name) < 1:
            raise CollectiveError(f"{name} is {getattr(request, name)}, at least 1 is needed")
    if request.seconds < 0:
        raise CollectiveError(f"seconds is {request.seconds}, at least 0 is needed")
    if request.factor < 2 or request.warmup < 0:
        raise CollectiveError(f"factor {request.factor} (at least 2) or warmup {request.warmup} (at least 0)")


def source() -> str:
    """Return the text of the program."""
    return text_of(payload)


def command(
    srun: str, python: str, request: CollectiveRequest, options: t.Mapping[str, t.Any], timeout: float
) -> list[str]:
    """Return the srun command line; the program itself comes on standard input, which srun gives to every rank."""
    defaults = {
        "job_name": "collective_test",
        "mpi": "none",
        "kill_on_bad_exit": 1,
        "exclusive": True,
        "immediate": 60,  # seconds; then nodes that another job has taken are not waited for
        "chdir": "/",  # the caller's directory need not exist on the nodes
        "time": math.ceil(timeout / 60) + 1,
    }
    required = {"nodes": request.nodes, "ntasks_per_node": request.ntasks_per_node}
    step = flags({**defaults, **options, **required, "ntasks": request.nodes * request.ntasks_per_node})
    program = [f"--backend={request.backend}", "--operations", *request.operations]
    for name in ("min_size", "max_size", "factor", "warmup", "iterations"):
        program.append(f"--{name.replace('_', '-')}={getattr(request, name)}")
    if request.turns > 1:
        program.append(f"--turns={request.turns}")
    if request.seconds:
        program.append(f"--seconds={request.seconds}")
    return [srun, *step, python, "-", *program]


# From the output to check records. Pure.


CHECK = "collective_test"


def parse(text: str, turn: int = 0) -> Json:
    """Read the line that rank 0 printed, as far as it is about one turn."""
    lines = [line[len(MARK) :] for line in text.splitlines() if line.startswith(MARK)]
    if len(lines) != 1:
        raise CollectiveError(f"{len(lines)} results were printed instead of one: {text.strip()[-300:]!r}")
    try:
        result = json.loads(lines[0])
        rows = result["turns"][turn] if turn else result["rows"]
        ranks, version = result["ranks"], result["torch"]
        members = [{"rank": int(r["rank"]), "host": str(r["host"]), "machine": str(r["machine"])} for r in ranks]
        return {"rows": [dict(row) for row in rows], "ranks": members, "torch": str(version)}
    except (ValueError, KeyError, TypeError, IndexError) as exc:
        raise CollectiveError(f"the result cannot be read: {exc!r}") from exc


def distrust(result: Json, request: CollectiveRequest) -> None:
    """Refuse results that do not match the request: other ranks, other nodes, operations without rows."""
    ranks, expected = result["ranks"], request.nodes * request.ntasks_per_node
    if sorted(r["rank"] for r in ranks) != list(range(expected)):
        raise CollectiveError(f"{expected} ranks were asked for, {len(ranks)} took part")
    machines = {r["machine"] for r in ranks}
    if len(machines) != request.nodes:
        raise CollectiveError(f"{request.nodes} nodes were asked for, all ranks ran on {', '.join(sorted(machines))}")
    unmeasured = set(request.operations) - {row["collective"] for row in result["rows"]}
    if unmeasured:
        raise CollectiveError(f"nothing was measured for {', '.join(sorted(unmeasured))}")


def read(outcome: Outcome, request: CollectiveRequest, turn: int = 0) -> tuple[Json | None, str]:
    """Return the result, or None and the reason why there is none that can be trusted."""
    if outcome.problem:
        return None, f"srun: {outcome.problem}"
    try:
        result = parse(outcome.out, turn)
        distrust(result, request)
    except CollectiveError as exc:
        return None, str(exc)
    return result, ""


def peak(rows: t.Iterable[Json]) -> float | None:
    """Return the highest busbw of the rows."""
    return max((row["busbw"] for row in rows), default=None)


def checks(
    request: CollectiveRequest, result: Json, expectations: t.Sequence[Json], common: t.Mapping[str, t.Any]
) -> list[Json]:
    """Return one judged record per collective."""
    records = []
    for name in request.operations:
        rows = [row for row in result["rows"] if row["collective"] == name]
        metrics = [metric("busbw", row["busbw"], "GB/s", collective=name, size=row["size"]) for row in rows]
        metrics.append(metric("busbw_peak", peak(rows), "GB/s", collective=name))
        metrics.append(metric("wrong", sum(row["wrong"] for row in rows), "values", collective=name))
        judged = judge(CHECK, metrics, [_exact(name), *expectations], nodes=request.nodes)
        verdict = overall(judged)
        # Right values are no pass where no speed was compared with a limit.
        if verdict == "pass" and {m["verdict"] for m in judged if m["name"] != "wrong"} == {"unjudged"}:
            verdict = "unjudged"
        more = _context(common, name)
        records.append(record(CHECK, None, metrics=judged, samples=rows, blame="fabric", verdict=verdict, **more))
    return records


def result(
    outcome: Outcome,
    request: CollectiveRequest,
    expectations: t.Sequence[Json],
    context: t.Mapping[str, t.Any],
    turn: int = 0,
) -> Json:
    """Return the module's result; without a result that can be trusted the records are errors without numbers."""
    observed, problem = read(outcome, request, turn)
    rows, ranks = (observed["rows"], observed["ranks"]) if observed else ([], [])
    about = {"tool": "torch.distributed", "version": observed and observed["torch"], "backend": request.backend}
    about["busy"] = context.get("busy", [])
    common = {
        "time": context["time"],
        "run": context["run"],
        "seconds": outcome.seconds / request.turns,
        "evidence": outcome.err[-2000:],
        "scope": {"group": sorted({r["host"] for r in ranks})},
        "context": {**about, "argv": context["argv"], "profile": context["profile"]},
    }
    if observed:
        records = checks(request, observed, expectations, common)
    else:
        error: Json = {"verdict": "skipped" if busy(outcome.err) else "error", "reason": problem}
        records = [record(CHECK, None, **error, **_context(common, name)) for name in request.operations]
    peaks = {name: peak(row for row in rows if row["collective"] == name) for name in request.operations}
    return {"checks": records, "rows": rows, "peak": peaks, "ranks": ranks}


def skip(request: CollectiveRequest, context: t.Mapping[str, t.Any]) -> Json:
    """Return the module's result for a single rank, where there is nothing to measure: skipped records."""
    taken = context.get("busy", [])
    facts = {"profile": context["profile"], "busy": taken}
    about = {"time": context["time"], "run": context["run"], "context": facts}
    reason = "one rank has nobody to exchange anything with"
    if taken:
        reason = f"too few nodes are idle; busy with jobs: {compress(taken)}"
    records = [record(CHECK, None, verdict="skipped", reason=reason, **_context(about, n)) for n in request.operations]
    return {"checks": records, "rows": [], "peak": dict.fromkeys(request.operations), "ranks": []}


def _context(common: t.Mapping[str, t.Any], name: str) -> Json:
    return {**common, "context": {**common["context"], "collective": name}}


def _exact(name: str) -> Json:
    limit = {"op": "==", "value": 0, "unit": "values", "source": "a collective moves or adds numbers exactly"}
    return {"check": CHECK, "metric": "wrong", "collective": name, **limit}
