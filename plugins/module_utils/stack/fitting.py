# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages of the training stack work with a PyTorch and a Python, and which releases of Apex with a CUDA. Pure.

An entry of a package has it in ``fits``: ``torch`` and ``python`` as ranges such as ``>=2.6,<2.9``, ``cuda`` where it
needs a PyTorch for GPUs, ``because`` with the source, and ``instead`` with what is taken otherwise. Its ``versions``
are those that go with a PyTorch, by ``MAJOR.MINOR``; ``version`` goes with any other.
"""

from __future__ import annotations

import itertools
import operator
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.cuda_driver import numbers

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
