# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpl: the request; find the program, run it, decide whether its output can be trusted, and judge that."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import posixpath
import shutil
import socket
import tempfile
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks, _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    NotMeasured,
    explain,
    judge,
    metric,
    overall,
    record,
    validate_expectation,
    validate_seconds,
    validate_units,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Command, Launch, busy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run, run_to_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import hpl, text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.hpl import HplRow, HplRun
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import parse_csv
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.binding import binding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import Topology, from_facts

# The size of the problem, and its input file. Pure.


# netlib's HPL.dat, 31 lines of which only those with a name in braces matter to NVIDIA's builds.
_DAT = """HPLinpack benchmark input file
Written by hpcai.gpu_cluster
HPL.out      output file name (if any)
6            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
{n:<12} Ns
1            # of NBs
{nb:<12} NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
{p:<12} Ps
{q:<12} Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
"""


class HplError(ValueError):
    """The request makes no sense; the text is fit for the user."""


class Problem(t.NamedTuple):
    """One system of equations of order ``n`` in blocks of ``nb`` on a grid of ``p`` times ``q`` ranks."""

    n: int
    nb: int
    p: int
    q: int

    @property
    def dat(self) -> str:
        """Return the text of HPL.dat."""
        return _DAT.format(**self._asdict())


def order(memory: int, nb: int, fraction: float) -> int:
    """Return the largest N for so many bytes of GPU memory: floor(sqrt(fraction * memory / 8) / NB) * NB.

    The matrix has N * N numbers of 8 bytes; the rest of the memory is for panels and libraries.
    """
    return math.isqrt(int(memory * fraction / 8)) // nb * nb


