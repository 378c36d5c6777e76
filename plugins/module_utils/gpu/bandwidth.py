# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_bandwidth: the request, the GPUs and the program it takes, and a run of that program for each GPU."""

from __future__ import annotations

import posixpath
import re
import shutil
import socket
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks, _find, _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    record,
    validate_expectation,
    validate_seconds,
    validate_units,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._find import NotFound
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch, LaunchError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import ending, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth_result import (
    CHECK,
    TESTS,
    UNIT,
    BandwidthReading,
    MeasuredBandwidth,
    MeasuredGpu,
    judged,
    read,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.test_tools_recipe import TOOLS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import CsvRow, parse_csv
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import parse_topo
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import busy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import binding as topology_binding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import matrix
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import sysfs as topology_sysfs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    Topology,
    address,
    from_facts,
    mask,
    parse,
)

# The request, and the GPUs that it is about. Pure.


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
    """What is measured and how, and what the record says of it; how this machine starts a program is not part of it."""

    node: str
    run: str | None = None
    profile: str | None = None
    expect: t.Sequence[Json] = ()
    tool: str = "auto"
    path: str | None = None
    directions: t.Sequence[str] = DIRECTIONS
    indexes: t.Sequence[int] | None = None  # of the GPUs; None for all of them
    topology: Json | None = None  # facts of gpu_info, as they were given
    mode: str = "sequential"
    size: int | None = None
    bind: bool = True
    arguments: t.Sequence[str] = ()
    timeout: float = 120
    share_gpus: bool = False
    sysfs: str = "/sys"
    launcher: str = "local"
    placing: t.Sequence[str] = ()  # options of the launcher that say where ranks go


def read_request(params: t.Mapping[str, t.Any]) -> BandwidthRequest:
    """Make a request of the options of the module."""
    host = params["hosts"][0] if params["hosts"] else socket.gethostname().partition(".")[0]
    placing = [name for name in ("cpu_masks", "visible_devices") if params[name]]
    derived: Json = {"node": params["name"] or host, "indexes": parse_gpus(params["gpus"]), "placing": placing}
    given = {name: params[name] for name in BandwidthRequest._fields if name not in derived}
    return BandwidthRequest(**given, **derived)


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


def validate(request: BandwidthRequest, launch: Launch) -> None:
    """Refuse what cannot be measured or judged, before anything starts."""
    for expectation in request.expect:
        validate_expectation(expectation)
    validate_units(request.expect, CHECK, dict.fromkeys(DIRECTIONS, UNIT))
    if not request.directions or len(set(request.directions)) != len(request.directions):
        raise GpuBandwidthError("directions must name at least one, and each once")
    if request.size is not None and request.size < 1 << 20:
        raise GpuBandwidthError(f"size is {request.size}; less than 1 MiB measures latency, not bandwidth")
    validate_seconds("timeout", request.timeout)
    if request.placing or launch.ranks != 1:
        subject = ", ".join(request.placing) or f"{launch.nodes} nodes with {launch.ranks_per_node} ranks"
        raise LaunchError(f"{subject}: one process measures one GPU of one node, where the topology says it belongs")


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
    key, text = (address(gpu.bus_id or ""), f"at {gpu.bus_id}") if gpu.bus_id else (None, "")
    same = [entry for entry in listed if (address(entry.bus_id) == key if key else entry.index == gpu.index)]
    if not same:
        problem = f"nvidia-smi does not list GPU {gpu.index} {text}".rstrip()
        problem = f"{problem}; it lists {len(listed)}"
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
_FLAGS = {"h2d": "--htod", "d2h": "--dtoh", "d2d": "--dtod"}


class Program(t.NamedTuple):
    """The test program that was chosen."""

    tool: str
    path: str


def choose(
    tool: str,
    path: str | None,
    launch: Launch,
    find: t.Callable[..., str],
    probe: t.Callable[[t.Sequence[str]], str],
) -> Program:
    """Return the program: bandwidthTest where it exists, else nvbandwidth. Raises NotFound with all that was tried.

    A given path on other machines or in a container cannot be checked here and is used as it is. If two programs could
    be there, ``probe`` starts a command there, and its output says which one is.
    """
    names = NAMES if tool == "auto" else (tool,)
    if path:
        named = [name for name in names if posixpath.basename(path.rstrip("/")).startswith(name)]
        names = (named[0],) if named else names
    reasons = []
    for name in names:
        try:
            if launch.container_image and not path:
                raise NotFound(f"{name} is looked for on the PATH of the container")
            return Program(name, find(name, path, () if path else PLACES[name]))
        except NotFound as exc:
            reasons.append(str(exc))
    if launch.container_image or (path and launch.kind != "local"):
        return _there(names, path, probe)
    raise NotFound("; ".join(reasons))


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
    said = {posixpath.basename(line.strip()) for line in lines}
    return next((program for program in programs if program.tool in said), programs[-1])


