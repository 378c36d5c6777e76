# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which versions of the training stack go together: driver and PyTorch, packages and PyTorch, Apex and CUDA. No I/O."""

from __future__ import annotations

import itertools
import operator
import re
import typing as t

# Which build of PyTorch a driver and its GPUs can run.
#
# Minimum drivers on Linux: CUDA Toolkit release notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA
# Minor Version Compatibility" (one per major) and "CUDA Toolkit and Corresponding Driver Versions" (one per release,
# of its first build), https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/. A driver that is older than a
# release's own runs its programs "with limited feature-set": what they compile to PTX at run time does not load, and
# calls that the driver lacks fail
# (https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html). A cubin runs on devices of the
# same major and the same or a higher minor compute capability (CUDA C++ Programming Guide, "Binary Compatibility").


CUDA_MAJORS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
CUDA_RELEASES = {
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
    least = CUDA_MAJORS.get(numbers(cuda)[0], "")
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
    least = CUDA_RELEASES.get(build.cuda)
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


# Which packages work with a PyTorch and a Python.
#
# An entry of a package has it in ``fits``: ``torch`` and ``python`` as ranges such as ``>=2.6,<2.9``, ``cuda`` where it
# needs a PyTorch for GPUs, ``because`` with the source, and ``instead`` with what is taken otherwise. Its ``versions``
# are those that go with a PyTorch, by ``MAJOR.MINOR``; ``version`` goes with any other.


_COMPARE: t.Mapping[str, t.Callable[[t.Any, t.Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_PART = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)")
_WHAT = {"torch": "PyTorch", "python": "Python"}


class FittingError(ValueError):
    """A range is none; the text is fit for the user."""


def within(version: str, wanted: str) -> bool:
    """Say whether a version is in a range; local versions such as 2.13.0+cpu count as their public ones."""
    own = numbers(version.partition("+")[0])
    for text in filter(None, (part.strip() for part in wanted.split(","))):
        match = _PART.fullmatch(text)
        if not match:
            raise FittingError(f"{wanted!r} is no range of versions such as '>=2.6,<2.9'")
        pairs = list(itertools.zip_longest(own, numbers(match[2]), fillvalue=0))
        if not _COMPARE[match[1]]([mine for mine, dummy in pairs], [theirs for dummy, theirs in pairs]):
            return False
    return True


def version_for(package: t.Mapping[str, t.Any], torch: str) -> str:
    """Return the version of a package that goes with a PyTorch."""
    minor = ".".join(map(str, numbers(torch.partition("+")[0])[:2]))
    return str((package.get("versions") or {}).get(minor, package["version"]))


def for_cpus(torch: str) -> bool:
    return torch.endswith("+cpu")


def misfits(
    packages: t.Iterable[t.Mapping[str, t.Any]], torch: str, python: str, builds: t.Mapping[str, str]
) -> list[str]:
    """Say what cannot work, and the nearest that does; ``builds`` are the known builds' versions of PyTorch."""
    problems = []
    for package in packages:
        fits = package.get("fits") or {}
        unknown = set(fits) - {*_WHAT, "cuda", "because", "instead"}
        if unknown:
            raise FittingError(f"fits of {package['name']} has unknown {', '.join(sorted(unknown))}")
        for kind, version in (("torch", torch), ("python", python)):
            wanted = str(fits.get(kind) or "")
            cuda = kind == "torch" and bool(fits.get("cuda"))
            if not within(version, wanted) or (cuda and for_cpus(version)):
                nearest = _nearest(wanted, torch, builds, cuda) if kind == "torch" else "pytorch_python chooses another"
                what = f"{_WHAT[kind]}{' for CUDA' if cuda else ''} {wanted}".rstrip()
                about = [
                    f"{package['name']} {version_for(package, torch)} needs {what}, the environment has {version}",
                    *([str(fits["because"])] if fits.get("because") else []),
                    nearest,
                    *([str(fits["instead"])] if fits.get("instead") else []),
                ]
                problems.append(". ".join(about))
    return problems


def _nearest(wanted: str, torch: str, builds: t.Mapping[str, str], cuda: bool) -> str:
    """Name the build whose PyTorch is the nearest one in the range: the newest below, else the oldest above."""
    good = sorted(
        (numbers(version.partition("+")[0]), name, version)
        for name, version in builds.items()
        if within(version, wanted) and not (cuda and for_cpus(version))
    )
    if not good:
        return f"none of the known builds has such a PyTorch ({', '.join(f'{k}: {v}' for k, v in builds.items())})"
    below = [row for row in good if row[0] <= numbers(torch.partition("+")[0])]
    dummy, name, version = below[-1] if below else good[0]
    return f"The nearest build that has is {name}, with {version} (pytorch_build)"


# Which release of Apex works with which PyTorch and CUDA. Apex says it nowhere; it is known by what had to be mended in
# it. A source that is not listed is not judged. ``make check-stack`` compares the list with a clone of Apex.


class ApexFault(t.NamedTuple):
    """What does not work until a commit has mended it; no extensions: nothing of Apex does."""

    extensions: frozenset[str]
    kind: str  # torch or cuda
    works: str
    mended: str
    because: str


class ApexRelease(t.NamedTuple):
    """A release of Apex; the first so many of the faults are mended in it."""

    name: str
    mended: int


# By the date of what mended them.
APEX_FAULTS = (
    ApexFault(
        frozenset(),
        "torch",
        "<2.0",
        "6943fd26e04c59327de32592cf5af68be8f5c44e",
        "it imports torch._six, which PyTorch has no more since 2.0 (https://github.com/NVIDIA/apex/pull/1588)",
    ),
    ApexFault(
        frozenset({"cuda_ext", "fast_layer_norm", "fast_multihead_attn"}),
        "cuda",
        "<13.0",
        "26bba57d62553d268319b4a20cc3d8aa990249ec",
        "its setup.py asks nvcc for compute_70, which CUDA 13 has no more (https://github.com/NVIDIA/apex/pull/1918)",
    ),
    ApexFault(
        frozenset({"distributed_adam"}),
        "torch",
        "<2.12",
        "f199212da7234bf9be2244cad5b9bfa2f5fe2675",
        "PyTorch compiles extensions as C++20 since 2.12, where its lerp is ambiguous "
        "(https://github.com/NVIDIA/apex/pull/1985)",
    ),
    ApexFault(
        frozenset({"group_norm"}),
        "torch",
        "<2.12",
        "1bcf66dc11c3f614d6a071b1bb39854189ea3110",
        "PyTorch's headers are C++20 since 2.12, and it is compiled as C++17 (https://github.com/NVIDIA/apex/pull/2006)",
    ),
)
# The tags, oldest first, and what the role builds.
APEX_RELEASES: t.Mapping[str, ApexRelease] = {
    "59978d5e37612606e2f9ef334a7687360fbaf19e": ApexRelease("22.03", 0),
    "0da3ffb92ee6fbe5336602f0e3989db1cd16f880": ApexRelease("23.05", 1),
    "4891351604914f40fabb889b34f92c43466e404d": ApexRelease("23.06", 1),
    "03fd633ed736cbda3b71adb466301e21138ae4f8": ApexRelease("23.07", 1),
    "bae1f93d033716dc9115a0baf7bcda328addabe9": ApexRelease("23.08", 1),
    "5b04afcf5ca59de87af4b3cb71afd52bdf4d490e": ApexRelease("23.09, 23.10", 1),
    "9fc94b7d6db1b178adf9a6e92750f070dd9f825d": ApexRelease("23.11", 1),
    "acd89502dd5d6d733c29e6c6df3945ddaf8e509e": ApexRelease("23.12, 24.01", 1),
    "48c4894c4b38b2b77cd7a0473ca665e89c9c148b": ApexRelease("24.02", 1),
    "b496d85fb88a801d8e680872a12822de310951fd": ApexRelease("24.03, 24.04", 1),
    "4138d31ff0acf4071d1dc001ccb7cd6e00800324": ApexRelease("24.04.01", 1),
    "810ffae374a2b9cb4b5c5e28eaeca7d7998fca0c": ApexRelease("24.05", 1),
    "a7de60e57f0534266841e1733262601ad76aaa74": ApexRelease("24.06, 24.07", 1),
    "23c1f86520e22b505e8fdfcf6298273dff2d93d8": ApexRelease("24.08", 1),
    "59b80ee8df79cec125794949327f29913c328746": ApexRelease("24.09", 1),
    "b7a4acc1c8599f9306b519c9a88c044f1b280a07": ApexRelease("24.10", 1),
    "e13011fafb65fe8edc503dbc8638b316bc27e2d0": ApexRelease("24.11", 1),
    "e552ad997605dd883825106776eba230a6820345": ApexRelease("25.01", 1),
    "73375b3bbcb59a5d6ff43f2fafd00b9ecdbe0417": ApexRelease("25.02", 1),
    "b216eeee7dd91478745496919e9c0167cc4c41e3": ApexRelease("25.03", 1),
    "e13873debc4699d39c6861074b9a3b2a02327f92": ApexRelease("25.04", 1),
    "379937e1719b8190f38f3e666e2a8d32c97e221f": ApexRelease("25.05", 1),
    "e74a67bba3ee679f778670e17edc21639008ae0a": ApexRelease("25.07, 25.08", 1),
    "4bdecd06b3c4b2c0a8fb6603829a8f9f05a42b49": ApexRelease("25.09", 1),
    "6424da3b4faa6c8f062da4a48c424fff3f02d42d": ApexRelease("main of 2026-07-08", len(APEX_FAULTS)),
}


def apex_misfits(commit: str, extensions: t.Collection[str], torch: str, cuda: str) -> list[str]:
    """Say what of a release cannot work, and the oldest later release that has all of it."""
    faults = _apex_faults(commit, extensions, torch, cuda)
    if not faults:
        return []
    commits = list(APEX_RELEASES)
    later = commits[commits.index(commit) + 1 :]
    good = next((other for other in later if not _apex_faults(other, extensions, torch, cuda)), "")
    nearest = f"The nearest that does is {APEX_RELEASES[good].name}, commit {good} (apex_source)" if good else ""
    about = {"torch": f"PyTorch {torch}", "cuda": f"CUDA {cuda}"}
    return [
        f"{_apex_names(fault.extensions.intersection(extensions))}Apex {APEX_RELEASES[commit].name} does not work with "
        f"{about[fault.kind]}: {fault.because}"
        for fault in faults
    ] + ([nearest] if nearest else [])


def _apex_names(extensions: t.Iterable[str]) -> str:
    listed = " and ".join(sorted(extensions))
    return f"{listed} of " if listed else ""


def _apex_faults(commit: str, extensions: t.Collection[str], torch: str, cuda: str) -> list[ApexFault]:
    release = APEX_RELEASES.get(commit)
    has = {"torch": torch, "cuda": cuda}
    return [
        fault
        for fault in (APEX_FAULTS[release.mended :] if release else ())
        if (not fault.extensions or fault.extensions.intersection(extensions))
        and has[fault.kind]
        and not within(has[fault.kind], fault.works)
    ]
