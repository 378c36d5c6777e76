# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpl: find the program, run it, decide whether its output can be trusted, and judge that."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import posixpath
import shutil
import socket
import tempfile
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find, _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    explain,
    judge,
    metric,
    overall,
    record,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Command, Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run, run_to_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import problem as hpl_problem
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl.problem import CHECK, UNITS, Problem, understands
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import hpl, text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.hpl import HplRow, HplRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import parse_csv
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import busy

# From the output of HPL to a check record. Pure.


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


class HplFinding(t.NamedTuple):
    """The row that counts, the failed residuals, and the problem with the output; ``kind`` is the problem's class."""

    row: HplRow | None = None
    failures: int | None = None
    problem: str = ""
    kind: str = "infra"


def read(log: Log[HplRun], outcome: Outcome, request: Problem | None) -> HplFinding:
    """Return the fastest row of the one run, if HPL solved the requested problem and checked the solution."""
    if len(log.runs) != 1:
        text = f"HPL printed {len(log.runs)} results instead of one" if log.runs else "HPL printed no result"
        return _failed(log, outcome, text)
    (run,) = log.runs
    row = run.best
    if row is None or not run.complete:
        text = "HPL printed no row; HPL.dat may send it to a file" if row is None else "the output of HPL breaks off"
        return _failed(log, outcome, text)
    problem = _other(run, row, request) or _impossible(row)
    if not problem and run.residual_failures is None:
        problem = "HPL did not check its solution: the threshold of HPL.dat is not above 0"
    if problem:
        return HplFinding(None, run.residual_failures, problem)
    if run.residual_failures:
        return HplFinding(row, run.residual_failures)
    remaining = log.cause.text if log.cause else outcome.problem
    return HplFinding(row, run.residual_failures, remaining, log.cause.kind if log.cause else "infra")


def _failed(log: Log[HplRun], outcome: Outcome, text: str) -> HplFinding:
    """Return the finding without a row; a program that ran out of time gets no other cause, except a hardware fault."""
    if log.cause and (outcome.rc is not None or log.cause.kind == "hardware"):
        return HplFinding(None, None, log.cause.text, log.cause.kind)
    return HplFinding(None, None, outcome.problem or text)


def _other(run: HplRun, row: HplRow, request: Problem | None) -> str:
    if any(result_row.mixed for result_row in run.rows):
        return f"{run.program or 'HPL-AI'} computes in mixed precision; its speed is no HPL result"
    solved = Problem(row.n, row.nb, row.p, row.q)
    return f"HPL solved {_words(solved)}, not {_words(request)}" if request and solved != request else ""


def _words(problem: Problem) -> str:
    return ", ".join(f"{name} {value}" for name, value in problem._asdict().items())


def _impossible(row: HplRow) -> str:
    """Return why a row contradicts itself: the speed follows from size and time."""
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


def metrics(finding: HplFinding, gpus: int | None) -> list[Json]:
    """Return the metrics; the speed per GPU only where the number of GPUs is known or HPL prints it."""
    row = finding.row
    speed = None if row is None or row.gflops is None else row.gflops / 1000
    measured = [metric("tflops", speed, UNITS["tflops"])]
    each = None if row is None else row.gflops_per_gpu
    if gpus or each is not None:
        share = each / 1000 if each is not None else None if speed is None else speed / (gpus or 1)
        measured.append(metric("tflops_per_gpu", share, UNITS["tflops_per_gpu"]))
    return [*measured, metric("residual_failures", finding.failures, UNITS["residual_failures"])]


def judged(finding: HplFinding, gpus: int | None, nodes: int, expectations: t.Sequence[Json], common: Json) -> Json:
    """Return the record. A speed without an expectation is no pass, and one above the hardware's peak is an error."""
    compared = judge(CHECK, metrics(finding, gpus), [_EXACT, *expectations], nodes)
    entries = [_misread(entry) for entry in compared]
    verdict = overall(entries)
    speeds = {entry["verdict"] for entry in entries if entry["name"] in _SPEEDS}
    if finding.problem:
        verdict = "fail" if finding.kind == "hardware" else "error"
    elif any(entry["verdict"] == "error" for entry in entries if entry["name"] in _SPEEDS):
        verdict = "error"
    elif verdict == "pass" and speeds == {"unjudged"}:
        verdict = "unjudged"
    reasons = [finding.problem] if finding.problem else [explain(entries)] if explain(entries) else []
    reasons += [
        f"{entry['name']} is above what the hardware can do: a misread" for entry in entries if entry.get("misread")
    ]
    clean = [{key: value for key, value in entry.items() if key != "misread"} for entry in entries]
    samples = [dataclasses.asdict(finding.row)] if finding.row else []
    return record(CHECK, verdict=verdict, metrics=clean, reason="; ".join(reasons), samples=samples, **common)


