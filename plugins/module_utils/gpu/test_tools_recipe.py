# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How each GPU test program is built: what the host offers, sources, commands. Reads only."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import BuildStep
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import parse_csv

# What a host offers for building: toolkit, libraries, compilers. Reads only.


SYSTEM = ("/usr/local", "/usr")
CMAKE_LEAST = (3, 20)
_TIMEOUT = 60.0


class Need(t.NamedTuple):
    """Something that a build needs; without ``home`` it is missing and ``looked`` says where it was looked for.

    ``packages`` have it, by apt and by dnf, ``library`` is a directory, ``linked`` whether the linker finds the library
    there under its short name.
    """

    title: str
    packages: t.Sequence[str]
    home: str = ""
    version: str = ""
    library: str = ""
    linked: bool = True
    looked: str = ""


def read(params: t.Mapping[str, t.Any], names: t.Collection[str]) -> dict[str, Need]:
    """Return the named requirements as they are on this host."""
    cuda = toolkit(params["cuda_home"] or "")
    readers: dict[str, t.Callable[[], Need]] = {
        "make": lambda: program("make", "make"),
        "c++": lambda: program("g++", "g++", "gcc-c++"),
        "cuda": lambda: cuda,
        "nccl": lambda: nccl(params["nccl_home"] or "", cuda.home),
        "mpi": lambda: mpi(params["mpi_home"] or ""),
        "cmake": cmake,
        "boost": boost,
        "stubs": lambda: driver_stubs(cuda.home),
    }
    return {name: reader() for name, reader in readers.items() if name in names}


def toolkit(home: str) -> Need:
    """Find the CUDA compiler; the version is the one it prints, since names of directories may be wrong."""
    need = Need("the CUDA compiler nvcc", ("cuda-toolkit",))
    on_path = shutil.which("nvcc")
    homes = [home] if home else ["/usr/local/cuda", *([str(Path(on_path).resolve().parents[1])] if on_path else [])]
    for candidate in homes:
        outcome = run([f"{candidate}/bin/nvcc", "--version"], _TIMEOUT)
        match = re.search(r"release [\d.]+, V([\d.]+)", outcome.out)
        if match:
            return need._replace(home=candidate, version=match.group(1))
    return need._replace(looked=", ".join(f"{candidate}/bin/nvcc" for candidate in homes))


def supported(cuda_home: str) -> set[str]:
    """Return the architectures that a toolkit still or already compiles for, such as ``90``; empty when unknown."""
    return set(re.findall(r"\bsm_(\d+)", run([f"{cuda_home}/bin/nvcc", "--list-gpu-code"], _TIMEOUT).out))


def nccl(home: str, cuda_home: str, system: t.Sequence[str] = SYSTEM) -> Need:
    """Find NCCL's header and library; a Python package of NCCL has libnccl.so.2 only, which is enough."""
    homes = [home] if home else [path for path in (cuda_home, "/usr/local/nccl", *system) if path]
    need = Need("NCCL's header and library", ("libnccl-dev", "libnccl-devel"), looked=", ".join(homes))
    for path in homes:
        linked = _library(path, "libnccl.so")
        library = linked or _library(path, "libnccl.so.2")
        version = _macros(_text(f"{path}/include/nccl.h"), "NCCL_MAJOR NCCL_MINOR NCCL_PATCH")
        if version and library:
            return need._replace(home=path, version=version, library=library, linked=bool(linked))
    return need


def mpi(home: str) -> Need:
    """Find an MPI by its compiler wrapper, which knows where Debian puts the headers."""
    need = Need("an MPI", ("libopenmpi-dev",), looked=home or f"mpicc on PATH, {', '.join(_launch.MPI_PLACES)}")
    for path in [home] if home else _mpi_homes():
        text, library = _text(f"{path}/include/mpi.h"), _library(path, "libmpi.so")
        if text and library:
            version = _macros(text, "OMPI_MAJOR_VERSION OMPI_MINOR_VERSION OMPI_RELEASE_VERSION")
            return need._replace(home=path, library=library, version=version or _macros(text, "MPICH_VERSION"))
    return need


def _mpi_homes() -> list[str]:
    try:
        wrapper = _launch.find("mpicc", None, _launch.MPI_PLACES, role=None)
    except _launch.NotFound:
        return []
    folders = run([wrapper, "--showme:incdirs"], _TIMEOUT).out.split()
    return [str(Path(folder).parent) for folder in folders] + [str(Path(wrapper).resolve().parents[1])]


def driver_stubs(cuda_home: str, system: t.Sequence[str] = SYSTEM) -> Need:
    """Find the libraries to link in place of the driver: the toolkit's stubs, or the driver itself."""
    packages = ("cuda-toolkit", "cuda-nvml-dev with cuda-driver-dev")
    need = Need("nvml.h and libraries libcuda and libnvidia-ml to link with", packages)
    homes = [path for path in (cuda_home, *system) if path]
    header = next((path for path in homes if Path(f"{path}/include/nvml.h").is_file()), "")
    places = [library for library in map(_stubs, homes) if library]
    if header and places:
        return need._replace(home=header, library=places[0])
    return need._replace(looked=", ".join(f"{path}/include, {path}/lib*/stubs" for path in homes))


def _stubs(home: str) -> str:
    for library in (f"{home}/lib64/stubs", f"{home}/lib/stubs", _library(home, "libcuda.so")):
        if library and all(Path(f"{library}/{name}").exists() for name in ("libcuda.so", "libnvidia-ml.so")):
            return library
    return ""


def boost(system: t.Sequence[str] = SYSTEM) -> Need:
    packages = ("libboost-program-options-dev", "boost-devel")
    need = Need("Boost's program_options", packages, looked=", ".join(system))
    for home in system:
        library = _library(home, "libboost_program_options.a") or _library(home, "libboost_program_options.so")
        if library and Path(f"{home}/include/boost/program_options.hpp").is_file():
            return need._replace(home=home, library=library)
    return need


