# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_bandwidth: the request, its GPUs, a run of the program for each of them, and the check record of it all."""

from __future__ import annotations

import posixpath
import re
import shutil
import socket
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

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
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch, LaunchError, NotFound, busy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, ending, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.test_tools_recipe import TOOLS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import bandwidth_test, nvbandwidth
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import CsvRow, parse_csv
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import parse_topo
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import sysfs as topology_sysfs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    Topology,
    address,
    from_facts,
    mask,
    normal,
    parse,
)

# The request, and the GPUs that it is about. Pure.


CHECK = "gpu_bandwidth"
UNIT = "GB/s"
DIRECTIONS = ("h2d", "d2h", "d2d")

SPEC: dict[str, Json] = {
    "tool": {"type": "str", "default": "auto", "choices": ["auto", "bandwidthTest", "nvbandwidth"]},
    "path": {"type": "str"},
    "directions": {"type": "list", "elements": "str", "default": list(DIRECTIONS), "choices": list(DIRECTIONS)},
    "gpus": {"type": "raw"},
    "topology": {"type": "dict"},
    "mode": {"type": "str", "default": "sequential", "choices": ["sequential", "parallel"]},
    "size": {"type": "int"},
    "bind": {"type": "bool", "default": True},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "float", "default": 120},
    **users.SPEC,
    **_checks.SPEC,
    **_checks.NODE,
    **_checks.SYSFS,
}


_SHIFT = "; which one is gone says gpu_count of gpu_info"


class GpuBandwidthError(ValueError):
    """The request makes no sense; the text is fit for the user."""


class BandwidthRequest(t.NamedTuple):
    """What is measured and how, how this machine starts the program for it, and what the record says of it."""

    node: str
    run: str | None = None
    profile: str | None = None
    expect: t.Sequence[Json] = ()
    tool: str = "auto"
    path: str | None = None
    directions: t.Sequence[str] = DIRECTIONS
    indexes: t.Sequence[int] | None = None  # of the GPUs; None for all of them
    topology: Topology | None = None
    mode: str = "sequential"
    size: int | None = None
    bind: bool = True
    arguments: t.Sequence[str] = ()
    timeout: float = 120
    share_gpus: bool = False
    sysfs: str = "/sys"
    launcher: str = "local"
    launch: Launch = Launch()
    placing: t.Sequence[str] = ()  # options of the launcher that say where ranks go


def read_request(params: t.Mapping[str, t.Any]) -> BandwidthRequest:
    """Make a request of the options of the module; what cannot be measured or judged is refused."""
    host = params["hosts"][0] if params["hosts"] else socket.gethostname().partition(".")[0]
    placing = [name for name in ("cpu_masks", "visible_devices") if params[name]]
    derived: Json = {"node": params["name"] or host, "placing": placing, "launch": Launch()}
    derived["indexes"] = parse_gpus(params["gpus"])
    derived["topology"] = from_facts(params["topology"]) if params["topology"] else None
    given = {name: params[name] for name in BandwidthRequest._fields if name not in derived}
    request = BandwidthRequest(**given, **derived)
    for expectation in request.expect:
        validate_expectation(expectation)
    validate_units(request.expect, CHECK, dict.fromkeys(DIRECTIONS, UNIT))
    validate_seconds("timeout", request.timeout)
    if not request.directions or len(set(request.directions)) != len(request.directions):
        raise GpuBandwidthError("directions must name at least one, and each once")
    if request.size is not None and request.size < 1 << 20:
        raise GpuBandwidthError(f"size is {request.size}; less than 1 MiB measures latency, not bandwidth")
    return request


@dataclass(frozen=True)
class MeasuredGpu:
    """One GPU to be measured, and where it is; ``problem`` says why it cannot be measured.

    ``surplus``: no device has this number, because those behind one that is gone have moved up.
    """

    index: int
    uuid: str | None = None
    bus_id: str | None = None
    numa_node: int | None = None
    cpus: str = ""
    problem: str = ""
    surplus: bool = False

    @property
    def visible(self) -> str:
        """Return the GPU's name for CUDA: the UUID if known, since indexes shift where a GPU is missing."""
        return self.uuid or str(self.index)