def _misread(entry: Json) -> Json:
    """Turn a speed above its upper limit, which is the hardware's peak, into an error."""
    above = entry["name"] in _SPEEDS and entry["verdict"] in ("fail", "warn") and str(entry["expected"]).startswith("<")
    return {**entry, "verdict": "error", "misread": True} if above else entry


# Find the program, write its input, run it, and collect the result.


NAMES = ("hpl.sh", "xhpl")
PLACES = ("/opt/gpu_test_tools/bin", "/workspace", "/opt/nvidia/hpc-benchmarks*", "/opt/hpl*", "/opt/hpl*/bin")
_INSIDE = "/workspace/hpl.sh"  # where NVIDIA's image hpc-benchmarks has it
_ADVICE = "; the container image nvidia/hpc-benchmarks of NVIDIA brings it, see container_image"
_PATIENCE = 30.0
_TAIL = 2000


def perform(params: t.Mapping[str, t.Any], check_mode: bool, folder: str) -> Json:
    """Run and return the module's result; raises ValueError for options that make no sense."""
    try:
        launch = _launch.here(_launch.with_mpi(params), job_name="hpl", timeout=params["timeout"])
    except _find.NotFound as exc:
        return _without(params, None, "error", str(exc))
    hpl_problem.validate(params, launch)
    if check_mode:
        return _without(params, launch, "skipped", "check mode")
    memory = None if params["dat"] or params["n"] or launch.kind != "local" else _memory(params["timeout"])
    problem = hpl_problem.problem(params, launch, memory)
    if problem is None and not params["dat"]:
        expected = any(limit["check"] == CHECK for limit in params["expect"])
        if launch.kind != "local":
            raise hpl_problem.HplError(f"launcher {launch.kind} needs n, gpu_memory_mib or dat")
        return _without(params, launch, "error" if expected else "skipped", "no GPU, and neither n nor dat is given")
    return _looked(params, launch, problem, folder)


def _looked(params: t.Mapping[str, t.Any], launch: Launch, problem: hpl_problem.Problem | None, folder: str) -> Json:
    """Run, and read before and after it which other processes use the GPUs."""
    try:
        program = _program(params["path"], launch)
    except _find.NotFound as exc:
        return _without(params, launch, "error", f"{exc}{_ADVICE}")
    watch = users.UserWatch(launch, params["timeout"], params["share_gpus"], users.visible(launch))
    if watch.refusal:
        return _without(params, launch, "skipped", watch.refusal)
    log = params["log"] or f"{folder}/hpl.log"
    with _work(params["directory"] or folder, problem) as work:
        dat = params["dat"] or f"{work}/HPL.dat"
        result = _solve(params, launch, program, problem, dat, log, watch)
    return {**result, "checks": [watch.noted(entry) for entry in result["checks"]]}


def _program(path: str | None, launch: Launch) -> str:
    """Return the program; a path on other machines or in a container cannot be checked here.

    Of a directory that is here, too, the same program is taken as for one machine.
    """
    if launch.container_image:
        return path or _INSIDE
    if path and launch.kind != "local":
        if posixpath.basename(path).startswith(("hpl", "xhpl")):
            return path
        held = [f"{path.rstrip('/')}/{name}" for name in NAMES]
        return next((name for name in held if _find.executable(name)), held[-1])
    return _find.find(NAMES, path, PLACES, role=None)


