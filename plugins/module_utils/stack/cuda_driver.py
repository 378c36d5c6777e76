# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which build of PyTorch a driver and its GPUs can run. No I/O.

Minimum drivers on Linux: CUDA Toolkit release notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor
Version Compatibility" (one per major) and "CUDA Toolkit and Corresponding Driver Versions" (one per release, of its
first build), https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/. A driver that is older than a release's own runs
its programs "with limited feature-set": what they compile to PTX at run time does not load, and calls that the driver
lacks fail (https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html). A cubin runs on devices
of the same major and the same or a higher minor compute capability (CUDA C++ Programming Guide, "Binary
Compatibility").
"""

from __future__ import annotations

import re
import typing as t

MAJORS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
RELEASES = {
    "12.4": "550.54.14",
    "12.6": "560.28.03",
    "12.8": "570.26",
    "12.9": "575.51.03",
    "13.0": "580.65.06",
    "13.1": "590.44.01",
    "13.2": "595.45.04",
}
CPU = "cpu"
AUTO = "auto"


class EnvironmentRefused(ValueError):
    """An environment cannot be made as requested; the text is fit for the user."""


class CudaBuild(t.NamedTuple):
    """PyTorch as one lock file holds it; ``cuda`` is empty for a build for CPUs, None when it is not known yet.

    ``indexes`` are package indexes besides the usual ones.
    """

    name: str
    lock: str
    cuda: str | None = ""
    capabilities: t.Sequence[str] = ()
    pythons: t.Sequence[str] = ()
    machines: t.Sequence[str] = ()
    indexes: t.Sequence[str] = ()


class Driver(t.NamedTuple):
    host: str
    version: str
    capabilities: t.Sequence[str] = ()
    cuda: str = ""


def builds(described: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, CudaBuild]:
    known = {}
    for name, fields in described.items():
        unknown = set(fields) - set(CudaBuild._fields)
        if unknown or "lock" not in fields:
            fault = f"has unknown {', '.join(sorted(unknown))}" if unknown else "has no lock"
            raise EnvironmentRefused(f"build {name} {fault}; known: {', '.join(CudaBuild._fields[1:])}")
        known[name] = CudaBuild(**{**fields, "name": name})
    return known


def drivers(answers: t.Iterable[t.Mapping[str, t.Any]]) -> list[Driver]:
    """Read drivers that are either described, or answers of nvidia-smi (``text``, see the module)."""
    return [_answer(answer) if "text" in answer else _described(answer) for answer in answers]


def _described(fields: t.Mapping[str, t.Any]) -> Driver:
    version = str(fields.get("version") or "")
    if not re.fullmatch(r"\d+(\.\d+)+", version):
        raise EnvironmentRefused(f"a driver needs its version, such as 580.65.06; given: {dict(fields)}")
    capabilities = [str(capability) for capability in fields.get("capabilities") or []]
    return Driver(str(fields.get("host") or "the given driver"), version, capabilities, str(fields.get("cuda") or ""))


def _answer(answer: t.Mapping[str, t.Any]) -> Driver:
    text = str(answer["text"])
    rows = re.findall(r"^\s*(\d+(?:\.\d+)+)[-\w]*\s*,\s*(\d+\.\d+)\s*$", text, re.MULTILINE)
    if not rows:
        raise EnvironmentRefused(
            f"the driver of {answer.get('host')} is not known, nvidia-smi said: {text.strip()[:300] or 'nothing'}. "
            "Repair it, say what nodes have (pytorch_drivers), or choose a build that needs none (pytorch_build: cpu)"
        )
    return Driver(str(answer.get("host")), rows[0][0], sorted({capability for dummy, capability in rows}))


def choose(
    known: t.Mapping[str, CudaBuild], requested: str, observed: t.Sequence[Driver], python: str, machine: str
) -> tuple[CudaBuild, str]:
    """Return the build to use and why; raises EnvironmentRefused with every reason against it."""
    if requested != AUTO:
        if requested not in known:
            raise EnvironmentRefused(f"there is no build {requested}; known: {AUTO}, {', '.join(known)}")
        _refuse(known[requested], against(known[requested], observed, python, machine), observed)
        return known[requested], "asked for"
    candidates = [build for build in known.values() if (build.cuda != "") == bool(observed)] or list(known.values())
    fit = {build.name: against(build, observed, python, machine) for build in candidates}
    good = [build for build in candidates if not fit[build.name]]
    if not good:
        faults = "; ".join(f"{name}: {', '.join(reasons)}" for name, reasons in fit.items())
        raise EnvironmentRefused(f"no build fits {_driver_names(observed)}. {faults}. {_advice(observed)}")
    if not observed:
        return good[0], "no GPU driver is known"
    whole = [build for build in good if all(native(build, driver) for driver in observed)]
    if whole:
        best = max(whole, key=lambda build: numbers(build.cuda or "0"))
        return best, f"the newest that {_driver_names(observed)} runs natively"
    # Each later CUDA brings more that an older driver lacks, so that the nearest to the driver's own is taken.
    best = min(good, key=lambda build: numbers(build.cuda or "0"))
    return best, f"the oldest, as {_driver_names(observed)} runs it by minor version compatibility only"


def against(build: CudaBuild, observed: t.Sequence[Driver], python: str, machine: str) -> list[str]:
    """Return the reasons against a build on this host; empty without any."""
    faults = []
    if build.pythons and python and python not in build.pythons:
        faults.append(f"it is locked for Python {', '.join(build.pythons)}, not {python}")
    if build.machines and machine not in build.machines:
        faults.append(f"it is locked for {', '.join(build.machines)}, not {machine}")
    return faults + [
        reason for driver in observed for reason in driver_problems(build.cuda, build.capabilities, driver)
    ]


def driver_problems(cuda: str | None, capabilities: t.Sequence[str], driver: Driver) -> list[str]:
    """Say why a driver or its GPUs cannot run code of a CUDA version that was compiled for some GPUs."""
    if not cuda:
        return []
    faults = []
    least = MAJORS.get(numbers(cuda)[0], "")
    by_cuda = driver.cuda and numbers(driver.cuda)[0] >= numbers(cuda)[0]
    if not by_cuda and (not least or numbers(driver.version) < numbers(least)):
        need = f"driver {least} or newer" if least else "a driver that this collection does not know"
        faults.append(f"CUDA {cuda} needs {need}, {driver.host} has driver {driver.version}")
    lacking = [
        capability for capability in driver.capabilities if capabilities and not covered(capability, capabilities)
    ]
    if lacking:
        holds = ", ".join(capabilities)
        faults.append(f"it has code for GPUs of compute capability {holds}, {driver.host} has {', '.join(lacking)}")
    return faults


def native(build: CudaBuild, driver: Driver) -> bool:
    """Return whether a driver is as new as the CUDA of a build, so that no feature of it is missing."""
    if not build.cuda:
        return True
    if driver.cuda:
        return numbers(driver.cuda)[:2] >= numbers(build.cuda)[:2]
    least = RELEASES.get(build.cuda)
    return bool(least) and numbers(driver.version) >= numbers(least or "")


def covered(capability: str, compiled: t.Iterable[str]) -> bool:
    major, minor = numbers(capability)[:2]
    return any(numbers(other)[0] == major and numbers(other)[1] <= minor for other in compiled)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _refuse(build: CudaBuild, reasons: t.Sequence[str], observed: t.Sequence[Driver]) -> None:
    if reasons:
        raise EnvironmentRefused(f"build {build.name} cannot be used: {'; '.join(reasons)}. {_advice(observed)}")


def _driver_names(observed: t.Sequence[Driver]) -> str:
    return " and ".join(sorted({f"driver {driver.version}" for driver in observed})) or "this host"


def _advice(observed: t.Sequence[Driver]) -> str:
    if not observed:
        return "Choose another pytorch_python or pytorch_build, or give a lock file of your own (pytorch_lock_file)"
    return (
        "Choose another pytorch_build, install a newer driver, or give a lock file of your own (pytorch_lock_file); "
        "where NVIDIA's forward compatibility package is in use, say which CUDA version it brings in pytorch_drivers"
    )
