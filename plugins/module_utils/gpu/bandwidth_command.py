# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_bandwidth: the request, the program it takes, and the command line for each GPU. Pure."""

from __future__ import annotations

import posixpath
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks, _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    validate_expectation,
    validate_seconds,
    validate_units,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._find import NotFound
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Command, Launch, LaunchError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.test_tools_recipe import TOOLS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import binding as topology_binding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import Topology, address, mask, parse

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
    """One GPU as nvidia-smi lists it."""

    index: int
    uuid: str
    bus_id: str


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


def validate(params: t.Mapping[str, t.Any], launch: Launch) -> None:
    """Refuse what cannot be measured or judged, before anything starts."""
    for expectation in params["expect"]:
        validate_expectation(expectation)
    validate_units(params["expect"], CHECK, dict.fromkeys(DIRECTIONS, UNIT))
    if not params["directions"] or len(set(params["directions"])) != len(params["directions"]):
        raise GpuBandwidthError("directions must name at least one, and each once")
    if params["size"] is not None and params["size"] < 1 << 20:
        raise GpuBandwidthError(f"size is {params['size']}; less than 1 MiB measures latency, not bandwidth")
    validate_seconds("timeout", params["timeout"])
    taken = [name for name in ("cpu_masks", "visible_devices") if params[name]]
    if taken or launch.ranks != 1:
        subject = ", ".join(taken) or f"{launch.nodes} nodes with {launch.ranks_per_node} ranks"
        raise LaunchError(f"{subject}: one process measures one GPU of one node, where the topology says it belongs")


def plan(
    indexes: t.Sequence[int] | None, topology: Topology | None, listed: t.Sequence[Listed] | None
) -> list[MeasuredGpu]:
    """Return the GPUs to measure; ``listed`` are those that nvidia-smi shows here, None where it cannot be called."""
    locations = {gpu.index: gpu for gpu in topology.gpus} if topology else {}
    if indexes is None:
        indexes = sorted(locations) if topology and locations else [gpu.index for gpu in listed or []]
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
    return replace(gpu, uuid=same[0].uuid or None, bus_id=gpu.bus_id or same[0].bus_id)


def _gone(gpu: MeasuredGpu, problem: str, indexes: t.Iterable[int]) -> MeasuredGpu:
    """Note a GPU that is not there: a gap between indexes is the lost GPU, behind the last index it may be any."""
    surplus = gpu.index > max(indexes, default=-1)
    return replace(gpu, problem=f"{problem}{_SHIFT if surplus else ''}", surplus=surplus)


def expected(params: t.Mapping[str, t.Any]) -> bool:
    """Return whether any expectation is about this check."""
    return any(expectation["check"] == CHECK for expectation in params["expect"])


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
TESTS = {"h2d": "host_to_device_memcpy_ce", "d2h": "device_to_host_memcpy_ce", "d2d": "device_local_copy"}


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


def command(
    launch: Launch, program: t.Sequence[str], gpu: MeasuredGpu, method: topology_binding.Method | None
) -> Command:
    """Return the command that runs the program for one GPU, on the CPUs of its NUMA node unless ``method`` is None."""
    variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu.visible}
    if launch.kind == "local":
        argv = topology_binding.bind(program, gpu.cpus, gpu.numa_node, method) if method else list(program)
        return _launch.command(launch._replace(environment={**launch.environment, **variables}), argv)
    # Slurm sets these variables itself in a step, after it has taken over those of the caller.
    argv = ["env", *(f"{name}={value}" for name, value in variables.items()), *program]
    if method and launch.kind == "srun" and gpu.cpus:
        launch = launch._replace(cpu_masks=[mask(parse(gpu.cpus))])
    elif method:
        argv = topology_binding.bind(argv, gpu.cpus, gpu.numa_node, method)
    return _launch.command(launch, argv)


def binding(launch: Launch, gpu: MeasuredGpu, method: topology_binding.Method | None) -> str:
    """Return the name of what binds the program to CPUs: numactl, taskset, srun or none."""
    if method is None or not (gpu.cpus or gpu.numa_node is not None):
        return "none"
    if launch.kind == "srun" and gpu.cpus:
        return "srun"
    return method.name if gpu.cpus or method.name == "numactl" else "none"