def grid(ranks: int, p: int | None = None, q: int | None = None) -> tuple[int, int]:
    """Return the grid that is nearest to a square, with P >= Q as in NVIDIA's samples, or complete the given one."""
    if p is None and q is None:
        q = next(divisor for divisor in range(math.isqrt(ranks), 0, -1) if ranks % divisor == 0)
    shape = (p or ranks // (q or 1), q or ranks // (p or 1))
    if min(shape) < 1 or shape[0] * shape[1] != ranks:
        raise HplError(f"a grid of p {shape[0]} and q {shape[1]} needs as many ranks, not {ranks}")
    return shape


# Which CPUs and memory each rank of HPL gets, as the arguments of NVIDIA's hpl.sh. Pure.


OPTIONS = ("--gpu-affinity", "--cpu-affinity", "--mem-affinity")


class Affinity(t.NamedTuple):
    """GPU, CPUs and memory of each rank of a node; where they cannot be derived all are empty and ``reason`` is set."""

    gpus: t.Sequence[int] = ()
    cpus: t.Sequence[str] = ()
    memory: t.Sequence[int] = ()
    reason: str = ""

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of hpl.sh."""
        columns: tuple[t.Sequence[t.Any], ...] = (self.gpus, self.cpus, self.memory)
        texts = [":".join(str(value) for value in column) for column in columns]
        return [part for name, text in zip(OPTIONS, texts) if text for part in (name, text)]


def affinity(topology: Topology) -> Affinity:
    """Give rank N the GPU with the Nth index, its own share of the CPUs of that GPU's NUMA node, and its memory."""
    places = sorted(topology.gpus, key=lambda gpu: gpu.index)
    homeless = [str(gpu.index) for gpu in places if gpu.numa_node is None]
    bound = binding(topology, split=True)
    if bound.masks and not homeless:
        cpus = [_cpus(mask) for mask in bound.masks]
        return Affinity([gpu.index for gpu in places], cpus, [gpu.numa_node or 0 for gpu in places])
    reason = f"the NUMA node of GPU {', '.join(homeless)} is unknown" if homeless else bound.reason
    return Affinity(reason=reason)


def _cpus(mask: str) -> str:
    number = int(mask, 16)
    return machine.write(cpu for cpu in range(number.bit_length()) if number >> cpu & 1)


def taken(arguments: t.Sequence[str]) -> list[str]:
    """Return the affinity options among the arguments."""
    return [argument for argument in arguments if argument.partition("=")[0] in OPTIONS]


def understands(program: str) -> bool:
    """Return whether a program has the affinity options: NVIDIA's script does, netlib's xhpl does not."""
    return posixpath.basename(program).endswith(".sh")


# The request, and what follows from it alone. Pure.


CHECK = "hpl"
MIB = 1 << 20
UNITS = {"tflops": "TFLOP/s", "tflops_per_gpu": "TFLOP/s", "residual_failures": "tests"}
SPEC: dict[str, Json] = {
    "path": {"type": "str"},
    "dat": {"type": "path"},
    "n": {"type": "int"},
    "nb": {"type": "int", "default": 1024},
    "p": {"type": "int"},
    "q": {"type": "int"},
    "gpus": {"type": "int"},
    "gpu_memory_mib": {"type": "int"},
    "memory_fraction": {"type": "float", "default": 0.8},
    "directory": {"type": "path"},
    "log": {"type": "path"},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "topology": {"type": "dict"},
    "timeout": {"type": "float", "default": 1800},
    **users.SPEC,
    **_checks.SPEC,
    **_checks.NODE,
}


class HplRequest(t.NamedTuple):
    """What HPL is to solve and how, how this machine starts it, and what the record says of it."""

    name: str | None = None
    run: str | None = None
    profile: str | None = None
    expect: t.Sequence[Json] = ()
    path: str | None = None
    dat: str | None = None
    n: int | None = None
    nb: int = 1024
    p: int | None = None
    q: int | None = None
    gpus: int | None = None
    gpu_memory_mib: int | None = None
    memory_fraction: float = 0.8
    directory: str | None = None
    log: str | None = None
    arguments: t.Sequence[str] = ()
    topology: Topology | None = None
    timeout: float = 1800
    share_gpus: bool = False
    launcher: str = "local"
    launch: Launch = Launch()


def read_request(params: t.Mapping[str, t.Any]) -> HplRequest:
    """Make a request of the options of the module; what cannot be judged or makes no sense is refused."""
    derived: Json = {"topology": from_facts(params["topology"]) if params["topology"] else None, "launch": Launch()}
    given = {name: params[name] for name in HplRequest._fields if name not in derived}
    request = HplRequest(**given, **derived)
    for expectation in request.expect:
        validate_expectation(expectation)
    validate_units(request.expect, CHECK, UNITS)
    for name in ("n", "nb", "p", "q", "gpus", "gpu_memory_mib"):
        number = getattr(request, name)
        if number is not None and number <= 0:
            raise HplError(f"{name} is {number:g}, more than 0 is needed")
    validate_seconds("timeout", request.timeout)
    if not 0 < request.memory_fraction <= 1:
        raise HplError(f"memory_fraction is {request.memory_fraction:g}, more than 0 and at most 1 is needed")
    ineffective = [name for name in ("n", "p", "q", "gpu_memory_mib") if getattr(request, name) is not None]
    if request.dat and ineffective:
        raise HplError(f"dat {request.dat} says the problem; {', '.join(ineffective)} would have no effect")
    return request


def with_launch(request: HplRequest, launch: Launch) -> HplRequest:
    """Return the request with the way to start HPL here; one that does not fit the problem is refused."""
    if not request.dat:
        grid(launch.ranks, request.p, request.q)
        if launch.kind != "local" and not request.directory:
            raise HplError(f"launcher {launch.kind} needs directory, which all nodes see, for HPL.dat; or dat")
    return request._replace(launch=launch)


def rank_affinity(request: HplRequest) -> Affinity:
    """Return the affinity of a node's ranks, or why it is unknown; refuse a topology beside options for the same."""
    if request.topology is None:
        return Affinity(reason="no topology was given")
    ranks = affinity(request.topology)
    twice = taken(request.arguments) or (["cpu_masks"] if request.launch.cpu_masks else [])
    if twice:
        raise HplError(f"topology says where ranks belong; {', '.join(twice)} would say it again")
    if ranks.gpus and len(ranks.gpus) != request.launch.ranks_per_node:
        raise HplError(f"the topology has {len(ranks.gpus)} GPUs, for {request.launch.ranks_per_node} ranks per node")
    return ranks


def plan(request: HplRequest, memory_mib: int | None) -> Problem | None:
    """Return the problem to solve; None when the file ``dat`` has it, or the memory is unknown."""
    memory_mib = request.gpu_memory_mib or memory_mib
    if request.dat or not (request.n or memory_mib):
        return None
    ranks = request.launch.ranks
    n = request.n or order((request.gpus or ranks) * (memory_mib or 0) * MIB, request.nb, request.memory_fraction)
    if n < request.nb:
        raise HplError(f"n is {n}, less than one block of {request.nb}")
    return Problem(n, request.nb, *grid(ranks, request.p, request.q))


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

    @property
    def bad(self) -> bool:
        """Return whether the output is needed as evidence."""
        return bool(self.problem or self.failures)


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
    measured = metrics(finding, gpus)
    entries = [_misread(entry) for entry in judge(CHECK, measured, [_EXACT, *expectations], nodes)]
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
    request = read_request(params)
    try:
        launch = _launch.here(_launch.with_mpi(params), job_name=CHECK, timeout=request.timeout)
        return _watched(with_launch(request, launch), check_mode, folder)
    except _launch.NotFound as exc:
        return _without(request, NotMeasured("error", str(exc)))
    except NotMeasured as exc:
        return _without(request, exc)


def _watched(request: HplRequest, check_mode: bool, folder: str) -> Json:
    """Run, and read before and after it which other processes use the GPUs."""
    ranks = rank_affinity(request)
    if check_mode:
        raise NotMeasured("skipped", "check mode")
    problem = _problem(request)
    program = _program(request)
    watch = users.UserWatch(request.launch, request.timeout, request.share_gpus)
    if watch.refusal:
        raise NotMeasured("skipped", watch.refusal)
    about = _about(request)
    bound = ranks.arguments if understands(program) else []
    log = request.log or f"{folder}/hpl.log"
    with _work(request.directory or folder, problem) as work:
        command = _command(request, program, bound, request.dat or f"{work}/HPL.dat")
        outcome = run_to_file(command.argv, request.timeout, log, command.environment)
    with text.opened(log) as lines:
        parsed = hpl.parse(itertools.chain(lines, [outcome.err]))
    refusal = busy(outcome.out)
    if refusal and not parsed.runs:
        check = record(CHECK, verdict="skipped", reason=refusal, **about)
    else:
        about["context"].update(argv=command.argv, log=request.log)
        about["context"]["version"] = parsed.runs[0].version if parsed.runs else None
        about["context"]["affinity"] = " ".join(bound) or ranks.reason or f"{program} takes none"
        finding = read(parsed, outcome, problem)
        about.update(seconds=outcome.seconds, evidence=outcome.out[-_TAIL:] if finding.bad else "")
        gpus = request.gpus or (request.launch.ranks if problem and not request.n else None)
        limits = [] if watch.shared() else request.expect
        check = judged(finding, gpus, request.launch.nodes, limits, about)
    return {"checks": [watch.noted(check)], **_facts(parsed, command, problem)}


def _problem(request: HplRequest) -> Problem | None:
    """Return the problem to solve, by the memory of this machine's GPUs where nothing says it; None for that of dat."""
    local = request.launch.kind == "local"
    problem = plan(request, None if request.dat or request.n or not local else _memory(request.timeout))
    if problem is None and not request.dat:
        if not local:
            raise HplError(f"launcher {request.launch.kind} needs n, gpu_memory_mib or dat")
        expected = any(limit["check"] == CHECK for limit in request.expect)
        raise NotMeasured("error" if expected else "skipped", "no GPU, and neither n nor dat is given")
    return problem


def _program(request: HplRequest) -> str:
    """Return the program; a path on other machines or in a container cannot be checked here.

    Of a directory that is here, too, the same program is taken as for one machine.
    """
    path = request.path
    if request.launch.container_image:
        return path or _INSIDE
    if path and request.launch.kind != "local":
        if posixpath.basename(path).startswith(("hpl", "xhpl")):
            return path
        held = [f"{path.rstrip('/')}/{name}" for name in NAMES]
        return next((name for name in held if _launch.executable(name)), held[-1])
    try:
        return _launch.find(NAMES, path, PLACES, role=None)
    except _launch.NotFound as exc:
        raise NotMeasured("error", f"{exc}{_ADVICE}", missing=exc.missing) from exc


@contextlib.contextmanager
def _work(folder: str, problem: Problem | None) -> t.Iterator[str]:
    """Make a directory with HPL.dat for the run; without a problem (``dat`` is given) use the folder as it is."""
    if problem is None:
        yield folder
        return
    try:
        work = tempfile.mkdtemp(prefix="hpcai-hpl-", dir=folder)
    except OSError as exc:
        raise HplError(f"HPL.dat cannot be written in {folder}: {exc.strerror}") from exc
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
                raise HplError(f"{folder} belongs to uid {os.fstat(directory).st_uid}, who put it there")
            file = handles.enter_context(
                os.fdopen(os.open(name, flags, 0o644, dir_fd=directory), "w", encoding="utf-8")
            )
            file.write(text)
        except OSError as exc:
            raise HplError(f"{name} cannot be written in {folder}: {exc.strerror}") from exc


def _command(request: HplRequest, program: str, bound: t.Sequence[str], dat: str) -> Command:
    """Return the command line that starts all ranks, with the directory of HPL.dat in their container."""
    launch, folder = request.launch, posixpath.dirname(dat)
    argv = arguments(program, dat, [*bound, *request.arguments])
    if launch.container_image:
        launch = launch._replace(container_mounts=[*launch.container_mounts, f"{folder}:{folder}"])
    return _launch.command(launch, argv)


def arguments(program: str, dat: str, more: t.Sequence[str]) -> list[str]:
    """Return the command line for one rank; NVIDIA's script takes any file, xhpl only HPL.dat where it is started."""
    if posixpath.basename(program).endswith(".sh"):
        return [program, "--dat", dat, *more]
    if posixpath.basename(dat) != "HPL.dat":
        raise HplError(f"{program} reads a file of the name HPL.dat, not {dat}")
    return ["sh", "-c", 'cd "$0" && exec "$@"', posixpath.dirname(dat), program, *more]


def _facts(log: Log[hpl.HplRun], command: Command, problem: Problem | None) -> Json:
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
    # One GPU that is lost gives nvidia-smi another status than 0, and leaves the rows of all others.
    runs = parse_csv(outcome.out, ["memory.total"]).runs if outcome.rc is not None else []
    sizes = [row.number("memory.total") for csv in runs for row in csv.rows]
    return int(min(size for size in sizes if size)) if any(sizes) else None


def _about(request: HplRequest) -> Json:
    """Return the parts of a record that are known before anything ran; several nodes are a group and have no name."""
    launch = request.launch
    host = launch.hosts[0] if launch.hosts else socket.gethostname().partition(".")[0]
    context: Json = {"tool": "HPL", "version": None, "argv": [], "profile": request.profile}
    context["launcher"] = request.launcher
    node = None if launch.nodes > 1 else request.name or host
    return {"node": node, "time": time.time(), "run": request.run, "context": context}


def _without(request: HplRequest, why: NotMeasured) -> Json:
    """Return the result where nothing was measured."""
    about, command = _about(request), Command([], dict(request.launch.environment))
    about["context"].update({"missing": list(why.missing)} if why.missing else {})
    check = record(CHECK, verdict=why.verdict, reason=why.reason, **about)
    return {**_facts(hpl.parse(""), command, None), "checks": [check]}
