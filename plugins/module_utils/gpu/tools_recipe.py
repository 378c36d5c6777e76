# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How each GPU test program is built, and from what: no I/O, no AnsibleModule, private."""

from __future__ import annotations

import hashlib
import json
import os
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._build import Step
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.tools_host import Need

# Raised when the commands below change in a way that makes other programs.
RECIPE = 1

_DEFAULT_PATH = re.compile(r"/(usr/)?lib(64|/[a-z0-9_]+-linux-gnu\w*)?")
_COLLECTIVES = (
    "all_reduce all_gather broadcast reduce_scatter reduce alltoall alltoallv scatter gather sendrecv hypercube"
)


class ToolError(ValueError):
    """A tool cannot be built or used; the text is fit for the user."""


class Tool(t.NamedTuple):
    """One entry of the store. ``programs`` may be more than a release has; ``proof`` is the one that is run."""

    name: str
    source: str
    needs: t.Sequence[str]
    programs: t.Sequence[str]
    proof: str
    places: t.Sequence[str]
    suffix: str = ""
    required: bool = True


_NCCL = [f"{name}_perf" for name in _COLLECTIVES.split()]
_NCCL_PLACES = (
    "/opt/nccl-tests/build",
    "/opt/nccl_tests/build",
    "/usr/local/nccl-tests/build",
    "/usr/local/bin",
    "/usr/bin",
)
_CUDA_SAMPLES = (
    "/usr/local/cuda*/extras/demo_suite",
    "/usr/local/cuda*/samples/bin/*/linux/release",
    "/usr/local/cuda*/samples/1_Utilities/bandwidthTest",
)
TOOLS = {
    tool.name: tool
    for tool in (
        Tool("nccl_tests", "nccl_tests", ["make", "c++", "cuda", "nccl"], _NCCL, "all_reduce_perf", _NCCL_PLACES),
        Tool(
            "nccl_tests_mpi",
            "nccl_tests",
            ["make", "c++", "cuda", "nccl", "mpi"],
            _NCCL,
            "all_reduce_perf",
            _NCCL_PLACES,
            suffix="_mpi",
        ),
        Tool(
            "nvbandwidth",
            "nvbandwidth",
            ["make", "c++", "cuda", "cmake", "boost", "stubs"],
            ["nvbandwidth"],
            "nvbandwidth",
            (
                "/opt/nvidia/nvbandwidth",
                "/opt/nvbandwidth/build",
                "/opt/azurehpc/test/*/bin",
                "/usr/local/bin",
                "/usr/bin",
            ),
        ),
        Tool(
            "bandwidth_test",
            "",
            [],
            ["bandwidthTest"],
            "bandwidthTest",
            (*_CUDA_SAMPLES, "/usr/local/bin"),
            required=False,
        ),
    )
}


def architectures(asked: t.Iterable[t.Any]) -> list[str]:
    """Return ``80`` for compute capability 8.0, ``90a`` for 9.0a, each once and in order."""
    found = []
    for item in asked:
        match = re.fullmatch(r"(?:sm_)?(\d+)\.(\d)([af]?)|(?:sm_)?(\d{2,3}[af]?)", str(item).strip())
        if not match:
            raise ToolError(f"architecture {item!r} is no compute capability such as 8.0 or 9.0")
        found.append(match.group(4) or "".join(match.group(1, 2, 3)))
    return sorted(set(found), key=lambda one: (int(one.rstrip("af")), one))


def inputs(tool: Tool, source: str, archs: t.Sequence[str], host: t.Mapping[str, Need]) -> dict[str, t.Any]:
    """Return all that decides what a build makes; None stands for what this host cannot tell."""
    told: dict[str, t.Any] = {
        "recipe": RECIPE,
        "tool": tool.name,
        "source": source,
        "architectures": list(archs) or None,
    }
    for name in ("cuda", "nccl", "mpi"):
        if name in tool.needs:
            need = host[name]
            where = f" in {need.home}" if name != "cuda" else ""
            told[name] = f"{need.version}{where}" if need.home else None
    return told


def same(wanted: t.Mapping[str, t.Any], built: t.Mapping[str, t.Any]) -> bool:
    """Return whether a build is the wanted one, as far as this host can tell: an image may have lost its toolkit."""
    return set(wanted) == set(built) and all(value is None or value == built[key] for key, value in wanted.items())


def digest(wanted: t.Mapping[str, t.Any]) -> str:
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:12]


def steps(
    tool: Tool, archs: t.Sequence[str], host: t.Mapping[str, Need], source: str, build: str, jobs: int
) -> list[Step]:
    """Return the commands that build a tool."""
    nvcc = f"{host['cuda'].home}/bin/nvcc"
    if tool.source == "nvbandwidth":
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_CUDA_COMPILER": nvcc,
            "CMAKE_CUDA_ARCHITECTURES": ";".join(f"{one}-real" for one in archs),
        }
        # CMakeLists.txt asks git for a version, and git would answer for a repository that happens to lie above.
        alone = {"GIT_CEILING_DIRECTORIES": os.path.dirname(source)}  # noqa: PTH120 - of a name, not of a file
        configure = ["cmake", "-S", source, "-B", build, *(f"-D{key}={value}" for key, value in options.items())]
        return [Step(configure, alone), Step(["cmake", "--build", build, f"-j{jobs}"], alone)]
    return [_make(archs, host, host["mpi"] if "mpi" in tool.needs else None, source, build, jobs)]


def names(build: str) -> str:
    """Return the directory where libraries get the names that the linker looks for."""
    return f"{build}.names"


def _make(
    archs: t.Sequence[str], host: t.Mapping[str, Need], mpi: Need | None, source: str, build: str, jobs: int
) -> Step:
    nccl = host["nccl"]
    folders = [need.library for need in (nccl, mpi) if need]
    # nvlink cannot open -l:libnccl.so.2, so the library gets its short name beside the build.
    short = [] if nccl.linked else [f"-L{names(build)}"]
    # The programs must find their libraries without a module loaded; LD_LIBRARY_PATH still comes first, so that
    # another NCCL can be tried.
    linker = ["-Xlinker", "--enable-new-dtags", *short]
    for folder in folders:
        linker += [f"-L{folder}"] + ([] if _DEFAULT_PATH.fullmatch(folder) else ["-Xlinker", f"-rpath={folder}"])
    argv = [
        *("make", f"-j{jobs}", "-C", source, f"BUILDDIR={build}"),
        f"CUDA_HOME={host['cuda'].home}",
        f"NCCL_HOME={nccl.home}",
        # Of the toolkit nothing is needed at run time then.
        "CUDARTLIB=cudart_static",
        "NVCC_GENCODE=" + " ".join(f"-gencode=arch=compute_{one},code=sm_{one}" for one in archs),
        *(["MPI=1", f"MPI_HOME={mpi.home}"] if mpi else ["MPI=0"]),
    ]
    return Step(argv, {"NVCC_APPEND_FLAGS": " ".join(linker)})