@dataclass(frozen=True)
class Listed:
    """One GPU as nvidia-smi lists it; ``problem`` says why it cannot be measured, and its index is its place then."""

    index: int
    uuid: str
    bus_id: str
    problem: str = ""


def parse_gpus(value: t.Any) -> list[int] | None:
    """Read the option gpus: a count, a list of indexes, or nothing."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        value = value.split(",") if "," in value else value.strip()
    try:
        if isinstance(value, bool):
            raise ValueError
        indexes = [int(index) for index in value] if isinstance(value, (list, tuple)) else list(range(int(value)))
    except (TypeError, ValueError) as exc:
        raise GpuBandwidthError(f"gpus is {value!r}; a number of GPUs or a list of their indexes is needed") from exc
    if len(set(indexes)) != len(indexes) or min(indexes, default=0) < 0 or len(indexes) > 1024:
        raise GpuBandwidthError(f"gpus is {value!r}; indexes are numbers from 0, each once")
    return indexes


def with_launch(request: BandwidthRequest, launch: Launch) -> BandwidthRequest:
    """Return the request with the way to start a program here; one that places ranks or starts several is refused."""
    if request.placing or launch.ranks != 1:
        subject = ", ".join(request.placing) or f"{launch.nodes} nodes with {launch.ranks_per_node} ranks"
        raise LaunchError(f"{subject}: one process measures one GPU of one node, where the topology says it belongs")
    return request._replace(launch=launch)


def plan(
    indexes: t.Sequence[int] | None, topology: Topology | None, listed: t.Sequence[Listed] | None
) -> list[MeasuredGpu]:
    """Return the GPUs to measure; ``listed`` are those that nvidia-smi shows here, None where it cannot be called."""
    locations = {gpu.index: gpu for gpu in topology.gpus} if topology else {}
    if indexes is None:
        indexes = sorted({*locations, *(gpu.index for gpu in listed or [] if not locations or gpu.problem)})
    gpus = []
    for index in indexes:
        location = locations.get(index)
        gpu = MeasuredGpu(index)
        if location:
            gpu = replace(gpu, bus_id=location.bus_id or None, numa_node=location.numa_node, cpus=location.cpus)
        elif locations and listed is None:
            gpu = _gone(gpu, f"the topology has {len(locations)} GPUs and no GPU {index}", locations)
        gpus.append(gpu if listed is None else _identified(gpu, listed))
    return gpus


def _identified(gpu: MeasuredGpu, listed: t.Sequence[Listed]) -> MeasuredGpu:
    """Take the UUID of the GPU at the expected bus address; indexes shift when a GPU is lost."""
    same = [entry for entry in listed if (entry.bus_id == gpu.bus_id if gpu.bus_id else entry.index == gpu.index)]
    if not same:
        text = f" at {gpu.bus_id}" if gpu.bus_id else ""
        problem = f"nvidia-smi does not list GPU {gpu.index}{text}; it lists {len(listed)}"
        return replace(gpu, problem=problem) if gpu.bus_id else _gone(gpu, problem, [entry.index for entry in listed])
    known = replace(gpu, uuid=same[0].uuid or None, bus_id=gpu.bus_id or same[0].bus_id or None)
    return replace(known, problem=same[0].problem) if same[0].problem else known


def _gone(gpu: MeasuredGpu, problem: str, indexes: t.Iterable[int]) -> MeasuredGpu:
    """Note a GPU that is not there: a gap between indexes is the lost GPU, behind the last index it may be any."""
    surplus = gpu.index > max(indexes, default=-1)
    return replace(gpu, problem=f"{problem}{_SHIFT if surplus else ''}", surplus=surplus)


# Which program, and its command line for one GPU. Pure.


NAMES = ("bandwidthTest", "nvbandwidth")
_STORE = "/opt/gpu_test_tools/bin"
_SAMPLES = "/opt/cuda-samples*/build/Samples/1_Utilities/bandwidthTest"
PLACES: dict[str, t.Sequence[str]] = {
    "bandwidthTest": (_STORE, *TOOLS["bandwidth_test"].places, _SAMPLES),
    "nvbandwidth": (_STORE, *TOOLS["nvbandwidth"].places),
}
# A copy inside the GPU of less than this may come from its cache; 32 MB are the program's own size.
_SIZE = 256000000
# What nvbandwidth calls the copies in these directions.
TESTS = {"h2d": "host_to_device_memcpy_ce", "d2h": "device_to_host_memcpy_ce", "d2d": "device_local_copy"}
_FLAGS = {"h2d": "--htod", "d2h": "--dtoh", "d2d": "--dtod"}


class Program(t.NamedTuple):
    """The test program that was chosen."""

    tool: str
    path: str


def choose(request: BandwidthRequest, find: t.Callable[..., str], probe: t.Callable[[t.Sequence[str]], str]) -> Program:
    """Return the program: bandwidthTest where it exists, else nvbandwidth. Raises NotFound with all that was tried.

    A given path on other machines or in a container cannot be checked here and is used as it is. If two programs could
    be there, ``probe`` starts a command there, and its output says which one is.
    """
    path, inside = request.path, request.launch.container_image
    names = NAMES if request.tool == "auto" else (request.tool,)
    if path:
        named = [name for name in names if posixpath.basename(path.rstrip("/")).startswith(name)]
        names = (named[0],) if named else names
    reasons: list[str] = []
    missing: list[str] = []
    for name in names:
        try:
            if inside and not path:
                raise NotFound(f"{name} is looked for on the PATH of the container")
            return Program(name, find(name, path, () if path else PLACES[name]))
        except NotFound as exc:
            reasons.append(str(exc))
            missing += exc.missing
    if inside or (path and request.launch.kind != "local"):
        return _there(names, path, probe)
    raise NotFound("; ".join(reasons), missing)


_LOOK = 'for p; do command -v "$p" && exit; done; exit 127'


def _there(names: t.Sequence[str], path: str | None, probe: t.Callable[[t.Sequence[str]], str]) -> Program:
    """Return the program in the container or on the other node: the first one that is there, else the last one."""
    if path and posixpath.basename(path.rstrip("/")).startswith(names[0]):
        return Program(names[0], path)
    programs = [Program(name, f"{path.rstrip('/')}/{name}" if path else name) for name in names]
    if len(programs) == 1:
        return programs[0]
    paths = [program.path for program in programs]
    lines = probe(["sh", "-c", _LOOK, "sh", *paths]).splitlines()
    present = {posixpath.basename(line.strip()) for line in lines}
    return next((program for program in programs if program.tool in present), programs[-1])


def arguments(tool: str, request: BandwidthRequest) -> list[str]:
    """Return the arguments for the one GPU that the program sees."""
    size, directions, more = request.size, request.directions, request.arguments
    if tool == "nvbandwidth":
        buffer = [] if size is None else ["--bufferSize", str(size // (1 << 20))]
        # The copy inside the GPU comes last: versions before 0.7 do not know it and go on.
        return [*buffer, *more, "-t", *(test for name, test in TESTS.items() if name in directions)]
    number = size or _SIZE
    sizes = [f"--start={number}", f"--end={number}", f"--increment={number}"]
    return ["--device=0", "--memory=pinned", "--mode=range", *sizes, *(_FLAGS[name] for name in directions), *more]


class BoundCommand(t.NamedTuple):
    """What to run for one GPU, the variables to set, and what binds it to CPUs: numactl, taskset, own, srun or none."""

    argv: t.Sequence[str]
    environment: t.Mapping[str, str]
    binding: str = "none"


def command(
    launch: Launch, program: t.Sequence[str], gpu: MeasuredGpu, method: _launch.BindMethod | None
) -> BoundCommand:
    """Return the command that runs the program for one GPU, on the CPUs of its NUMA node unless ``method`` is None."""
    variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu.visible}
    argv = list(program)
    if launch.kind == "local":
        launch = launch._replace(environment={**launch.environment, **variables})
    else:
        # Slurm sets these variables itself in a step, after it has taken over those of the caller.
        argv = ["env", *(f"{name}={value}" for name, value in variables.items()), *argv]
    binding = "none"
    if method and launch.kind == "srun" and gpu.cpus:
        launch, binding = launch._replace(cpu_masks=[mask(parse(gpu.cpus))]), "srun"
    elif method:
        argv = _launch.bind(argv, method, gpu.cpus, gpu.numa_node)
        known = gpu.cpus or (gpu.numa_node is not None and method.name == "numactl")
        binding = method.name if known else "none"
    return BoundCommand(*_launch.command(launch, argv), binding)


# From the output of one program to the bandwidths of one GPU that can be trusted. Pure.


_UNKNOWN = "not found!"


class BandwidthReading(t.NamedTuple):
    """Bandwidths in GB/s by direction. ``problem`` says why one is missing, ``kind`` is its class.

    ``name`` and ``bus_id`` are those of the GPU that the program names, ``lacks`` are directions that this version of
    the program cannot measure.
    """

    values: t.Mapping[str, float | None]
    problem: str = ""
    kind: str = "infra"
    name: str | None = None
    bus_id: str | None = None
    version: str | None = None
    lacks: t.Sequence[str] = ()


def read_output(tool: str, outcome: Outcome, gpu: MeasuredGpu, directions: t.Sequence[str]) -> BandwidthReading:
    """Return the bandwidths of an output and what is wrong with it; the exit status alone proves nothing."""
    text = f"{outcome.out}\n{outcome.err}"
    if tool == "nvbandwidth":
        reading = _nvbandwidth(nvbandwidth.parse(text), directions)
    else:
        reading = _bandwidth_test(bandwidth_test.parse(text), directions)
    measured, expected = address(reading.bus_id or ""), address(gpu.bus_id or "")
    if measured and expected and measured != expected:
        problem = f"{tool} measured the GPU at {reading.bus_id}, not that at {gpu.bus_id}"
        reading = BandwidthReading({}, problem, name=reading.name, version=reading.version)
    # A program that was ended after its last number did not end by itself; what the GPU did to it explains more.
    late = outcome.rc is None and reading.kind != "hardware"
    if outcome.problem and (late or not reading.problem):
        reading = reading._replace(problem=outcome.problem, kind="infra")
    absent = [name for name in directions if reading.values.get(name) is None and name not in reading.lacks]
    if absent and not reading.problem:
        reading = reading._replace(problem=f"{tool} printed no number for {', '.join(absent)}")
    return reading


def _refused(problem: str, cause: Cause | None = None) -> BandwidthReading:
    return BandwidthReading({}, problem, cause.kind if cause else "infra")


def _not_one(tool: str, runs: int, cause: Cause | None) -> BandwidthReading:
    text = cause.text if cause else f"{tool} printed {runs} results instead of one" if runs else ""
    return _refused(text, cause)


def _bandwidth_test(log: Log[bandwidth_test.BandwidthTestRun], directions: t.Sequence[str]) -> BandwidthReading:
    if len(log.runs) != 1:
        return _not_one("bandwidthTest", len(log.runs), log.cause)
    (run,) = log.runs
    if run.devices != 1:
        return _refused(f"bandwidthTest printed the sum over {run.devices} GPUs, which says nothing of one")
    if run.fallback is not None or run.device not in (0, None):
        return _refused(f"bandwidthTest measured device {run.device}, not the one device that it was given")
    values = {name: _counted_once(name, run.bandwidth(name)) for name in directions}
    cause = run.cause or log.cause
    if cause or not run.complete:
        text = cause.text if cause else "the output of bandwidthTest breaks off"
        return _refused(text, cause)._replace(values=values, name=run.device_name)
    return BandwidthReading(values, name=run.device_name)


def _counted_once(direction: str, value: float | None) -> float | None:
    """Have both programs say the same of a GPU: inside it bandwidthTest counts a byte as read and as written.

    An H200 with driver 580.159.04: 4201.9 GB/s by bandwidthTest of 12.8, 2092.6 by nvbandwidth 0.8.
    """
    return value / 2 if direction == "d2d" and value is not None else value


def _nvbandwidth(log: Log[nvbandwidth.NvbandwidthRun], directions: t.Sequence[str]) -> BandwidthReading:
    if len(log.runs) != 1:
        return _not_one("nvbandwidth", len(log.runs), log.cause)
    (run,) = log.runs
    name, bus_id = (run.devices[0].name, run.devices[0].bus_id) if run.devices else (None, None)
    if len(run.devices) > 1:
        problem = f"nvbandwidth saw {len(run.devices)} GPUs instead of one"
        return BandwidthReading({}, problem, name=name, version=run.version)
    tests = {direction: run.test(TESTS[direction]) for direction in directions}
    lacks = [direction for direction, test in tests.items() if test and _unknown(test)]
    errors = [test.error for test in tests.values() if test and test.error and not _unknown(test)]
    cause = log.cause if log.cause and _UNKNOWN not in log.cause.text else None
    problem = errors[0] if errors else cause.text if cause else ""
    if not problem and any(test.status == "running" for test in run.tests):
        problem = "the output of nvbandwidth breaks off"
    values = {direction: test.only if test else None for direction, test in tests.items()}
    kind = cause.kind if cause else "infra"
    return BandwidthReading(values, problem.strip(), kind, name, bus_id, run.version, lacks)


def _unknown(test: nvbandwidth.NvbandwidthTest) -> bool:
    return test.status == "error" and _UNKNOWN in (test.error or "")


# From the bandwidths of all GPUs to a check record. Pure.


_TAIL = 2000


class MeasuredBandwidth(t.NamedTuple):
    """One GPU, the command that was run for it, and its bandwidths."""

    gpu: MeasuredGpu
    reading: BandwidthReading
    outcome: Outcome = Outcome(None, "", "", 0.0)
    argv: t.Sequence[str] = ()
    environment: t.Mapping[str, str] = {}
    binding: str = "none"

    def row(self, directions: t.Sequence[str]) -> Json:
        """Return the GPU's row of the module's result."""
        gpu, reading = self.gpu, self.reading
        values = {name: reading.values.get(name) for name in directions}
        location = {"numa_node": gpu.numa_node, "cpus": gpu.cpus, "binding": self.binding}
        command = {"argv": list(self.argv), "environment": dict(self.environment), "seconds": self.outcome.seconds}
        about = {"gpu": gpu.index, "uuid": gpu.uuid, "bus_id": gpu.bus_id, "name": reading.name}
        return {**about, **values, **location, **command, "problem": reading.problem or None}


def ran(tool: str, measured: t.Sequence[MeasuredBandwidth]) -> Json:
    """Return what the record's context says of the program, which prints its version and what it cannot measure."""
    version = next((gpu.reading.version for gpu in measured if gpu.reading.version), None)
    lacks = sorted({name for gpu in measured for name in gpu.reading.lacks})
    notes = [f"{tool} {version or ''} does not measure {name}".replace("  ", " ") for name in lacks]
    argv = next((list(gpu.argv) for gpu in measured if gpu.argv), [])
    return {"tool": tool, "version": version, "argv": argv, "notes": notes}


