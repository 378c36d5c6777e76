# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prove that GPU test programs load and run here, or fail here as they should without a GPU. Private."""

from __future__ import annotations

import os
import re
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.tools_recipe import Tool, ToolError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.tools_store import programs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import bandwidth_test, nccl_tests, nvbandwidth
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import FirstCause

# They come with the driver, so a host that only builds has none.
DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_LIMIT = 180.0
_NO_DEVICE = re.compile(r"no CUDA-capable device|driver version is insufficient|CUDA_ERROR_NO_DEVICE|No devices found")
_OLD_DRIVER = re.compile(r"driver version is insufficient|CUDA_ERROR_COMPAT_NOT_SUPPORTED|unsupported PTX version")
_OTHER_GPU = re.compile(r"no kernel image|invalid device function|NO_BINARY_FOR_GPU|named symbol not found")


class Trial(t.NamedTuple):
    """How a program is asked for help, the word that its answer holds, and its shortest measurement."""

    help: t.Sequence[str]
    word: str
    measure: t.Sequence[str]
    ok: t.Callable[[str], bool]


class Place(t.NamedTuple):
    """The host that a proof is made on; ``stubs`` is the directory of the toolkit's stand-ins for the driver."""

    gpu: bool
    environment: t.Mapping[str, str]
    stubs: str = ""


class Proof(t.NamedTuple):
    """``state`` is measured, no device, loads (its driver is elsewhere) or failed (the GPU is busy or ill)."""

    state: str
    said: str


_SMALL = ["-b", "1M", "-e", "1M", "-n", "2", "-w", "1", "-g", "1", "-c", "1"]
_TRIALS = {
    "all_reduce_perf": Trial(["-h"], "USAGE:", _SMALL, lambda text: nccl_tests.parse(text).ok),
    "nvbandwidth": Trial(
        ["-h"], "nvbandwidth CLI", ["-t", "device_local_copy", "-b", "64"], lambda x: nvbandwidth.parse(x).ok
    ),
    "bandwidthTest": Trial(["--help"], "Usage:", ["--device=0", "--dtod"], lambda text: bandwidth_test.parse(text).ok),
}


def absent(ldd: str) -> list[str]:
    """Return the libraries that the loader does not find, from what ldd printed."""
    return re.findall(r"^\s*(\S+) => not found", ldd, re.MULTILINE) + re.findall(r"version `\S+' not found", ldd)


def links_mpi(program: str) -> bool:
    return "libmpi" in run(["ldd", program], _LIMIT).out


def launcher(mpi_home: str) -> tuple[list[str], dict[str, str]]:
    """Return how one MPI rank is started, and its variables; without mpirun the program starts by itself."""
    given = f"{mpi_home}/bin/mpirun"
    try:
        path, variables = _find.launcher("mpirun", given if mpi_home and _find.executable(given) else None)
    except _find.NotFound:
        return [], {}
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    # HPC-X is found by nobody unless its module is loaded or its own mpirun starts the program.
    known = os.environ.get("LD_LIBRARY_PATH")
    return [path, "-np", "1", *root], {**variables, "LD_LIBRARY_PATH": ":".join(filter(None, [_beside(path), known]))}


def _beside(path: str) -> str:
    return str(Path(path).parents[1] / "lib")


def prove(tool: Tool, directory: str, place: Place, start: t.Sequence[str] = ()) -> Proof:
    """Prove a tool; raises ToolError when its programs are not fit for this host."""
    lost: set[str] = set()
    for name in programs(tool, directory):
        outcome = run(["ldd", f"{directory}/{name}"], _LIMIT, environment=place.environment)
        lost |= set(absent(outcome.out + outcome.err))
        if lost - (set() if place.gpu else set(DRIVER_LIBRARIES)):
            raise ToolError(f"{directory}/{name} cannot be loaded, the loader does not find {', '.join(sorted(lost))}")
    trial, argv = _TRIALS[tool.proof], [*start, f"{directory}/{tool.proof}"]
    if lost:
        return _without_driver(trial, argv, place)
    _help(trial, argv, run([*argv, *trial.help], _LIMIT, environment=place.environment))
    outcome = run([*argv, *trial.measure], _LIMIT, environment=place.environment)
    return judge(trial, [*argv, *trial.measure], outcome, place.gpu)


def _without_driver(trial: Trial, argv: t.Sequence[str], place: Place) -> Proof:
    """Load a program with the toolkit's stand-ins for the driver: its other symbols are resolved all the same."""
    if not place.stubs:
        return Proof("loads", "not run: this host has neither the driver's libraries nor the toolkit's stubs")
    with tempfile.TemporaryDirectory() as folder:
        for name in DRIVER_LIBRARIES:
            Path(folder, name).symlink_to(f"{place.stubs}/{name[:-2]}")
        known = place.environment.get("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH"))
        variables = {**place.environment, "LD_LIBRARY_PATH": ":".join(filter(None, [folder, known]))}
        _help(trial, argv, run([*argv, *trial.help], _LIMIT, environment=variables))
    return Proof("loads", "answered with the toolkit's stubs in place of the driver, which this host does not have")


def _help(trial: Trial, argv: t.Sequence[str], outcome: Outcome) -> None:
    if outcome.rc != 0 or trial.word not in outcome.out:
        raise ToolError(
            f"{' '.join([*argv, *trial.help])} did not print its usage: {outcome.problem or outcome.out[:200]}"
        )


def tool_name(argv: t.Sequence[str]) -> str:
    return next(Path(one).name for one in argv if Path(one).name in _TRIALS)


def judge(trial: Trial, argv: t.Sequence[str], outcome: Outcome, gpu: bool) -> Proof:
    """Say what the shortest measurement proves; raises ToolError for what only another build can mend."""
    text = f"{outcome.out}\n{outcome.err}"
    if outcome.rc == 0 and trial.ok(outcome.out):
        return Proof("measured", " ".join([tool_name(argv), *trial.measure]))
    said = _cause(text) or outcome.problem or "no result"
    if not gpu:
        if _NO_DEVICE.search(text):
            return Proof("no device", said)
        raise ToolError(f"{' '.join(argv)} should only miss a GPU here, but says: {said}")
    if _OLD_DRIVER.search(text):
        raise ToolError(f"{argv[0]} was built with a CUDA toolkit that is newer than this host's driver: {said}")
    if _OTHER_GPU.search(text):
        raise ToolError(f"{' '.join(argv)} was not built for this host's GPUs: {said}")
    return Proof("failed", said)


def _cause(text: str) -> str:
    first = FirstCause()
    for line in text.splitlines():
        first.see(line)
    return first.cause.text if first.cause else ""
