# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print what a host and its PyTorch offer for a build of Apex: standard library and torch only.

This very file is given to ``python -`` of the environment, through srun on another node when Apex is built there, so it
may import nothing of the collection. It prints what it read; apex_recipe decides what that means.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import typing as t
from pathlib import Path

MARK = "HPCAI_APEX "
_TOOLS = ("pip", "setuptools", "wheel", "packaging")
_TIMEOUT = 60
# Those that PyTorch's own headers for CUDA extensions include.
HEADERS = ("cuda_runtime.h", "cublas_v2.h", "cublasLt.h", "cusparse.h", "cusolverDn.h")


def output_of(*argv: str) -> str:
    """Return the output of a program; empty when it cannot be run or fails."""
    try:
        outcome = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return outcome.stdout if outcome.returncode == 0 else ""


def python() -> dict[str, t.Any]:
    return {
        "python": platform.python_version(),
        "abi": sysconfig.get_config_var("SOABI"),
        "tools": {name: version(name) for name in _TOOLS},
        "headers": Path(sysconfig.get_path("include"), "Python.h").is_file(),
        "include": sysconfig.get_path("include"),
    }


def version(name: str) -> str | None:
    """Return the installed version without importing it: pip and setuptools conflict about distutils when imported."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def pytorch(architectures: str) -> dict[str, t.Any]:
    """Return the facts of PyTorch; where it cannot be imported, the error is the fact."""
    try:
        torch: t.Any = importlib.import_module("torch")
        extension = importlib.import_module("torch.utils.cpp_extension")
    except Exception as exc:
        return {"torch": None, "torch_error": f"{type(exc).__name__}: {exc}"}
    site = Path(torch.__file__).parents[1]
    return {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cxx11abi": bool(torch.compiled_with_cxx11_abi()),
        "archs": _archs(torch),
        "gpus": torch.cuda.device_count() if torch.version.cuda else 0,
        "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,
        "least": list(getattr(extension, "MINIMUM_GCC_VERSION", ())),
        "bounds": {key: [list(bound) for bound in pair] for key, pair in _table(extension).items()},
        "refused": _refused(extension, architectures) if torch.version.cuda and architectures else "",
        "includes": {str(path): headers(path) for path in sorted(site.glob("nvidia/*/include"))},
    }


def headers(folder: Path) -> list[str]:
    """Return which of CUDA's headers a directory has: a toolkit may come without, PyTorch's wheels bring them."""
    return [name for name in HEADERS if (folder / name).is_file()]


def _archs(torch: t.Any) -> str:
    """Return the architectures that PyTorch has code for; its public function returns none where there is no GPU."""
    try:
        return torch._C._cuda_getArchFlags() or ""
    except Exception:
        return " ".join(torch.cuda.get_arch_list())


def _table(extension: t.Any) -> t.Mapping[str, t.Any]:
    return getattr(extension, "CUDA_GCC_VERSIONS", {})


def _refused(extension: t.Any, architectures: str) -> str:
    """Return the error of PyTorch's own build code for a list of architectures, empty without one."""
    os.environ["TORCH_CUDA_ARCH_LIST"] = architectures
    try:
        extension._get_cuda_arch_flags()
    except ValueError as exc:
        return str(exc)
    except Exception:
        return ""
    return ""


def host(request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return the facts of toolkit, compiler, free space, CPUs and memory."""
    home = toolkit(request["cuda_home"])
    nvcc = f"{home}/bin/nvcc"
    compiler = request["compiler"] or os.environ.get("CXX") or "c++"
    ninja = shutil.which("ninja", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}")
    return {
        "host": platform.node(),
        "cuda_home": home,
        "cuda_headers": headers(Path(home, "include")),
        "nvcc": output_of(nvcc, "--version"),
        "codes": output_of(nvcc, "--list-gpu-code"),
        "compiler": shutil.which(compiler) or "",
        "compiler_path": compiler,
        "compiler_name": output_of(compiler, "--version"),
        "compiler_version": output_of(compiler, "-dumpfullversion", "-dumpversion"),
        "ninja": output_of(ninja, "--version").strip() if ninja else "",
        "free": free(request["build_dir"]),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": memory(),
    }


def toolkit(home: str) -> str:
    """Return the directory of a toolkit: given, in the environment, in its usual place, or of the nvcc on the path.

    The one in the environment is of the very CUDA that its PyTorch is built with.
    """
    own = sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/cu*/bin/nvcc"))
    if home or own:
        return home or str(own[-1].parents[1])
    if Path("/usr/local/cuda/bin/nvcc").is_file():
        return "/usr/local/cuda"
    nvcc = shutil.which("nvcc")
    return str(Path(nvcc).resolve().parents[1]) if nvcc else "/usr/local/cuda"


def free(path: str) -> int | None:
    """Return the bytes that are free where a directory is, or will be."""
    directory = Path(path)
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    return shutil.disk_usage(directory).free


def memory() -> int:
    """Return the bytes that a build may use: what Slurm gave, or what is available."""
    if os.environ.get("SLURM_MEM_PER_NODE"):
        return int(os.environ["SLURM_MEM_PER_NODE"]) << 20
    if os.environ.get("SLURM_MEM_PER_CPU"):
        return int(os.environ["SLURM_MEM_PER_CPU"]) * len(os.sched_getaffinity(0)) << 20
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) << 10


def main() -> None:
    request = json.loads(sys.argv[1])
    facts = {**python(), **pytorch(request["architectures"])}
    if not request["torch_only"]:
        facts.update(host(request))
    sys.stdout.write(f"\n{MARK}{json.dumps(facts)}\n")


if __name__ == "__main__":
    main()
