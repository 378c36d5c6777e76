# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpl: what of an output is believed, and the check record. Pure, private."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import (
    Json,
    explain,
    judge,
    metric,
    overall,
    record,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl.problem import CHECK, UNITS, Problem
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.hpl import Row, Run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log

_EXACT = {
    "check": CHECK,
    "metric": "residual_failures",
    "op": "==",
    "value": 0,
    "unit": "tests",
    "source": "HPL's own acceptance test of the solution",
}
_SPEEDS = ("tflops", "tflops_per_gpu")
# The time is printed with two decimals, the speed with three or four digits.
_SLACK = 0.02


class Finding(t.NamedTuple):
    """What is believed: the row that counts, the residuals, and why not more; ``kind`` is the class of that."""

    row: Row | None = None
    failures: int | None = None
    problem: str = ""
    kind: str = "infra"


def read(log: Log[Run], outcome: Outcome, wanted: Problem | None) -> Finding:
    """Return the fastest row of the one run, if it is the run that was asked for and was checked."""
    if len(log.runs) != 1:
        text = f"HPL printed {len(log.runs)} results instead of one" if log.runs else "HPL printed no result"
        return _failed(log, outcome, text)
    (run,) = log.runs
    row = run.best
    if row is None or not run.complete:
        text = "HPL printed no row; HPL.dat may send it to a file" if row is None else "the output of HPL breaks off"
        return _failed(log, outcome, text)
    problem = _other(run, row, wanted) or _impossible(row)
    if not problem and run.residual_failures is None:
        problem = "HPL did not check its solution: the threshold of HPL.dat is not above 0"
    if problem:
        return Finding(None, run.residual_failures, problem)
    if run.residual_failures:
        return Finding(row, run.residual_failures)
    left = log.cause.text if log.cause else outcome.problem
    return Finding(row, run.residual_failures, left, log.cause.kind if log.cause else "infra")


def _failed(log: Log[Run], outcome: Outcome, text: str) -> Finding:
    """A program that hangs has no cause but that; of one that ended the first failure explains most."""
    if log.cause and (outcome.rc is not None or log.cause.kind == "hardware"):
        return Finding(None, None, log.cause.text, log.cause.kind)
    return Finding(None, None, outcome.problem or text)


def _other(run: Run, row: Row, wanted: Problem | None) -> str:
    if any(one.mixed for one in run.rows):
        return f"{run.program or 'HPL-AI'} computes in mixed precision; its speed is no HPL result"
    solved = Problem(row.n, row.nb, row.p, row.q)
    return f"HPL solved {_words(solved)}, not {_words(wanted)}" if wanted and solved != wanted else ""


def _words(problem: Problem) -> str:
    return ", ".join(f"{name} {value}" for name, value in problem._asdict().items())


def _impossible(row: Row) -> str:
    """The speed follows from size and time; one that does not is a misread or a broken clock."""
    ranks, each = row.p * row.q, row.gflops_per_gpu
    # NVIDIA's HPL runs a rank per GPU.
    if each is not None and row.gflops is not None and abs(each * ranks - row.gflops) > _SLACK * row.gflops:
        return f"HPL printed {row.gflops:g} Gflops and {each:g} per GPU, which does not fit {ranks} ranks"
    if not row.seconds or row.seconds < 1 or row.gflops is None:
        return ""
    follows = (2 / 3 * row.n**3 + 3 / 2 * row.n**2) / row.seconds / 1e9
    if abs(row.gflops - follows) <= _SLACK * follows:
        return ""
    return f"HPL printed {row.gflops:g} Gflops, but n {row.n} in {row.seconds:g} s are {follows:.4g}"


def metrics(finding: Finding, gpus: int | None) -> list[Json]:
    """Return what is judged; without GPUs there is no speed of one."""
    row = finding.row
    speed = None if row is None or row.gflops is None else row.gflops / 1000
    found = [metric("tflops", speed, UNITS["tflops"])]
    each = None if row is None else row.gflops_per_gpu
    if gpus or each is not None:
        share = each / 1000 if each is not None else None if speed is None else speed / (gpus or 1)
        found.append(metric("tflops_per_gpu", share, UNITS["tflops_per_gpu"]))
    return [*found, metric("residual_failures", finding.failures, UNITS["residual_failures"])]


def judged(finding: Finding, gpus: int | None, nodes: int, expectations: t.Sequence[Json], common: Json) -> Json:
    """Return the record. A speed nobody compared with anything is no pass, one above the peak is no measurement."""
    items = judge(CHECK, metrics(finding, gpus), [_EXACT, *expectations], nodes)
    found = [_misread(item) for item in items]
    verdict = overall(found)
    speeds = {item["verdict"] for item in found if item["name"] in _SPEEDS}
    if finding.problem:
        verdict = "fail" if finding.kind == "hardware" else "error"
    elif any(item["verdict"] == "error" for item in found if item["name"] in _SPEEDS):
        verdict = "error"
    elif verdict == "pass" and speeds == {"unjudged"}:
        verdict = "unjudged"
    told = [finding.problem] if finding.problem else [explain(found)] if explain(found) else []
    told += [f"{item['name']} is above what the hardware can do: a misread" for item in found if item.get("misread")]
    clean = [{key: value for key, value in item.items() if key != "misread"} for item in found]
    samples = [dataclasses.asdict(finding.row)] if finding.row else []
    return record(CHECK, verdict=verdict, metrics=clean, reason="; ".join(told), samples=samples, **common)


def _misread(item: Json) -> Json:
    """An upper limit of a speed is the peak of the hardware."""
    above = item["name"] in _SPEEDS and item["verdict"] in ("fail", "warn") and str(item["expected"]).startswith("<")
    return {**item, "verdict": "error", "misread": True} if above else item
