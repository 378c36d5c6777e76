# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which build of PyTorch a driver and its GPUs can run: no I/O, no AnsibleModule, private.

Minimum drivers on Linux: CUDA Toolkit release notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor
Version Compatibility" (one per major) and "CUDA Toolkit and Corresponding Driver Versions" (one per release, of its
first build), https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/. A cubin runs on devices of the same major and
the same or a higher minor compute capability (CUDA C++ Programming Guide, "Binary Compatibility").
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
    """An environment cannot be had as asked; the text is fit for the user."""


class CudaBuild(t.NamedTuple):
    """PyTorch as one lock file holds it; ``cuda`` is empty for the processor, None when only the build will tell.

    ``indexes`` are where it is found besides the usual places.
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


def builds(given: t.Mapping[str, t.Mapping[str, t.Any]]) -> dict[str, CudaBuild]:
    found = {}
    for name, one in given.items():
        unknown = set(one) - set(CudaBuild._fields)
        if unknown or "lock" not in one:
            said = f"has unknown {', '.join(sorted(unknown))}" if unknown else "has no lock"
            raise EnvironmentRefused(f"build {name} {said}; known: {', '.join(CudaBuild._fields[1:])}")
        found[name] = CudaBuild(**{**one, "name": name})
    return found


def drivers(given: t.Iterable[t.Mapping[str, t.Any]]) -> list[Driver]:
    """Read drivers that are either described, or answers of nvidia-smi (``text``, see the module)."""
    return [_answer(one) if "text" in one else _described(one) for one in given]


def _described(one: t.Mapping[str, t.Any]) -> Driver:
    version = str(one.get("version") or "")
    if not re.fullmatch(r"\d+(\.\d+)+", version):
        raise EnvironmentRefused(f"a driver needs its version, such as 580.65.06; given: {dict(one)}")
    capabilities = [str(item) for item in one.get("capabilities") or []]
    return Driver(str(one.get("host") or "the given driver"), version, capabilities, str(one.get("cuda") or ""))


def _answer(one: t.Mapping[str, t.Any]) -> Driver:
    text = str(one["text"])
    found = re.findall(r"^\s*(\d+(?:\.\d+)+)[-\w]*\s*,\s*(\d+\.\d+)\s*$", text, re.MULTILINE)
    if not found:
        raise EnvironmentRefused(
            f"the driver of {one.get('host')} is not known, nvidia-smi said: {text.strip()[:300] or 'nothing'}. "
            "Repair it, say what nodes have (pytorch_drivers), or choose a build that needs none (pytorch_build: cpu)"
        )
    return Driver(str(one.get("host")), found[0][0], sorted({capability for dummy, capability in found}))


def choose(
    known: t.Mapping[str, CudaBuild], asked: str, seen: t.Sequence[Driver], python: str, machine: str
) -> tuple[CudaBuild, str]:
    """Return the build to use and why; raises EnvironmentRefused with all that is against it."""
    if asked != AUTO:
        if asked not in known:
            raise EnvironmentRefused(f"there is no build {asked}; known: {AUTO}, {', '.join(known)}")
        _refuse(known[asked], against(known[asked], seen, python, machine), seen)
        return known[asked], "asked for"
    wanted = [one for one in known.values() if (one.cuda != "") == bool(seen)] or list(known.values())
    fit = {one.name: against(one, seen, python, machine) for one in wanted}
    good = [one for one in wanted if not fit[one.name]]
    if not good:
        said = "; ".join(f"{name}: {', '.join(reasons)}" for name, reasons in fit.items())
        raise EnvironmentRefused(f"no build fits {_who(seen)}. {said}. {_advice(seen)}")
    if not seen:
        return good[0], "no GPU driver is known"
    whole = [one for one in good if all(native(one, driver) for driver in seen)]
    best = max(whole or good, key=lambda one: numbers(one.cuda or "0"))
    how = "natively" if whole else "by minor version compatibility"
    return best, f"the newest that {_who(seen)} runs {how}"


def against(build: CudaBuild, seen: t.Sequence[Driver], python: str, machine: str) -> list[str]:
    """Return what is against a build here; empty when nothing is."""
    found = []
    if build.pythons and python and python not in build.pythons:
        found.append(f"it is locked for Python {', '.join(build.pythons)}, not {python}")
    if build.machines and machine not in build.machines:
        found.append(f"it is locked for {', '.join(build.machines)}, not {machine}")
    return found + [reason for driver in seen for reason in driver_problems(build.cuda, build.capabilities, driver)]


def driver_problems(cuda: str | None, capabilities: t.Sequence[str], driver: Driver) -> list[str]:
    """Say why a driver or its GPUs cannot run code of a CUDA version that was compiled for some GPUs."""
    if not cuda:
        return []
    found = []
    least = MAJORS.get(numbers(cuda)[0], "")
    by_cuda = driver.cuda and numbers(driver.cuda)[0] >= numbers(cuda)[0]
    if not by_cuda and (not least or numbers(driver.version) < numbers(least)):
        need = f"driver {least} or newer" if least else "a driver that this collection does not know"
        found.append(f"CUDA {cuda} needs {need}, {driver.host} has driver {driver.version}")
    lacking = [one for one in driver.capabilities if capabilities and not covered(one, capabilities)]
    if lacking:
        holds = ", ".join(capabilities)
        found.append(f"it has code for GPUs of compute capability {holds}, {driver.host} has {', '.join(lacking)}")
    return found


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
    return any(numbers(one)[0] == major and numbers(one)[1] <= minor for one in compiled)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _refuse(build: CudaBuild, reasons: t.Sequence[str], seen: t.Sequence[Driver]) -> None:
    if reasons:
        raise EnvironmentRefused(f"build {build.name} cannot be used: {'; '.join(reasons)}. {_advice(seen)}")


def _who(seen: t.Sequence[Driver]) -> str:
    return " and ".join(sorted({f"driver {one.version}" for one in seen})) or "this host"


def _advice(seen: t.Sequence[Driver]) -> str:
    if not seen:
        return "Choose another pytorch_python or pytorch_build, or give a lock file of your own (pytorch_lock_file)"
    return (
        "Choose another pytorch_build, install a newer driver, or give a lock file of your own (pytorch_lock_file); "
        "where NVIDIA's forward compatibility package is in use, say which CUDA version it brings in pytorch_drivers"
    )