def cmake() -> Need:
    least = ".".join(map(str, CMAKE_LEAST))
    need = Need(f"CMake {least} or newer", ("cmake",), looked="cmake on PATH")
    path = shutil.which("cmake")
    match = re.search(r"version (\d+)\.(\d+)(\S*)", run([path, "--version"], _TIMEOUT).out) if path else None
    if not path or not match:
        return need
    if (int(match.group(1)), int(match.group(2))) < CMAKE_LEAST:
        return need._replace(looked=f"{path}, which is {match.group(0)}")
    return need._replace(home=path, version=match.group(0).split()[1])


def program(name: str, *packages: str) -> Need:
    return Need(name, packages, home=shutil.which(name) or "", looked=f"{name} on PATH")


def gpus() -> list[str]:
    """Return the compute capabilities of this host's GPUs that answer; empty without a working driver."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return []
    outcome = run([smi, "--query-gpu=compute_cap", "--format=csv,noheader"], _TIMEOUT)
    # One GPU that is lost gives nvidia-smi another status than 0, and leaves the rows of all others.
    runs = parse_csv(outcome.out, ["compute_cap"]).runs if outcome.rc is not None else []
    shown = {row.values["compute_cap"] or "" for csv in runs for row in csv.rows}
    return sorted(text for text in shown if re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", text))


def has_gpu(devices: str = "/dev") -> bool:
    """Return whether a driver made device files, also when it cannot be asked any more."""
    return any(re.fullmatch(r"nvidia\d+", device.name) for device in Path(devices).iterdir())


def _library(home: str, name: str) -> str:
    folders = [f"{home}/lib64", f"{home}/lib", *map(str, sorted(Path(f"{home}/lib").glob("*-linux-gnu*")))]
    return next((folder for folder in folders if Path(f"{folder}/{name}").exists()), "")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _macros(text: str, names: str) -> str:
    matches = [re.search(rf"^#define\s+{name}\s+\"?([\w.]+)", text, re.MULTILINE) for name in names.split()]
    return ".".join(match.group(1) for match in matches if match)


# How each program is built, and from what. Pure.


# Increased when the commands below change so that other programs come out.
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


def architectures(requested: t.Iterable[t.Any]) -> list[str]:
    """Return ``80`` for compute capability 8.0, ``90a`` for 9.0a, each once and in order."""
    names = []
    for value in requested:
        match = re.fullmatch(r"(?:sm_)?(\d+)\.(\d)([af]?)|(?:sm_)?(\d{2,3}[af]?)", str(value).strip())
        if not match:
            raise ToolError(f"architecture {value!r} is no compute capability such as 8.0 or 9.0")
        names.append(match.group(4) or "".join(match.group(1, 2, 3)))
    return sorted(set(names), key=lambda name: (int(name.rstrip("af")), name))


def inputs(tool: Tool, source: str, archs: t.Sequence[str], host: t.Mapping[str, Need]) -> dict[str, t.Any]:
    """Return everything that determines a build; None is what this host does not know."""
    inputs: dict[str, t.Any] = {
        "recipe": RECIPE,
        "tool": tool.name,
        "source": source,
        "architectures": list(archs) or None,
    }
    for name in ("cuda", "nccl", "mpi"):
        if name in tool.needs:
            need = host[name]
            location = f" in {need.home}" if name != "cuda" else ""
            inputs[name] = f"{need.version}{location}" if need.home else None
    return inputs


def same(inputs: t.Mapping[str, t.Any], built: t.Mapping[str, t.Any]) -> bool:
    """Return whether a build has these inputs; inputs that this host does not know (None) are not compared."""
    return set(inputs) == set(built) and all(value is None or value == built[key] for key, value in inputs.items())


def digest(inputs: t.Mapping[str, t.Any]) -> str:
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def steps(
    tool: Tool, archs: t.Sequence[str], host: t.Mapping[str, Need], source: str, build: str, jobs: int
) -> list[BuildStep]:
    """Return the commands that build a tool."""
    nvcc = f"{host['cuda'].home}/bin/nvcc"
    if tool.source == "nvbandwidth":
        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_CUDA_COMPILER": nvcc,
            "CMAKE_CUDA_ARCHITECTURES": ";".join(f"{architecture}-real" for architecture in archs),
        }
        # CMakeLists.txt asks git for a version, and git would answer for a repository that happens to lie above.
        alone = {"GIT_CEILING_DIRECTORIES": os.path.dirname(source)}  # noqa: PTH120 - of a name, not of a file
        configure = ["cmake", "-S", source, "-B", build, *(f"-D{key}={value}" for key, value in options.items())]
        return [BuildStep(configure, alone), BuildStep(["cmake", "--build", build, f"-j{jobs}"], alone)]
    return [_make(archs, host, host["mpi"] if "mpi" in tool.needs else None, source, build, jobs)]


def names(build: str) -> str:
    """Return the directory where libraries get the names that the linker looks for."""
    return f"{build}.names"


def _make(
    archs: t.Sequence[str], host: t.Mapping[str, Need], mpi: Need | None, source: str, build: str, jobs: int
) -> BuildStep:
    """Return the step that builds nccl-tests for these architectures, with MPI where there is one."""
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
        "NVCC_GENCODE="
        + " ".join(f"-gencode=arch=compute_{architecture},code=sm_{architecture}" for architecture in archs),
        *(["MPI=1", f"MPI_HOME={mpi.home}"] if mpi else ["MPI=0"]),
    ]
    return BuildStep(argv, {"NVCC_APPEND_FLAGS": " ".join(linker)})