def judged(
    measured: t.Sequence[MeasuredBandwidth], directions: t.Sequence[str], expectations: t.Sequence[Json], about: Json
) -> Json:
    """Return the record: every planned GPU has its metrics, and one without a value is an error, expected or not."""
    supported = [name for name in directions if not all(name in gpu.reading.lacks for gpu in measured)]
    metrics = [
        metric(name, gpu.reading.values.get(name), UNIT, gpu=gpu.gpu.index) for gpu in measured for name in supported
    ]
    metrics = [_needed(entry) for entry in judge(CHECK, metrics, expectations)]
    verdict = overall(metrics)
    broken = [gpu for gpu in measured if gpu.reading.problem]
    if any(gpu.reading.kind == "hardware" for gpu in broken):
        verdict = "fail"
    elif broken and verdict != "fail":
        verdict = "error"
    sampled = ("gpu", *directions, "numa_node", "binding", "problem")
    return record(
        CHECK,
        verdict=verdict,
        metrics=metrics,
        scope=_scope(metrics, broken),
        samples=[{key: row[key] for key in sampled} for row in (gpu.row(directions) for gpu in measured)],
        evidence="\n".join(_evidence(gpu) for gpu in broken)[:_TAIL],
        reason=_reason(metrics, broken),
        **about,
    )


