# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_bandwidth: which program, and its command line for one GPU. Pure, private."""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._find import NotFound
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Command, Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.bandwidth import Gpu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.tools_recipe import TOOLS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology import numa
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.cpus import mask, parse

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


def choose(tool: str, path: str | None, launch: Launch, find: t.Callable[..., str]) -> Program:
    """Return the program: bandwidthTest where it exists, else nvbandwidth. Raises NotFound with all that was tried.

    What other machines or a container have at a given path is taken as given.
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
        return _there(names[-1], path)
    raise NotFound("; ".join(reasons))


def _there(name: str, path: str | None) -> Program:
    if not path:
        return Program(name, name)
    return Program(
        name, path if posixpath.basename(path.rstrip("/")).startswith(name) else f"{path.rstrip('/')}/{name}"
    )


def arguments(tool: str, directions: t.Sequence[str], size: int | None, more: t.Sequence[str]) -> list[str]:
    """Return the arguments for the one GPU that the program sees."""
    if tool == "nvbandwidth":
        buffer = [] if size is None else ["--bufferSize", str(size // (1 << 20))]
        # The copy inside the GPU comes last: versions before 0.7 do not know it and go on.
        return [*buffer, *more, "-t", *(test for name, test in TESTS.items() if name in directions)]
    number = size or _SIZE
    sizes = [f"--start={number}", f"--end={number}", f"--increment={number}"]
    return ["--device=0", "--memory=pinned", "--mode=range", *sizes, *(_FLAGS[name] for name in directions), *more]


def command(launch: Launch, program: t.Sequence[str], gpu: Gpu, how: numa.Method | None) -> Command:
    """Return what starts the program for one GPU, on the CPUs of its NUMA node unless ``how`` is None."""
    own = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu.visible}
    if launch.kind == "local":
        argv = numa.bind(program, gpu.cpus, gpu.numa_node, how) if how else list(program)
        return _launch.command(launch._replace(environment={**launch.environment, **own}), argv)
    # Slurm sets these variables itself in a step, after it has taken over those of the caller.
    argv = ["env", *(f"{name}={value}" for name, value in own.items()), *program]
    if how and launch.kind == "srun" and gpu.cpus:
        launch = launch._replace(cpu_masks=[mask(parse(gpu.cpus))])
    elif how:
        argv = numa.bind(argv, gpu.cpus, gpu.numa_node, how)
    return _launch.command(launch, argv)


def binding(launch: Launch, gpu: Gpu, how: numa.Method | None) -> str:
    """Return by what the program was bound."""
    if how is None or not (gpu.cpus or gpu.numa_node is not None):
        return "none"
    if launch.kind == "srun" and gpu.cpus:
        return "srun"
    return how.name if gpu.cpus or how.name == "numactl" else "none"
