# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages of the training stack work with a PyTorch and a Python. Pure.

An entry has it in ``fits``: ``torch`` and ``python`` as ranges such as ``>=2.6,<2.9``, ``cuda`` where it needs a
PyTorch for GPUs, ``because`` with the source, and ``instead`` with what is taken otherwise. Its ``versions`` are those
that go with a PyTorch, by ``MAJOR.MINOR``; ``version`` goes with any other.
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