def arguments(tool: str, directions: t.Sequence[str], size: int | None, more: t.Sequence[str]) -> list[str]:
    """Return the arguments for the one GPU that the program sees."""
    if tool == "nvbandwidth":
        buffer = [] if size is None else ["--bufferSize", str(size // (1 << 20))]
        # The copy inside the GPU comes last: versions before 0.7 do not know it and go on.
        return [*buffer, *more, "-t", *(test for name, test in TESTS.items() if name in directions)]
    number = size or _SIZE
    sizes = [f"--start={number}", f"--end={number}", f"--increment={number}"]
    return ["--device=0", "--memory=pinned", "--mode=range", *sizes, *(_FLAGS[name] for name in directions), *more]


class BoundCommand(t.NamedTuple):
    """What to run for one GPU, the variables to set, and what binds it to CPUs: numactl, taskset, srun or none."""

    argv: t.Sequence[str]
    environment: t.Mapping[str, str]
    binding: str


def command(
    launch: Launch, program: t.Sequence[str], gpu: MeasuredGpu, method: topology_binding.Method | None
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
        argv = topology_binding.bind(argv, gpu.cpus, gpu.numa_node, method)
        known = gpu.cpus or (gpu.numa_node is not None and method.name == "numactl")
        binding = method.name if known else "none"
    return BoundCommand(*_launch.command(launch, argv), binding)


# Read the machine, run the program for each GPU, and collect the results.


_FIELDS = ("index", "uuid", "pci.bus_id")
# A driver that hangs is found by the checks of gpu_info; here its GPUs are then named by their indexes.
_PATIENCE = 30.0


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Measure and return the module's result; raises ValueError for options that make no sense."""
    begin = time.monotonic()
    request = read_request(params)
    try:
        launch = _launch.here(params, job_name=CHECK, timeout=request.timeout)
    except NotFound as exc:
        return _without(request, "error", str(exc))
    validate(request, launch)
    topology = from_facts(request.topology) if request.topology else None
    if check_mode:
        return _without(request, "skipped", "check mode")
    if launch.kind == "local":
        gpus = _here(request, topology)
    elif request.indexes is None and topology is None:
        raise GpuBandwidthError(f"launcher {launch.kind} needs gpus or topology: this machine's GPUs may be others")
    else:
        gpus = plan(request.indexes, topology, None)
    if not gpus:
        expected = any(expectation["check"] == CHECK for expectation in request.expect)
        return _without(request, "error" if expected else "skipped", "no GPU")
    return _watched(request, launch, gpus, begin)


def _here(request: BandwidthRequest, topology: Topology | None) -> list[MeasuredGpu]:
    """Return the GPUs of this machine to measure; where they are is read here unless a topology was given."""
    listed = _listed(request.timeout)
    return plan(request.indexes, topology or _topology(request.sysfs, listed, request.timeout), listed)


def _watched(request: BandwidthRequest, launch: Launch, gpus: t.Sequence[MeasuredGpu], begin: float) -> Json:
    """Measure, and read before and after it which other processes use the GPUs."""
    chosen = {name for gpu in gpus for name in (gpu.index, gpu.uuid) if name is not None}
    watch = users.UserWatch(launch, request.timeout, request.share_gpus, chosen)
    if watch.refusal:
        return _without(request, "skipped", watch.refusal, gpus)

    def probe(words: t.Sequence[str]) -> str:
        command = _launch.command(launch, words)
        return run(command.argv, request.timeout, None, command.environment).out

    try:
        program = choose(request.tool, request.path, launch, _find.find, probe)
    except NotFound as exc:
        return _without(request, "error", str(exc), gpus)
    measured = _measure(request, launch, program, gpus)
    taken = next(filter(None, (busy(bandwidth.outcome.err) for bandwidth in measured)), "")
    if taken and not any(bandwidth.reading.values for bandwidth in measured):
        return _without(request, "skipped", taken, gpus)
    seconds = time.monotonic() - begin
    check = _check(request._replace(expect=watch.limits(request.expect)), program, measured, seconds)
    rows = [bandwidth.row(request.directions) for bandwidth in measured]
    return {"checks": [watch.noted(check)], "gpus": rows, "tool": program.tool}


def _measure(
    request: BandwidthRequest, launch: Launch, program: Program, gpus: t.Sequence[MeasuredGpu]
) -> list[MeasuredBandwidth]:
    """Run the program for each GPU; one that hangs leaves the others their results."""
    method = topology_binding.method() if request.bind else None
    words = [program.path, *arguments(program.tool, request.directions, request.size, request.arguments)]

    refused: list[str] = []

    def one(gpu: MeasuredGpu) -> MeasuredBandwidth:
        if gpu.problem or refused:
            return MeasuredBandwidth(gpu, BandwidthReading({}, gpu.problem or refused[0]))
        bound = command(launch, words, gpu, method)
        outcome = run(bound.argv, request.timeout, None, bound.environment)
        refused.extend(filter(None, [busy(outcome.err)]))
        reading = read(program.tool, outcome, gpu, request.directions)
        return MeasuredBandwidth(gpu, reading, outcome, *bound)

    if request.mode == "sequential":
        return list(map(one, gpus))
    with ThreadPoolExecutor(len(gpus)) as pool, ending():
        return list(pool.map(one, gpus))


def _check(
    request: BandwidthRequest, program: Program, measured: t.Sequence[MeasuredBandwidth], seconds: float
) -> Json:
    version = next((gpu.reading.version for gpu in measured if gpu.reading.version), None)
    lacks = sorted({name for gpu in measured for name in gpu.reading.lacks})
    notes = [f"{program.tool} {version or ''} does not measure {name}".replace("  ", " ") for name in lacks]
    common = _about(request)
    common["context"].update(tool=program.tool, path=program.path, version=version, notes=notes)
    common["context"]["argv"] = next((list(gpu.argv) for gpu in measured if gpu.argv), [])
    return judged(measured, request.directions, request.expect, {**common, "seconds": seconds})


def _listed(timeout: float) -> list[Listed] | None:
    """Return the GPUs of this machine, or None where nvidia-smi cannot tell."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    query = [smi, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader"]
    outcome = run(query, min(timeout, _PATIENCE))
    # One GPU that is lost gives nvidia-smi another status than 0, and leaves the rows of all others.
    runs = parse_csv(outcome.out, _FIELDS).runs if outcome.rc is not None else []
    return [_seen(row, place) for csv in runs for place, row in enumerate(csv.rows)] or None


def _seen(row: CsvRow, place: int) -> Listed:
    """A GPU that does not answer stays in the list; nvidia-smi lists them by their indexes."""
    index, uuid, bus_id = (row.values.get(name) or "" for name in _FIELDS)
    fault = row.fault(_FIELDS)
    number = int(index) if re.fullmatch(r"[0-9]{1,9}", index) else place
    return Listed(number, uuid, bus_id, fault and f"nvidia-smi shows no such GPU that answers: its {fault}")


def _topology(sysfs: str, listed: t.Sequence[Listed] | None, timeout: float) -> Topology:
    placed = None if listed is None else [gpu for gpu in listed if gpu.bus_id]
    topology = topology_sysfs.read_sysfs(sysfs, None if placed is None else [gpu.bus_id for gpu in placed])
    # nvidia-smi keeps the number of a GPU that is lost.
    numbers = [gpu.index for gpu in placed or topology.gpus]
    topology = replace(topology, gpus=[replace(gpu, index=number) for gpu, number in zip(topology.gpus, numbers)])
    smi = shutil.which("nvidia-smi")
    if not listed or not smi or all(gpu.numa_node is not None for gpu in topology.gpus):
        return topology
    outcome = run([smi, "topo", "-m"], min(timeout, _PATIENCE))
    runs = parse_topo(outcome.out).runs if outcome.rc == 0 else []
    return matrix.merge(topology, runs[0] if runs else None)


def _about(request: BandwidthRequest) -> Json:
    """Return the parts of a record that are known before anything ran."""
    context: Json = {"tool": None, "version": None, "argv": [], "profile": request.profile}
    context.update(mode=request.mode, launcher=request.launcher)
    return {"node": request.node, "time": time.time(), "run": request.run, "context": context}


def _without(request: BandwidthRequest, verdict: str, reason: str, gpus: t.Sequence[MeasuredGpu] = ()) -> Json:
    """Return the result where nothing was measured."""
    rows = [MeasuredBandwidth(gpu, BandwidthReading({}, reason)).row(request.directions) for gpu in gpus]
    return {"checks": [record(CHECK, verdict=verdict, reason=reason, **_about(request))], "gpus": rows, "tool": None}
