# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host offers for building GPU test programs: toolkit, libraries, compilers. Reads only, private."""

from __future__ import annotations

import re
import shutil
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run

SYSTEM = ("/usr/local", "/usr")
CMAKE_LEAST = (3, 20)
_TIMEOUT = 60.0


class Need(t.NamedTuple):
    """Something that a build needs; without ``home`` it is missing and ``looked`` says where it was looked for.

    ``library`` is a directory, ``linked`` whether the linker finds the library there under its short name.
    """

    title: str
    package: str
    home: str = ""
    version: str = ""
    library: str = ""
    linked: bool = True
    looked: str = ""


def read(params: t.Mapping[str, t.Any], names: t.Collection[str]) -> dict[str, Need]:
    """Look for what is named in the needs of tools."""
    cuda = toolkit(params["cuda_home"] or "")
    readers: dict[str, t.Callable[[], Need]] = {
        "make": lambda: program("make", "make"),
        "c++": lambda: program("g++", "g++"),
        "cuda": lambda: cuda,
        "nccl": lambda: nccl(params["nccl_home"] or "", cuda.home),
        "mpi": lambda: mpi(params["mpi_home"] or ""),
        "cmake": cmake,
        "boost": boost,
        "stubs": lambda: driver_stubs(cuda.home),
    }
    return {name: reader() for name, reader in readers.items() if name in names}


def toolkit(home: str) -> Need:
    """Find the CUDA compiler; the version is asked of it, because directories are renamed and linked."""
    need = Need("the CUDA compiler nvcc", "cuda-toolkit")
    on_path = shutil.which("nvcc")
    found = [home] if home else ["/usr/local/cuda", *([str(Path(on_path).resolve().parents[1])] if on_path else [])]
    for one in found:
        outcome = run([f"{one}/bin/nvcc", "--version"], _TIMEOUT)
        match = re.search(r"release [\d.]+, V([\d.]+)", outcome.out)
        if match:
            return need._replace(home=one, version=match.group(1))
    return need._replace(looked=", ".join(f"{one}/bin/nvcc" for one in found))


def supported(cuda_home: str) -> set[str]:
    """Return the architectures that a toolkit still or already compiles for, such as ``90``; empty when unknown."""
    return set(re.findall(r"\bsm_(\d+)", run([f"{cuda_home}/bin/nvcc", "--list-gpu-code"], _TIMEOUT).out))


def nccl(home: str, cuda_home: str, system: t.Sequence[str] = SYSTEM) -> Need:
    """Find NCCL's header and library; a Python package of NCCL has libnccl.so.2 only, which is enough."""
    homes = [home] if home else [one for one in (cuda_home, "/usr/local/nccl", *system) if one]
    need = Need("NCCL's header and library", "libnccl-dev", looked=", ".join(homes))
    for one in homes:
        linked = _library(one, "libnccl.so")
        library = linked or _library(one, "libnccl.so.2")
        version = _macros(_text(f"{one}/include/nccl.h"), "NCCL_MAJOR NCCL_MINOR NCCL_PATCH")
        if version and library:
            return need._replace(home=one, version=version, library=library, linked=bool(linked))
    return need


def mpi(home: str) -> Need:
    """Find an MPI by its compiler wrapper, which knows where Debian hides headers."""
    need = Need("an MPI", "libopenmpi-dev", looked=home or f"mpicc on PATH, {', '.join(_find.MPI_PLACES)}")
    for one in [home] if home else _mpi_homes():
        text, library = _text(f"{one}/include/mpi.h"), _library(one, "libmpi.so")
        if text and library:
            version = _macros(text, "OMPI_MAJOR_VERSION OMPI_MINOR_VERSION OMPI_RELEASE_VERSION")
            return need._replace(home=one, library=library, version=version or _macros(text, "MPICH_VERSION"))
    return need


def _mpi_homes() -> list[str]:
    try:
        wrapper = _find.find("mpicc", None, _find.MPI_PLACES, role=None)
    except _find.NotFound:
        return []
    folders = run([wrapper, "--showme:incdirs"], _TIMEOUT).out.split()
    return [str(Path(one).parent) for one in folders] + [str(Path(wrapper).resolve().parents[1])]


def driver_stubs(cuda_home: str, system: t.Sequence[str] = SYSTEM) -> Need:
    """Find what stands in for the driver at link time: the toolkit's stubs, or the driver itself."""
    need = Need("nvml.h and libraries libcuda and libnvidia-ml to link with", "cuda-nvml-dev, cuda-driver-dev")
    homes = [one for one in (cuda_home, *system) if one]
    header = next((one for one in homes if Path(f"{one}/include/nvml.h").is_file()), "")
    places = [library for library in map(_stubs, homes) if library]
    if header and places:
        return need._replace(home=header, library=places[0])
    return need._replace(looked=", ".join(f"{one}/include, {one}/lib*/stubs" for one in homes))


def _stubs(home: str) -> str:
    for library in (f"{home}/lib64/stubs", f"{home}/lib/stubs", _library(home, "libcuda.so")):
        if library and all(Path(f"{library}/{name}").exists() for name in ("libcuda.so", "libnvidia-ml.so")):
            return library
    return ""


def boost(system: t.Sequence[str] = SYSTEM) -> Need:
    need = Need("Boost's program_options", "libboost-program-options-dev", looked=", ".join(system))
    for one in system:
        library = _library(one, "libboost_program_options.a") or _library(one, "libboost_program_options.so")
        if library and Path(f"{one}/include/boost/program_options.hpp").is_file():
            return need._replace(home=one, library=library)
    return need


def cmake() -> Need:
    least = ".".join(map(str, CMAKE_LEAST))
    need = Need(f"CMake {least} or newer", "cmake", looked="cmake on PATH")
    path = shutil.which("cmake")
    match = re.search(r"version (\d+)\.(\d+)(\S*)", run([path, "--version"], _TIMEOUT).out) if path else None
    if not path or not match:
        return need
    if (int(match.group(1)), int(match.group(2))) < CMAKE_LEAST:
        return need._replace(looked=f"{path}, which is {match.group(0)}")
    return need._replace(home=path, version=match.group(0).split()[1])


def program(name: str, package: str) -> Need:
    return Need(name, package, home=shutil.which(name) or "", looked=f"{name} on PATH")


def gpus() -> list[str]:
    """Return the compute capabilities of this host's GPUs; empty without a working driver."""
    found = shutil.which("nvidia-smi")
    if not found:
        return []
    said = run([found, "--query-gpu=compute_cap", "--format=csv,noheader"], _TIMEOUT)
    return sorted(set(re.findall(r"^\d+\.\d+$", said.out, re.MULTILINE))) if said.rc == 0 else []


def has_gpu(devices: str = "/dev") -> bool:
    """Return whether a driver made device files, also when it cannot be asked any more."""
    return any(re.fullmatch(r"nvidia\d+", one.name) for one in Path(devices).iterdir())


def _library(home: str, name: str) -> str:
    folders = [f"{home}/lib64", f"{home}/lib", *map(str, sorted(Path(f"{home}/lib").glob("*-linux-gnu*")))]
    return next((one for one in folders if Path(f"{one}/{name}").exists()), "")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _macros(text: str, names: str) -> str:
    found = [re.search(rf"^#define\s+{name}\s+\"?([\w.]+)", text, re.MULTILINE) for name in names.split()]
    return ".".join(match.group(1) for match in found if match)