@contextlib.contextmanager
def _work(folder: str, problem: hpl_problem.Problem | None) -> t.Iterator[str]:
    """Make a directory with HPL.dat for the run; without a problem (``dat`` is given) use the folder as it is."""
    if problem is None:
        yield folder
        return
    try:
        work = tempfile.mkdtemp(prefix="hpcai-hpl-", dir=folder)
    except OSError as exc:
        raise hpl_problem.HplError(f"HPL.dat cannot be written in {folder}: {exc.strerror}") from exc
    try:
        _write_in(work, "HPL.dat", problem.dat)
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_in(folder: str, name: str, text: str) -> None:
    """Write a file in our own directory; what somebody put in its place in a directory of theirs is refused."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as handles:
        try:
            directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            handles.callback(os.close, directory)
            if os.fstat(directory).st_uid != os.geteuid():
                raise hpl_problem.HplError(f"{folder} belongs to uid {os.fstat(directory).st_uid}, who put it there")
            file = handles.enter_context(
                os.fdopen(os.open(name, flags, 0o644, dir_fd=directory), "w", encoding="utf-8")
            )
            file.write(text)
        except OSError as exc:
            raise hpl_problem.HplError(f"{name} cannot be written in {folder}: {exc.strerror}") from exc


def arguments(program: str, dat: str, more: t.Sequence[str]) -> list[str]:
    """Return the command line for one rank; NVIDIA's script takes any file, xhpl only HPL.dat where it is started."""
    if posixpath.basename(program).endswith(".sh"):
        return [program, "--dat", dat, *more]
    if posixpath.basename(dat) != "HPL.dat":
        raise hpl_problem.HplError(f"{program} reads a file of the name HPL.dat, not {dat}")
    return ["sh", "-c", 'cd "$0" && exec "$@"', posixpath.dirname(dat), program, *more]


def _solve(
    params: t.Mapping[str, t.Any],
    launch: Launch,
    program: str,
    problem: hpl_problem.Problem | None,
    dat: str,
    log: str,
    watch: users.UserWatch,
) -> Json:
    if launch.container_image:
        directory = posixpath.dirname(dat)
        launch = launch._replace(container_mounts=[*launch.container_mounts, f"{directory}:{directory}"])
    ranks = hpl_problem.rank_affinity(params, launch)
    bound = ranks.arguments if understands(program) else []
    command = _launch.command(launch, arguments(program, dat, [*bound, *params["arguments"]]))
    outcome = run_to_file(command.argv, params["timeout"], log, command.environment)
    with text.opened(log) as lines:
        parsed = hpl.parse(itertools.chain(lines, [outcome.err]))
    facts = _facts(parsed, command, problem)
    taken = busy(outcome.out)
    if taken and not parsed.runs:
        return {**_without(params, launch, "skipped", taken), **facts}
    finding = read(parsed, outcome, problem)
    gpus = params["gpus"] or (launch.ranks if problem and not params["n"] else None)
    common = _about(params, launch)
    common.update(seconds=outcome.seconds, evidence=outcome.out[-_TAIL:] if finding.problem or finding.failures else "")
    version = parsed.runs[0].version if parsed.runs else None
    common["context"].update(argv=command.argv, version=version, log=params["log"])
    common["context"]["affinity"] = " ".join(bound) or ranks.reason or f"{program} takes none"
    return {"checks": [judged(finding, gpus, launch.nodes, watch.limits(params["expect"]), common)], **facts}


def _facts(log: Log[hpl.HplRun], command: Command, problem: hpl_problem.Problem | None) -> Json:
    rows = [dataclasses.asdict(row) for hpl_run in log.runs for row in hpl_run.rows]
    residuals = [dataclasses.asdict(residual) for hpl_run in log.runs for residual in hpl_run.residuals]
    input_file = {"problem": problem and problem._asdict(), "dat": problem and problem.dat}
    return {"rows": rows, "residuals": residuals, **input_file, **command._asdict()}


def _memory(timeout: float) -> int | None:
    """Return the memory of the smallest GPU of this machine in MiB."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    query = [smi, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    outcome = run(query, min(timeout, _PATIENCE))
    runs = parse_csv(outcome.out, ["memory.total"]).runs if outcome.rc == 0 else []
    sizes = [row.number("memory.total") for csv in runs for row in csv.rows]
    return int(min(size for size in sizes if size)) if any(sizes) else None


def _about(params: t.Mapping[str, t.Any], launch: Launch | None) -> Json:
    host = launch.hosts[0] if launch and launch.hosts else socket.gethostname().partition(".")[0]
    node = None if launch and launch.nodes > 1 else params["name"] or host
    context = {"tool": "HPL", "version": None, "argv": [], "profile": params["profile"], "launcher": params["launcher"]}
    return {"node": node, "time": time.time(), "run": params["run"], "context": context}


def _without(params: t.Mapping[str, t.Any], launch: Launch | None, verdict: str, reason: str) -> Json:
    check = record(CHECK, verdict=verdict, reason=reason, **_about(params, launch))
    command = Command([], dict(launch.environment) if launch else {})
    return {**_facts(hpl.parse(""), command, None), "checks": [check]}