def _needed(entry: Json) -> Json:
    if entry["value"] is not None or entry["verdict"] != "unjudged":
        return entry
    return {**entry, "verdict": "error", "expected": "a value"}


def _reason(metrics: t.Sequence[Json], broken: t.Sequence[MeasuredBandwidth]) -> str:
    """Return why it is no pass: GPUs that could not be measured stand once with their cause, not for each metric."""
    causes: dict[str, list[int]] = {}
    for gpu in broken:
        causes.setdefault(gpu.reading.problem, []).append(gpu.gpu.index)
    explained = {gpu.gpu.index for gpu in broken}
    others = [entry for entry in metrics if entry["value"] is not None or entry.get("gpu") not in explained]
    texts = [f"GPU {', '.join(map(str, gpus))}: {problem}" for problem, gpus in causes.items()]
    return "; ".join([*texts, *([explain(others)] if explain(others) else [])])


def _scope(metrics: t.Sequence[Json], broken: t.Sequence[MeasuredBandwidth]) -> Json:
    at_fault = {gpu.gpu.index for gpu in broken}
    at_fault |= {entry["gpu"] for entry in metrics if "gpu" in entry and entry["verdict"] in ("fail", "error", "warn")}
    at_fault -= {gpu.gpu.index for gpu in broken if gpu.gpu.surplus}
    return {"gpu": sorted(at_fault)} if at_fault else {}


def _evidence(measured: MeasuredBandwidth) -> str:
    text = f"{measured.outcome.out.strip()}\n{measured.outcome.err.strip()}".strip()
    return f"GPU {measured.gpu.index}:\n{text[-_TAIL // 4 :]}" if text else ""


# Read the machine, run the program for each GPU, and collect the results.


_FIELDS = ("index", "uuid", "pci.bus_id")
# A driver that hangs is found by the checks of gpu_info; here its GPUs are then named by their indexes.
_PATIENCE = 30.0


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Measure and return the module's result; raises ValueError for options that make no sense."""
    request = read_request(params)
    gpus: list[MeasuredGpu] = []
    try:
        request = with_launch(request, _launch.here(params, job_name=CHECK, timeout=request.timeout))
        gpus = _gpus(request, check_mode)
        names = {name for gpu in gpus for name in (gpu.index, gpu.uuid) if name is not None}
        watch = users.UserWatch(request.launch, request.timeout, request.share_gpus, names)
        if watch.refusal:
            raise NotMeasured("skipped", watch.refusal)
        about = _about(request)
        program, measured = _measure(request, gpus)
    except (NotFound, NotMeasured) as exc:
        return _without(request, gpus, exc)
    about["context"].update(path=program.path, **ran(program.tool, measured))
    about["seconds"] = time.time() - about["time"]
    check = judged(measured, request.directions, [] if watch.shared() else request.expect, about)
    rows = [bandwidth.row(request.directions) for bandwidth in measured]
    return {"checks": [watch.noted(check)], "gpus": rows, "tool": program.tool}


def _gpus(request: BandwidthRequest, check_mode: bool) -> list[MeasuredGpu]:
    """Return the GPUs to measure, of this machine or, by their numbers and the topology alone, of another one."""
    if check_mode:
        raise NotMeasured("skipped", "check mode")
    topology, listed = request.topology, None
    if request.launch.kind == "local":
        topology, listed = _here(request)
    elif request.indexes is None and request.topology is None:
        raise GpuBandwidthError(
            f"launcher {request.launch.kind} needs gpus or topology: this machine's GPUs may be others"
        )
    gpus = plan(request.indexes, topology, listed)
    if not gpus:
        expected = any(expectation["check"] == CHECK for expectation in request.expect)
        raise NotMeasured("error" if expected else "skipped", "no GPU")
    return gpus


def _here(request: BandwidthRequest) -> tuple[Topology, list[Listed] | None]:
    """Return where this machine's GPUs are, unless the request says it, and those that nvidia-smi lists.

    None is for a nvidia-smi that is not there or cannot tell.
    """
    smi, listed = shutil.which("nvidia-smi"), None
    limit = min(request.timeout, _PATIENCE)
    if smi:
        outcome = run([smi, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader"], limit)
        # One GPU that is lost gives nvidia-smi another status than 0, and leaves the rows of all others.
        runs = parse_csv(outcome.out, _FIELDS).runs if outcome.rc is not None else []
        listed = [_seen(row, position) for csv in runs for position, row in enumerate(csv.rows)] or None
    if request.topology:
        return request.topology, listed
    placed = [gpu for gpu in listed if gpu.bus_id] if listed else None
    topology = topology_sysfs.read_sysfs(request.sysfs, None if placed is None else [gpu.bus_id for gpu in placed])
    # nvidia-smi keeps the number of a GPU that is lost.
    numbers = [gpu.index for gpu in placed or topology.gpus]
    topology = replace(topology, gpus=[replace(gpu, index=number) for gpu, number in zip(topology.gpus, numbers)])
    if not smi or not listed or all(gpu.numa_node is not None for gpu in topology.gpus):
        return topology, listed
    outcome = run([smi, "topo", "-m"], limit)
    matrices = parse_topo(outcome.out).runs if outcome.rc == 0 else []
    return topology_sysfs.merge(topology, matrices[0] if matrices else None), listed


def _seen(row: CsvRow, position: int) -> Listed:
    """A GPU that does not answer stays in the list; nvidia-smi lists them by their indexes."""
    index, uuid, bus_id = (row.values.get(name) or "" for name in _FIELDS)
    fault = row.fault(_FIELDS)
    number = int(index) if re.fullmatch(r"[0-9]{1,9}", index) else position
    return Listed(number, uuid, normal(bus_id), fault and f"nvidia-smi shows no such GPU that answers: its {fault}")


def _measure(request: BandwidthRequest, gpus: t.Sequence[MeasuredGpu]) -> tuple[Program, list[MeasuredBandwidth]]:
    """Run the program for each GPU; one that hangs leaves the others their results."""
    program = choose(request, _launch.find, lambda words: _launch.run(request.launch, words).out)
    method = _launch.bind_method() if request.bind else None
    words = [program.path, *arguments(program.tool, request)]
    refused: list[str] = []

    def measure_gpu(gpu: MeasuredGpu) -> MeasuredBandwidth:
        if gpu.problem or refused:
            return MeasuredBandwidth(gpu, BandwidthReading({}, gpu.problem or refused[0]))
        bound = command(request.launch, words, gpu, method)
        outcome = run(bound.argv, request.timeout, None, bound.environment)
        refused.extend(filter(None, [busy(outcome.err)]))
        reading = read_output(program.tool, outcome, gpu, request.directions)
        return MeasuredBandwidth(gpu, reading, outcome, *bound)

    if request.mode == "sequential":
        measured = list(map(measure_gpu, gpus))
    else:
        with ThreadPoolExecutor(len(gpus)) as pool, ending():
            measured = list(pool.map(measure_gpu, gpus))
    if refused and not any(bandwidth.reading.values for bandwidth in measured):
        raise NotMeasured("skipped", refused[0])
    return program, measured


def _about(request: BandwidthRequest) -> Json:
    """Return the parts of a record that are known before anything ran."""
    context: Json = {"tool": None, "version": None, "argv": [], "profile": request.profile}
    context.update(mode=request.mode, launcher=request.launcher)
    return {"node": request.node, "time": time.time(), "run": request.run, "context": context}


def _without(request: BandwidthRequest, gpus: t.Sequence[MeasuredGpu], why: NotFound | NotMeasured) -> Json:
    """Return the result where nothing was measured: a program that is nowhere is an error."""
    verdict, reason = why.verdict if isinstance(why, NotMeasured) else "error", str(why)
    about = _about(request)
    if gpus and why.missing:  # without GPUs it is the launcher that is nowhere, which no role of ours installs
        about["context"]["missing"] = list(why.missing)
    rows = [MeasuredBandwidth(gpu, BandwidthReading({}, reason)).row(request.directions) for gpu in gpus]
    return {"checks": [record(CHECK, verdict=verdict, reason=reason, **about)], "gpus": rows, "tool": None}
